// The round of listening for two labels, where responses of the first mirror those of the second. A block of nodes is
// taken through four stages, so that the divisions, which are most of the work, are done for several at once:
//
//     messages   λ ∝ (b₀ μ₁, b₁ μ₀) of the sender, then μ = λ · table          lanes are messages
//     products   local scores times all μ                                      one node after the other
//     answers    beliefs, w and w z                                            lanes are nodes
//     sums       moments and masses of λ for the couplings                     one node after the other
//
// A number depends on its own lane alone, so bits do not depend on where a block begins.
#include "virtual/two_labels.hpp"

#include <algorithm>

#include "level.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {
namespace {

using virtual_evidence::kFloor;
using virtual_evidence::kLeastWeight;
using virtual_evidence::kSmall;
using virtual_evidence::Loss;
using virtual_evidence::Round;
using virtual_evidence::TwoSums;

constexpr int64_t NODES = 256;  // of a block: its numbers stay in the nearest cache

inline V larger(V a, V b) { return a > b ? a : b; }

// Number k of the rows at these places.
inline V column(const double* const* at, int k) {
#if CRFIELD_LEVEL == 4
  return V{at[0][k], at[1][k], at[2][k], at[3][k], at[4][k], at[5][k], at[6][k], at[7][k]};
#elif CRFIELD_LEVEL == 3
  return V{at[0][k], at[1][k], at[2][k], at[3][k]};
#else
  return V{at[0][k], at[1][k]};
#endif
}

struct Block {
  std::vector<double> heard0, heard1;  // λ of the block's messages
  double product0[NODES + LANES], product1[NODES + LANES];
  double truth[NODES + LANES], by[NODES + LANES];  // 1 for the second label; the node's weight, 0 if it does not teach
  double w[NODES + LANES], moved[NODES + LANES];
};

template <bool single, bool maximise>
void messages(const Round& r, int64_t first, int64_t last, Block& b) {
  const V floor = fill(kFloor), zero = fill(0.0), half = fill(0.5), one = fill(1.0);
  V t[4];
  if (single)
    for (int k = 0; k < 4; k++) t[k] = fill(r.factors[k]);
  for (int64_t s = first; s < last; s += LANES) {
    const double *from[LANES], *back[LANES], *table[LANES];
    for (int i = 0; i < LANES; i++) {
      const int64_t at = s + i < last ? s + i : last - 1;
      from[i] = r.before + 2 * (int64_t)r.other[at];
      back[i] = r.sent + 2 * (int64_t)r.mate[at];
      table[i] = r.factors + (single ? 0 : 4 * (int64_t)r.group[at]);
    }
    if (!single)
      for (int k = 0; k < 4; k++) t[k] = column(table, k);
    const V a0 = column(from, 0) * larger(column(back, 1), floor), a1 = column(from, 1) * larger(column(back, 0), floor);
    const V known = a0 + a1, sum = known > zero ? known : one;
    const V g0 = known > zero ? a0 : half, g1 = known > zero ? a1 : half;
    const V x0 = g0 * t[0], x1 = g0 * t[1], y0 = g1 * t[2], y1 = g1 * t[3];
    const V m0 = maximise ? larger(x0, y0) : x0 + y0, m1 = maximise ? larger(x1, y1) : x1 + y1;
    // One division for two reciprocals; neither sum is below 1e-70 (floors, and tables within exp(±MOST)).
    const V whole = m0 + m1, over = one / (sum * whole), scale = over * whole, rest = over * sum;
    store(b.heard0.data() + (s - first), g0 * scale);
    store(b.heard1.data() + (s - first), g1 * scale);
    const V mu0 = larger(m0 * rest, floor), mu1 = larger(m1 * rest, floor);
    for (int i = 0; i < LANES && s + i < last; i++) r.arriving[2 * (s + i)] = mu0[i], r.arriving[2 * (s + i) + 1] = mu1[i];
  }
}

void products(const Round& r, int64_t first, int64_t last, Block& b) {
  for (int64_t n = first; n < last; n++) {
    double p0 = r.local[2 * n], p1 = r.local[2 * n + 1];
    for (int64_t s = r.indptr[n]; s < r.indptr[n + 1]; s++) {
      p0 *= r.arriving[2 * s], p1 *= r.arriving[2 * s + 1];
      if (p0 < kSmall && p1 < kSmall) {
        const double back_up = 1.0 / std::max(p0 + p1, 1e-300);
        p0 *= back_up, p1 *= back_up;
      }
    }
    const int64_t y = r.truth[n], k = n - first;
    const bool teaches = y >= 0 && !r.held[n] && r.local[2 * n + 1] > 0;
    b.product0[k] = p0, b.product1[k] = p1;
    b.truth[k] = (double)y, b.by[k] = teaches ? r.weight[n] : 0.0;
  }
}

void answers(const Round& r, int64_t first, int64_t last, Block& b) {
  const V zero = fill(0.0), one = fill(1.0), least = fill(kLeastWeight), limit = fill(r.limit);
  const int64_t count = last - first;
  for (int64_t k = count; k < count + LANES; k++) b.product0[k] = b.product1[k] = 1.0, b.truth[k] = b.by[k] = 0.0;
  for (int64_t k = 0; k < count; k += LANES) {
    V p0 = load(b.product0 + k), p1 = load(b.product1 + k);
    const V sum = p0 + p1, scale = sum > zero ? one / sum : zero;
    p0 *= scale, p1 *= scale;
    const V curvature = larger(p1 * (one - p1), least);
    // w z = by · curvature · clip(difference / curvature), which needs no division
    const V most = limit * curvature;
    V difference = load(b.truth + k) - p1;
    difference = difference > most ? most : difference;
    difference = difference < -most ? -most : difference;
    const V by = load(b.by + k), w = by * curvature, moved = by * difference;
    store(b.w + k, w);
    store(b.moved + k, moved);
    for (int i = 0; i < LANES && k + i < count; i++) {
      double *belief = r.beliefs + 2 * (first + k + i), *pair = r.pairs + 2 * (first + k + i);
      belief[0] = p0[i], belief[1] = p1[i];
      pair[0] = w[i], pair[1] = moved[i];
    }
  }
}

// Neighbours of one group: Σ λ, and Σ λ λ' as (00, 01, 11).
struct Near {
  double count[2] = {0, 0}, own[3] = {0, 0, 0};
  int64_t node = -1;  // the node it belongs to
  int heard = 0;

