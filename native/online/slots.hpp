// Where trainers that change weights all the time keep them: one vector of slots.
//
//   [ flat weights, as everywhere | dense rows of columns with many labels | dense block, rows padded ]
//
// A weight lives in one slot: that of its row where its column has one (so that the gather reads whole vectors), else
// that of its place in the flat vector. Whatever a trainer keeps beside each weight (sums for averages, variances,
// squared gradients) is a vector of the same slots. The slots of a column are one stretch, a Range.
#pragma once
#include <vector>

#include "chain/model.hpp"

namespace crfield {

struct Range {
  int64_t first = 0, last = 0;  // slots
  int64_t unit = 0;             // number of the column, edge column or common part that they belong to
  bool penalised = true;
};

class Slots {
 public:
  explicit Slots(const Model& m, bool penalise_intercepts);

  int64_t size() const { return size_; }
  int64_t units() const { return m_.columns + m_.edge_columns + (int64_t)common_.size(); }
  void spread(const double* flat, double* slots) const;
  void collect(const double* slots, double* flat) const;
  Range column(int64_t c) const;
  Range edge_column(int64_t c) const;
  // dense block; bias, start and end; transitions; dense block of the edges: parts of every sequence
  const std::vector<Range>& common() const { return common_; }
  // Gradients of pairs without a weight, which scattering whole rows leaves behind, are removed.
  void mask(const Range& r, double* x) const {
    if (has_.empty() || r.first < at_rows_ || r.first >= at_dense_) return;
    const uint8_t* has = has_.data() + (r.first - at_rows_);
    for (int64_t k = r.first; k < r.last; k++) x[k] *= has[k - r.first];
  }
  // x(c, label) += value, where that pair has a weight
  void add(double* x, int64_t c, int label, double value) const {
    if (m_.direct) {
      x[c * m_.labels + label] += value;
      return;
    }
    const int64_t row = m_.row_of_column[c];
    if (row >= 0) {
      x[at_rows_ + row * m_.stride + label] += value * has_[row * m_.stride + label];
      return;
    }
    for (int64_t f = m_.feature_ptr[c]; f < m_.feature_ptr[c + 1]; f++)
      if (m_.feature_label[f] == label) x[f] += value;
  }
  // x(c, ·) += value · row (L), to be masked later
  void add_row(double* x, int64_t c, const double* row, double value) const {
    if (!m_.direct && m_.row_of_column[c] < 0) {
      for (int64_t f = m_.feature_ptr[c]; f < m_.feature_ptr[c + 1]; f++) x[f] += value * row[m_.feature_label[f]];
      return;
    }
    double* to = x + (m_.direct ? c * m_.labels : at_rows_ + (int64_t)m_.row_of_column[c] * m_.stride);
    for (int j = 0; j < m_.labels; j++) to[j] += value * row[j];
  }
  double* dense(double* slots) const { return slots + at_dense_; }
  NodeWeights node(const double* slots) const;

 private:
  const Model& m_;
  int64_t at_rows_ = 0, at_dense_ = 0, size_ = 0;
  std::vector<uint8_t> has_;  // (rows, stride) whether a slot of a row is a weight
  std::vector<Range> common_;
};

}  // namespace crfield
