// The fused objective: negative log-likelihood of a packed, labelled batch and its gradient in the weights.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "chain/merge_rows.hpp"
#include "chain/model.hpp"

namespace crfield {

// What one epoch of stochastic descent needs to know.
struct Epoch {
  double step = 0;      // the size of step number n is step / (1 + n / horizon)
  double done = 0;      // steps done before this epoch
  double horizon = 1;
  double l2 = 0;        // ridge of the whole objective
};

struct PackedArrays;

class Problem {
  struct Part;  // one thread's memory
  struct Call;  // one call's memory, kept for the next

 public:
  // A model and the memory of earlier calls, which the problems of that model may share.
  struct Workspace {
    explicit Workspace(std::shared_ptr<const Model> model);
    ~Workspace();
    const std::shared_ptr<const Model> model;
    std::mutex lock;
    std::vector<std::unique_ptr<Call>> idle;
  };

  ~Problem();
  Problem(std::shared_ptr<const Model> model, const BatchView& batch, const int32_t* labels, const uint8_t* allowed,
          const double* weight, int group_width);

  // Σ_s weight_s (log Z_s - total of what is allowed); gradient (n_weights) is overwritten.
  double evaluate(const double* w, double* gradient, int n_jobs) const;
  // The same in single precision but for sums, where that is possible; `error` is about how far the value may be off, or
  // zero where everything was done in double precision: problem_beside.cpp.
  double evaluate_single(const double* w, double* gradient, int n_jobs, double& error) const;
  // Diagonal of the curvature, near enough for a preconditioner: Σ x² p (1 - p) for node features.
  void curvature(const double* w, double* out, int n_jobs) const;
  // One pass of stochastic gradient steps over the groups in the given order; gives the loss met on the way.
  double descend(double* w, const int64_t* order, int64_t n_order, const Epoch& epoch) const;

  // Value and gradient summed over problems of one model: problem_sums.cpp.
  class Sums;

  // Everything that packing made, and a problem made of it again without packing or copying: packed.cpp.
  PackedArrays packed() const;
  static std::unique_ptr<Problem> restore(std::shared_ptr<Workspace> workspace, const PackedArrays& arrays, bool check);

  int64_t n_groups() const { return (int64_t)groups_.size(); }
  int64_t n_merged() const { return merged_.size(); }
  const Model& model() const { return *model_; }

 private:
  explicit Problem(std::shared_ptr<Workspace> workspace);
  friend class PrimalDual;
  enum class Mode { GRADIENT, CURVATURE };
  NodeRows rows() const;
  BatchView edge_view() const;
  void pack_rows(const BatchView& batch, const std::vector<int64_t>& node_of_row);
  void find_sets();
  void order_rows(std::vector<int32_t>& items);
  void pack_singles(const BatchView& batch, const std::vector<int64_t>& node_of_row);
  struct Shared {  // what all threads of a call read
    NodeRows plain, scattered;
    const double* boundary;
    Mode mode;
    double* out;
    bool single;
  };
  double one_group(const Group& g, const Loaded& loaded, const double* base, double scale, const double* boundary,
                   Part& part, Mode mode) const;
  template <class T>
  bool groups_beside(const Group* const* groups, int n, const Loaded& loaded, const double* boundary, Part& part,
                     const NodeGradient& out) const;
  int most_beside(size_t first, int shares, const Call& call, const Shared& shared, Part& part,
                  const NodeGradient& out) const;
  void gather_rounded(const Group& g, const NodeWeights& weights, const double* base, Part& part, double* score) const;
  static constexpr int SHARES = 2;
  static void clear_part(const Model& m, int share, int64_t merged, Part& part);
  void one_share(int share, int shares, const Call& call, const Shared& shared, Part& part) const;
  void fold_columns(const Part& part, int64_t from, int64_t to, bool first, double* out) const;
  void fold_rest(const Part& part, const EdgeTable& table, double* variance, double* out) const;
  void sum_merged(Loaded& loaded) const;
  void spread_merged(const NodeGradient& g) const;
  void square_values(Call& call, NodeRows& x) const;
  void share_variance(const std::vector<double>& variance, double* out) const;
  void run(const double* w, double* out, int n_jobs, Mode mode, double& value, double* error = nullptr) const;
  std::unique_ptr<Call> borrow(int parts) const;
  void give_back(std::unique_ptr<Call> call) const;

  std::shared_ptr<const Model> model_;
  std::vector<Group> groups_;
  struct Singles {  // columns of K single features: see SingleLists
    Buffer<int64_t> ptr;
    Buffer<int32_t> item;
    Buffer<uint16_t> short_cell;
    Buffer<uint32_t> long_cell;
    Buffer<double> value;
  };
  Singles singles_[SINGLES];
  Buffer<int64_t> row_ptr_, list_ptr_;
  Buffer<int32_t> row_item_, list_begin_, list_end_, gold_;
  Buffer<uint32_t> row_order_;
  Buffer<uint32_t> gold_cell_;  // of the rows of complete groups: row in the group * stride + gold label
  Buffer<double> row_value_, list_value_, dense_;
  bool values_ = false;
  MergedRows merged_;
  std::vector<uint8_t> allowed_;   // (rows of partial groups, L) in packed order, from first_partial_row_
  int64_t first_partial_row_ = 0;
  struct Sets {                    // of a group, or none: see LabelSets
    int size = 0;
    std::vector<int32_t> label, of;
  };
  std::vector<Sets> sets_;         // (G)
  std::vector<double> weight_;     // (B)
  bool weighted_ = false;
  std::vector<double> gold_pairs_;  // (P) weighted counts of gold transitions of complete sequences
  double gold_fixed_ = 0;           // weighted sum of the fixed scores of those transitions
  std::vector<int64_t> edge_offsets_;
  Buffer<int64_t> edge_indptr_;
  Buffer<int32_t> edge_indices_;
  Buffer<double> edge_values_, edge_dense_;
  std::shared_ptr<Workspace> workspace_;
  std::shared_ptr<const void> owner_;  // of borrowed memory
};

}  // namespace crfield
