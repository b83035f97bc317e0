// Primal–dual epochs over the sequences of a packed problem, with a table of stored marginals.
//
// The state of a run lies here in the form that steps read, in single precision: weight, dual and step size of a column
// are one stretch of memory. `crfield.kernels.dual` has the formulas.
#pragma once
#include <memory>
#include <vector>

#include "chain/problem.hpp"

namespace crfield {

// What a step does with its columns.
struct DualStep {
  double gamma = 1;  // share of the way to the present marginals
  double l1 = 0, l2 = 0;
  double rate = 0;   // of AdaGrad, whose sums of squares lie where step sizes do; 0: the step sizes
};

// One weight: a (column, label) feature without a dense row, or, in double precision, one that all sequences have.
template <class T>
struct Slot {
  T weight, dual, tau, share;  // share: 1 / sequences that have the column
  // In line always: no copy compiled for one level may serve another.
  __attribute__((always_inline)) void move(T change, const DualStep& step) {
    const T l2 = (T)step.l2, gamma = (T)step.gamma;
    T reach = tau;
    if (step.rate > 0) {
      const T g = change + l2 * weight * share;
      tau += g * g;
      reach = (T)step.rate / (T)__builtin_sqrt(tau);
      weight -= reach * g;
    } else {
      weight -= tau * (gamma * change + (dual + l2 * weight) * share);
    }
    if (step.l1 > 0) {
      const T by = reach * share * (T)step.l1;
      weight = weight > by ? weight - by : weight < -by ? weight + by : (T)0;
    }
    dual += gamma * change;
  }
};

// The columns of a sequence, each once, with the rows of the block that have it: first those met once, then the others.
struct DualLists {
  int64_t n_rows = 0, rows_once = 0, n_single = 0, single_once = 0;
  int64_t rows_ahead = 0, single_ahead = 0;                    // how far the lists go on, with those of the next sequences
  const int32_t *row = nullptr, *single = nullptr;             // dense row, feature
  const int32_t *row_ptr = nullptr, *single_ptr = nullptr;     // of the others, (n - once + 1) places in row_at, single_at
  const uint16_t* row_at = nullptr;                            // rows of the block
  const int32_t* single_at = nullptr;                          // row · stride + label
  const float *row_value = nullptr, *single_value = nullptr;   // null: all one
};

// Where they lead: blocks of weights, duals and step sizes, `stride` each.
struct DualSlots {
  int64_t stride = 0;
  float* block = nullptr;
  const float* share = nullptr;    // (rows)
  Slot<float>* single = nullptr;
};

// One sequence between its marginals and the table.
struct DualRows {
  int64_t steps = 0;
  int labels = 0, stride = 0;      // of beliefs
  int64_t wide = 0;                // of rows in single precision
  const int32_t *from = nullptr, *at = nullptr;  // (steps) rows of beliefs; of delta, table and gold
  const int32_t* gold = nullptr;
  double weight = 1;
};

// One table of functions per level, as `Kernels`.
struct DualKernels {
  int lanes;
  // score_r += Σ weights of the columns of row r
  void (*score)(const DualLists&, const DualSlots&, float* score);
  // Σ tau change², where the change of a column is the sum of the rows that have it
  double (*squares)(const DualLists&, const DualSlots&, const float* delta);
  // the same sums, of values squared, added to `rows` (stride each) and `single`
  void (*add)(const DualLists&, const DualSlots&, const float* delta, float* rows, float* single);
  // the changes in double precision, added to `rows` (stride each) and `single`
  void (*total)(const DualLists&, int64_t stride, const float* delta, double* rows, double* single);
  void (*move)(const DualLists&, const DualSlots&, const float* delta, const DualStep&);
  // delta = weight (belief - gold) - table; gives Σ delta log(p / q), with q the belief in the table, if asked
  double (*differ)(const DualRows&, const double* belief, const float* table, float* delta, bool distance);
  // table += gamma delta
  void (*mix)(const DualRows&, const float* delta, double gamma, float* table);
  // score += X W for W in blocks, and change += Xᵀ delta
  void (*score_dense)(const DualRows&, int64_t columns, const double* x, const float* block, float* score);
  void (*pull_dense)(const DualRows&, int64_t columns, const double* x, const float* delta, float* change);
  // counts (L, stride) += Σ A_k B_kᵀ over rows `step` apart
  void (*outer)(int64_t n, int labels, int stride, int64_t step, const double* A, const double* B, double* counts);
};

CRFIELD_OPTIONAL const DualKernels* dual_kernels_level0();
CRFIELD_OPTIONAL const DualKernels* dual_kernels_level2();
CRFIELD_OPTIONAL const DualKernels* dual_kernels_level3();
CRFIELD_OPTIONAL const DualKernels* dual_kernels_level4();

// What an epoch is told.
struct DualEpoch {
  bool adagrad = false;    // steps of AdaGrad, which fill the table on the way
  bool curvature = false;  // sum about the diagonal of the second derivative on the way
  bool lengths = true;     // find step lengths anew; else the last ones found serve
  double damping = 0.5, rate = 0.3, l1 = 0, l2 = 0;
};

class PrimalDual {
 public:
  // `width` sequences are swept together, at most, at the weights before the first of their steps.
  PrimalDual(const Problem& problem, const uint8_t* penalised, int width);

