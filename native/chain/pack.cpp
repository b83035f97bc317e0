#include "chain/pack.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "at_level.hpp"

namespace crfield {

const Kernels* best_kernels() {
#if defined(CRFIELD_X86)
  return at_level(kernels_level2, kernels_level3, kernels_level4)();
#else
  return kernels_level0();
#endif
}

std::vector<Group> make_groups(const int64_t* offsets, int64_t sequences, int width, const uint8_t* partial,
                               std::vector<int64_t>& node_of_row, int64_t alone) {
  std::vector<int64_t> order;
  for (int64_t s = 0; s < sequences; s++)
    if (offsets[s + 1] > offsets[s]) order.push_back(s);
  auto length = [&](int64_t s) { return offsets[s + 1] - offsets[s]; };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const bool pa = partial && partial[a], pb = partial && partial[b];
    return pa != pb ? pa < pb : length(a) > length(b);
  });
  node_of_row.clear();
  int64_t packed = 0;
  for (int64_t s : order) packed += length(s) < alone ? length(s) : 0;
  node_of_row.reserve(packed);
  std::vector<Group> groups;
  for (size_t first = 0; first < order.size();) {
    Group g;
    g.partial = partial && partial[order[first]];
    if (length(order[first]) >= alone) {
      g.row = (int64_t)node_of_row.size();
      g.rows = length(order[first]);
      g.width = 1;
      g.sequence.assign(1, order[first++]);
      groups.push_back(std::move(g));
      continue;
    }
    size_t last = first;
    while (last < order.size() && last - first < (size_t)width && (partial && partial[order[last]]) == g.partial) last++;
    g.row = (int64_t)node_of_row.size();
    g.width = (int32_t)(last - first);
    g.steps = (int32_t)length(order[first]);
    g.sequence.assign(order.begin() + first, order.begin() + last);
    g.active.reserve(g.steps);
    g.start.reserve((size_t)g.steps + 1);
    g.start.push_back(0);
    int32_t running = g.width;
    for (int32_t t = 0; t < g.steps; t++) {
      while (length(g.sequence[running - 1]) <= t) running--;
      for (int32_t b = 0; b < running; b++) node_of_row.push_back(offsets[g.sequence[b]] + t);
      g.active.push_back(running);
      g.start.push_back(g.start.back() + running);
    }
    g.rows = g.start.back();
    groups.push_back(std::move(g));
    first = last;
  }
  return groups;
}

std::vector<int64_t> split_groups(const std::vector<Group>& groups, int parts) {
  int64_t rows = 0;
  for (const Group& g : groups) rows += g.rows;
  std::vector<int64_t> cut(parts + 1, (int64_t)groups.size());
  cut[0] = 0;
  int64_t done = 0, k = 0;
  for (int part = 1; part < parts; part++) {
    while (k < (int64_t)groups.size() && (done + groups[k].rows / 2) * parts < rows * part) done += groups[k++].rows;
    cut[part] = k;
  }
  return cut;
}

// to[i][j] = from[j][i] for L labels, in blocks: of two thousand labels every entry of a column is a page of its own.
static void transpose(int labels, const double* from, int64_t from_stride, double* to, int64_t stride, double padding) {
  constexpr int BLOCK = 16;
  for (int top = 0; top < labels; top += BLOCK)
    for (int left = 0; left < labels; left += BLOCK)
      for (int i = top; i < std::min(top + BLOCK, labels); i++)
        for (int j = left; j < std::min(left + BLOCK, labels); j++) to[i * stride + j] = from[j * from_stride + i];
  for (int i = 0; i < labels; i++)
    for (int64_t j = labels; j < stride; j++) to[i * stride + j] = padding;
}

