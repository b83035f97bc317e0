// Packing for primal–dual epochs: sequences in blocks, and the lists of their columns turned round.
#include "chain/primal_dual.hpp"

#include <algorithm>
#include <stdexcept>

namespace crfield {
namespace {

const DualKernels* dual_kernels(const Kernels* k) {
#if defined(CRFIELD_X86)
  return k->level == 4 ? dual_kernels_level4() : k->level == 3 ? dual_kernels_level3() : dual_kernels_level2();
#else
  (void)k;
  return dual_kernels_level0();
#endif
}

constexpr int64_t MOST_ROWS = 65535;  // of a block, whose rows are told apart by 16 bits

// The items of a sequence, each once, with the places where they are: those met once first, then the others.
template <class At>
struct Gathered {
  std::vector<int32_t> item, ptr, mark, count, next;  // ptr: of the others
  std::vector<At> at;
  std::vector<float> value;
  int64_t once = 0;

  explicit Gathered(int64_t n) : mark(n, -1) {}

  template <class Each>
  void gather(bool values, Each each) {  // each(visit) calls visit(item, place, value)
    item.clear();
    count.clear();
    int32_t total = 0;
    each([&](int32_t x, int64_t, double) {
      if (mark[x] < 0) {
        mark[x] = (int32_t)item.size();
        item.push_back(x);
        count.push_back(0);
      }
      count[mark[x]]++;
      total++;
    });
    next.assign(item.size(), 0);
    ptr.clear();
    sorted.clear();
    once = 0;
    for (size_t k = 0; k < item.size(); k++)
      if (count[k] == 1) {
        next[k] = (int32_t)once++;
        sorted.push_back(item[k]);
      }
    int32_t at_many = (int32_t)once;
    for (size_t k = 0; k < item.size(); k++)
      if (count[k] > 1) {
        next[k] = at_many;
        ptr.push_back(at_many);
        at_many += count[k];
        sorted.push_back(item[k]);
      }
    ptr.push_back(at_many);
    at.resize(total);
    value.resize(values ? total : 0);
    each([&](int32_t x, int64_t place, double by) {
      const int32_t q = next[mark[x]]++;
      at[q] = (At)place;
      if (values) value[q] = (float)by;
    });
    for (int32_t x : item) mark[x] = -1;
    item.swap(sorted);
  }

