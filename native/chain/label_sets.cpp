// The recursion of side_by_side.cpp over what the labels of a group leave.
//
// A step whose label is known leaves the states of that label, four of twelve perhaps. With the others at -inf the
// recursion of the whole table would be right, and spend nearly all of its time on zeros. Here every row has one of a
// few sets of labels, of at most W, and a vector holds the i-th label of the set of each of its sequences. So the
// sequences of a vector step through different parts of the table, those of a pair of sets:
//
//   α_t(j) = ψ_t(j) Σ_i α_{t-1}(i) E^t_ij / z_t         E^t_ij = E[i-th label at t - 1, j-th label at t]
//
// E^t is made for all sequences of a vector at once: a pair of sets has its W² numbers in one place, and rows of these
// are turned (transpose.hpp). Expected pairs go the other way, into W² sums for each pair of sets. What a set lacks to W
// has ψ = 0. Cost of a step: 3 W² products and 6 W² turned numbers for a vector of sequences, in place of 3 L² products.
//
// Sequences that have ended stay as lanes of zeros. Exact where the table is `safe`, by the argument of sweep.cpp, which
// holds whatever is masked.
#include <cmath>

#include "chain/sweep.hpp"
#include "chain/transpose.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {
namespace {

// One vector of sequences of a group, from its sequence number `first` on.
template <int W>
struct Lanes {
  static constexpr int BLOCKS = (W * W + LANES - 1) / LANES, CELLS = BLOCKS * LANES;
  const EdgeTable& t;
  const LabelSets& sets;
  Sweep& s;
  const int first;
  const double* prob;  // (sets, sets, CELLS)
  double* counts;      // (sets, sets, CELLS)

  int running(int step) const {
    const int n = step < s.steps ? s.active[step] - first : 0;
    return n < 0 ? 0 : n > LANES ? LANES : n;
  }
  int64_t row(int step, int lane) const { return s.start[step] + first + lane; }
  V on(int step) const {
    static const double table[16] = {1, 1, 1, 1, 1, 1, 1, 1};
    return load(table + 8 - running(step));
  }
  int64_t pair(int step, int lane) const {  // of the sets at step - 1 and at step
    return ((int64_t)sets.of[row(step - 1, lane)] * sets.count + sets.of[row(step, lane)]) * CELLS;
  }

  // E^t of all lanes
  void turn_in(int step, V (&E)[CELLS]) const {
    const double* from[LANES];
    const int n = running(step);
    for (int b = 0; b < LANES; b++) from[b] = prob + (b < n ? pair(step, b) : 0);
    for (int k = 0; k < BLOCKS; k++) {
      V m[LANES];
      for (int b = 0; b < LANES; b++) m[b] = load(from[b] + k * LANES);
      transpose(m);
      for (int b = 0; b < LANES; b++) E[k * LANES + b] = m[b];
    }
  }

  // counts += weight α_i v_j of the pairs of sets of all lanes
  void count(int step, V weight, const V (&alpha)[W], const V (&v)[W]) const {
    V cell[CELLS];
    for (int c = W * W; c < CELLS; c++) cell[c] = V{};
    for (int i = 0; i < W; i++)
      for (int j = 0; j < W; j++) cell[i * W + j] = weight * alpha[i] * v[j];
    const int n = running(step);
    for (int k = 0; k < BLOCKS; k++) {
      V m[LANES];
      for (int b = 0; b < LANES; b++) m[b] = cell[k * LANES + b];
      transpose(m);
      for (int b = 0; b < LANES; b++)
        if (b < n) {
          double* to = counts + pair(step, b) + k * LANES;
          store(to, load(to) + m[b]);
        }
    }
  }

