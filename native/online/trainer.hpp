// Trainers that go from sequence to sequence and change weights as they go.
//
// A step costs what its sequence holds: only columns that are there are read, brought up to date and changed.
// Everything is sequential; the same order gives the same bits.
#pragma once
#include <cmath>
#include <memory>
#include <stdexcept>
#include <vector>

#include "chain/model.hpp"
#include "chain/pack.hpp"
#include "memory.hpp"
#include "online/slots.hpp"

namespace crfield {

// What is trained: sums over all paths (LIKELIHOOD, SOFTMAX_MARGIN) or the best one (PERCEPTRON, HINGE); the second
// and the last with the costs of errors added to scores.
enum class Loss { LIKELIHOOD = 0, SOFTMAX_MARGIN = 1, PERCEPTRON = 2, HINGE = 3 };

// A labelled batch; views must outlive the trainer.
struct Gold {
  const int32_t* labels = nullptr;    // (N) or -1 where `allowed` decides
  const uint8_t* allowed = nullptr;   // (N, L) or null
  const double* weight = nullptr;     // (B) or null
  const double* cost = nullptr;       // (N, L) or null: one for each label that is not allowed
};

struct Met {
  double loss = 0;       // met on the way, each sequence at the weights of its visit
  int64_t mistakes = 0;  // sequences that changed weights (best path), or of positive loss
  double missing = 0;    // Frank–Wolfe: by how much the mixtures fell short
};

// What a sequence's gold labels score: -inf where fixed scores forbid them all, not finite where weights ran away.
inline void check_total(double total) {
  if (total == -INFINITY) throw std::invalid_argument("what is allowed of a sequence is forbidden by fixed scores");
  if (!std::isfinite(total)) throw std::invalid_argument("scores are not finite any more");
}

class Trainer {
 public:
  Trainer(std::unique_ptr<const Model> model, BatchView batch, const Gold& gold, const double* weights,
          bool penalise_intercepts);

  const Model& model() const { return *m_; }
  void weights(double* flat) const { slots_.collect(w_.data(), flat); }
  // Mean of the weights after each visit so far, of trainers that count it.
  void average(double* flat) const;
  // A new start: all that trainers keep beside the weights is forgotten.
  void set_weights(const double* flat);
  // Σ_s weight_s loss_s at given weights; nothing changes.
  double evaluate(const double* flat, Loss loss);

  Met perceptron(const int64_t* order, int64_t n);
  // variant 0: PA, 1: PA-I, 2: PA-II
  Met passive_aggressive(const int64_t* order, int64_t n, int variant, double aggressiveness);
  Met arow(const int64_t* order, int64_t n, double regularity);
  // rates: one for each `batch` sequences; l1 and l2 are those of the whole objective
  Met descend(const int64_t* order, int64_t n, const double* rates, int batch, Loss loss, double l1, double l2);
  Met adagrad(const int64_t* order, int64_t n, double rate, int batch, Loss loss, double l1, double l2);
  // Pairwise block-coordinate steps on the dual of the hinge with a ridge; the weights must be those it made.
  // A visit makes up to `steps` of them, each from a new best labelling.
  Met frank_wolfe(const int64_t* order, int64_t n, double l2, int steps);
  // Σ of what the labellings in the mixtures cost: the dual is this less the ridge
  double mixture_cost() const;

 private:
  struct Plane {
    std::vector<int32_t> path;
    double share = 0, cost = 0;
  };
  struct Choice {
    double loss = 0;          // best less gold, both as scored with their costs
    bool wrong = false;
    const int32_t *best = nullptr, *gold = nullptr;
  };
  enum class Rule { SGD, ADAGRAD };

  double weight_of(int64_t s) const { return gold_.weight ? gold_.weight[s] : 1.0; }
  double cost_of(int64_t node, int label) const;
  bool allows(int64_t node, int label) const;
  int64_t steps_of(int64_t s) const { return x_.offsets[s + 1] - x_.offsets[s]; }
  void check_order(const int64_t* order, int64_t n) const;
  void refresh();
  double* score_sequence(int64_t s);
  double path_score(int64_t s, const double* score, const int32_t* path) const;
  double decode(int64_t s, double* score, int32_t* path);
  Choice choose(int64_t s, bool margin);
  void raise(int64_t s, double* score) const;
  double distance(int64_t s, const int32_t* path) const;

  void begin_step() { touched_.clear(), tick_++; }
  void touch(const Range& r) {
    if (stamp_[r.unit] == tick_) return;
    stamp_[r.unit] = tick_;
    touched_.push_back(r);
  }
  void touch_sequence(int64_t s);
  void add_difference(int64_t s, const int32_t* up, const int32_t* down, double amount);
  void add_beliefs(int64_t s, const double* belief, int64_t apart, const int64_t* start, int b);
  void move(double by);
  double squared_norm();
  double sum_gradient(const int64_t* sequences, int n, bool margin, bool keep);
  template <class Update>
  Met mistakes(const int64_t* order, int64_t n, Update update);
  Met steps(const int64_t* order, int64_t n, Rule rule, const double* rates, int batch, Loss loss, double l1, double l2);
  void catch_up(const Range& r, Rule rule);
  void settle(Rule rule);

  std::unique_ptr<const Model> m_;
  BatchView x_;
  Gold gold_;
  Slots slots_;
  Buffer<double> w_, change_, late_, variance_, squares_, received_;
  double visits_ = 1;
  std::vector<int64_t> stamp_;
  int64_t tick_ = 0;
  std::vector<Range> touched_;
  std::vector<int32_t> place_;  // (L, L) transition of a pair or -1

  // what decoding reads, made from the weights by refresh()
  Buffer<double> base_, log_, log_t_, table_;
  std::vector<double> ends_spare_;
  const double* ends_ = nullptr;
  Buffer<double> score_, second_;
  std::vector<int32_t> best_, truth_;
  Loaded loaded_;
  Scratch scratch_;
  Buffer<double> counts_, direct_, pair_counts_, free_;

  // lazy penalties
  std::vector<double> seen_;     // (units) the clock when a unit was last brought up to date
  double shrink_clock_ = 0;      // SGD: log of all shrinking so far; AdaGrad: steps so far
  double push_clock_ = 0;        // SGD: all of the l1 penalty so far
  double lazy_l1_ = 0, lazy_l2_ = 0, lazy_rate_ = 0;
  std::vector<std::vector<Plane>> planes_;
};

}  // namespace crfield
