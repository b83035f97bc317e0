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

// Both messages of an edge at once: out = (a · table, b · table_t) in registers.
template <int VECS>
inline void both_times(int labels, int stride, const double* a, const double* table, const double* b,
                       const double* table_t, V* to_head, V* to_tail) {
  for (int v = 0; v < VECS; v++) to_head[v] = to_tail[v] = V{};
  for (int i = 0; i < labels; i++) {
    const V weight = every(a[i]), weight_t = every(b[i]);
    for (int v = 0; v < VECS; v++) {
      to_head[v] += weight * load(table + v * LANES);
      to_tail[v] += weight_t * load(table_t + v * LANES);
    }
    table += stride;
    table_t += stride;
  }
}

template <int VECS>
inline V top_of(const V* row) {
  V top = row[0];
  for (int v = 1; v < VECS; v++) top = larger(top, row[v]);
  return top_lanes(top);
}

template <int VECS>
double edges_scaled(const graph::View& given, int64_t first, int64_t last, double* spare) {
  const graph::View g = given;  // a copy of our own, which no store can change
  constexpr int stride = VECS * LANES;
  const int64_t size = g.table_size();
  alignas(64) double at_tail[stride], at_head[stride];
  (void)spare;
  double ratio = graph::LEAST_RATIO;
  V limit = every(ratio * (1 - 0x1p-50));
  for (int64_t e = first; e < last; e++) {
    double *head = g.message + 2 * e * stride, *tail = head + stride;
    const double *b_tail = g.belief + (int64_t)g.tail[e] * stride, *b_head = g.belief + (int64_t)g.head[e] * stride;
    if (e + AHEAD < last) {
      __builtin_prefetch(g.belief + (int64_t)g.tail[e + AHEAD] * stride);
      __builtin_prefetch(g.belief + (int64_t)g.head[e + AHEAD] * stride);
    }
    V old_head[VECS], old_tail[VECS], new_head[VECS], new_tail[VECS];
    for (int v = 0; v < VECS; v++) {
      old_head[v] = load(head + v * LANES);
      old_tail[v] = load(tail + v * LANES);
      store(at_tail + v * LANES, load(b_tail + v * LANES) / old_tail[v]);
      store(at_head + v * LANES, load(b_head + v * LANES) / old_head[v]);
    }
    const int64_t form = g.form[e] * size;
    both_times<VECS>(g.labels, stride, at_tail, g.table + form, at_head, g.table_t + form, new_head, new_tail);
    const V by_head = 1.0 / top_of<VECS>(new_head), by_tail = 1.0 / top_of<VECS>(new_tail);
    V worst = V{};
    for (int v = 0; v < VECS; v++) {
      new_head[v] *= by_head;
      new_tail[v] *= by_tail;
      worst = larger(worst, larger(new_head[v] - limit * old_head[v], old_head[v] - limit * new_head[v]));
      worst = larger(worst, larger(new_tail[v] - limit * old_tail[v], old_tail[v] - limit * new_tail[v]));
    }
    const bool record = top_lanes(worst)[0] > 0;
    if (record) {
      for (int v = 0; v < VECS; v++) {
        store(at_head + v * LANES, new_head[v]);
        store(at_tail + v * LANES, new_tail[v]);
      }
      ratio = largest_ratio(stride, at_head, head, ratio);
      ratio = largest_ratio(stride, at_tail, tail, ratio);
      limit = every(ratio * (1 - 0x1p-50));
    }
    for (int v = 0; v < VECS; v++) {
      store(head + v * LANES, new_head[v]);
      store(tail + v * LANES, new_tail[v]);
    }
  }
  return ratio;
}

// Rows of any length.
template <>
double edges_scaled<0>(const graph::View& g, int64_t first, int64_t last, double* spare) {
  const int L = g.labels, stride = g.stride, vectors = stride / LANES;
  double *at_tail = spare, *at_head = spare + stride, *to_head = spare + 2 * stride, *to_tail = spare + 3 * stride;
  double ratio = graph::LEAST_RATIO;
  V limit = every(ratio * (1 - 0x1p-50));
  for (int64_t e = first; e < last; e++) {
    double *head = g.message + 2 * e * stride, *tail = head + stride;
    const double *b_tail = g.belief + (int64_t)g.tail[e] * stride, *b_head = g.belief + (int64_t)g.head[e] * stride;
    for (int v = 0; v < vectors; v++) {
      store(at_tail + v * LANES, load(b_tail + v * LANES) / load(tail + v * LANES));
      store(at_head + v * LANES, load(b_head + v * LANES) / load(head + v * LANES));
    }
    times<0>(L, stride, at_tail, g.table + g.form[e] * g.table_size(), to_head);
    times<0>(L, stride, at_head, g.table_t + g.form[e] * g.table_size(), to_tail);
    for (int side = 0; side < 2; side++) {
      double *made = side ? to_tail : to_head, *old = side ? tail : head;
      const V by = 1.0 / top_of<0>(stride, made);
      V worst = V{};
      for (int v = 0; v < vectors; v++) {
        const V now = load(made + v * LANES) * by, before = load(old + v * LANES);
        store(made + v * LANES, now);
        worst = larger(worst, larger(now - limit * before, before - limit * now));
      }
      if (top_lanes(worst)[0] > 0) {
        ratio = largest_ratio(stride, made, old, ratio);
        limit = every(ratio * (1 - 0x1p-50));
      }
      for (int v = 0; v < vectors; v++) store(old + v * LANES, load(made + v * LANES));
    }
  }
  return ratio;
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
