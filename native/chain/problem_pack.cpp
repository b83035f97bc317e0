// Packing a labelled batch for the fused objective: sequences grouped by length, columns sorted into the three lists
// that the gather reads, gold labels and what partly labelled steps allow.
#include <algorithm>
#include <cstring>
#include <map>
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
  gold_cell_.resize(n_rows);
  for (const Group& g : groups_)
    for (int64_t r = 0; r < g.rows && !g.partial; r++)
      gold_cell_[g.row + r] = (uint32_t)(r * m.stride + gold_[g.row + r]);
  first_partial_row_ = n_rows;
  for (const Group& g : groups_)
    if (g.partial) first_partial_row_ = std::min(first_partial_row_, g.row);
  allowed_.assign((size_t)(n_rows - first_partial_row_) * m.labels, 0);
  for (int64_t r = first_partial_row_; r < n_rows; r++)
    for (int j = 0; j < m.labels; j++)
      allowed_[(size_t)(r - first_partial_row_) * m.labels + j] =
          gold_[r] >= 0 ? gold_[r] == j : allowed[node_of_row[r] * m.labels + j] != 0;

  find_sets();

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

// The sets of labels that the rows of partial groups may have, where sums over these pay: where they are small beside
// the table, and so few that the tables of their pairs are small beside the rows.
void Problem::find_sets() {
  const int L = model_->labels;
  sets_.assign(groups_.size(), Sets());
  for (size_t k = 0; k < groups_.size(); k++) {
    const Group& g = groups_[k];
    if (!g.partial) continue;
    const uint8_t* allowed = allowed_.data() + (g.row - first_partial_row_) * L;
    std::map<std::vector<int32_t>, int32_t> number;
    std::vector<std::vector<int32_t>> found;
    Sets sets;
    bool pays = true;
    std::vector<int32_t> one;
    for (int64_t r = 0; r < g.rows && pays; r++, allowed += L) {
      one.clear();
      for (int32_t j = 0; j < L; j++)
        if (allowed[j]) one.push_back(j);
      const auto place = number.emplace(one, (int32_t)found.size());
      if (place.second) found.push_back(one);
      sets.of.push_back(place.first->second);
      sets.size = std::max({sets.size, (int)one.size(), 1});
      const int64_t cells = (int64_t)sets.size * sets.size, count = (int64_t)found.size();
      pays = sets.size <= SET_MOST && 4 * cells <= (int64_t)L * L && 2 * count * count * cells <= g.rows * L;
    }
    if (!pays) continue;
    sets.label.assign(found.size() * sets.size, -1);
    for (size_t n = 0; n < found.size(); n++)
      std::copy(found[n].begin(), found[n].end(), sets.label.begin() + n * sets.size);
    sets_[k] = std::move(sets);
  }
}

void Problem::pack_rows(const BatchView& x, const std::vector<int64_t>& node_of_row) {
  const Model& m = *model_;
  const int64_t n_rows = (int64_t)node_of_row.size();
  values_ = x.values != nullptr;
  row_ptr_.resize(n_rows + 1);
  list_ptr_.resize(n_rows + 1);
  auto row_of = [&](int64_t c) -> int64_t { return m.direct ? c : m.row_of_column[c]; };
  auto long_list = [&](int64_t c) { return m.feature_ptr[c + 1] - m.feature_ptr[c] > SINGLES; };
  int64_t n_row = 0, n_list = 0;
  row_ptr_[0] = list_ptr_[0] = 0;
  for (int64_t r = 0; r < n_rows; r++) {
    for (int64_t p = x.indptr[node_of_row[r]]; p < x.indptr[node_of_row[r] + 1]; p++) {
      if (row_of(x.indices[p]) >= 0)
        n_row++;
      else if (long_list(x.indices[p]))
        n_list++;
    }
    row_ptr_[r + 1] = n_row;
    list_ptr_[r + 1] = n_list;
  }
  if (n_list == 0) list_ptr_ = Buffer<int64_t>();
  std::vector<int32_t> row_items(n_row);
  list_begin_.resize(n_list + AHEAD_LISTS);
  list_begin_.zero();
  list_end_.resize(n_list);
  row_value_.resize(values_ ? n_row : 0);
  list_value_.resize(values_ ? n_list : 0);
  n_row = n_list = 0;
  for (int64_t r = 0; r < n_rows; r++)
    for (int64_t p = x.indptr[node_of_row[r]]; p < x.indptr[node_of_row[r] + 1]; p++) {
      const int64_t c = x.indices[p];
      const double value = values_ ? x.values[p] : 1.0;
      if (row_of(c) >= 0) {
        if (values_) row_value_[n_row] = value;
        row_items[n_row++] = (int32_t)row_of(c);
      } else if (long_list(c)) {
        if (values_) list_value_[n_list] = value;
        list_begin_[n_list] = (int32_t)m.feature_ptr[c];
        list_end_[n_list++] = (int32_t)m.feature_ptr[c + 1];
      }
    }
  if (!m.direct) pack_singles(x, node_of_row);
  // Merged rows stand for columns of value one.
  if (!values_) {
    merged_ = merge_rows(n_rows, m.rows(), row_ptr_.data(), row_items);
    share_prefixes(n_rows, m.rows(), 16 + m.stride / 8, row_ptr_.data(), row_items, merged_);
  }
  order_rows(row_items);
  dense_.resize(n_rows * m.n_dense);
  for (int64_t r = 0; r < n_rows && m.n_dense; r++)
    std::memcpy(dense_.data() + r * m.n_dense, x.dense + node_of_row[r] * m.n_dense, sizeof(double) * m.n_dense);
}

