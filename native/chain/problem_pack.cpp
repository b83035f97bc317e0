// Packing a labelled batch for the fused objective: sequences grouped by length, columns sorted into the three lists
// that the gather reads, gold labels and what partly labelled steps allow.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "chain/problem_memory.hpp"

namespace crfield {

Problem::~Problem() = default;
Problem::Workspace::Workspace(std::shared_ptr<const Model> m) : model(std::move(m)) {}
Problem::Workspace::~Workspace() = default;

// Memory of earlier calls is used again where it can be had at once. Nobody ever waits for the lock: a child forked
// while another thread held it would wait for ever.
std::unique_ptr<Problem::Call> Problem::borrow(int parts) const {
  std::unique_ptr<Call> call;
  {
    std::unique_lock<std::mutex> hold(workspace_->lock, std::try_to_lock);
    if (hold && !workspace_->idle.empty()) {
      call = std::move(workspace_->idle.back());
      workspace_->idle.pop_back();
    }
  }
  if (!call) call = std::make_unique<Call>();
  while ((int)call->parts.size() < parts) call->parts.push_back(std::make_unique<Part>());
  return call;
}

void Problem::give_back(std::unique_ptr<Call> call) const {
  std::unique_lock<std::mutex> hold(workspace_->lock, std::try_to_lock);
  if (hold) workspace_->idle.push_back(std::move(call));
}

Problem::Problem(std::shared_ptr<const Model> model, const BatchView& x, const int32_t* labels, const uint8_t* allowed,
                 const double* weight, int group_width)
    : model_(std::move(model)), workspace_(std::make_shared<Workspace>(model_)) {
  const Model& m = *model_;
  std::vector<uint8_t> partial(x.sequences, 0);
  for (int64_t s = 0; s < x.sequences; s++)
    for (int64_t n = x.offsets[s]; n < x.offsets[s + 1]; n++) {
      if (labels[n] >= m.labels || labels[n] < -1) throw std::invalid_argument("label code out of range");
      if (labels[n] < 0) {
        if (!allowed) throw std::invalid_argument("an unknown label needs the table of allowed labels");
        partial[s] = 1;
      }
    }
  weight_.assign(x.sequences, 1.0);
  weighted_ = weight != nullptr;
  if (weight) std::copy(weight, weight + x.sequences, weight_.begin());
  std::vector<int64_t> node_of_row;
  groups_ = make_groups(x.offsets, x.sequences, group_width, partial.data(), node_of_row);
  pack_rows(x, node_of_row);

  const int64_t n_rows = (int64_t)node_of_row.size();
  gold_.resize(n_rows);
  for (int64_t r = 0; r < n_rows; r++) gold_[r] = labels[node_of_row[r]];
  first_partial_row_ = n_rows;
  for (const Group& g : groups_)
    if (g.partial) first_partial_row_ = std::min(first_partial_row_, g.row);
  allowed_.assign((size_t)(n_rows - first_partial_row_) * m.labels, 0);
  for (int64_t r = first_partial_row_; r < n_rows; r++)
    for (int j = 0; j < m.labels; j++)
      allowed_[(size_t)(r - first_partial_row_) * m.labels + j] =
          gold_[r] >= 0 ? gold_[r] == j : allowed[node_of_row[r] * m.labels + j] != 0;

  edge_offsets_ = x.edge_offsets;
  gold_pairs_.assign(m.pairs.size(), 0.0);
  if (m.edge_features()) {
    auto copy = [](auto& to, const auto* from, int64_t n) {
      to.resize(from ? n : 0);
      if (from && n) std::memcpy(to.data(), from, sizeof(*from) * n);
    };
    const int64_t nnz = x.edge_indptr ? x.edge_indptr[x.edges] : 0;
    copy(edge_indptr_, x.edge_indptr, x.edges + 1);
    copy(edge_indices_, x.edge_indices, nnz);
    copy(edge_values_, x.edge_values, nnz);
    copy(edge_dense_, x.edge_dense, x.edges * m.n_edge_dense);
  } else {
    std::vector<int32_t> place((size_t)m.labels * m.labels, -1);
    for (size_t p = 0; p < m.pairs.size(); p++) place[m.pairs[p]] = (int32_t)p;
    for (const Group& g : groups_) {
      if (g.partial) continue;
      for (int t = 1; t < g.steps; t++)
        for (int b = 0; b < g.active[t]; b++) {
          const int i = gold_[g.row + g.start[t - 1] + b], j = gold_[g.row + g.start[t] + b];
          const int32_t p = place[(size_t)i * m.labels + j];
          if (p >= 0) gold_pairs_[p] += weight_[g.sequence[b]];
          if (m.fixed()) gold_fixed_ += weight_[g.sequence[b]] * m.fixed_edge[(size_t)i * m.labels + j];
        }
    }
  }
  return_freed_memory();
}

void Problem::pack_rows(const BatchView& x, const std::vector<int64_t>& node_of_row) {
  const Model& m = *model_;
  const int64_t n_rows = (int64_t)node_of_row.size();
  values_ = x.values != nullptr;
  row_ptr_.resize(n_rows + 1);
  pair_ptr_.resize(n_rows + 1);
  list_ptr_.resize(n_rows + 1);
  auto row_of = [&](int64_t c) -> int64_t { return m.direct ? c : m.row_of_column[c]; };
  int64_t n_row = 0, n_pair = 0, n_list = 0;
  row_ptr_[0] = pair_ptr_[0] = list_ptr_[0] = 0;
  for (int64_t r = 0; r < n_rows; r++) {
    for (int64_t p = x.indptr[node_of_row[r]]; p < x.indptr[node_of_row[r] + 1]; p++) {
      const int64_t c = x.indices[p];
      if (row_of(c) >= 0) {
        n_row++;
      } else {
        const int64_t count = m.feature_ptr[c + 1] - m.feature_ptr[c];
        if (count <= 3)
          n_pair += count;
        else
          n_list++;
      }
    }
    row_ptr_[r + 1] = n_row;
    pair_ptr_[r + 1] = n_pair;
    list_ptr_[r + 1] = n_list;
  }
  if (n_list == 0) list_ptr_ = Buffer<int64_t>();
  std::vector<int32_t> row_items(n_row);
  pair_item_.resize(n_pair);
  pair_label_.resize(n_pair);
  list_item_.resize(n_list);
  row_value_.resize(values_ ? n_row : 0);
  pair_value_.resize(values_ ? n_pair : 0);
  list_value_.resize(values_ ? n_list : 0);
  n_row = n_pair = n_list = 0;
  for (int64_t r = 0; r < n_rows; r++)
    for (int64_t p = x.indptr[node_of_row[r]]; p < x.indptr[node_of_row[r] + 1]; p++) {
      const int64_t c = x.indices[p];
      const double value = values_ ? x.values[p] : 1.0;
      if (row_of(c) >= 0) {
        if (values_) row_value_[n_row] = value;
        row_items[n_row++] = (int32_t)row_of(c);
      } else if (m.feature_ptr[c + 1] - m.feature_ptr[c] <= 3) {
        for (int64_t f = m.feature_ptr[c]; f < m.feature_ptr[c + 1]; f++) {
          if (values_) pair_value_[n_pair] = value;
          pair_label_[n_pair] = (uint16_t)m.feature_label[f];
          pair_item_[n_pair++] = (int32_t)f;
        }
      } else {
        if (values_) list_value_[n_list] = value;
        list_item_[n_list++] = (int32_t)c;
      }
    }
  // Merged rows stand for columns of value one, and need rows of weights that are ours to add to.
  if (!m.direct && !values_) merged_ = merge_rows(n_rows, m.rows(), row_ptr_.data(), row_items);
  row_item_.resize((int64_t)row_items.size());
  std::copy(row_items.begin(), row_items.end(), row_item_.data());
  dense_.resize(n_rows * m.n_dense);
  for (int64_t r = 0; r < n_rows && m.n_dense; r++)
    std::memcpy(dense_.data() + r * m.n_dense, x.dense + node_of_row[r] * m.n_dense, sizeof(double) * m.n_dense);
}

NodeRows Problem::rows() const {
  NodeRows x;
  x.row_ptr = row_ptr_.data();
  x.pair_ptr = pair_ptr_.data();
  x.list_ptr = list_ptr_.size() ? list_ptr_.data() : nullptr;
  x.row_item = row_item_.data();
  x.pair_item = pair_item_.data();
  x.pair_label = pair_label_.data();
  x.list_item = list_item_.data();
  x.values = values_;
  if (values_) {
    x.row_value = row_value_.data();
    x.pair_value = pair_value_.data();
    x.list_value = list_value_.data();
  }
  x.dense = dense_.data();
  return x;
}

BatchView Problem::edge_view() const {
  BatchView x;
  x.edge_indptr = edge_indptr_.data();
  x.edge_indices = edge_indices_.data();
  x.edge_values = edge_values_.size() ? edge_values_.data() : nullptr;
  x.edge_dense = edge_dense_.data();
  return x;
}

}  // namespace crfield
