// Steps of primal–dual epochs: what `crfield.kernels.dual` describes, a sequence at a time.
#include "chain/primal_dual.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace crfield {
namespace {

constexpr int AHEAD = 16;           // cache lines of the next lists
constexpr double NOTHING = 1e-8;    // a distance that may be rounding, and says nothing of a step's length

template <class T>
double member(const Slot<T>& s, PrimalDual::What what) {
  return what == PrimalDual::What::WEIGHT ? s.weight
         : what == PrimalDual::What::DUAL ? s.dual
         : what == PrimalDual::What::TAU  ? s.tau
                                          : s.share;
}

template <class T>
void set_member(Slot<T>& s, PrimalDual::What what, double x) {
  (what == PrimalDual::What::WEIGHT ? s.weight
   : what == PrimalDual::What::DUAL ? s.dual
   : what == PrimalDual::What::TAU  ? s.tau
                                    : s.share) = (T)x;
}

}  // namespace

DualLists PrimalDual::lists(int64_t s) const {
  const From& from = from_[s];
  DualLists x;
  x.n_rows = from_[s + 1].row - from.row;
  x.n_single = from_[s + 1].single - from.single;
  x.rows_ahead = (int64_t)row_.size() - from.row;
  x.single_ahead = (int64_t)single_.size() - from.single;
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
  x.n_rows = x.rows_once = x.rows_ahead = (int64_t)dense_row_.size();
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
    else if (what == What::SHARE)
      share_[row] = (float)flat[f];  // all weights of a column have one
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

double PrimalDual::pull_table(double* out) const {
  const Model& m = model();
  std::fill_n(out, m.n_weights, 0.0);
  const int64_t at_pairs = m.at_pairs, n_pairs = (int64_t)m.pairs.size();
  Buffer<double> rows(m.rows() * wide_);
  rows.zero();
  for (const Block& block : blocks_)
    for (int b = 0; b < block.width; b++) {
      const DualLists x = lists(block.first + b);
      const float* table = table_.data() + block.row * wide_;
      k_->total(x, wide_, table, rows.data(), out);  // single features lie where their weights do
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
  each_place([&](int64_t f, int64_t row, int64_t at) {
    if (f < m.at_dense && row >= 0) out[f] = rows[row * wide_ + at];
  });
  double sum = 0;
  for (double h : entropy_) sum += h;
  return sum;
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
  } else {  // nobody asks for them later
    row_curve_ = Buffer<float>();
    single_curve_ = Buffer<float>();
    variance_.clear();
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

// Scores and marginals of a block at the present weights, then one step after the other.
double PrimalDual::steps_of(const Block& block, const DualEpoch& options) {
  const Model& m = model();
  const int64_t n_tail = (int64_t)tail_.size();
  flat_tail_.resize(n_tail);
  for (int64_t k = 0; k < n_tail; k++) flat_tail_[k] = tail_[k].weight;
  loaded_.set_edges(m, flat_tail_.data() + (m.at_pairs - m.at_bias));
  score_.resize(block.rows * wide_);
  delta_.resize(block.rows * wide_);
  score_.zero();
  for (int b = 0; b < block.width; b++) k_->score(lists(block.first + b), slots(), score_.data());
  if (m.n_dense) {
    at_.resize(block.rows);
    for (int64_t r = 0; r < block.rows; r++) at_[r] = (int32_t)r;
    DualRows all;
    all.steps = block.rows;
    all.wide = wide_;
    all.at = at_.data();
    k_->score_dense(all, m.n_dense, dense_.data() + block.row * m.n_dense, block_.data() + m.rows() * 3 * wide_,
                    score_.data());
  }
  // A sequence that a sweep does in logs leaves nothing behind to count its pairs from: each is then swept alone.
  const EdgeTable& table = loaded_.edges().table();
  double loss = 0;
  if (block.width == 1 || table.safe) {
    const Sweep s = infer(block, 0, block.width);
    for (int b = 0; b < block.width; b++) loss += step(block, b, 0, s, options);
  } else {
    for (int b = 0; b < block.width; b++) loss += step(block, b, b, infer(block, b, 1), options);
  }
  return loss;
}

// Marginals of `width` sequences of a block from `first` on: of all of them, in the rows of the block, or of one.
Sweep PrimalDual::infer(const Block& block, int first, int width) {
  const Model& m = model();
  const EdgeTable& table = loaded_.edges().table();
  const int L = m.labels, stride = m.stride;
  const int64_t size = (int64_t)L * stride;
  Group part;
  part.width = width;
  part.steps = width == block.width ? block.steps : block.length(first);
  part.rows = width == block.width ? block.rows : part.steps;
  if (width < block.width) {
    alone_.assign(part.steps, 1);
    alone_start_.resize(part.steps + 1);
    for (int t = 0; t <= part.steps; t++) alone_start_[t] = t;
  }
  Sweep s = scratch_.prepare(part, L, stride, table.words, !table.safe);
  s.active = width == block.width ? block.active.data() : alone_.data();
  s.start = width == block.width ? block.start.data() : alone_start_.data();
  if (width > 1) s.side = nullptr;  // sequences side by side leave nothing behind to count pairs of each from
  for (int64_t r = 0; r < part.rows; r++) {
    const float* from = score_.data() + (width == block.width ? r : block.start[r] + first) * wide_;
    double* to = s.score + r * stride;
    for (int j = 0; j < L; j++) to[j] = from[j];
    for (int j = 0; j < L && m.bias; j++) to[j] += flat_tail_[j];
    for (int j = L; j < stride; j++) to[j] = -INFINITY;
  }
  auto add_ends = [&](const double* ends) {
    for (int b = 0; b < width; b++) {
      const int last = (width == block.width ? block.length(first + b) : part.steps) - 1;
      double *to = s.score + (int64_t)b * stride, *end = s.score + (s.start[last] + b) * stride;
      for (int j = 0; j < L; j++) to[j] += ends[j];
      for (int j = 0; j < L; j++) end[j] += ends[L + j];
    }
  };
  if (m.boundaries) add_ends(flat_tail_.data() + (m.at_start - m.at_bias));
  kept_.resize(part.rows * stride);
  std::memcpy(kept_.data(), s.score, sizeof(double) * part.rows * stride);
  if (m.fixed()) add_ends(m.fixed_ends.data());

  // Pairs are counted for each sequence: of one alone by the sweep, of several from what it leaves behind.
  for (Buffer<double>* b : {&counts_, &direct_}) b->resize(size);
  pair_counts_.resize((int64_t)m.pairs.size());
  for (Buffer<double>* b : {&counts_, &direct_, &pair_counts_}) b->zero();
  for (int b = 0; b < width; b++) scratch_.factor[b] = 1.0;
  s.direct = direct_.data();
  s.counts = width == 1 && !table.sparse ? counts_.data() : nullptr;
  s.pair_counts = width == 1 && table.sparse ? pair_counts_.data() : nullptr;
  m.k->sweep(table, s);
  return s;
}

// One sequence: how far its marginals are from the table, how far to go, and the step. `first` is that of the sweep.
double PrimalDual::step(const Block& block, int b, int first, const Sweep& s, const DualEpoch& options) {
  const Model& m = model();
  const EdgeTable& table = loaded_.edges().table();
  const int L = m.labels, stride = m.stride, length = block.length(b);
  const int64_t number = block.first + b, n_pairs = (int64_t)m.pairs.size(), n_tail = (int64_t)tail_.size();
  const int64_t at_pairs = m.at_pairs - m.at_bias, at_start = m.at_start - m.at_bias, at_end = m.at_end - m.at_bias;
  const double c = p_.weight_[block.sequence[b]];
  const DualLists columns = lists(number), dense = dense_lists();
  const DualSlots slot = slots();
  const int32_t* gold = gold_.data() + block.row;
  at_.resize(length);
  swept_.resize(length);
  for (int t = 0; t < length; t++) {
    at_[t] = (int32_t)(block.start[t] + b);
    swept_[t] = (int32_t)(s.start[t] + b - first);
  }
  DualRows rows;
  rows.labels = L;
  rows.stride = stride;
  rows.wide = wide_;
  rows.gold = gold;
  rows.steps = length;
  rows.at = at_.data();
  rows.from = swept_.data();
  rows.weight = c;
  if (s.width > 1) {
    counts_.zero();
    for (int t = 1; t < length;) {
      int last = t;
      if (s.active[t] == s.active[t - 1])
        while (last + 1 < length && s.active[last + 1] == s.active[t]) last++;
      k_->outer(last - t + 1, L, stride, s.active[t], s.alpha + (int64_t)swept_[t - 1] * stride,
                s.score + (int64_t)swept_[t] * stride, counts_.data());
      t = last + 1;
    }
  }

  // expected less gold transitions; loss = log Z - score of gold, entropy = log Z - expected score
  met_.resize(n_pairs);
  double entropy = s.total[b - first], loss = entropy;
  for (int64_t q = 0; q < n_pairs; q++) {
    const int64_t at = m.pair_place[q];
    met_[q] = (table.sparse ? pair_counts_[q] : counts_[at]) * table.prob[at] + direct_[at];
    entropy -= met_[q] * flat_tail_[at_pairs + q];
  }
  if (options.curvature)
    for (int64_t q = 0; q < n_pairs; q++) tail_curve_[at_pairs + q] += c * met_[q];
  for (int t = 0; t < length; t++) {
    const double *kept = kept_.data() + (int64_t)swept_[t] * stride, *p = s.belief + (int64_t)swept_[t] * stride;
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
        const double p = j < L ? s.belief[(int64_t)swept_[t] * stride + j] : 0.0;
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
      if (gap > NOTHING) ratio_[number] = curved / gap;
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
