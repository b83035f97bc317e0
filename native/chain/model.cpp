#include "chain/model.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "threads.hpp"

namespace crfield {
namespace {

void check_lists(const char* what, int64_t columns, const std::vector<int64_t>& ptr, const std::vector<int32_t>& item,
                 int64_t limit) {
  bool good = (int64_t)ptr.size() == columns + 1 && ptr[0] == 0 && ptr.back() == (int64_t)item.size();
  for (int64_t c = 0; good && c < columns; c++) good = ptr[c] <= ptr[c + 1] && ptr[c + 1] <= (int64_t)item.size();
  for (int64_t c = 0; good && c < columns; c++)
    for (int64_t f = ptr[c]; good && f < ptr[c + 1]; f++)
      good = item[f] >= 0 && item[f] < limit && (f == ptr[c] || item[f - 1] < item[f]);
  if (!good) throw std::invalid_argument(std::string(what) + " must be sorted lists inside their range, one per column");
}

}  // namespace

Model::Model(int labels_, int64_t columns_, std::vector<int64_t> feature_ptr_, std::vector<int32_t> feature_label_,
             bool all_pairs_, int64_t n_dense_, bool bias_, bool boundaries_, std::vector<int32_t> pairs_,
             int64_t edge_columns_, std::vector<int64_t> edge_ptr_, std::vector<int32_t> edge_pair_,
             bool all_edge_pairs_, int64_t n_edge_dense_)
    : k(best_kernels()),
      labels(labels_),
      columns(columns_),
      n_dense(n_dense_),
      edge_columns(edge_columns_),
      n_edge_dense(n_edge_dense_),
      all_pairs(all_pairs_),
      bias(bias_),
      boundaries(boundaries_),
      all_edge_pairs(all_edge_pairs_),
      feature_ptr(std::move(feature_ptr_)),
      feature_label(std::move(feature_label_)),
      pairs(std::move(pairs_)),
      edge_ptr(std::move(edge_ptr_)),
      edge_pair(std::move(edge_pair_)) {
  if (labels < 1 || labels > 65535) throw std::invalid_argument("the number of labels must lie in 1 … 65535");
  if (columns < 0 || n_dense < 0 || edge_columns < 0 || n_edge_dense < 0 || columns > 2147483647)
    throw std::invalid_argument("the number of columns must lie in 0 … 2^31 - 1");
  stride = padded(labels, k);
  const int64_t square = (int64_t)labels * labels;
  if (!all_pairs) check_lists("feature labels", columns, feature_ptr, feature_label, labels);
  if (!all_edge_pairs) check_lists("edge feature pairs", edge_columns, edge_ptr, edge_pair, square);
  for (size_t p = 0; p < pairs.size(); p++)
    if (pairs[p] < 0 || pairs[p] >= square || (p && pairs[p - 1] >= pairs[p]))
      throw std::invalid_argument("transition pairs must be sorted and inside their range");
  auto places = [&](const std::vector<int32_t>& from) {
    std::vector<int32_t> out;
    for (int32_t pair : from) out.push_back(pair / labels * stride + pair % labels);
    return out;
  };
  edge_place = places(edge_pair);
  pair_place = places(pairs);
  at_dense = all_pairs ? columns * labels : (int64_t)feature_label.size();
  at_bias = at_dense + n_dense * labels;
  at_start = at_bias + (bias ? labels : 0);
  at_end = at_start + (boundaries ? labels : 0);
  at_pairs = at_end + (boundaries ? labels : 0);
  at_edge = at_pairs + (int64_t)pairs.size();
  at_edge_dense = at_edge + (all_edge_pairs ? edge_columns * square : (int64_t)edge_pair.size());
  n_weights = at_edge_dense + n_edge_dense * square;

  // Reading a whole vector past the last row must stay inside the flat weights.
  direct = all_pairs && n_weights - at_dense >= 8;
  if (!all_pairs && at_dense > 2147483647) throw std::invalid_argument("more than 2^31 node features");
  if (direct) return;
  const int threshold = std::max(2, (labels + 5) / 6);
  row_of_column.assign(columns, -1);
  for (int64_t c = 0; c < columns; c++) {
    const int64_t count = all_pairs ? labels : feature_ptr[c + 1] - feature_ptr[c];
    if (all_pairs || count >= threshold) {
      row_of_column[c] = (int32_t)column_of_row.size();
      column_of_row.push_back(c);
    }
  }
}

void Model::fix(std::vector<double> edge, std::vector<double> start, std::vector<double> end) {
  if ((int64_t)edge.size() != (int64_t)labels * labels || (int)start.size() != labels || (int)end.size() != labels)
    throw std::invalid_argument("fixed scores do not fit the labels");
  start.insert(start.end(), end.begin(), end.end());
  for (const std::vector<double>* scores : {&edge, &start})
    for (double x : *scores)
      if (!(x < std::numeric_limits<double>::infinity()))
        throw std::invalid_argument("fixed scores must be finite or -inf");
  fixed_edge = std::move(edge);
  fixed_ends = std::move(start);
}

const double* Model::ends(const double* w, std::vector<double>& spare) const {
  if (!fixed()) return boundaries ? w + at_start : nullptr;
  spare = fixed_ends;
  for (int j = 0; boundaries && j < 2 * labels; j++) spare[j] += w[at_start + j];
  return spare.data();
}

void Loaded::set(const Model& m, const double* weights, int n_jobs, int64_t more, bool single) {
  const double inf = std::numeric_limits<double>::infinity();
  w = weights;
  set_edges(m, w + m.at_pairs);
  single_ = single && single_fits(m);
  auto lay_out = [&](auto& rows) {
    rows.resize((m.rows() + more) * m.stride + 8);
    run_parts(n_jobs, [&](int part) {
      using T = std::remove_reference_t<decltype(rows[0])>;
      const int64_t from = m.rows() * part / n_jobs, to = m.rows() * (part + 1) / n_jobs;
      std::memset(rows.data() + from * m.stride, 0, sizeof(T) * (to - from) * m.stride);
      for (int64_t r = from; r < to; r++) {
        const int64_t c = m.column_of_row[r];
        T* row = rows.data() + r * m.stride;
        if (m.all_pairs)
          for (int j = 0; j < m.labels; j++) row[j] = (T)w[c * m.labels + j];
        else
          for (int64_t f = m.feature_ptr[c]; f < m.feature_ptr[c + 1]; f++) row[m.feature_label[f]] = (T)w[f];
      }
    });
  };
  if (single_ && !m.direct) {
    lay_out(float_rows_);
    float_single_.resize(m.at_dense + 8);
    for (int64_t f = 0; f < m.at_dense; f++) float_single_[f] = (float)w[f];
  } else if (!m.direct) {
    lay_out(rows_);
  }
  if (m.direct) rows_.resize(more * m.stride + 8);
  has_merged_ = more > 0;
  dense_.resize(m.n_dense * m.stride);
  dense_.zero();
  for (int64_t d = 0; d < m.n_dense; d++)
    for (int j = 0; j < m.labels; j++) dense_[d * m.stride + j] = w[m.at_dense + d * m.labels + j];
  base_.resize(m.stride);
  for (int j = 0; j < m.stride; j++) base_[j] = j >= m.labels ? -inf : m.bias ? w[m.at_bias + j] : 0.0;
}

// Whether these weights may be read in single precision: transitions that do not spread too far, no weight that leaves
// its range.
bool Loaded::single_fits(const Model& m) {
  table_.add_single();
  if (!table_.table().single_prob) return false;
  double most[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  for (int64_t f = 0; f < m.at_dense; f++) most[f % 8] = std::abs(w[f]) > most[f % 8] ? std::abs(w[f]) : most[f % 8];
  largest_ = *std::max_element(most, most + 8);
  return largest_ < LARGEST_SINGLE;
}

void Loaded::set_edges(const Model& m, const double* pair_weights) {
  if (m.fixed())
    log_ = m.fixed_edge;
  else
    log_.assign((size_t)m.labels * m.labels, 0.0);
  for (size_t p = 0; p < m.pairs.size(); p++) log_[m.pairs[p]] += pair_weights[p];
  // pairs without a weight score 0 only where nothing is fixed
  table_.set(m.k, m.labels, log_.data(), m.fixed() ? nullptr : m.pairs.data(), (int64_t)m.pairs.size());
}

NodeWeights Loaded::node(const Model& m) const {
  NodeWeights n;
  n.labels = m.labels;
  n.stride = m.stride;
  n.rows = m.direct ? w : rows_.data();
  n.row_stride = m.row_stride();
  n.n_rows = m.rows();
  n.merged = m.direct && has_merged_ ? rows_.data() : nullptr;
  n.single = w;
  n.float_rows = single_ && !m.direct ? float_rows_.data() : nullptr;
  n.float_single = single_ && !m.direct ? float_single_.data() : nullptr;
  n.feature_ptr = m.feature_ptr.data();
  n.feature_label = m.feature_label.data();
  n.dense = dense_.data();
  n.n_dense = m.n_dense;
  return n;
}

// visit(weight number, place in the padded table, value) for every weight that takes part in the table of this edge
template <class Visit>
void FeatureEdges::each_weight(int64_t edge, Visit visit) const {
  const int64_t L = m_.labels, square = L * L;
  auto whole_table = [&](int64_t first, double value) {
    for (int64_t i = 0; i < L; i++)
      for (int64_t j = 0; j < L; j++) visit(first + i * L + j, i * m_.stride + j, value);
  };
  if (m_.edge_columns)
    for (int64_t p = x_.edge_indptr[edge]; p < x_.edge_indptr[edge + 1]; p++) {
      const int64_t c = x_.edge_indices[p];
      const double value = x_.edge_values ? x_.edge_values[p] : 1.0;
      if (m_.all_edge_pairs)
        whole_table(m_.at_edge + c * square, value);
      else
        for (int64_t f = m_.edge_ptr[c]; f < m_.edge_ptr[c + 1]; f++) visit(m_.at_edge + f, m_.edge_place[f], value);
    }
  for (int64_t d = 0; d < m_.n_edge_dense; d++)
    whole_table(m_.at_edge_dense + d * square, x_.edge_dense[edge * m_.n_edge_dense + d]);
}

void FeatureEdges::fill(int64_t edge, double* table) const {
  std::memcpy(table, log_, sizeof(double) * m_.labels * m_.stride);
  each_weight(edge, [&](int64_t f, int64_t place, double value) { table[place] += value * w_[f]; });
}

void FeatureEdges::take(int64_t edge, const double* expected, double factor) const {
  if (!gradient_) return;
  for (size_t p = 0; p < m_.pairs.size(); p++) gradient_[p] += factor * expected[m_.pair_place[p]];
  each_weight(edge, [&](int64_t f, int64_t place, double value) {
    gradient_[f - m_.at_pairs] += factor * value * expected[place];
  });
}

double FeatureEdges::score(int64_t edge, int i, int j) const {
  const int64_t wanted = (int64_t)i * m_.stride + j;
  double sum = log_[wanted];
  each_weight(edge, [&](int64_t f, int64_t place, double value) {
    if (place == wanted) sum += value * w_[f];
  });
  return sum;
}

void FeatureEdges::count(int64_t edge, int i, int j, double amount) const {
  const int64_t wanted = (int64_t)i * m_.stride + j;
  auto found = std::lower_bound(m_.pair_place.begin(), m_.pair_place.end(), wanted);
  if (found != m_.pair_place.end() && *found == wanted) gradient_[found - m_.pair_place.begin()] += amount;
  each_weight(edge, [&](int64_t f, int64_t place, double value) {
    if (place == wanted) gradient_[f - m_.at_pairs] += amount * value;
  });
}

void score_rows(const Model& m, const NodeWeights& w, const double* base, const BatchView& x, int64_t row, int64_t n,
                double* score) {
  CsrRows rows;
  rows.indptr = x.indptr;
  rows.indices = x.indices;
  rows.values = x.values;
  rows.dense = x.dense;
  rows.row_of_column = m.direct ? nullptr : m.row_of_column.data();
  m.k->gather_csr(w, rows, row, n, base, score);
}

}  // namespace crfield
