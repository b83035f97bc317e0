// Groups of the fused objective in single precision: scores, recursions and beliefs; sums stay in double.
//
// Two groups of eight sequences share the sixteen lanes of a vector. Whatever does not suit it (unknown labels, groups
// that are mostly one long sequence) is done in double precision on the rounded scores.
//
// How far off? Scores of size S are rounded by about S 2^-24, and so is each step's share of log Z. So for a sequence
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
  part.float_score.resize(g.rows * m.stride);
  float* rounded = part.float_score.data();
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

// Value and gradient of one or two groups, added to the part; false where they do not suit it.
bool Problem::groups_single(const Group* const* groups, int n, const Loaded& loaded, const double* boundary, Part& part,
                            const NodeGradient& out) const {
  const Model& m = *model_;
  const EdgeTable& table = loaded.edges().table();
  const int L = m.labels, stride = m.stride;
  Beside<float> s;
  s.labels = L, s.stride = stride, s.n = n;
  s.per = n == 2 || !table.sparse ? SIDE_MOST / 2 : SIDE_MOST;
  int64_t rows = 0;
  for (int k = 0; k < n; k++) {
    const Group& g = *groups[k];
    if (g.partial || g.steps > groups[0]->steps) return false;
    s.of[k].steps = g.steps, s.of[k].width = g.width;
    s.of[k].active = g.active.data(), s.of[k].start = g.start.data();
    rows += g.rows;
  }
  if (!m.k->fits_single(table, s)) return false;

  part.float_score.resize(rows * stride);
  part.float_totals.resize(3 * n * s.per);
  const int64_t steps = groups[0]->steps;
  part.float_side.resize(((2 * steps + 1) * L + steps + 1 + (int64_t)m.pairs.size()) * SIDE_MOST);
  s.side = part.float_side.data();
  s.counts = table.sparse ? nullptr : part.counts.data();
  s.pair_counts = table.sparse ? part.pair_counts.data() : nullptr;

  const NodeWeights weights = loaded.node(m);
  auto last_row = [](const Group& g, int b) {
    int t = g.steps - 1;
    while (g.active[t] <= b) t--;
    return g.start[t] + b;
  };
  double value = 0, size = rows * std::max(LEAST, loaded.largest());
  float* score = part.float_score.data();
  for (int k = 0; k < n; k++, score += groups[k - 1]->rows * stride) {
    const Group& g = *groups[k];
    double* totals = part.float_totals.data() + 3 * k * s.per;
    for (int b = 0; b < g.width; b++) totals[b] = weight_[g.sequence[b]];
    s.of[k].factor = totals, s.of[k].total = totals + s.per, s.of[k].size = totals + 2 * s.per;
    s.of[k].score = s.of[k].belief = score;
    m.k->gather_single(weights, *part.gather_rows, g.row, g.rows, loaded.base(), score);
    for (int b = 0; boundary && b < g.width; b++) {
      float *first = score + (int64_t)b * stride, *last = score + last_row(g, b) * stride;
      for (int j = 0; j < L; j++) first[j] += (float)boundary[j];
      for (int j = 0; j < L; j++) last[j] += (float)boundary[L + j];
    }
    const uint32_t* cell = gold_cell_.data() + g.row;
    if (!weighted_) {
      double sum[4] = {0, 0, 0, 0}, of_size[4] = {0, 0, 0, 0};
      int64_t r = 0;
      for (; r + 4 <= g.rows; r += 4)
        for (int q = 0; q < 4; q++) {
          const double x = score[cell[r + q]];
          sum[q] += x;
          of_size[q] += std::abs(x);
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
  m.k->sweep_single(table, s);
  for (int k = 0; k < n; k++) {
    const Group& g = *groups[k];
    float* belief = s.of[k].belief;
    for (int b = 0; b < g.width; b++) {
      value += s.of[k].factor[b] * s.of[k].total[b];
      size += s.of[k].factor[b] * s.of[k].size[b];
    }
    const uint32_t* cell = gold_cell_.data() + g.row;
    for (int64_t r = 0; r < g.rows; r++) belief[cell[r]] -= 1;
    if (weighted_)
      for (int t = 0; t < g.steps; t++)
        for (int b = 0; b < g.active[t]; b++)
          for (int j = 0; j < L; j++) belief[(g.start[t] + b) * stride + j] *= (float)s.of[k].factor[b];
    if (m.bias)
      for (int64_t r = 0; r < g.rows; r++)
        for (int j = 0; j < L; j++) part.bias[j] += belief[r * stride + j];
    if (m.boundaries)
      for (int b = 0; b < g.width; b++)
        for (int j = 0; j < L; j++) {
          part.start[j] += belief[(int64_t)b * stride + j];
          part.end[j] += belief[last_row(g, b) * stride + j];
        }
    m.k->scatter_single(weights, *part.gather_rows, g.row, g.rows, belief, out);
  }
  part.value += value;
  part.error += ROUNDING * size;
  return true;
}

}  // namespace crfield
