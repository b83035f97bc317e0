// A linear chain model: where each weight lives in the flat vector, and the weights laid out for the kernels.
//
//   [ node features | dense block (D, L) | bias (L) | start (L) | end (L) | transitions | edge features |
//     edge dense block (DE, L, L) ]
//
// Node features are (column, label) pairs sorted by column: all pairs, or those listed. Transitions and edge
// features are pairs of labels i * L + j, all or listed. Fixed scores are constants beside what the weights make.
#pragma once
#include <string>
#include <vector>

#include "chain/contract.hpp"
#include "chain/pack.hpp"
#include "memory.hpp"

namespace crfield {

struct Model {
  const Kernels* k = nullptr;
  int labels = 0, stride = 0;
  int64_t columns = 0, n_dense = 0, edge_columns = 0, n_edge_dense = 0;
  bool all_pairs = false, bias = false, boundaries = false, all_edge_pairs = false;
  std::vector<int64_t> feature_ptr;    // (A + 1), empty when all_pairs
  std::vector<int32_t> feature_label;  // (F)
  std::vector<int32_t> pairs;          // (P) sorted
  std::vector<int64_t> edge_ptr;       // (AE + 1), empty when all_edge_pairs
  std::vector<int32_t> edge_pair;      // (FE)
  std::vector<int32_t> edge_place;     // (FE) the same pairs as places in a padded table, i * stride + j
  std::vector<int32_t> pair_place;     // (P) and the transitions
  int64_t at_dense = 0, at_bias = 0, at_start = 0, at_end = 0, at_pairs = 0, at_edge = 0, at_edge_dense = 0;
  int64_t n_weights = 0;

  std::vector<double> fixed_edge, fixed_ends;  // (L, L) and start, end (2 L), finite or -inf; empty without

  bool direct = false;                 // all pairs, rows read straight from the flat vector
  std::vector<int32_t> row_of_column;  // (A) dense row or -1; empty when direct
  std::vector<int64_t> column_of_row;

  Model(int labels, int64_t columns, std::vector<int64_t> feature_ptr, std::vector<int32_t> feature_label,
        bool all_pairs, int64_t n_dense, bool bias, bool boundaries, std::vector<int32_t> pairs,
        int64_t edge_columns, std::vector<int64_t> edge_ptr, std::vector<int32_t> edge_pair, bool all_edge_pairs,
        int64_t n_edge_dense);

  void fix(std::vector<double> edge, std::vector<double> start, std::vector<double> end);
  // Scores of first and last steps (2 L) under weights w, kept in `spare` if need be; null where there are none.
  const double* ends(const double* w, std::vector<double>& spare) const;
  bool fixed() const { return !fixed_edge.empty(); }
  int64_t rows() const { return direct ? columns : (int64_t)column_of_row.size(); }
  int64_t row_stride() const { return direct ? labels : stride; }
  bool edge_features() const { return edge_columns > 0 || n_edge_dense > 0; }
  int64_t first_feature(int64_t column) const { return all_pairs ? column * labels : feature_ptr[column]; }
};

// Weights as the kernels read them. `w` must outlive it.
class Loaded {
 public:
  // Room is left for `more` rows: after the dense rows of the model, or alone where those are the flat weights.
  // In single precision if that is asked for and possible (`single`), unless rows are the flat weights.
  void set(const Model& m, const double* w, int n_jobs, int64_t more = 0, bool single = false);
  NodeWeights node(const Model& m) const;
  const double* base() const { return base_.data(); }
  double* rows() { return rows_.data(); }
  bool single() const { return single_; }
  float* float_rows() { return float_rows_.data(); }
  double largest() const { return largest_; }  // |weight| of a column, where `single`
  double* dense() { return dense_.data(); }
  const OwnedTable& edges() const { return table_; }
  void set_edges(const Model& m, const double* pair_weights);
  const double* w = nullptr;

 private:
  bool single_fits(const Model& m);
  Buffer<double> rows_, dense_, base_;
  Buffer<float> float_rows_, float_single_;
  double largest_ = 0;
  bool has_merged_ = false, single_ = false;
  std::vector<double> log_;
  OwnedTable table_;
};

// One batch of encoded rows as handed in, after validation.
struct BatchView {
  int64_t sequences = 0, nodes = 0, edges = 0;
  const int64_t* offsets = nullptr;
  const int64_t* indptr = nullptr;
  const int32_t* indices = nullptr;
  const double* values = nullptr;
  const double* dense = nullptr;
  const int64_t* edge_indptr = nullptr;
  const int32_t* edge_indices = nullptr;
  const double* edge_values = nullptr;
  const double* edge_dense = nullptr;
  std::vector<int64_t> edge_offsets;
};

// Edge tables of single positions: T(i, j) + Σ_k x_k W_k(i, j); expectations are added to `gradient`, which holds
// the weights from at_pairs on.
class FeatureEdges : public EdgeSource {
 public:
  FeatureEdges(const Model& m, const BatchView& x, const double* w, const double* log, double* gradient)
      : m_(m), x_(x), w_(w), log_(log), gradient_(gradient) {}
  void fill(int64_t edge, double* table) const override;
  void take(int64_t edge, const double* expected, double factor) const override;
  double score(int64_t edge, int i, int j) const;                       // one entry of the table
  void count(int64_t edge, int i, int j, double amount) const;          // gradient of one entry

 private:
  template <class Visit>
  void each_weight(int64_t edge, Visit visit) const;
  const Model& m_;
  const BatchView& x_;
  const double *w_, *log_;
  double* gradient_;
};

// Scores of rows [row, row + n) straight from the CSR arrays (for prediction, where nothing is packed).
void score_rows(const Model& m, const NodeWeights& w, const double* base, const BatchView& x, int64_t row, int64_t n,
                double* score);

}  // namespace crfield