  template <bool squares>
  void add(double h0, double h1) {
    count[0] += h0, count[1] += h1;
    if (squares) own[0] += h0 * h0, own[1] += h0 * h1, own[2] += h1 * h1, heard++;
  }
};

inline void add(TwoSums& sums, const Near& near, double w, double moved) {
  const double c0 = near.count[0], c1 = near.count[1];
  sums.moment[0] += moved * c0, sums.moment[1] += moved * c1;
  sums.mass[0] += w * c0, sums.mass[1] += w * c1;
  if (near.heard < 2) return;  // also where squares were not asked for
  sums.square[0] += w * (c0 * c0 - near.own[0]);
  sums.square[1] += w * (c0 * c1 - near.own[1]);
  sums.square[2] += w * (c1 * c1 - near.own[2]);
}

template <bool squares>
void sum_one(const Round& r, int64_t first, int64_t last, const Block& b, TwoSums& all) {
  const int64_t base = r.indptr[first];
  TwoSums sums = all;
  for (int64_t n = first; n < last; n++) {
    Near near;
    for (int64_t s = r.indptr[n]; s < r.indptr[n + 1]; s++) near.add<squares>(b.heard0[s - base], b.heard1[s - base]);
    add(sums, near, b.w[n - first], b.moved[n - first]);
  }
  all = sums;
}

template <bool squares>
void sum_groups(const Round& r, int64_t first, int64_t last, const Block& b, std::vector<Near>& near,
                std::vector<int64_t>& met, std::vector<TwoSums>& sums) {
  const int64_t base = r.indptr[first];
  for (int64_t n = first; n < last; n++) {
    if (b.w[n - first] == 0.0) continue;
    int64_t n_met = 0;
    for (int64_t s = r.indptr[n]; s < r.indptr[n + 1]; s++) {
      Near& one = near[r.group[s]];
      if (one.node != n) {
        one = Near();
        one.node = n;
        met[n_met++] = r.group[s];
      }
      one.add<squares>(b.heard0[s - base], b.heard1[s - base]);
    }
    for (int64_t k = 0; k < n_met; k++) add(sums[met[k]], near[met[k]], b.w[n - first], b.moved[n - first]);
  }
}

// Most nodes teach with weight one: the product of their beliefs stays in a register.
void add_loss(const Round& r, int64_t first, int64_t last, Loss& loss) {
  double product = 1.0;
  for (int64_t n = first; n < last; n++) {
    const int64_t y = r.truth[n];
    if (y < 0) continue;
    const double b = r.beliefs[2 * n + y], weight = r.weight[n];
    if (weight != 1.0 || r.held[n] || b <= 1e-30) {
      loss.add(b, weight, r.held[n] != 0);
      continue;
    }
    if ((product *= b) < kSmall) loss.add_product(product), product = 1.0;
  }
  loss.add_product(product);
}

template <bool single, bool maximise, bool squares>
void blocks(const Round& r, int64_t from, int64_t to, std::vector<TwoSums>& sums, Loss& loss) {
  Block b;
  std::vector<Near> near(single ? 0 : r.groups);
  std::vector<int64_t> met(single ? 0 : r.groups);
  for (int64_t first = from; first < to; first += NODES) {
    const int64_t last = std::min(first + NODES, to), heard = r.indptr[last] - r.indptr[first];
    if ((int64_t)b.heard0.size() < heard + LANES) b.heard0.resize(heard + LANES), b.heard1.resize(heard + LANES);
    messages<single, maximise>(r, r.indptr[first], r.indptr[last], b);
    products(r, first, last, b);
    answers(r, first, last, b);
    add_loss(r, first, last, loss);
    if (single) sum_one<squares>(r, first, last, b, sums[0]);
    else sum_groups<squares>(r, first, last, b, near, met, sums);
  }
}

}  // namespace
}  // namespace CRFIELD_LEVEL_NAME

namespace virtual_evidence {

void CRFIELD_JOIN(two_labels_level, CRFIELD_LEVEL)(const Round& r, int64_t from, int64_t to,
                                                   std::vector<TwoSums>& sums, Loss& loss) {
  using namespace CRFIELD_LEVEL_NAME;
  if (r.groups == 1) {
    if (r.maximise && r.square) blocks<true, true, true>(r, from, to, sums, loss);
    else if (r.maximise) blocks<true, true, false>(r, from, to, sums, loss);
    else if (r.square) blocks<true, false, true>(r, from, to, sums, loss);
    else blocks<true, false, false>(r, from, to, sums, loss);
  } else {
    if (r.maximise && r.square) blocks<false, true, true>(r, from, to, sums, loss);
    else if (r.maximise) blocks<false, true, false>(r, from, to, sums, loss);
    else if (r.square) blocks<false, false, true>(r, from, to, sums, loss);
    else blocks<false, false, false>(r, from, to, sums, loss);
  }
}

}  // namespace virtual_evidence
}  // namespace crfield
