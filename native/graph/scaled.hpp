// Synchronous sweeps in probabilities: no exp and no log until the messages have settled.
//
//   B_n = ψ_n ∘ Π_{e at n} μ_{e→n}      c = B_tail / μ_{e→tail}      μ_{e→head} ← c E / max(c E)
//
// with ψ = exp(node - max), E = exp(edge - max). Nodes first, then edges, each in place: an edge's two messages are
// read and written together while the products B, much smaller, stay in the cache. One division a message replaces
// the product of all others, and one more scales it.
//
// When is that exact? Edge scores that are all finite and spread over R nats make messages that spread over at most R,
// whatever arrives. If the spreads of the edges at every node add up to at most 300, then no product of messages and
// no sum leaves the double numbers, nothing is divided by zero, and a label that is lost because its ψ fell below
// e^-708 weighs at most e^(-708 + 300 + 300) of the whole. Node scores may spread as they like. Other graphs (and all
// that are damped or reweighted, which needs powers) take the logs.
//
// The largest change of a message is a ratio. Dividing for every label would cost as much as all the rest; instead
// new <= R old and old <= R new are tested with the largest R so far, and only an edge that breaks a record divides.
// The slack of 2^-50 in the test finds every record despite rounding, so the result does not depend on the order.
#pragma once
#include "graph/rows.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {

constexpr int64_t AHEAD = 8;  // nodes or edges by which memory is asked for in advance

template <int VECS>
void products(const graph::View& g, int64_t first, int64_t last) {
  const int vectors = vectors_of<VECS>(g.stride);
  const int64_t end = g.indptr[last];
  for (int64_t n = first; n < last; n++) {
    double* b = g.belief + n * g.stride;
    const double* psi = g.local + n * g.stride;
    int64_t k = g.indptr[n];
    const int64_t stop = g.indptr[n + 1];
    if (VECS) {
      V x[VECS ? VECS : 1];
      for (int v = 0; v < VECS; v++) x[v] = load(psi + v * LANES);
      for (; k < stop; k++) {
        const double* m = g.message + (int64_t)g.into[k] * g.stride;
        if (k + 4 * AHEAD < end) __builtin_prefetch(g.message + (int64_t)g.into[k + 4 * AHEAD] * g.stride);
        for (int v = 0; v < VECS; v++) x[v] *= load(m + v * LANES);
      }
      for (int v = 0; v < VECS; v++) store(b + v * LANES, x[v]);
    } else {
      for (int v = 0; v < vectors; v++) store(b + v * LANES, load(psi + v * LANES));
      for (; k < stop; k++) {
        const double* m = g.message + (int64_t)g.into[k] * g.stride;
        for (int v = 0; v < vectors; v++) store(b + v * LANES, load(b + v * LANES) * load(m + v * LANES));
      }
    }
  }
}

// The largest ratio, either way, between two positive rows.
inline double largest_ratio(int stride, const double* a, const double* b, double so_far) {
  for (int j = 0; j < stride; j++) {
    const double ratio = a[j] > b[j] ? a[j] / b[j] : b[j] / a[j];
    if (ratio > so_far) so_far = ratio;
  }
  return so_far;
}

template <int VECS>
double edges_scaled(const graph::View& g, int64_t first, int64_t last, double* spare) {
  const int L = g.labels, stride = g.stride, vectors = vectors_of<VECS>(stride);
  double *at_tail = spare, *at_head = spare + stride, *to_head = spare + 2 * stride, *to_tail = spare + 3 * stride;
  const int64_t size = g.table_size();
  double ratio = graph::LEAST_RATIO;
  V limit = fill(ratio * (1 - 0x1p-50));
  for (int64_t e = first; e < last; e++) {
    double *head = g.message + 2 * e * stride, *tail = head + stride;
    const double *b_tail = g.belief + (int64_t)g.tail[e] * stride, *b_head = g.belief + (int64_t)g.head[e] * stride;
    if (e + AHEAD < last) {
      __builtin_prefetch(g.belief + (int64_t)g.tail[e + AHEAD] * stride);
      __builtin_prefetch(g.belief + (int64_t)g.head[e + AHEAD] * stride);
    }
    for (int v = 0; v < vectors; v++) {
      store(at_tail + v * LANES, load(b_tail + v * LANES) / load(tail + v * LANES));
      store(at_head + v * LANES, load(b_head + v * LANES) / load(head + v * LANES));
    }
    times<VECS>(L, stride, at_tail, g.table + g.form[e] * size, to_head);
    times<VECS>(L, stride, at_head, g.table_t + g.form[e] * size, to_tail);
    const V by_head = 1.0 / top_of<VECS>(stride, to_head), by_tail = 1.0 / top_of<VECS>(stride, to_tail);
    V worst = V{};
    for (int v = 0; v < vectors; v++) {
      const V new_head = load(to_head + v * LANES) * by_head, old_head = load(head + v * LANES);
      const V new_tail = load(to_tail + v * LANES) * by_tail, old_tail = load(tail + v * LANES);
      store(to_head + v * LANES, new_head);
      store(to_tail + v * LANES, new_tail);
      worst = larger(worst, larger(new_head - limit * old_head, old_head - limit * new_head));
      worst = larger(worst, larger(new_tail - limit * old_tail, old_tail - limit * new_tail));
    }
    if (top_lanes(worst)[0] > 0) {
      ratio = largest_ratio(stride, to_head, head, ratio);
      ratio = largest_ratio(stride, to_tail, tail, ratio);
      limit = fill(ratio * (1 - 0x1p-50));
    }
    for (int v = 0; v < vectors; v++) {
      store(head + v * LANES, load(to_head + v * LANES));
      store(tail + v * LANES, load(to_tail + v * LANES));
    }
  }
  return ratio;
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