 private:
  std::vector<int32_t> sorted;
};

template <class T>
void take_over(Buffer<T>& to, std::vector<T>& from) {
  to.resize((int64_t)from.size());
  std::copy(from.begin(), from.end(), to.data());
  from = std::vector<T>();
}

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

PrimalDual::PrimalDual(const Problem& problem, const uint8_t* penalised, int width)
    : p_(problem), k_(dual_kernels(problem.model_->k)) {
  const Model& m = model();
  if (m.edge_features()) throw std::invalid_argument("primal-dual steps do not know edge features");
  if (m.n_dense > MOST_ROWS) throw std::invalid_argument("primal-dual steps take at most 65,535 dense columns");
  wide_ = (m.labels + k_->lanes - 1) / k_->lanes * k_->lanes;
  std::vector<int64_t> packed;
  make_blocks(width, packed);
  make_lists(packed);
  gold_.resize(n_rows_);
  dense_.resize(n_rows_ * m.n_dense);
  for (int64_t r = 0; r < n_rows_; r++) {
    gold_[r] = p_.gold_[packed[r]];
    std::copy_n(p_.dense_.data() + packed[r] * m.n_dense, m.n_dense, dense_.data() + r * m.n_dense);
  }
  n_dense_rows_ = m.rows() + m.n_dense;
  block_.resize(n_dense_rows_ * 3 * wide_);
  block_.zero();
  single_slot_.resize(m.direct ? 0 : m.at_dense);
  single_slot_.zero();
  tail_.assign(m.at_edge - m.at_bias, Slot<double>{0, 0, 0, 1.0 / (double)std::max<int64_t>(1, n_sequences_)});
  ridge_.assign(tail_.size(), 1.0);
  for (size_t k = 0; penalised && k < tail_.size(); k++) ridge_[k] = penalised[m.at_bias + k] ? 1.0 : 0.0;
  share_.resize(n_dense_rows_);
  share_.zero();
  for (int64_t q = 0; q < row_.size(); q++) share_[row_[q]] += 1;
  for (int64_t q = 0; q < single_.size(); q++) single_slot_[single_[q]].share += 1;
  for (int64_t d = 0; d < m.n_dense; d++) share_[m.rows() + d] = (float)n_sequences_;
  for (int64_t r = 0; r < n_dense_rows_; r++) share_[r] = share_[r] > 0 ? 1 / share_[r] : 0;
  for (int64_t f = 0; f < single_slot_.size(); f++)
    single_slot_[f].share = single_slot_[f].share > 0 ? 1 / single_slot_[f].share : 0;
  table_.resize(n_rows_ * wide_);
  table_.zero();
  pair_table_.resize(n_sequences_ * (int64_t)m.pairs.size());
  pair_table_.zero();
  entropy_.assign(n_sequences_, 0.0);
  ratio_.assign(n_sequences_, 0.0);
  place_.assign((size_t)m.labels * m.labels, -1);
  for (size_t q = 0; q < m.pairs.size(); q++) place_[m.pairs[q]] = (int32_t)q;
  for (int64_t d = 0; d < m.n_dense; d++) {
    dense_row_.push_back((int32_t)(m.rows() + d));
    dense_at_.push_back((uint16_t)d);
  }
  return_freed_memory();
}

// Groups of the problem cut into blocks; `packed` tells the row of the problem for every row of the table.
void PrimalDual::make_blocks(int width, std::vector<int64_t>& packed) {
  const Model& m = model();
  if (m.fixed() || m.labels >= 48) width = 1;  // tables that sweeps treat sequence by sequence, or as sparse
  for (const Group& g : p_.groups_) {
    if (g.partial) throw std::invalid_argument("primal-dual steps need one known label a step");
    for (int from = 0; from < g.width; from += width) {
      Block block;
      block.row = (int64_t)packed.size();
      block.first = (int64_t)order_.size();
      block.width = std::min(width, g.width - from);
      block.start.push_back(0);
      for (int t = 0; t < g.steps && g.active[t] > from; t++) {
        const int here = std::min(block.width, g.active[t] - from);
        for (int b = 0; b < here; b++) packed.push_back(g.row + g.start[t] + from + b);
        block.active.push_back(here);
        block.start.push_back(block.start.back() + here);
      }
      block.steps = (int)block.active.size();
      block.rows = block.start.back();
      if (block.rows > MOST_ROWS) throw std::invalid_argument("primal-dual steps take at most 65,535 steps a block");
      if (block.rows * wide_ > INT32_MAX) throw std::invalid_argument("too many labels and steps for primal-dual steps");
      for (int b = 0; b < block.width; b++) {
        block.sequence.push_back(g.sequence[from + b]);
        order_.push_back(g.sequence[from + b]);
      }
      blocks_.push_back(std::move(block));
    }
  }
  n_rows_ = (int64_t)packed.size();
  n_sequences_ = (int64_t)order_.size();
}

// Lists of columns turned round: for each sequence, every column once with the rows that have it.
void PrimalDual::make_lists(const std::vector<int64_t>& packed) {
  const Model& m = model();
  const NodeRows x = p_.rows();
  std::vector<int64_t> expanded_ptr;
  const std::vector<int32_t> expanded =
      expand_rows(p_.merged_, n_rows_, m.rows(), x.row_ptr, x.row_item, expanded_ptr);
  // The problem has lists of columns in order of their lengths, and single features of a group together.
  std::vector<int64_t> list_of(n_rows_);
  for (const Group& g : p_.groups_)
    for (int64_t k = 0; k < g.rows; k++) list_of[g.row + x.row_order[g.row + k]] = g.row + k;
  std::vector<int64_t> alone_ptr(n_rows_ + 1, 0);
  auto each_single = [&](auto visit) {  // visit(row, feature, value)
    for (const Group& g : p_.groups_)
      for (int k = 0; k < SINGLES && !m.direct; k++) {
        const SingleLists& own = x.single[k];
        for (int64_t q = own.ptr[g.row]; q < own.ptr[g.row + g.rows]; q++) {
          const int64_t cell = own.short_cell ? own.short_cell[q * (k + 1)] : own.long_cell[q * (k + 1)];
          for (int i = 0; i <= k; i++) visit(g.row + cell / m.stride, own.item[q] + i, x.values ? own.value[q] : 1.0);
        }
      }
  };
  each_single([&](int64_t r, int32_t, double) { alone_ptr[r + 1]++; });
  for (int64_t r = 0; r < n_rows_; r++) alone_ptr[r + 1] += alone_ptr[r];
  std::vector<int32_t> alone(alone_ptr[n_rows_]);
  std::vector<double> alone_value(x.values ? alone.size() : 0);
  std::vector<int64_t> next(alone_ptr.begin(), alone_ptr.end() - 1);
  each_single([&](int64_t r, int32_t feature, double value) {
    if (x.values) alone_value[next[r]] = value;
    alone[next[r]++] = feature;
  });
  Gathered<uint16_t> rows(m.rows());
  Gathered<int32_t> singles(m.direct ? 0 : m.at_dense);
  std::vector<int32_t> row, row_ptr, single, single_ptr, single_at;
  std::vector<uint16_t> row_at;
  std::vector<float> row_value, single_value;
  row_at.reserve(expanded.size());
  single_at.reserve(alone.size());
  for (const Block& block : blocks_)
    for (int b = 0; b < block.width; b++) {
      const int length = block.length(b);
      rows.gather(x.values, [&](auto visit) {
        for (int t = 0; t < length; t++) {
          const int64_t at = block.start[t] + b, r = list_of[packed[block.row + at]];
          for (int64_t q = expanded_ptr[r]; q < expanded_ptr[r + 1]; q++)
            visit(expanded[q], at, x.values ? x.row_value[q] : 1.0);
        }
      });
      singles.gather(x.values, [&](auto visit) {
        for (int t = 0; t < length; t++) {
          const int64_t at = block.start[t] + b, r = packed[block.row + at];
          for (int64_t q = alone_ptr[r]; q < alone_ptr[r + 1]; q++)
            visit(alone[q], at * wide_ + m.feature_label[alone[q]], x.values ? alone_value[q] : 1.0);
          for (int64_t q = x.list_ptr ? x.list_ptr[r] : 0; x.list_ptr && q < x.list_ptr[r + 1]; q++)
            for (int32_t f = x.list_begin[q]; f < x.list_end[q]; f++)
              visit(f, at * wide_ + m.feature_label[f], x.values ? x.list_value[q] : 1.0);
        }
      });
      From from;
      from.row = (int64_t)row.size();
      from.row_ptr = (int64_t)row_ptr.size();
      from.row_at = (int64_t)row_at.size();
      from.single = (int64_t)single.size();
      from.single_ptr = (int64_t)single_ptr.size();
      from.single_at = (int64_t)single_at.size();
      from.rows_once = rows.once;
      from.single_once = singles.once;
      from_.push_back(from);
      append(row, rows.item);
      append(row_ptr, rows.ptr);
      append(row_at, rows.at);
      append(row_value, rows.value);
      append(single, singles.item);
      append(single_ptr, singles.ptr);
      append(single_at, singles.at);
      append(single_value, singles.value);
    }
  From end;
  end.row = (int64_t)row.size();
  end.single = (int64_t)single.size();
  from_.push_back(end);
  take_over(row_, row);
  take_over(row_ptr_, row_ptr);
  take_over(row_at_, row_at);
  take_over(row_value_, row_value);
  take_over(single_, single);
  take_over(single_ptr_, single_ptr);
  take_over(single_at_, single_at);
  take_over(single_value_, single_value);
}

}  // namespace crfield
