// Packed problems out of named arrays and into them.
//
// Sizes are checked always, since they cost nothing. What lies inside the arrays (every offset, column, label) is
// checked on demand: once for a file is enough, as long as it stays the same file, and that is for the caller to know.
#include "chain/packed.hpp"

#include <algorithm>
#include <utility>

#include "chain/problem_memory.hpp"

namespace crfield {
namespace {

void demand(bool good, const char* message) {
  if (!good) throw std::invalid_argument(message);
}

template <class T>
void require_between(const T* x, int64_t n, int64_t low, int64_t high, const char* message) {
  bool good = true;
  for (int64_t k = 0; k < n; k++) good &= (int64_t)x[k] >= low && (int64_t)x[k] < high;
  demand(good, message);
}

void require_finite(const double* x, int64_t n) {
  bool good = true;
  for (int64_t k = 0; k < n; k++) good &= x[k] - x[k] == 0;
  demand(good, "packed numbers must be finite");
}

// Offsets of `rows` lists that have `items` entries in all; their inside is looked at if `check`.
void require_offsets(const int64_t* ptr, int64_t size, int64_t rows, int64_t items, bool check) {
  const char* message = "packed offsets do not fit";
  demand(size == rows + 1 && ptr[0] == 0 && ptr[rows] == items, message);
  bool good = true;
  for (int64_t r = 0; check && r < rows; r++) good &= ptr[r] <= ptr[r + 1];
  demand(good, message);
}

constexpr int64_t MOST_MERGED = 65'536;  // columns that a merged row stands for
constexpr int64_t MOST_WRITTEN = 1'000;  // times as many columns as items, when merged rows are written out

std::string single_name(int k, const char* what) { return "single" + std::to_string(k + 1) + "_" + what; }

struct Flat {  // groups as arrays
  std::vector<int32_t> width, steps, active;
  std::vector<uint8_t> partial, flags;
  std::vector<int64_t> sequence;
};

// Groups from arrays: rows follow each other, complete ones come first. Gives the number of rows.
int64_t read_groups(const PackedArrays& from, int64_t sequences, std::vector<Group>& groups,
                    std::vector<int64_t>& edge_offsets) {
  int64_t n = 0, n_steps = 0, n_partial = 0, n_active = 0, n_sequence = 0;
  const int32_t* width = from.find<int32_t>("group_width", n);
  const int32_t* steps = from.find<int32_t>("group_steps", n_steps);
  const uint8_t* partial = from.find<uint8_t>("group_partial", n_partial);
  const int32_t* active = from.find<int32_t>("active", n_active);
  const int64_t* sequence = from.find<int64_t>("sequence", n_sequence);
  const char* message = "packed groups do not fit";
  demand(n_steps == n && n_partial == n, message);
  edge_offsets.assign(sequences + 1, 0);
  std::vector<uint8_t> met(sequences, 0);
  groups.reserve(n);
  int64_t row = 0, at = 0, first = 0;
  for (int64_t k = 0; k < n; k++) {
    demand(width[k] >= 1 && width[k] <= 64 && steps[k] >= 1 && partial[k] <= 1, message);
    demand(steps[k] <= n_active - at && width[k] <= n_sequence - first, message);
    demand(k == 0 || partial[k - 1] <= partial[k], message);
    Group g;
    g.row = row;
    g.width = width[k];
    g.steps = steps[k];
    g.partial = partial[k];
    g.active.assign(active + at, active + at + steps[k]);
    g.sequence.assign(sequence + first, sequence + first + width[k]);
    g.start.reserve((size_t)steps[k] + 1);
    g.start.push_back(0);
    for (int64_t number : g.sequence) {
      demand(number >= 0 && number < sequences && !met[number], message);
      met[number] = 1;
    }
    demand(g.active[0] == g.width, message);
    for (int32_t t = 0, running = g.width; t < g.steps; t++) {
      demand(g.active[t] >= 1 && g.active[t] <= running, message);
      for (int b = g.active[t]; b < running; b++) edge_offsets[g.sequence[b] + 1] = t - 1;  // of t steps
      running = g.active[t];
      g.start.push_back(g.start.back() + running);
    }
    for (int b = 0; b < g.active.back(); b++) edge_offsets[g.sequence[b] + 1] = g.steps - 1;
    g.rows = g.start.back();
    row += g.rows;
    at += g.steps;
    first += g.width;
    groups.push_back(std::move(g));
  }
  demand(at == n_active && first == n_sequence, message);
  for (int64_t s = 0; s < sequences; s++) edge_offsets[s + 1] += edge_offsets[s];
  return row;
}

}  // namespace

Problem::Problem(std::shared_ptr<Workspace> workspace) : model_(workspace->model), workspace_(std::move(workspace)) {}

PackedArrays Problem::packed() const {
  auto flat = std::make_shared<Flat>();
  for (const Group& g : groups_) {
    flat->width.push_back(g.width);
    flat->steps.push_back(g.steps);
    flat->partial.push_back(g.partial);
    flat->active.insert(flat->active.end(), g.active.begin(), g.active.end());
    flat->sequence.insert(flat->sequence.end(), g.sequence.begin(), g.sequence.end());
  }
  flat->flags = {(uint8_t)values_, (uint8_t)weighted_, (uint8_t)(singles_[0].short_cell.data() != nullptr)};
  PackedArrays out;
  auto add = [&](const char* name, const auto& from) { out.add(name, from.data(), (int64_t)from.size()); };
  add("group_width", flat->width);
  add("group_steps", flat->steps);
  add("group_partial", flat->partial);
  add("active", flat->active);
  add("sequence", flat->sequence);
  add("row_ptr", row_ptr_);
  add("row_order", row_order_);
  add("row_item", row_item_);
  add("row_value", row_value_);
  for (int k = 0; k < SINGLES && !model_->direct; k++) {
    add(single_name(k, "ptr").c_str(), singles_[k].ptr);
    add(single_name(k, "item").c_str(), singles_[k].item);
    if (flat->flags[2])
      add(single_name(k, "cell").c_str(), singles_[k].short_cell);
    else
      add(single_name(k, "cell").c_str(), singles_[k].long_cell);
    add(single_name(k, "value").c_str(), singles_[k].value);
  }
  add("list_ptr", list_ptr_);
  add("list_begin", list_begin_);
  add("list_end", list_end_);
  add("list_value", list_value_);
  add("dense", dense_);
  add("merged_ptr", merged_.ptr);
  add("merged_member", merged_.member);
  add("gold", gold_);
  add("gold_cell", gold_cell_);
  add("allowed", allowed_);
  add("weight", weight_);
  add("gold_pairs", gold_pairs_);
  out.add("gold_fixed", &gold_fixed_, 1);
  add("edge_indptr", edge_indptr_);
  add("edge_indices", edge_indices_);
  add("edge_values", edge_values_);
  add("edge_dense", edge_dense_);
  add("flags", flat->flags);
  out.owner = std::move(flat);
  return out;
}

std::unique_ptr<Problem> Problem::restore(std::shared_ptr<Workspace> workspace, const PackedArrays& from, bool check) {
  std::unique_ptr<Problem> made(new Problem(std::move(workspace)));
  Problem& p = *made;
  const Model& m = *p.model_;
  p.owner_ = from.owner;
  auto borrow = [&](const char* name, auto& buffer) {
    using T = std::decay_t<decltype(buffer[0])>;
    int64_t n = 0;
    const T* data = from.find<T>(name, n);
    buffer.borrow(data, n);
  };
  auto copy = [&](const char* name, auto& vector) {
    using T = typename std::decay_t<decltype(vector)>::value_type;
    int64_t n = 0;
    const T* data = from.find<T>(name, n);
    vector.assign(data, data + n);
  };
  std::vector<uint8_t> flags;
  std::vector<double> fixed;
  copy("flags", flags);
  copy("gold_fixed", fixed);
  demand(flags.size() == 3 && fixed.size() == 1, "packed flags do not fit");
  p.values_ = flags[0] != 0;
  p.weighted_ = flags[1] != 0;
  p.gold_fixed_ = fixed[0];
  copy("weight", p.weight_);
  const int64_t sequences = (int64_t)p.weight_.size();
  const int64_t rows = read_groups(from, sequences, p.groups_, p.edge_offsets_);

  borrow("row_ptr", p.row_ptr_);
  borrow("row_order", p.row_order_);
  borrow("row_item", p.row_item_);
  borrow("row_value", p.row_value_);
  for (int k = 0; k < SINGLES && !m.direct; k++) {
    borrow(single_name(k, "ptr").c_str(), p.singles_[k].ptr);
    borrow(single_name(k, "item").c_str(), p.singles_[k].item);
    if (flags[2])
      borrow(single_name(k, "cell").c_str(), p.singles_[k].short_cell);
    else
      borrow(single_name(k, "cell").c_str(), p.singles_[k].long_cell);
    borrow(single_name(k, "value").c_str(), p.singles_[k].value);
  }
  borrow("list_ptr", p.list_ptr_);
  borrow("list_begin", p.list_begin_);
  borrow("list_end", p.list_end_);
  borrow("list_value", p.list_value_);
  borrow("dense", p.dense_);
  const int64_t n_row = p.row_item_.size() - AHEAD_ROWS, n_list = p.list_begin_.size() - AHEAD_LISTS;
  demand(n_row >= 0 && n_list >= 0, "packed lists are too short");
  require_offsets(p.row_ptr_.data(), p.row_ptr_.size(), rows, n_row, check);
  for (int k = 0; k < SINGLES && !m.direct; k++) {
    const Singles& s = p.singles_[k];
    const int64_t n = s.item.size() - AHEAD_SINGLES, cells = flags[2] ? s.short_cell.size() : s.long_cell.size();
    demand(n >= 0 && cells == n * (k + 1) && s.value.size() == (p.values_ ? n : 0), "packed features do not fit");
    require_offsets(s.ptr.data(), s.ptr.size(), rows, n, check);
  }
  if (p.list_ptr_.size())
    require_offsets(p.list_ptr_.data(), p.list_ptr_.size(), rows, n_list, check);
  else
    demand(n_list == 0, "packed lists have no offsets");
  const int64_t by = p.values_ ? 1 : 0;
  demand(p.row_value_.size() == by * n_row && p.list_value_.size() == by * n_list &&
              p.list_end_.size() == n_list && p.row_order_.size() == rows,
          "packed values do not fit");
  demand(p.dense_.size() == rows * m.n_dense, "the packed dense block does not fit");
  // Rows of weights that are read straight from the flat vector have no other form beside them.
  demand(!m.direct || n_list == 0, "packed columns do not fit the model");
  demand(!m.all_pairs || n_list == 0, "packed columns do not fit the model");

  copy("merged_ptr", p.merged_.ptr);
  copy("merged_member", p.merged_.member);
  const int64_t merged = p.merged_.size(), n_member = (int64_t)p.merged_.member.size();
  demand(merged >= 0 && (merged == 0 || !p.values_), "packed sets of columns do not fit");
  require_offsets(p.merged_.ptr.data(), merged + 1, merged, n_member, true);
  // Members are columns or merged rows before; how many columns a row stands for is bounded, since steps write them out.
  std::vector<int64_t> stands_for(merged, 0);
  for (int64_t v = 0; v < merged; v++) {
    for (int64_t q = p.merged_.ptr[v]; q < p.merged_.ptr[v + 1]; q++) {
      const int64_t k = p.merged_.member[q];
      demand(k >= 0 && k < m.rows() + v, "a packed column is out of range");
      stands_for[v] += k < m.rows() ? 1 : stands_for[k - m.rows()];
    }
    demand(stands_for[v] <= MOST_MERGED, "packed sets of columns do not fit");
  }

  borrow("gold", p.gold_);
  copy("allowed", p.allowed_);
  copy("gold_pairs", p.gold_pairs_);
  p.first_partial_row_ = rows;
  for (const Group& g : p.groups_)
    if (g.partial) p.first_partial_row_ = std::min(p.first_partial_row_, g.row);
  borrow("gold_cell", p.gold_cell_);
  demand(p.gold_.size() == rows && p.gold_cell_.size() == rows && p.gold_pairs_.size() == m.pairs.size() &&
              (int64_t)p.allowed_.size() == (rows - p.first_partial_row_) * m.labels,
          "packed labels do not fit");

  p.find_sets();

  borrow("edge_indptr", p.edge_indptr_);
  borrow("edge_indices", p.edge_indices_);
  borrow("edge_values", p.edge_values_);
  borrow("edge_dense", p.edge_dense_);
  const int64_t edges = p.edge_offsets_.back(), n_edge = p.edge_indices_.size();
  if (m.edge_columns) {
    require_offsets(p.edge_indptr_.data(), p.edge_indptr_.size(), edges, n_edge, check);
    if (check) require_between(p.edge_indices_.data(), n_edge, 0, m.edge_columns, "a packed column is out of range");
  } else {
    demand(n_edge == 0, "packed edges do not fit the model");
  }
  demand((p.edge_values_.size() == 0 || p.edge_values_.size() == n_edge) &&
              p.edge_dense_.size() == (m.edge_features() ? edges * m.n_edge_dense : 0),
          "packed edges do not fit the model");

  if (check) {
    const char* message = "a packed column is out of range";
    require_between(p.row_item_.data(), n_row, 0, m.rows() + merged, message);
    require_between(p.row_item_.data() + n_row, AHEAD_ROWS, 0, 1, message);
    for (int k = 0; k < SINGLES && !m.direct; k++) {
      const Singles& s = p.singles_[k];
      const int64_t n = s.item.size() - AHEAD_SINGLES;
      require_between(s.item.data(), n, 0, m.at_dense - k, "a packed feature is out of range");
      require_between(s.item.data() + n, AHEAD_SINGLES, 0, 1, "a packed feature is out of range");
      require_finite(s.value.data(), s.value.size());
    }
    require_between(p.list_begin_.data() + n_list, AHEAD_LISTS, 0, 1, message);
    int64_t written = 0;
    for (int64_t k = 0; k < n_row; k++)
      written += p.row_item_[k] < m.rows() ? 1 : stands_for[p.row_item_[k] - m.rows()];
    demand(written <= MOST_WRITTEN * (n_row + MOST_WRITTEN), "packed sets of columns do not fit");
    for (int64_t k = 0; k < n_list; k++)
      demand(p.list_begin_[k] >= 0 && p.list_begin_[k] <= p.list_end_[k] && p.list_end_[k] <= m.at_dense, message);
    require_between(p.gold_.data(), p.first_partial_row_, 0, m.labels, "a packed label is out of range");
    require_between(p.gold_.data() + p.first_partial_row_, rows - p.first_partial_row_, -1, m.labels,
                    "a packed label is out of range");
    std::vector<uint8_t> met;
    for (const Group& g : p.groups_) {
      met.assign(g.rows, 0);
      for (int64_t r = g.row; r < g.row + g.rows; r++) {
        demand(p.row_order_[r] < g.rows && !met[p.row_order_[r]], "the packed order of rows is none");
        met[p.row_order_[r]] = 1;
        demand(g.partial || p.gold_cell_[r] == (uint32_t)((r - g.row) * m.stride + p.gold_[r]),
                "a packed label is out of place");
      }
      bool good = true;
      for (int k = 0; k < SINGLES && !m.direct; k++) {
        const Singles& s = p.singles_[k];
        for (int64_t q = s.ptr[g.row] * (k + 1); q < s.ptr[g.row + g.rows] * (k + 1); q++) {
          const int64_t cell = flags[2] ? s.short_cell[q] : s.long_cell[q];
          good &= cell < g.rows * m.stride && cell % m.stride < m.labels;
        }
      }
      demand(good, "a packed label is out of range");
    }
    for (const Buffer<double>* b : {&p.row_value_, &p.list_value_, &p.dense_, &p.edge_values_, &p.edge_dense_})
      require_finite(b->data(), b->size());
    require_finite(p.weight_.data(), sequences);
    require_finite(p.gold_pairs_.data(), (int64_t)p.gold_pairs_.size());
    require_finite(&p.gold_fixed_, 1);
  }
  return made;
}

}  // namespace crfield
