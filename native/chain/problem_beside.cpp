// Groups of the fused objective beside each other, in double or in single precision.
//
// Groups have eight sequences, the steps of stochastic epochs, and a sweep that reads each number of the table of pairs for
// sixteen lanes takes four fifths of the time of one that reads it for eight. So GROUPS_BESIDE of them share a sweep. A
// vector of single precision holds sixteen lanes, so there it is twice as many. Whatever does not suit it (unknown labels,
// features of edges, groups that are mostly one long sequence) goes one by one (`one_group`), in double precision on the
// rounded scores if single was asked for.
//
// Single precision: scores, recursions and beliefs; sums stay in double. How far off? Scores of size S are rounded by about
// S 2^-24, and so is each step's share of log Z. So for a sequence
//
//   error = 2^-24 Σ_t (|largest score| + |score of the label| + max(4, largest |weight|))
//
// where the last term stands for the sums of the recursion and for weights that cancel. It counts on no luck between
// positions, where roundings cancel as well; the true error is far smaller where there are many.
#include <algorithm>
#include <cmath>

#include "chain/problem_memory.hpp"

namespace crfield {

namespace {

constexpr double ROUNDING = 1.0 / (1 << 24), LEAST = 4;

}  // namespace

// Scores of a group from weights of single precision, as doubles.
void Problem::gather_rounded(const Group& g, const NodeWeights& weights, const double* base, Part& part,
                             double* score) const {
  const Model& m = *model_;
  part.floats.score.resize(g.rows * m.stride);
  float* rounded = part.floats.score.data();
  m.k->gather_single(weights, *part.gather_rows, g.row, g.rows, base, rounded);
  double size = 0;
  for (int64_t r = 0; r < g.rows; r++) {
    double largest = 0;
    for (int j = 0; j < m.stride; j++) {
      const double x = score[r * m.stride + j] = rounded[r * m.stride + j];
      if (j < m.labels) largest = std::max(largest, std::abs(x));
    }
    size += 2 * largest + LEAST;
  }
  part.error += ROUNDING * size;
}

// Value and gradient of n groups, added to the part; false where they do not suit it.
template <class T>
bool Problem::groups_beside(const Group* const* groups, int n, const Loaded& loaded, const double* boundary, Part& part,
                            const NodeGradient& out) const {
  constexpr bool SINGLE = sizeof(T) < sizeof(double);
  const Model& m = *model_;
  const EdgeTable& table = loaded.edges().table();
  const int L = m.labels, stride = m.stride;
  Beside<T> s;
  s.labels = L, s.stride = stride, s.n = n;
  s.per = n == 1 && table.sparse ? SIDE_MOST : SIDE_MOST / 2;
  int64_t rows = 0;
  for (int k = 0; k < n; k++) {
    const Group& g = *groups[k];
    if (g.partial || g.steps > groups[0]->steps || g.width > s.per) return false;
    s.of[k].steps = g.steps, s.of[k].width = g.width;
    s.of[k].active = g.active.data(), s.of[k].start = g.start.data();
    rows += g.rows;
  }
  if constexpr (SINGLE) {
    if (!m.k->fits_single(table, s)) return false;
  } else if (!m.k->fits_beside(table, s)) {
    return false;
  }

  auto& side = part.side(T());
  side.score.resize(rows * stride);
  part.totals.resize(3 * n * s.per);
  const int64_t steps = groups[0]->steps, lanes = (SINGLE ? 2 : 1) * GROUPS_BESIDE * (SIDE_MOST / 2);
  side.scratch.resize(((2 * steps + 1) * L + steps + 1) * lanes + (SINGLE ? (int64_t)m.pairs.size() * SIDE_MOST : 0));
  s.side = side.scratch.data();
  s.counts = table.sparse ? nullptr : part.counts.data();
  s.pair_counts = table.sparse ? part.pair_counts.data() : nullptr;

  const NodeWeights weights = loaded.node(m);
  auto last_row = [](const Group& g, int b) {
    int t = g.steps - 1;
    while (g.active[t] <= b) t--;
    return g.start[t] + b;
  };
  double value = 0, size = rows * std::max(LEAST, SINGLE ? loaded.largest() : 0);
  T* score = side.score.data();
  for (int k = 0; k < n; k++, score += groups[k - 1]->rows * stride) {
    const Group& g = *groups[k];
    double* totals = part.totals.data() + 3 * k * s.per;
    for (int b = 0; b < g.width; b++) totals[b] = weight_[g.sequence[b]];
    s.of[k].factor = totals, s.of[k].total = totals + s.per, s.of[k].size = SINGLE ? totals + 2 * s.per : nullptr;
    s.of[k].score = s.of[k].belief = score;
    if constexpr (SINGLE)
      m.k->gather_single(weights, *part.gather_rows, g.row, g.rows, loaded.base(), score);
    else
      m.k->gather(weights, *part.gather_rows, g.row, g.rows, loaded.base(), score);
    for (int b = 0; boundary && b < g.width; b++) {
      T *first = score + (int64_t)b * stride, *last = score + last_row(g, b) * stride;
      for (int j = 0; j < L; j++) first[j] += (T)boundary[j];
      for (int j = 0; j < L; j++) last[j] += (T)boundary[L + j];
    }
    const uint32_t* cell = gold_cell_.data() + g.row;
    if (!weighted_) {
      double sum[4] = {0, 0, 0, 0}, of_size[4] = {0, 0, 0, 0};
      int64_t r = 0;
      for (; r + 4 <= g.rows; r += 4)
        for (int q = 0; q < 4; q++) {
          const double x = score[cell[r + q]];
          sum[q] += x;
          if (SINGLE) of_size[q] += std::abs(x);
        }
      for (; r < g.rows; r++) sum[0] += score[cell[r]], of_size[0] += std::abs((double)score[cell[r]]);
      value -= (sum[0] + sum[1]) + (sum[2] + sum[3]);
      size += (of_size[0] + of_size[1]) + (of_size[2] + of_size[3]);
    } else {
      for (int t = 0; t < g.steps; t++)
        for (int b = 0; b < g.active[t]; b++) {
          const double x = weight_[g.sequence[b]] * score[cell[g.start[t] + b]];
          value -= x;
          size += std::abs(x);
        }
    }
  }
  if constexpr (SINGLE)
    m.k->sweep_single(table, s);
  else
    m.k->sweep_beside(table, s);
  for (int k = 0; k < n; k++) {
    const Group& g = *groups[k];
    T* belief = s.of[k].belief;
    for (int b = 0; b < g.width; b++) {
      value += s.of[k].factor[b] * s.of[k].total[b];
      if (SINGLE) size += s.of[k].factor[b] * s.of[k].size[b];
    }
    const uint32_t* cell = gold_cell_.data() + g.row;
    for (int64_t r = 0; r < g.rows; r++) belief[cell[r]] -= 1;
    if (weighted_)
      for (int t = 0; t < g.steps; t++)
        for (int b = 0; b < g.active[t]; b++)
          for (int j = 0; j < L; j++) belief[(g.start[t] + b) * stride + j] *= (T)s.of[k].factor[b];
    if (m.bias)
      for (int64_t r = 0; r < g.rows; r++)
        for (int j = 0; j < L; j++) part.bias[j] += belief[r * stride + j];
    if (m.boundaries)
      for (int b = 0; b < g.width; b++)
        for (int j = 0; j < L; j++) {
          part.start[j] += belief[(int64_t)b * stride + j];
          part.end[j] += belief[last_row(g, b) * stride + j];
        }
    if constexpr (SINGLE)
      m.k->scatter_single(weights, *part.gather_rows, g.row, g.rows, belief, out);
    else
      m.k->scatter(weights, *part.gather_rows, g.row, g.rows, belief, nullptr, out);
  }
  part.value += value;
  if (SINGLE) part.error += ROUNDING * size;
  return true;
}

// How many groups of the share, from `first` on, were done beside each other; 0 where that does not suit them.
int Problem::most_beside(size_t first, int shares, const Call& call, const Shared& shared, Part& part,
                         const NodeGradient& out) const {
  const bool sparse = call.loaded.edges().table().sparse;
  if (shared.mode != Mode::GRADIENT || model_->edge_features() || (sparse && !shared.single)) return 0;
  const bool narrow = groups_[first].width <= SIDE_MOST / 2;
  const Group* some[2 * GROUPS_BESIDE];
  int found = 0;
  const int most = !narrow ? 1 : sparse || !shared.single ? 2 : 2 * GROUPS_BESIDE;
  for (size_t k = first; k < groups_.size() && found < most; k += shares) some[found++] = &groups_[k];
  for (int n = found; n > (shared.single ? 0 : 1); n = n > 2 ? 2 : n - 1) {
    const bool done = shared.single ? groups_beside<float>(some, n, call.loaded, shared.boundary, part, out)
                                    : groups_beside<double>(some, n, call.loaded, shared.boundary, part, out);
    if (done) return n;
  }
  return 0;
}

}  // namespace crfield
