#include "online/slots.hpp"

#include <cstring>

namespace crfield {

Slots::Slots(const Model& m, bool penalise_intercepts) : m_(m) {
  at_rows_ = (m.n_weights + 8 + 7) / 8 * 8;  // whole vectors are read past the last of direct rows
  at_dense_ = at_rows_ + (m.direct ? 0 : m.rows() * m.stride);
  size_ = at_dense_ + m.n_dense * m.stride + 8;
  if (!m.direct) {
    has_.assign((size_t)(m.rows() * m.stride), 0);
    for (int64_t r = 0; r < m.rows(); r++) {
      const int64_t c = m.column_of_row[r], first = m.first_feature(c);
      for (int64_t f = first; f < m.first_feature(c + 1); f++)
        has_[r * m.stride + (m.all_pairs ? f - first : m.feature_label[f])] = 1;
    }
  }
  const int64_t unit = m.columns + m.edge_columns;
  common_ = {Range{at_dense_, at_dense_ + m.n_dense * m.stride, unit, true},
             Range{m.at_bias, m.at_pairs, unit + 1, penalise_intercepts}, Range{m.at_pairs, m.at_edge, unit + 2, true},
             Range{m.at_edge_dense, m.n_weights, unit + 3, true}};
}

void Slots::spread(const double* flat, double* slots) const {
  std::memset(slots, 0, sizeof(double) * size_);
  std::memcpy(slots, flat, sizeof(double) * m_.n_weights);
  for (int64_t r = 0; !m_.direct && r < m_.rows(); r++) {
    const int64_t c = m_.column_of_row[r], first = m_.first_feature(c);
    double* row = slots + at_rows_ + r * m_.stride;
    for (int64_t f = first; f < m_.first_feature(c + 1); f++) row[m_.all_pairs ? f - first : m_.feature_label[f]] = flat[f];
  }
  for (int64_t d = 0; d < m_.n_dense; d++)
    std::memcpy(dense(slots) + d * m_.stride, flat + m_.at_dense + d * m_.labels, sizeof(double) * m_.labels);
}

void Slots::collect(const double* slots, double* flat) const {
  std::memcpy(flat, slots, sizeof(double) * m_.n_weights);
  for (int64_t r = 0; !m_.direct && r < m_.rows(); r++) {
    const int64_t c = m_.column_of_row[r], first = m_.first_feature(c);
    const double* row = slots + at_rows_ + r * m_.stride;
    for (int64_t f = first; f < m_.first_feature(c + 1); f++) flat[f] = row[m_.all_pairs ? f - first : m_.feature_label[f]];
  }
  for (int64_t d = 0; d < m_.n_dense; d++)
    std::memcpy(flat + m_.at_dense + d * m_.labels, slots + at_dense_ + d * m_.stride, sizeof(double) * m_.labels);
}

Range Slots::column(int64_t c) const {
  if (m_.direct) return {c * m_.labels, (c + 1) * m_.labels, c, true};
  const int64_t row = m_.row_of_column[c];
  if (row >= 0) return {at_rows_ + row * m_.stride, at_rows_ + (row + 1) * m_.stride, c, true};
  return {m_.feature_ptr[c], m_.feature_ptr[c + 1], c, true};
}

Range Slots::edge_column(int64_t c) const {
  const int64_t square = (int64_t)m_.labels * m_.labels;
  if (m_.all_edge_pairs) return {m_.at_edge + c * square, m_.at_edge + (c + 1) * square, m_.columns + c, true};
  return {m_.at_edge + m_.edge_ptr[c], m_.at_edge + m_.edge_ptr[c + 1], m_.columns + c, true};
}

NodeWeights Slots::node(const double* slots) const {
  NodeWeights n;
  n.labels = m_.labels;
  n.stride = m_.stride;
  n.rows = m_.direct ? slots : slots + at_rows_;
  n.row_stride = m_.row_stride();
  n.single = slots;
  n.feature_ptr = m_.feature_ptr.data();
  n.feature_label = m_.feature_label.data();
  n.dense = slots + at_dense_;
  n.n_dense = m_.n_dense;
  return n;
}

}  // namespace crfield
