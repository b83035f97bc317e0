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
  const double* node = g.local + n * g.stride;
  constexpr int TILE = VECS ? VECS : 1;
  for (int v = 0; v < vectors_of<VECS>(g.stride); v += TILE) {
    V sum[TILE];
    for (int w = 0; w < TILE; w++) sum[w] = load(node + (v + w) * LANES);
    for (int64_t k = g.indptr[n]; k < g.indptr[n + 1]; k++) {
      const int64_t message = g.into[k];
      const double* m = g.message + message * g.stride + v * LANES;
      const V rho = every(g.rho ? g.rho[message >> 1] : 1.0);
      for (int w = 0; w < TILE; w++) sum[w] += rho * load(m + w * LANES);
    }
    for (int w = 0; w < TILE; w++) store(b + (v + w) * LANES, sum[w]);
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
    store(c + v * LANES, x == every(-INF) ? x : x - load(message + v * LANES));
  }
}

// Shift a row to a maximum of zero; a row of -inf stays.
template <int VECS>
inline void shift_row(int stride, double* row) {
  V top = top_of<VECS>(stride, row);
  top = top == every(-INF) ? V{} : top;
  for (int v = 0; v < vectors_of<VECS>(stride); v++) store(row + v * LANES, load(row + v * LANES) - top);
}

// made = log(made), the labels whose sum is too small from the scores: see above.
template <int VECS>
inline void logs_of_sums(const graph::View& g, int64_t form, bool to_tail, const double* c, double* made) {
  const int L = g.labels, stride = g.stride, vectors = vectors_of<VECS>(stride);
  V least = load(made);
  for (int v = 1; v < vectors; v++) least = smaller(least, load(made + v * LANES));
  if (-top_lanes(-least)[0] >= graph::LEAST) {
    for (int v = 0; v < vectors; v++) store(made + v * LANES, log_vector(load(made + v * LANES)));
    return;
  }
  const double* exact = g.exact + form * L * L;
  for (int j = 0; j < L; j++) {
    if (made[j] >= graph::LEAST) {
      made[j] = log_one(made[j]);
      continue;
    }
    const double* score = exact + (to_tail ? (int64_t)j * L : j);
    const int step = to_tail ? 1 : L;
    made[j] = log_sum_exact(L, [&](int i) { return c[i] + score[(int64_t)i * step]; }) - g.shift[form];
  }
  for (int j = L; j < stride; j++) made[j] = made[0];
}

// New messages from the beliefs of the nodes that they leave, a step for all of them before the next step: one message
// alone is a chain of operations that wait for each other, several side by side are not.
template <int VECS>
void renew(const graph::View& given, int count, const int64_t* message, double damping, double* made, double* change,
           double* spare) {
  const graph::View g = given;
  const int L = g.labels, stride = g.stride, vectors = vectors_of<VECS>(stride);
  double *c = spare, *x = spare + graph::MANY * stride;
  for (int q = 0; q < count; q++) {
    const int64_t m = message[q], e = m >> 1;
    const double* b = g.belief + (int64_t)(m & 1 ? g.head[e] : g.tail[e]) * stride;
    without<VECS>(stride, b, g.message + (m ^ 1) * stride, c + q * stride);
    if (!g.maximise) shift_row<VECS>(stride, c + q * stride);
  }
  if (!g.maximise)
    for (int k = 0; k < count * stride; k += LANES) store(x + k, exp_vector(load(c + k)));
  for (int q = 0; q < count; q++) {
    const int64_t m = message[q], form = g.form[m >> 1];
    const double* table = (m & 1 ? g.table_t : g.table) + form * g.table_size();
    if (g.maximise)
      best_of<VECS>(L, stride, c + q * stride, table, made + q * stride);
    else
      times<VECS>(L, stride, x + q * stride, table, made + q * stride);
  }
  if (!g.maximise)
    for (int q = 0; q < count; q++)
      logs_of_sums<VECS>(g, g.form[message[q] >> 1], message[q] & 1, c + q * stride, made + q * stride);
  for (int q = 0; q < count; q++) {
    double* now = made + q * stride;
    const double* old = g.message + message[q] * stride;
    if (damping > 0) {
      const V keep = every(damping), take = every(1 - damping);
      for (int v = 0; v < vectors; v++)
        store(now + v * LANES, take * load(now + v * LANES) + keep * load(old + v * LANES));
    }
    shift_row<VECS>(stride, now);
    V largest = V{};
    for (int v = 0; v < vectors; v++) {
      const V after = load(now + v * LANES), before = load(old + v * LANES);
      const V difference = after == before ? V{} : after - before;
      largest = larger(largest, larger(difference, -difference));
    }
    change[q] = top_lanes(largest)[0];
  }
}

template <int VECS>
double edges_log(const graph::View& g, int64_t first, int64_t last, double damping, double* spare) {
  const int stride = g.stride;
  double change[graph::MANY], largest = 0;
  double* made = spare + 2 * graph::MANY * stride;
  int64_t message[graph::MANY];
  const int64_t end = 2 * last;
  for (int64_t m = 2 * first; m < end; m += graph::MANY) {
    const int count = (int)(end - m < graph::MANY ? end - m : graph::MANY);
    for (int q = 0; q < count; q++) message[q] = m + q;
    for (int64_t e = (m + graph::MANY) >> 1; e < last && e < (m >> 1) + graph::MANY; e++) {
      __builtin_prefetch(g.belief + (int64_t)g.tail[e] * stride);
      __builtin_prefetch(g.belief + (int64_t)g.head[e] * stride);
    }
    renew<VECS>(g, count, message, damping, made, change, spare);
    for (int q = 0; q < count; q++) largest = change[q] > largest ? change[q] : largest;
    double* to = g.message + m * stride;
    for (int k = 0; k < count * stride; k += LANES) store(to + k, load(made + k));
  }
  return largest;
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