void OwnedTable::set(const Kernels* k, int labels, const double* log, const int32_t* pairs, int64_t n_pairs) {
  const double inf = std::numeric_limits<double>::infinity();
  const int stride = padded(labels, k);
  const int64_t size = (int64_t)labels * stride;
  for (Buffer<double>* b : {&log_, &log_t_, &prob_, &prob_t_}) b->resize(size);
  double top = -inf, low = inf;
  bool forbidden = false;
  for (int64_t p = 0; p < (int64_t)labels * labels; p++) {
    forbidden |= log[p] == -inf;
    top = std::max(top, log[p]);
    if (log[p] != -inf) low = std::min(low, log[p]);
  }
  EdgeTable& t = table_;
  t.single_prob = nullptr;
  t.labels = labels;
  t.stride = stride;
  t.shift = top == -inf ? 0 : top;
  t.spread = forbidden ? inf : top - low;
  t.safe = t.spread <= SAFE_SPREAD;
  for (int i = 0; i < labels; i++)
    for (int j = 0; j < stride; j++) log_[(int64_t)i * stride + j] = j < labels ? log[(int64_t)i * labels + j] : -inf;
  transpose(labels, log, labels, log_t_.data(), stride, -inf);
  k->exponentiate(size, log_.data(), t.shift, prob_.data());
  transpose(labels, prob_.data(), stride, prob_t_.data(), stride, 0);
  t.log = log_.data();
  t.prob = prob_.data();
  t.prob_t = prob_t_.data();
  t.words = (labels + 63) / 64;
  if (!t.safe) {
    into_.assign((size_t)labels * t.words, 0);
    for (int i = 0; i < labels; i++)
      for (int j = 0; j < labels; j++)
        if (log[(int64_t)i * labels + j] != -inf) into_[(size_t)j * t.words + (i >> 6)] |= uint64_t(1) << (i & 63);
    t.into = into_.data();
  }
  t.sparse = pairs && t.safe && labels >= 48 && n_pairs * 8 <= (int64_t)labels * labels;
  if (!pairs || n_pairs * 2 > (int64_t)labels * labels) return;
  if (earlier_ptr_.empty()) {
    earlier_ptr_.assign(labels + 1, 0);
    later_ptr_.assign(labels + 1, 0);
    earlier_.resize(n_pairs);
    later_.resize(n_pairs);
    for (int64_t p = 0; p < n_pairs; p++) {
      earlier_ptr_[pairs[p] / labels + 1]++;
      later_ptr_[pairs[p] % labels + 1]++;
      earlier_[p] = pairs[p] % labels;
    }
    std::partial_sum(earlier_ptr_.begin(), earlier_ptr_.end(), earlier_ptr_.begin());
    std::partial_sum(later_ptr_.begin(), later_ptr_.end(), later_ptr_.begin());
    std::vector<int32_t> next(later_ptr_.begin(), later_ptr_.end() - 1);
    for (int64_t p = 0; p < n_pairs; p++) later_[next[pairs[p] % labels]++] = pairs[p] / labels;
  }
  t.by_earlier_ptr = earlier_ptr_.data();
  t.by_earlier = earlier_.data();
  if (!t.sparse) return;
  t.ground = std::exp(0.0 - t.shift);
  earlier_extra_.resize(n_pairs);
  later_extra_.resize(n_pairs);
  for (int i = 0; i < labels; i++)
    for (int32_t p = earlier_ptr_[i]; p < earlier_ptr_[i + 1]; p++)
      earlier_extra_[p] = prob_[(int64_t)i * stride + earlier_[p]] - t.ground;
  for (int j = 0; j < labels; j++)
    for (int32_t p = later_ptr_[j]; p < later_ptr_[j + 1]; p++)
      later_extra_[p] = prob_[(int64_t)later_[p] * stride + j] - t.ground;
  t.by_later_ptr = later_ptr_.data();
  t.by_later = later_.data();
  t.by_later_extra = later_extra_.data();
  t.by_earlier_extra = earlier_extra_.data();
}

void OwnedTable::add_single() {
  EdgeTable& t = table_;
  if (!(t.spread <= SINGLE_SPREAD) || (!t.sparse && t.labels > SIDE_LABELS)) return;
  auto rounded = [](Buffer<float>& to, const Buffer<double>& from) {
    to.resize(from.size());
    for (int64_t k = 0; k < from.size(); k++) to[k] = (float)from[k];
    return to.data();
  };
  t.single_prob = rounded(single_prob_, prob_);
  t.single_prob_t = rounded(single_prob_t_, prob_t_);
  if (!t.sparse) return;
  t.single_later_extra = rounded(single_later_extra_, later_extra_);
  t.single_earlier_extra = rounded(single_earlier_extra_, earlier_extra_);
}

Sweep Scratch::prepare(const Group& group, int labels, int stride, int words, bool unsafe, bool sparse) {
  const int64_t cells = group.rows * stride;
  score.resize(cells);
  alpha.resize(cells);
  belief.resize(cells);
  inverse.resize(group.rows);
  if (unsafe) backup.resize(cells);
  spare.resize(std::max<int64_t>(2 * (int64_t)labels * stride, 32 * (int64_t)stride));
  const int64_t most = sparse ? SIDE_MOST : SIDE_MOST / 2;
  const bool beside = !unsafe && group.width <= most && (sparse || labels <= SIDE_LABELS);
  if (beside) side.resize(((2 * (int64_t)group.steps + 1) * labels + group.steps) * most + stride);
  total.resize(group.width);
  product.resize(group.width);
  factor.resize(group.width);
  lost.resize(group.width);
  alive.resize(2 * (size_t)words);
  Sweep s;
  s.labels = labels;
  s.stride = stride;
  s.steps = group.steps;
  s.width = group.width;
  s.active = group.active.data();
  s.start = group.start.data();
  s.score = score.data();
  s.alpha = alpha.data();
  s.belief = belief.data();
  s.inverse = inverse.data();
  s.backup = backup.data();
  s.spare = spare.data();
  s.product = product.data();
  s.side = beside ? side.data() : nullptr;
  s.lost = lost.data();
  s.alive = alive.data();
  s.total = total.data();
  s.factor = factor.data();
  return s;
}

}  // namespace crfield
