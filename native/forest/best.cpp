// Max-product on trees: the best labelling.
//
//   δ_n(j) = node_n(j) + Σ_{children c} u_c(j)        u_n(i) = max_j [edge(i, j) + δ_n(j)]
//
// No back-pointers are kept: coming down, the best label under the parent's chosen one is found again from δ. The
// smallest label wins a tie. Every δ is shifted to a maximum of zero and the shifts add up to the score.
#include "forest/parts.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {
namespace {

using forest::Forest;
using forest::ForestWork;
using forest::TreeSet;

// u(i) += max_j [δ(j) + table(j, i)], rows of the table for the child's label
void add_best(int labels, int vectors, int stride, const double* delta, const double* table, double* above) {
  for (int v = 0; v < vectors; v++) {
    V best = fill(-INF);
    for (int j = 0; j < labels; j++) {
      const V x = fill(delta[j]) + load(table + (int64_t)j * stride + v * LANES);
      best = x > best ? x : best;
    }
    store(above + v * LANES, load(above + v * LANES) + best);
  }
}

int best_label(int labels, const double* delta, const double* row) {
  int best = 0;
  double top = -INF;
  for (int j = 0; j < labels; j++) {
    const double x = delta[j] + (row ? row[j] : 0.0);
    if (x > top) top = x, best = j;
  }
  return best;
}

}  // namespace

void best_set(const Forest& f, const TreeSet& set, const ForestWork& w) {
  const int64_t rows = set.last - set.first, size = (int64_t)f.labels * f.stride;
  const int vectors = f.stride / LANES;
  for (int64_t r = 0; r < rows; r++) {
    const int64_t up = f.parent[set.first + r];
    gather_row(f, set.first + r, w.b + r * f.stride);
    w.tree[r] = up < 0 ? (int32_t)r : w.tree[up - set.first];
    if (up < 0) w.high[r] = w.low[r] = 0, w.lost[r] = 0;
  }
  for (int64_t r = rows - 1; r >= 0; r--) {
    const int64_t p = set.first + r;
    const int32_t tree = w.tree[r];
    double* delta = w.b + r * f.stride;
    double top = -INF;
    for (int j = 0; j < f.labels; j++) top = delta[j] > top ? delta[j] : top;
    if (top == -INF) {
      w.lost[tree] = 1;
    } else {
      for (int j = 0; j < f.labels; j++) delta[j] -= top;
      add_exactly(top, w.high[tree], w.low[tree]);
    }
    if (f.parent[p] < 0) continue;
    double* above = w.b + (f.parent[p] - set.first) * f.stride;
    if (f.use[p] != forest::OWN) {
      add_best(f.labels, vectors, f.stride, delta, (f.turned[p] ? f.log : f.log_t) + f.use[p] * size, above);
      continue;
    }
    fill_link(f, p, w.table);
    for (int i = 0; i < f.labels; i++) {
      V best = fill(-INF);
      for (int v = 0; v < vectors; v++) {
        const V x = load(delta + v * LANES) + load(w.table + (int64_t)i * f.stride + v * LANES);
        best = x > best ? x : best;
      }
      above[i] += max_lanes(best);
    }
  }
  for (int64_t r = 0; r < rows; r++) {
    const int64_t p = set.first + r, up = f.parent[p];
    const double *delta = w.b + r * f.stride, *row = nullptr;
    if (up < 0) {
      f.tree_total[p] = w.lost[r] ? -INF : w.high[r] + w.low[r];
    } else if (f.use[p] != forest::OWN) {
      const int64_t i = w.label[up - set.first];
      row = (f.turned[p] ? f.log_t : f.log) + f.use[p] * size + i * f.stride;
    } else {
      fill_link(f, p, w.table);
      row = w.table + (int64_t)w.label[up - set.first] * f.stride;
    }
    w.label[r] = best_label(f.labels, delta, row);
    f.best[f.node[p]] = w.label[r];
  }
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
