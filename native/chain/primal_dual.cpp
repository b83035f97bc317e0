// Steps of primal–dual epochs: what `crfield.kernels.dual` describes, a sequence at a time.
#include "chain/primal_dual.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
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
constexpr int AHEAD = 16;             // cache lines of the next lists

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

template <class T>
double member(const Slot<T>& s, PrimalDual::What what) {
  return what == PrimalDual::What::WEIGHT ? s.weight
         : what == PrimalDual::What::DUAL ? s.dual
         : what == PrimalDual::What::TAU  ? s.tau
                                          : s.share;
}

template <class T>
void set_member(Slot<T>& s, PrimalDual::What what, double x) {
  (what == PrimalDual::What::WEIGHT ? s.weight : what == PrimalDual::What::DUAL ? s.dual : s.tau) = (T)x;
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
  Gathered<uint16_t> rows(m.rows());
  Gathered<int32_t> singles(m.direct ? 0 : m.at_dense);
  std::vector<int32_t> row, row_ptr, single, single_ptr, single_at;
  std::vector<uint16_t> row_at;
  std::vector<float> row_value, single_value;
  row_at.reserve(expanded.size());
  single_at.reserve(n_rows_ ? x.pair_ptr[n_rows_] : 0);
  for (const Block& block : blocks_)
    for (int b = 0; b < block.width; b++) {
      const int length = block.length(b);
      rows.gather(x.values, [&](auto visit) {
        for (int t = 0; t < length; t++) {
          const int64_t at = block.start[t] + b, r = packed[block.row + at];
          for (int64_t q = expanded_ptr[r]; q < expanded_ptr[r + 1]; q++)
            visit(expanded[q], at, x.values ? x.row_value[q] : 1.0);
        }
      });
      singles.gather(x.values, [&](auto visit) {
        for (int t = 0; t < length; t++) {
          const int64_t at = block.start[t] + b, r = packed[block.row + at];
          for (int64_t q = x.pair_ptr[r]; q < x.pair_ptr[r + 1]; q++)
            visit(x.pair_item[q], at * wide_ + x.pair_label[q], x.values ? x.pair_value[q] : 1.0);
          for (int64_t q = x.list_ptr ? x.list_ptr[r] : 0; x.list_ptr && q < x.list_ptr[r + 1]; q++)
            for (int64_t f = m.feature_ptr[x.list_item[q]]; f < m.feature_ptr[x.list_item[q] + 1]; f++)
              visit((int32_t)f, at * wide_ + m.feature_label[f], x.values ? x.list_value[q] : 1.0);
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

DualLists PrimalDual::lists(int64_t s) const {
  const From& from = from_[s];
  DualLists x;
  x.n_rows = from_[s + 1].row - from.row;
  x.n_single = from_[s + 1].single - from.single;
  x.rows_once = from.rows_once;
  x.single_once = from.single_once;
  x.row = row_.data() + from.row;
  x.row_ptr = row_ptr_.data() + from.row_ptr;
  x.row_at = row_at_.data() + from.row_at;
  x.single = single_.data() + from.single;
  x.single_ptr = single_ptr_.data() + from.single_ptr;
  x.single_at = single_at_.data() + from.single_at;
  if (p_.values_) {
    x.row_value = row_value_.data() + from.row_at;
    x.single_value = single_value_.data() + from.single_at;
  }
  return x;
}

// Dense columns as if each were met once, at the row of its change.
DualLists PrimalDual::dense_lists() const {
  DualLists x;
  x.n_rows = x.rows_once = (int64_t)dense_row_.size();
  x.row = dense_row_.data();
  x.row_at = dense_at_.data();
  return x;
}

DualSlots PrimalDual::slots() const {
  auto* self = const_cast<PrimalDual*>(this);
  DualSlots s;
  s.stride = wide_;
  s.block = self->block_.data();
  s.share = share_.data();
  s.single = self->single_slot_.data();
  return s;
}

// visit(weight, row, place): a place in a dense row; in the single slots where the row is -1, in the tail where it is -2
template <class Visit>
void PrimalDual::each_place(Visit visit) const {
  const Model& m = model();
  for (int64_t c = 0; c < m.columns; c++) {
    const int64_t first = m.first_feature(c), row = m.direct ? c : m.row_of_column[c];
    for (int64_t f = first; f < m.first_feature(c + 1); f++)
      visit(f, row, row < 0 ? f : (int64_t)(m.all_pairs ? f - first : m.feature_label[f]));
  }
  for (int64_t d = 0; d < m.n_dense; d++)
    for (int j = 0; j < m.labels; j++) visit(m.at_dense + d * m.labels + j, m.rows() + d, (int64_t)j);
  for (int64_t k = 0; k < (int64_t)tail_.size(); k++) visit(m.at_bias + k, (int64_t)-2, k);
}

double PrimalDual::value_at(What what, int64_t row, int64_t at) const {
  if (row == -2) return member(tail_[at], what);
  if (row == -1) return member(single_slot_[at], what);
  return what == What::SHARE ? share_[row] : block_[(row * 3 + (int)what) * wide_ + at];
}

void PrimalDual::set(What what, const double* flat) {
  each_place([&](int64_t f, int64_t row, int64_t at) {
    if (row == -2)
      set_member(tail_[at], what, flat[f]);
    else if (row == -1)
      set_member(single_slot_[at], what, flat[f]);
    else
      block_[(row * 3 + (int)what) * wide_ + at] = (float)flat[f];
  });
}

void PrimalDual::get(What what, double* flat) const {
  each_place([&](int64_t f, int64_t row, int64_t at) { flat[f] = value_at(what, row, at); });
}

void PrimalDual::set_table(const float* node, const float* pairs, const double* told) {
  const int64_t L = model().labels;
  table_.zero();
  for (int64_t r = 0; r < n_rows_; r++) std::copy_n(node + r * L, L, table_.data() + r * wide_);
  std::copy_n(pairs, pair_table_.size(), pair_table_.data());
  for (int64_t s = 0; s < n_sequences_; s++) entropy_[s] = told[2 * s], ratio_[s] = told[2 * s + 1];
}

void PrimalDual::get_table(float* node, float* pairs, double* told) const {
  const int64_t L = model().labels;
  for (int64_t r = 0; r < n_rows_; r++) std::copy_n(table_.data() + r * wide_, L, node + r * L);
  std::copy_n(pair_table_.data(), pair_table_.size(), pairs);
  for (int64_t s = 0; s < n_sequences_; s++) told[2 * s] = entropy_[s], told[2 * s + 1] = ratio_[s];
}

void PrimalDual::pull_table(double* out) const {
  const Model& m = model();
  std::fill_n(out, m.n_weights, 0.0);
  const int64_t at_pairs = m.at_pairs, n_pairs = (int64_t)m.pairs.size();
  for (const Block& block : blocks_)
    for (int b = 0; b < block.width; b++) {
      const DualLists x = lists(block.first + b);
      const float* table = table_.data() + block.row * wide_;
      for (int64_t u = 0; u < x.n_rows; u++) {
        const int64_t many = u - x.rows_once;
        const int32_t begin = many < 0 ? (int32_t)u : x.row_ptr[many], stop = many < 0 ? begin + 1 : x.row_ptr[many + 1];
        const int64_t c = m.direct ? x.row[u] : m.column_of_row[x.row[u]], first = m.first_feature(c);
        for (int64_t f = first; f < m.first_feature(c + 1); f++) {
          const float* from = table + (m.all_pairs ? f - first : m.feature_label[f]);
          double sum = 0;
          for (int32_t q = begin; q < stop; q++)
            sum += (x.row_value ? x.row_value[q] : 1.0) * from[x.row_at[q] * wide_];
          out[f] += sum;
        }
      }
      for (int64_t u = 0; u < x.n_single; u++) {
        const int64_t many = u - x.single_once;
        const int32_t begin = many < 0 ? (int32_t)u : x.single_ptr[many];
        for (int32_t q = begin; q < (many < 0 ? begin + 1 : x.single_ptr[many + 1]); q++)
          out[x.single[u]] += (x.single_value ? x.single_value[q] : 1.0) * table[x.single_at[q]];
      }
      const int length = block.length(b);
      for (int t = 0; t < length; t++) {
        const int64_t at = block.start[t] + b;
        const float* from = table + at * wide_;
        const double* dense = dense_.data() + (block.row + at) * m.n_dense;
        for (int j = 0; j < m.labels; j++) {
          for (int64_t d = 0; d < m.n_dense; d++) out[m.at_dense + d * m.labels + j] += dense[d] * from[j];
          if (m.bias) out[m.at_bias + j] += from[j];
          if (m.boundaries && t == 0) out[m.at_start + j] += from[j];
          if (m.boundaries && t == length - 1) out[m.at_end + j] += from[j];
        }
      }
      for (int64_t q = 0; q < n_pairs; q++) out[at_pairs + q] += pair_table_[(block.first + b) * n_pairs + q];
    }
}

double PrimalDual::epoch(const int64_t* order, int64_t n, const DualEpoch& options) {
  const Model& m = model();
  for (int64_t k = 0; k < n; k++)
    if (order[k] < 0 || order[k] >= n_blocks()) throw std::invalid_argument("block out of range");
  if (options.curvature) {
    row_curve_.resize(n_dense_rows_ * wide_);
    single_curve_.resize(single_slot_.size());
    row_curve_.zero();
    single_curve_.zero();
    tail_curve_.assign(tail_.size(), 0.0);
    variance_.assign(m.labels, 0.0);
  }
  double loss = 0;
  for (int64_t k = 0; k < n; k++) {
    if (k + 1 < n) {  // lists lie in no order that the processor could guess
      const Block& next = blocks_[order[k + 1]];
      const char* starts[] = {(const char*)lists(next.first).row, (const char*)lists(next.first).row_at,
                              (const char*)lists(next.first).single, (const char*)(table_.data() + next.row * wide_)};
      for (const char* at : starts)
        for (int line = 0; line < AHEAD; line++) __builtin_prefetch(at + 64 * line);
    }
    loss += steps_of(blocks_[order[k]], options);
  }
  return loss;
}

void PrimalDual::ends_of(const Block& block, int b, const double* ends, double* score, int64_t stride) const {
  const int L = model().labels;
  double *first = score + (int64_t)b * stride, *last = score + (block.start[block.length(b) - 1] + b) * stride;
  for (int j = 0; j < L; j++) first[j] += ends[j];
  for (int j = 0; j < L; j++) last[j] += ends[L + j];
}

// Scores and marginals of a block at the present weights, then one step after the other.
double PrimalDual::steps_of(const Block& block, const DualEpoch& options) {
  const Model& m = model();
  const int L = m.labels, stride = m.stride;
  const int64_t n_tail = (int64_t)tail_.size(), at_pairs = m.at_pairs - m.at_bias, size = (int64_t)L * stride;
  flat_tail_.resize(n_tail);
  for (int64_t k = 0; k < n_tail; k++) flat_tail_[k] = tail_[k].weight;
  loaded_.set_edges(m, flat_tail_.data() + at_pairs);
  const EdgeTable& table = loaded_.edges().table();
  score_.resize(block.rows * wide_);
  delta_.resize(block.rows * wide_);
  score_.zero();
  for (int b = 0; b < block.width; b++) k_->score(lists(block.first + b), slots(), score_.data());

  Group whole;
  whole.rows = block.rows;
  whole.width = block.width;
  Sweep s = scratch_.prepare(whole, L, stride, table.words, !table.safe);
  s.steps = block.steps;
  s.active = block.active.data();
  s.start = block.start.data();
  at_.resize(block.rows);
  for (int64_t r = 0; r < block.rows; r++) at_[r] = (int32_t)r;
  DualRows rows;
  rows.labels = L;
  rows.stride = stride;
  rows.wide = wide_;
  rows.gold = gold_.data() + block.row;
  if (m.n_dense) {
    rows.steps = block.rows;
    rows.at = rows.from = at_.data();
    k_->score_dense(rows, m.n_dense, dense_.data() + block.row * m.n_dense, block_.data() + m.rows() * 3 * wide_,
                    score_.data());
  }
  for (int64_t r = 0; r < block.rows; r++) {
    double* to = s.score + r * stride;
    for (int j = 0; j < L; j++) to[j] = score_[r * wide_ + j];
    for (int j = 0; j < L && m.bias; j++) to[j] += flat_tail_[j];
    for (int j = L; j < stride; j++) to[j] = -INFINITY;
  }
  for (int b = 0; b < block.width && m.boundaries; b++)
    ends_of(block, b, flat_tail_.data() + (m.at_start - m.at_bias), s.score, stride);
  kept_.resize(block.rows * stride);
  std::memcpy(kept_.data(), s.score, sizeof(double) * block.rows * stride);
  for (int b = 0; b < block.width && m.fixed(); b++) ends_of(block, b, m.fixed_ends.data(), s.score, stride);

  // Pairs are counted for each sequence: of one alone by the sweep, of several from what it leaves behind.
  for (Buffer<double>* b : {&counts_, &direct_}) b->resize(size);
  pair_counts_.resize((int64_t)m.pairs.size());
  for (Buffer<double>* b : {&counts_, &direct_, &pair_counts_}) b->zero();
  for (int b = 0; b < block.width; b++) scratch_.factor[b] = 1.0;
  s.direct = direct_.data();
  s.counts = block.width == 1 && !table.sparse ? counts_.data() : nullptr;
  s.pair_counts = block.width == 1 && table.sparse ? pair_counts_.data() : nullptr;
  m.k->sweep(table, s);
  double loss = 0;
  for (int b = 0; b < block.width; b++) {
    if (s.lost[b] && block.width > 1)
      throw std::invalid_argument("transition weights spread too far for primal-dual steps");
    if (block.width > 1) {
      counts_.zero();
      const int length = block.length(b);
      for (int t = 1; t < length;) {
        int last = t;
        if (block.active[t] == block.active[t - 1])
          while (last + 1 < length && block.active[last + 1] == block.active[t]) last++;
        k_->outer(last - t + 1, L, stride, block.active[t], s.alpha + (block.start[t - 1] + b) * stride,
                  s.score + (block.start[t] + b) * stride, counts_.data());
        t = last + 1;
      }
    }
    loss += step(block, b, rows, s, table, s.total[b], options);
  }
  return loss;
}

// One sequence: how far its marginals are from the table, how far to go, and the step.
double PrimalDual::step(const Block& block, int b, const DualRows& shared, const Sweep& s, const EdgeTable& table,
                        double total, const DualEpoch& options) {
  const Model& m = model();
  const int L = m.labels, stride = m.stride, length = block.length(b);
  const int64_t number = block.first + b, n_pairs = (int64_t)m.pairs.size(), n_tail = (int64_t)tail_.size();
  const int64_t at_pairs = m.at_pairs - m.at_bias, at_start = m.at_start - m.at_bias, at_end = m.at_end - m.at_bias;
  const double c = p_.weight_[block.sequence[b]];
  const DualLists columns = lists(number), dense = dense_lists();
  const DualSlots slot = slots();
  const int32_t* gold = gold_.data() + block.row;
  at_.resize(length);
  for (int t = 0; t < length; t++) at_[t] = (int32_t)(block.start[t] + b);
  DualRows rows = shared;
  rows.steps = length;
  rows.at = rows.from = at_.data();
  rows.weight = c;

  // expected less gold transitions; loss = log Z - score of gold, entropy = log Z - expected score
  met_.resize(n_pairs);
  double entropy = total, loss = total;
  for (int64_t q = 0; q < n_pairs; q++) {
    const int64_t at = m.pair_place[q];
    met_[q] = (table.sparse ? pair_counts_[q] : counts_[at]) * table.prob[at] + direct_[at];
    entropy -= met_[q] * flat_tail_[at_pairs + q];
  }
  if (options.curvature)
    for (int64_t q = 0; q < n_pairs; q++) tail_curve_[at_pairs + q] += c * met_[q];
  for (int t = 0; t < length; t++) {
    const double *kept = kept_.data() + (int64_t)at_[t] * stride, *p = s.belief + (int64_t)at_[t] * stride;
    double sum = 0;
    for (int j = 0; j < L; j++) sum += kept[j] * p[j];
    entropy -= sum;
    loss -= kept[gold[at_[t]]];
    if (t == 0) continue;
    const int64_t pair = (int64_t)gold[at_[t - 1]] * L + gold[at_[t]];
    const int32_t q = place_[pair];
    if (q >= 0) {
      met_[q] -= 1;
      loss -= flat_tail_[at_pairs + q];
    }
    if (m.fixed()) loss -= m.fixed_edge[pair], entropy -= m.fixed_edge[pair];
  }
  if (m.fixed()) {
    const double ends = m.fixed_ends[gold[at_[0]]] + m.fixed_ends[L + gold[at_[length - 1]]];
    loss -= ends;
    entropy -= ends;
  }

  if (options.curvature) {
    spread_.resize(block.rows * wide_);
    for (int t = 0; t < length; t++)
      for (int j = 0; j < (int)wide_; j++) {
        const double p = j < L ? s.belief[(int64_t)at_[t] * stride + j] : 0.0;
        spread_[at_[t] * wide_ + j] = (float)(c * p * (1 - p));
        if (j < L) variance_[j] += c * p * (1 - p);
      }
    k_->add(columns, slot, spread_.data(), row_curve_.data(), single_curve_.data());
    for (int t = 0; t < length && m.n_dense; t++) {
      const double* x = dense_.data() + (block.row + at_[t]) * m.n_dense;
      for (int64_t d = 0; d < m.n_dense; d++)
        for (int j = 0; j < L && x[d] != 0; j++)
          row_curve_[(m.rows() + d) * wide_ + j] += (float)(x[d] * x[d]) * spread_[at_[t] * wide_ + j];
    }
    for (int j = 0; j < L && m.boundaries; j++) {
      tail_curve_[at_start + j] += spread_[at_[0] * wide_ + j];
      tail_curve_[at_end + j] += spread_[at_[length - 1] * wide_ + j];
    }
  }

  float* stored = table_.data() + block.row * wide_;
  float* stored_pairs = pair_table_.data() + number * n_pairs;
  const bool lengths = options.lengths && !options.adagrad;
  const double gap = k_->differ(rows, s.belief, stored, delta_.data(), lengths);
  const float* delta = delta_.data();
  change_.assign(n_tail, 0.0);
  for (int t = 0; t < length && m.bias; t++)
    for (int j = 0; j < L; j++) change_[j] += delta[at_[t] * wide_ + j];
  for (int j = 0; j < L && m.boundaries; j++) {
    change_[at_start + j] = delta[at_[0] * wide_ + j];
    change_[at_end + j] = delta[at_[length - 1] * wide_ + j];
  }
  for (int64_t q = 0; q < n_pairs; q++) change_[at_pairs + q] = c * met_[q] - stored_pairs[q];
  if (m.n_dense) {
    dense_change_.resize(m.n_dense * wide_);
    dense_change_.zero();
    k_->pull_dense(rows, m.n_dense, dense_.data() + block.row * m.n_dense, delta, dense_change_.data());
  }
  DualStep move;
  move.l1 = options.l1;
  move.l2 = options.l2;
  if (options.adagrad) {
    move.rate = options.rate;
  } else {
    if (lengths) {
      double curved = k_->squares(columns, slot, delta);
      if (m.n_dense) curved += k_->squares(dense, slot, dense_change_.data());
      for (int64_t k = 0; k < n_tail; k++) curved += tail_[k].tau * change_[k] * change_[k];
      if (gap > 0) ratio_[number] = curved / gap;
    }
    move.gamma = options.damping / (1 + ratio_[number]);
  }
  k_->move(columns, slot, delta, move);
  if (m.n_dense) k_->move(dense, slot, dense_change_.data(), move);
  DualStep spared = move;
  spared.l1 = spared.l2 = 0;
  for (int64_t k = 0; k < n_tail; k++) tail_[k].move(change_[k], ridge_[k] > 0 ? move : spared);
  k_->mix(rows, delta, move.gamma, stored);
  for (int64_t q = 0; q < n_pairs; q++)
    stored_pairs[q] = (float)(stored_pairs[q] + move.gamma * change_[at_pairs + q]);
  entropy_[number] += move.gamma * (c * entropy - entropy_[number]);
  return c * loss;
}

void PrimalDual::get_curvature(double* out) const {
  const Model& m = model();
  std::fill_n(out, m.n_weights, 0.0);
  if (variance_.empty()) return;
  each_place([&](int64_t f, int64_t row, int64_t at) {
    out[f] = row >= 0 ? row_curve_[row * wide_ + at] : row == -1 ? single_curve_[at] : tail_curve_[at];
  });
  for (int j = 0; j < m.labels && m.bias; j++) out[m.at_bias + j] = variance_[j];
  p_.share_variance(variance_, out);
}

}  // namespace crfield
