// Messages in logs: any scores, forbidden ones, damping, weights of edges, and MAX.
//
//   b = node + Σ ρ μ        c = b - μ_{e→tail}        μ_{e→head}(j) = log Σ_i exp(c_i) E_ij
//
// The sum itself is still made of probabilities, L exponentials and L logarithms instead of L²: with c shifted to a
// maximum of zero and E = exp(edge - max), a sum of at least 1e-280 has lost nothing that counts, since what the
// smallest numbers swallow is below 1e-307. A label whose sum is smaller is added up in logs from the scores
// themselves (and is -inf where every pair is forbidden).
#pragma once
#include <cmath>

#include "graph/rows.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {

// log Σ exp of c_i + score(i) over labels, the slow and sure way
template <class Score>
inline double log_sum_exact(int labels, Score score) {
  double top = -INF;
  for (int i = 0; i < labels; i++) {
    const double x = score(i);
    top = x > top ? x : top;
  }
  if (top == -INF) return -INF;
  double sum = 0;
  for (int i = 0; i < labels; i++) sum += exp_one(score(i) - top);
  return top + std::log(sum);
}

template <int VECS>
inline void sum_at(const graph::View& g, int64_t n, double* b) {
  const int vectors = vectors_of<VECS>(g.stride);
  const double* node = g.local + n * g.stride;
  for (int v = 0; v < vectors; v++) store(b + v * LANES, load(node + v * LANES));
  for (int64_t k = g.indptr[n]; k < g.indptr[n + 1]; k++) {
    const int64_t message = g.into[k];
    const double* m = g.message + message * g.stride;
    const V rho = fill(g.rho ? g.rho[message >> 1] : 1.0);
    for (int v = 0; v < vectors; v++) store(b + v * LANES, load(b + v * LANES) + rho * load(m + v * LANES));
  }
}

template <int VECS>
void sums(const graph::View& g, int64_t first, int64_t last) {
  const int64_t end = g.indptr[last];
  for (int64_t n = first; n < last; n++) {
    for (int64_t k = g.indptr[n] + 4 * 8; k < g.indptr[n + 1] + 4 * 8 && k < end; k++)
      __builtin_prefetch(g.message + (int64_t)g.into[k] * g.stride);
    sum_at<VECS>(g, n, g.belief + n * g.stride);
  }
}

// c = b - message, -inf where b is
template <int VECS>
inline void without(int stride, const double* b, const double* message, double* c) {
  for (int v = 0; v < vectors_of<VECS>(stride); v++) {
    const V x = load(b + v * LANES);
    store(c + v * LANES, x == fill(-INF) ? x : x - load(message + v * LANES));
  }
}

// Shift a row to a maximum of zero; a row of -inf stays.
template <int VECS>
inline void shift_row(int stride, double* row) {
  V top = top_of<VECS>(stride, row);
  top = top == fill(-INF) ? V{} : top;
  for (int v = 0; v < vectors_of<VECS>(stride); v++) store(row + v * LANES, load(row + v * LANES) - top);
}

template <int VECS>
inline double arriving(const graph::View& g, int64_t message, const double* belief, double damping, double* out,
                       double* spare) {
  const int L = g.labels, stride = g.stride, vectors = vectors_of<VECS>(stride);
  double *c = spare, *x = spare + stride, *made = spare + 2 * stride;
  const int64_t form = g.form[message >> 1];
  const bool to_tail = message & 1;
  const double* old = g.message + message * stride;
  without<VECS>(stride, belief, g.message + (message ^ 1) * stride, c);
  const double* table = (to_tail ? g.table_t : g.table) + form * g.table_size();
  if (g.maximise) {
    best_of<VECS>(L, stride, c, table, made);
  } else {
    const V top = top_of<VECS>(stride, c), shift = top == fill(-INF) ? V{} : top;
    for (int v = 0; v < vectors; v++) store(x + v * LANES, exp_vector(load(c + v * LANES) - shift));
    times<VECS>(L, stride, x, table, made);
    V least = load(made);
    for (int v = 1; v < vectors; v++) least = smaller(least, load(made + v * LANES));
    if (-top_lanes(-least)[0] >= graph::LEAST) {
      for (int v = 0; v < vectors; v++) store(made + v * LANES, log_vector(load(made + v * LANES)));
    } else {
      const double* exact = g.exact + form * L * L;
      const double by = shift[0] + g.shift[form];
      for (int j = 0; j < L; j++) {
        if (made[j] >= graph::LEAST) {
          made[j] = log_one(made[j]);
          continue;
        }
        const double* score = exact + (to_tail ? (int64_t)j * L : j);
        const int step = to_tail ? 1 : L;
        made[j] = log_sum_exact(L, [&](int i) { return c[i] + score[(int64_t)i * step]; }) - by;
      }
      for (int j = L; j < stride; j++) made[j] = made[0];
    }
  }
  shift_row<VECS>(stride, made);
  if (damping > 0) {
    const V keep = fill(damping), take = fill(1 - damping);
    for (int v = 0; v < vectors; v++) {
      const V now = load(made + v * LANES), before = load(old + v * LANES);
      store(made + v * LANES, before == fill(-INF) ? now : take * now + keep * before);
    }
    shift_row<VECS>(stride, made);
  }
  V change = V{};
  for (int v = 0; v < vectors; v++) {
    const V now = load(made + v * LANES), before = load(old + v * LANES);
    const V difference = now == before ? V{} : now - before;
    change = larger(change, larger(difference, -difference));
    store(out + v * LANES, now);
  }
  return top_lanes(change)[0];
}

template <int VECS>
double edges_log(const graph::View& g, int64_t first, int64_t last, double damping, double* spare) {
  const int stride = g.stride;
  double *to_head = spare + 3 * stride, *to_tail = spare + 4 * stride, change = 0;
  for (int64_t e = first; e < last; e++) {
    const double *b_tail = g.belief + (int64_t)g.tail[e] * stride, *b_head = g.belief + (int64_t)g.head[e] * stride;
    double* at = g.message + 2 * e * stride;
    const double one = arriving<VECS>(g, 2 * e, b_tail, damping, to_head, spare);
    const double two = arriving<VECS>(g, 2 * e + 1, b_head, damping, to_tail, spare);
    change = one > change ? one : change;
    change = two > change ? two : change;
    for (int v = 0; v < vectors_of<VECS>(stride); v++) {
      store(at + v * LANES, load(to_head + v * LANES));
      store(at + stride + v * LANES, load(to_tail + v * LANES));
    }
  }
  return change;
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