  void sweep() const {
    const int steps = s.steps, width = s.width - first < LANES ? s.width - first : LANES;
    double *q_all = sets.side, *alpha_all = q_all + (int64_t)steps * W * LANES;
    double* scale = alpha_all + (int64_t)steps * W * LANES;
    for (int step = 0; step < steps; step++) {
      double* q = q_all + (int64_t)step * W * LANES;
      const int n = running(step);
      for (int b = 0; b < LANES; b++) {
        const int64_t r = b < n ? row(step, b) : 0;
        const int32_t* label = sets.label + (int64_t)sets.of[r] * W;
        const double* score = s.score + r * s.stride;
        for (int i = 0; i < W; i++) q[i * LANES + b] = b >= n ? 0 : label[i] < 0 ? -INF : score[label[i]];
      }
    }

    const int often = t.spread < 196 ? (int)(200 / (t.spread + 4)) : 1;
    V shift = V{}, product = fill(1), before = V{}, E[CELLS], alpha[W];
    double log_part[LANES] = {};
    for (int step = 0; step < steps; step++) {
      double *q = q_all + (int64_t)step * W * LANES, *kept = alpha_all + (int64_t)step * W * LANES;
      V psi[W], top = load(q), next[W];
      for (int i = 1; i < W; i++) top = load(q + i * LANES) > top ? load(q + i * LANES) : top;
      top = top == fill(-INF) ? V{} : top;
      shift += top;
      const V here = on(step), by = step ? here * before : here;
      for (int i = 0; i < W; i++) psi[i] = exp_vector(load(q + i * LANES) - top) * by;
      if (step) {
        turn_in(step, E);
        for (int j = 0; j < W; j++) {
          next[j] = alpha[0] * E[j];
          for (int i = 1; i < W; i++) next[j] += alpha[i] * E[i * W + j];
        }
      }
      V z = V{};
      for (int i = 0; i < W; i++) {
        alpha[i] = step ? next[i] * psi[i] : psi[i];
        z += alpha[i];
        store(q + i * LANES, psi[i]);
        store(kept + i * LANES, alpha[i]);
      }
      before = z > V{} ? 1 / z : V{};
      store(scale + step * LANES, before);
      product *= here > V{} ? z : fill(1);
      if (step % often == often - 1 || step + 1 == steps) {
        for (int b = 0; b < width; b++) log_part[b] += std::log(product[b]);
        product = fill(1);
      }
    }
    V factor = V{};
    for (int b = 0; b < width; b++) {
      int length = steps;
      while (s.active[length - 1] <= first + b) length--;
      s.total[first + b] = log_part[b] + shift[b] + (length - 1) * t.shift;
      factor[b] = s.factor[first + b];
    }

    V v[W];
    for (int step = steps - 1; step >= 0; step--) {
      const double *q = q_all + (int64_t)step * W * LANES, *kept = alpha_all + (int64_t)step * W * LANES;
      const V last = load(scale + step * LANES) * (1 - on(step + 1));
      V beta[W];
      for (int i = 0; i < W; i++) alpha[i] = load(kept + i * LANES), beta[i] = last;
      if (step + 1 < steps) {
        turn_in(step + 1, E);
        count(step + 1, factor, alpha, v);
        for (int i = 0; i < W; i++)
          for (int j = 0; j < W; j++) beta[i] += v[j] * E[i * W + j];
      }
      double belief[W * LANES];
      for (int i = 0; i < W; i++) {
        v[i] = load(q + i * LANES) * beta[i];
        store(belief + i * LANES, alpha[i] * beta[i]);
      }
      const int n = running(step);
      for (int b = 0; b < n; b++)
        for (int i = 0; i < W; i++) sets.belief[row(step, b) * W + i] = belief[i * LANES + b];
    }
  }
};

template <int W>
void sweep_width(const EdgeTable& t, const LabelSets& sets, Sweep& s) {
  constexpr int CELLS = Lanes<W>::CELLS;
  const int64_t pairs = (int64_t)sets.count * sets.count;
  double *prob = sets.tables, *counts = prob + pairs * CELLS;
  auto each = [&](auto take) {
    for (int64_t p = 0; p < pairs; p++)
      for (int c = 0; c < W * W; c++) {
        const int32_t i = sets.label[p / sets.count * W + c / W], j = sets.label[p % sets.count * W + c % W];
        if (i >= 0 && j >= 0) take(p * CELLS + c, (int64_t)i * s.stride + j);
      }
  };
  for (int64_t c = 0; c < 2 * pairs * CELLS; c++) prob[c] = 0;
  each([&](int64_t cell, int64_t at) { prob[cell] = t.prob[at]; });
  for (int first = 0; first < s.width; first += LANES) Lanes<W>{t, sets, s, first, prob, counts}.sweep();
  each([&](int64_t cell, int64_t at) { s.counts[at] += counts[cell]; });
}

template <int MOST>
void by_size(const EdgeTable& t, const LabelSets& sets, Sweep& s) {
  if constexpr (MOST > 0) {
    if (sets.size == MOST)
      sweep_width<MOST>(t, sets, s);
    else
      by_size<MOST - 1>(t, sets, s);
  }
}

}  // namespace

void sweep_sets(const EdgeTable& t, const LabelSets& sets, Sweep& s) { by_size<SET_MOST>(t, sets, s); }

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