  // Steps for each block of the order; gives the loss met on the way.
  double epoch(const int64_t* order, int64_t n, const DualEpoch& options);

  int64_t n_rows() const { return n_rows_; }
  int64_t n_sequences() const { return n_sequences_; }
  int64_t n_blocks() const { return (int64_t)blocks_.size(); }
  const Model& model() const { return *p_.model_; }

  enum class What { WEIGHT, DUAL, TAU, SHARE };
  void set(What what, const double* flat);  // (W)
  void get(What what, double* flat) const;
  void get_curvature(double* out) const;    // (W) of the last epoch; 0 if that did not sum it
  double pull_table(double* out) const;     // (W) the dual vector that the table stands for; gives Σ entropy
  // Rows and sequences as they lie in blocks. node (rows, L): weight (belief - gold) as stored; pairs (sequences, P);
  // told (sequences, 2): entropy, and the ratio that a step length is made of
  void set_table(const float* node, const float* pairs, const double* told);
  void get_table(float* node, float* pairs, double* told) const;
  const std::vector<int64_t>& sequence_order() const { return order_; }

 private:
  struct Block {
    int64_t row = 0, rows = 0;       // of the table
    int64_t first = 0;               // sequence, in the order of blocks
    int steps = 0, width = 0;
    std::vector<int32_t> active;
    std::vector<int64_t> start;
    std::vector<int64_t> sequence;
    int length(int b) const {
      int t = steps;
      while (active[t - 1] <= b) t--;
      return t;
    }
  };
  void make_blocks(int width, std::vector<int64_t>& packed);
  void make_lists(const std::vector<int64_t>& packed);
  template <class Visit>
  void each_place(Visit visit) const;
  double value_at(What what, int64_t row, int64_t at) const;
  DualLists lists(int64_t sequence) const;
  DualLists dense_lists() const;
  DualSlots slots() const;
  double steps_of(const Block& block, const DualEpoch& options);
  Sweep infer(const Block& block, int first, int width);
  double step(const Block& block, int b, int first, const Sweep& s, const DualEpoch& options);

  const Problem& p_;
  const DualKernels* k_;
  std::vector<Block> blocks_;
  std::vector<int64_t> order_;         // sequences in the order of blocks
  int64_t n_rows_ = 0, n_sequences_ = 0, n_dense_rows_ = 0, wide_ = 0;
  struct From {  // where the lists of a sequence begin
    int64_t row = 0, row_ptr = 0, row_at = 0, single = 0, single_ptr = 0, single_at = 0, rows_once = 0, single_once = 0;
  };
  std::vector<From> from_;             // (sequences + 1)
  Buffer<int32_t> row_, row_ptr_, single_, single_ptr_, single_at_, gold_;
  Buffer<uint16_t> row_at_;
  Buffer<float> row_value_, single_value_;
  Buffer<double> dense_;               // in the order of blocks
  Buffer<float> block_, share_, table_, pair_table_;
  Buffer<Slot<float>> single_slot_;
  std::vector<Slot<double>> tail_;     // bias, start, end, transitions
  std::vector<double> ridge_;          // 1 where a weight of the tail is penalised, else 0
  std::vector<double> entropy_, ratio_;
  std::vector<int32_t> dense_row_, place_;
  std::vector<uint16_t> dense_at_;
  // scratch of a step, and sums of an epoch
  Scratch scratch_;
  Loaded loaded_;
  Buffer<float> score_, delta_, spread_, dense_change_, row_curve_, single_curve_;
  Buffer<double> kept_, counts_, direct_, pair_counts_;
  std::vector<double> flat_tail_, change_, met_, tail_curve_, variance_;
  std::vector<int32_t> at_, swept_, alone_;
  std::vector<int64_t> alone_start_;
};

}  // namespace crfield
