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
  std::vector<int32_t> item, ptr;  // ptr: of the others
  std::vector<At> at;
  std::vector<float> value;
  int64_t once = 0;

  Gathered(int64_t n, bool values) : values_(values), mark_(n, -1) {}

  void clear() {
    seen_.clear();
    count_.clear();
    which_.clear();
    place_.clear();
    by_.clear();
  }
  void visit(int32_t x, int64_t place, double by) {
    int32_t& k = mark_[x];
    if (k < 0) {
      k = (int32_t)seen_.size();
      seen_.push_back(x);
      count_.push_back(0);
    }
    count_[k]++;
    which_.push_back(k);
    place_.push_back((At)place);
    if (values_) by_.push_back((float)by);
  }
  void gather() {
    const size_t n = seen_.size();
    item.resize(n);
    ptr.clear();
    once = 0;
    for (size_t k = 0; k < n; k++) once += count_[k] == 1;
    int32_t lone = 0, many = (int32_t)once;
    size_t others = (size_t)once;
    for (size_t k = 0; k < n; k++) {
      mark_[seen_[k]] = -1;
      if (count_[k] == 1) {
        item[lone] = seen_[k];
        count_[k] = lone++;
      } else {
        item[others++] = seen_[k];
        ptr.push_back(many);
        const int32_t here = count_[k];
        count_[k] = many;  // from here on where the next place of the item goes
        many += here;
      }
    }
    ptr.push_back(many);
    at.resize(which_.size());
    value.resize(by_.size());
    for (size_t q = 0; q < which_.size(); q++) {
      const int32_t to = count_[which_[q]]++;
      at[to] = place_[q];
      if (values_) value[to] = by_[q];
    }
  }

 private:
  bool values_;
  std::vector<int32_t> mark_, seen_, count_, which_;
  std::vector<At> place_;
  std::vector<float> by_;
};

// Lists of all sequences one after the other. `most` is a bound: pages that nothing is written to take no memory.
template <class T>
struct Growing {
  Buffer<T>& to;
  int64_t used = 0;
  Growing(Buffer<T>& buffer, int64_t most) : to(buffer) { to.resize(most); }
  ~Growing() { to.resize(used); }
  void append(const std::vector<T>& from) {
    std::copy(from.begin(), from.end(), to.data() + used);
    used += (int64_t)from.size();
  }
};