// Lists of a group in order of their lengths, so that the processor foresees where each ends.
void Problem::order_rows(std::vector<int32_t>& items) {
  const int64_t n_rows = row_ptr_.size() - 1;
  std::vector<int64_t> ptr(n_rows + 1, 0);
  row_order_.resize(n_rows);
  row_item_.resize((int64_t)items.size() + AHEAD_ROWS);
  row_item_.zero();
  Buffer<double> values(row_value_.size());
  int64_t at = 0;
  for (const Group& g : groups_) {
    uint32_t* order = row_order_.data() + g.row;
    const int64_t* from = row_ptr_.data() + g.row;
    for (int64_t r = 0; r < g.rows; r++) order[r] = (uint32_t)r;
    std::stable_sort(order, order + g.rows,
                     [&](uint32_t a, uint32_t b) { return from[a + 1] - from[a] < from[b + 1] - from[b]; });
    for (int64_t k = 0; k < g.rows; k++) {
      for (int64_t p = from[order[k]]; p < from[order[k] + 1]; p++, at++) {
        row_item_[at] = items[p];
        if (values_) values[at] = row_value_[p];
      }
      ptr[g.row + k + 1] = at;
    }
  }
  std::copy(ptr.begin(), ptr.end(), row_ptr_.data());
  row_value_ = std::move(values);
}

// Columns with one to three single features. In a group the first column of every row comes first, then the second of
// every row, and so on: two additions to one score, one right after the other, would wait for each other.
void Problem::pack_singles(const BatchView& x, const std::vector<int64_t>& node_of_row) {
  const Model& m = *model_;
  const int64_t n_rows = (int64_t)node_of_row.size();
  auto features = [&](int64_t c) { return m.row_of_column[c] >= 0 ? 0 : m.feature_ptr[c + 1] - m.feature_ptr[c]; };
  for (Singles& s : singles_) s.ptr.resize(n_rows + 1);
  int64_t total[SINGLES + 1] = {0};
  for (int64_t r = 0; r < n_rows; r++) {
    for (int k = 0; k < SINGLES; k++) singles_[k].ptr[r] = total[k + 1];
    for (int64_t p = x.indptr[node_of_row[r]]; p < x.indptr[node_of_row[r] + 1]; p++) {
      const int64_t k = features(x.indices[p]);
      if (k <= SINGLES) total[k]++;
    }
  }
  int64_t cells = 0;
  for (const Group& g : groups_) cells = std::max(cells, g.rows * m.stride);
  const bool brief = cells <= 65536;
  for (int k = 1; k <= SINGLES; k++) {
    Singles& s = singles_[k - 1];
    s.ptr[n_rows] = total[k];
    s.item.resize(total[k] + AHEAD_SINGLES);
    s.item.zero();
    s.value.resize(values_ ? total[k] : 0);
    if (brief)
      s.short_cell.resize(total[k] * k);
    else
      s.long_cell.resize(total[k] * k);
  }
  struct Place {
    int64_t at, row;  // of a column in x.indices, and its row in the group
  };
  std::vector<Place> found[SINGLES + 1], now, next;
  std::vector<int64_t> start[SINGLES + 1];
  for (const Group& g : groups_) {
    for (int k = 1; k <= SINGLES; k++) found[k].clear(), start[k].clear();
    for (int64_t r = 0; r < g.rows; r++) {
      const int64_t node = node_of_row[g.row + r];
      for (int k = 1; k <= SINGLES; k++) start[k].push_back((int64_t)found[k].size());
      for (int64_t p = x.indptr[node]; p < x.indptr[node + 1]; p++) {
        const int64_t k = features(x.indices[p]);
        if (k >= 1 && k <= SINGLES) found[k].push_back({p, r});
      }
    }
    for (int k = 1; k <= SINGLES; k++) {
      Singles& s = singles_[k - 1];
      int64_t to = s.ptr[g.row];
      start[k].push_back((int64_t)found[k].size());
      now.clear();
      for (int64_t r = 0; r < g.rows; r++)
        if (start[k][r] < start[k][r + 1]) now.push_back({start[k][r], r});
      for (; !now.empty(); now.swap(next)) {
        next.clear();
        for (const Place& place : now) {
          const int64_t p = found[k][place.at].at, c = x.indices[p];
          s.item[to] = (int32_t)m.feature_ptr[c];
          if (values_) s.value[to] = x.values[p];
          for (int i = 0; i < k; i++) {
            const int64_t cell = place.row * m.stride + m.feature_label[m.feature_ptr[c] + i];
            if (brief)
              s.short_cell[to * k + i] = (uint16_t)cell;
            else
              s.long_cell[to * k + i] = (uint32_t)cell;
          }
          to++;
          if (place.at + 1 < start[k][place.row + 1]) next.push_back({place.at + 1, place.row});
        }
      }
    }
  }
}

NodeRows Problem::rows() const {
  NodeRows x;
  x.row_ptr = row_ptr_.data();
  x.row_order = row_order_.data();
  x.row_item = row_item_.data();
  for (int k = 0; k < SINGLES && !model_->direct; k++) {
    const Singles& s = singles_[k];
    x.single[k].ptr = s.ptr.data();
    x.single[k].item = s.item.data();
    x.single[k].short_cell = s.short_cell.data();
    x.single[k].long_cell = s.long_cell.data();
    x.single[k].value = s.value.data();
  }
  x.list_ptr = list_ptr_.size() ? list_ptr_.data() : nullptr;
  x.list_begin = list_begin_.data();
  x.list_end = list_end_.data();
  x.values = values_;
  x.row_value = row_value_.data();
  x.list_value = list_value_.data();
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
