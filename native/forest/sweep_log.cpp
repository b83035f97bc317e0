// Trees in logs: slower (an exp for each pair of labels of each edge, twice) and right for any scores.
//
//   a_n(j) = node_n(j) + Σ_{children c} u_c(j)       u_n(i) = log Σ_j exp(edge(i, j) + a_n(j))
//   p(i, j) = p_parent(i) exp(edge(i, j) + a_n(j) - u_n(i))
//
// Every a is shifted to a maximum of zero, the shifts add up to log Z. Conditionals of large scores add up to one but
// for the rounding of those scores; each pair is normalised so that this does not add up over the depth. Rows of b
// hold a on the way up and p on the way down, those of m hold u.
#include "forest/parts.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {
namespace {

using forest::Forest;
using forest::ForestWork;
using forest::TreeSet;

constexpr uint8_t IMPOSSIBLE = 2;

inline double top_of(int labels, const double* x) {
  double top = -INF;
  for (int j = 0; j < labels; j++) top = x[j] > top ? x[j] : top;
  return top;
}

// Up: a and u of every row; marks the trees in which nothing is possible.
void climb(const Forest& f, const TreeSet& set, const ForestWork& w) {
  const int vectors = f.stride / LANES;
  for (int64_t r = set.last - set.first - 1; r >= 0; r--) {
    const int64_t p = set.first + r;
    const int32_t tree = w.tree[r];
    if (w.lost[tree] != 1) continue;
    double *a = w.b + r * f.stride, *u = w.m + r * f.stride;
    const double top = top_of(f.labels, a);
    if (top == -INF) {
      w.lost[tree] = IMPOSSIBLE;
      continue;
    }
    for (int j = 0; j < f.labels; j++) a[j] -= top;
    add_exactly(top, w.high[tree], w.low[tree]);
    if (f.parent[p] < 0) continue;
    fill_link(f, p, w.table);
    double* above = w.b + (f.parent[p] - set.first) * f.stride;
    for (int i = 0; i < f.labels; i++) {
      double* row = w.table + (int64_t)i * f.stride;
      V best = fill(-INF);
      for (int v = 0; v < vectors; v++) {
        const V x = load(row + v * LANES) + load(a + v * LANES);
        store(row + v * LANES, x);
        best = x > best ? x : best;
      }
      const double high = max_lanes(best);
      u[i] = -INF;
      if (high != -INF) {
        V sum = V{};
        const V by = fill(high);
        for (int v = 0; v < vectors; v++) sum += exp_vector(load(row + v * LANES) - by);
        u[i] = high + std::log(sum_lanes(sum));
      }
      above[i] += u[i];
    }
  }
}

void normalise(int64_t n, double* x) {
  V lanes = V{};
  for (int64_t k = 0; k < n; k += LANES) lanes += load(x + k);
  const double sum = sum_lanes(lanes);
  const V by = fill(sum > 0 ? 1 / sum : 0);
  for (int64_t k = 0; k < n; k += LANES) store(x + k, load(x + k) * by);
}

// Down: marginals of every row of the trees that are still marked 1, and of its link.
void descend(const Forest& f, const TreeSet& set, const ForestWork& w) {
  const int vectors = f.stride / LANES;
  for (int64_t r = 0; r < set.last - set.first; r++) {
    const int64_t p = set.first + r;
    const int32_t tree = w.tree[r];
    if (w.lost[tree] != 1) continue;
    double* a = w.b + r * f.stride;
    if (f.parent[p] < 0) {
      double sum = 0;
      for (int j = 0; j < f.labels; j++) sum += a[j] = exp_one(a[j]);
      for (int j = f.labels; j < f.stride; j++) a[j] = 0;
      add_exactly(std::log(sum), w.high[r], w.low[r]);
      f.tree_total[p] = w.high[r] + w.low[r];
      normalise(f.stride, a);
      continue;
    }
    fill_link(f, p, w.table);
    const double *above = w.b + (f.parent[p] - set.first) * f.stride, *u = w.m + r * f.stride;
    for (int i = 0; i < f.labels; i++) {
      double* row = w.table + (int64_t)i * f.stride;
      const V weight = fill(u[i] == -INF ? 0.0 : above[i]), by = fill(u[i] == -INF ? 0.0 : u[i]);
      for (int v = 0; v < vectors; v++) {
        // rounding may leave a little more than zero, for which exp_vector is not made
        V x = load(row + v * LANES) + load(a + v * LANES) - by;
        x = x > V{} ? V{} : x;
        store(row + v * LANES, weight * exp_vector(x));
      }
    }
    normalise((int64_t)f.labels * f.stride, w.table);
    for (int j = 0; j < f.stride; j++) a[j] = 0;
    for (int i = 0; i < f.labels; i++)
      for (int v = 0; v < vectors; v++)
        store(a + v * LANES, load(a + v * LANES) + load(w.table + (int64_t)i * f.stride + v * LANES));
    give_link(f, w, p, w.table);
  }
}

}  // namespace

void log_trees(const Forest& f, const TreeSet& set, const ForestWork& w) {
  for (int64_t r = 0; r < set.last - set.first; r++) {
    const int64_t p = set.first + r;
    if (w.lost[w.tree[r]] != 1) continue;
    gather_row(f, p, w.b + r * f.stride);
    if (f.parent[p] < 0) w.high[r] = w.low[r] = 0;
  }
  climb(f, set, w);
  descend(f, set, w);
  for (int64_t r = 0; r < set.last - set.first; r++) {
    const int64_t p = set.first + r;
    if (w.lost[w.tree[r]] != IMPOSSIBLE) continue;
    for (int j = 0; j < f.stride; j++) w.b[r * f.stride + j] = 0;
    if (f.parent[p] < 0) f.tree_total[p] = -INF;
  }
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