// The dense rows that each merged row stands for.
struct Members {
  std::vector<int64_t> ptr{0};
  std::vector<int32_t> row;
  Members(const MergedRows& merged, int64_t n_dense) {
    for (int64_t v = 0; v < merged.size(); v++) {
      for (int64_t q = merged.ptr[v + 1] - 1; q >= merged.ptr[v]; q--) {
        const int64_t of = merged.member[q] - n_dense;  // a merged row's members come before it
        if (of < 0)
          row.push_back(merged.member[q]);
        else
          for (int64_t k = ptr[of]; k < ptr[of + 1]; k++) row.push_back(row[k]);
      }
      ptr.push_back((int64_t)row.size());
    }
  }
};

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
  const int64_t n_dense = m.rows();
  const Members merged(p_.merged_, n_dense);
  int64_t n_met = 0, n_alone = 0;
  for (int64_t q = 0; q < x.row_ptr[n_rows_]; q++) {
    const int64_t of = x.row_item[q] - n_dense;
    n_met += of < 0 ? 1 : merged.ptr[of + 1] - merged.ptr[of];
  }
  for (int k = 0; k < SINGLES && !m.direct; k++) n_alone += x.single[k].ptr[n_rows_] * (k + 1);
  for (int64_t q = 0; x.list_ptr && q < x.list_ptr[n_rows_]; q++) n_alone += x.list_end[q] - x.list_begin[q];

  Growing<int32_t> row(row_, n_met), row_ptr(row_ptr_, n_met / 2 + n_sequences_);
  Growing<int32_t> single(single_, n_alone), single_ptr(single_ptr_, n_alone / 2 + n_sequences_);
  Growing<int32_t> single_at(single_at_, n_alone);
  Growing<uint16_t> row_at(row_at_, n_met);
  Growing<float> row_value(row_value_, x.values ? n_met : 0), single_value(single_value_, x.values ? n_alone : 0);
  Gathered<uint16_t> rows(n_dense, x.values);
  Gathered<int32_t> singles(m.direct ? 0 : m.at_dense, x.values);
  // of a group: the problem has its lists of columns in order of their lengths, and its single features together
  std::vector<int32_t> list_of, alone_ptr, next, alone;
  std::vector<double> alone_value;
  auto block = blocks_.begin();
  for (const Group& g : p_.groups_) {
    list_of.resize(g.rows);
    for (int64_t k = 0; k < g.rows; k++) list_of[x.row_order[g.row + k]] = (int32_t)k;
    auto each_single = [&](auto visit) {  // visit(row of the group, feature, value)
      for (int k = 0; k < SINGLES && !m.direct; k++) {
        const SingleLists& own = x.single[k];
        for (int64_t q = own.ptr[g.row]; q < own.ptr[g.row + g.rows]; q++) {
          const int64_t cell = own.short_cell ? own.short_cell[q * (k + 1)] : own.long_cell[q * (k + 1)];
          for (int i = 0; i <= k; i++) visit(cell / m.stride, own.item[q] + i, x.values ? own.value[q] : 1.0);
        }
      }
    };
    alone_ptr.assign(g.rows + 1, 0);
    each_single([&](int64_t r, int32_t, double) { alone_ptr[r + 1]++; });
    for (int64_t r = 0; r < g.rows; r++) alone_ptr[r + 1] += alone_ptr[r];
    alone.resize(alone_ptr[g.rows]);
    alone_value.resize(x.values ? alone.size() : 0);
    next.assign(alone_ptr.begin(), alone_ptr.end() - 1);
    each_single([&](int64_t r, int32_t feature, double value) {
      if (x.values) alone_value[next[r]] = value;
      alone[next[r]++] = feature;
    });
    for (int first = 0; first < g.width; first += block->width, ++block)
      for (int b = 0; b < block->width; b++) {
        const int length = block->length(b);
        rows.clear();
        singles.clear();
        for (int t = 0; t < length; t++) {
          const int64_t at = block->start[t] + b, r = packed[block->row + at], own = r - g.row;
          const int64_t list = g.row + list_of[own];
          for (int64_t q = x.row_ptr[list]; q < x.row_ptr[list + 1]; q++) {
            const int64_t of = x.row_item[q] - n_dense;
            if (of < 0)
              rows.visit(x.row_item[q], at, x.values ? x.row_value[q] : 1.0);
            else
              for (int64_t k = merged.ptr[of]; k < merged.ptr[of + 1]; k++) rows.visit(merged.row[k], at, 1.0);
          }
          for (int32_t q = alone_ptr[own]; q < alone_ptr[own + 1]; q++)
            singles.visit(alone[q], at * wide_ + m.feature_label[alone[q]], x.values ? alone_value[q] : 1.0);
          for (int64_t q = x.list_ptr ? x.list_ptr[r] : 0; x.list_ptr && q < x.list_ptr[r + 1]; q++)
            for (int32_t f = x.list_begin[q]; f < x.list_end[q]; f++)
              singles.visit(f, at * wide_ + m.feature_label[f], x.values ? x.list_value[q] : 1.0);
        }
        rows.gather();
        singles.gather();
        From from;
        from.row = row.used;
        from.row_ptr = row_ptr.used;
        from.row_at = row_at.used;
        from.single = single.used;
        from.single_ptr = single_ptr.used;
        from.single_at = single_at.used;
        from.rows_once = rows.once;
        from.single_once = singles.once;
        from_.push_back(from);
        row.append(rows.item);
        row_ptr.append(rows.ptr);
        row_at.append(rows.at);
        row_value.append(rows.value);
        single.append(singles.item);
        single_ptr.append(singles.ptr);
        single_at.append(singles.at);
        single_value.append(singles.value);
      }
  }
  From end;
  end.row = row.used;
  end.single = single.used;
  from_.push_back(end);
}

}  // namespace crfield
