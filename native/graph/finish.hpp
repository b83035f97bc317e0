// What the messages say in the end: sums of beliefs and the beliefs themselves, once a call.
#pragma once
#include "graph/logs.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {

// x = exp(c - max c); gives the maximum (-inf where nothing is left, and then x is zero)
template <int VECS>
inline double weights(int stride, const double* c, double* x) {
  const V top = top_of<VECS>(stride, c), shift = top == every(-INF) ? V{} : top;
  for (int v = 0; v < vectors_of<VECS>(stride); v++)
    store(x + v * LANES, exp_vector(load(c + v * LANES) - shift));
  return top[0];
}

template <int VECS>
double finish_node(const graph::View& g, int64_t n, double* out, double* spare) {
  double *b = g.belief + n * g.stride, *x = spare;
  const double top = weights<VECS>(g.stride, b, x);
  double sum = 0;
  for (int j = 0; j < g.labels; j++) sum += x[j];
  const double by = top == -INF ? 0 : 1 / sum;
  for (int j = 0; j < g.labels; j++) out[j] = x[j] * by;
  return top == -INF || g.maximise ? top : top + std::log(sum);
}

// The pair beliefs of an edge from the scores themselves.
inline double finish_exact(const graph::View& g, int64_t form, const double* c, const double* d, double* out) {
  const int L = g.labels;
  const double* score = g.exact + form * L * L;
  double top = -INF, sum = 0;
  for (int i = 0; i < L; i++)
    for (int j = 0; j < L; j++) {
      const double x = c[i] + score[(int64_t)i * L + j] + d[j];
      top = x > top ? x : top;
    }
  if (top == -INF) return top;
  for (int i = 0; i < L; i++)
    for (int j = 0; j < L; j++) sum += exp_one(c[i] + score[(int64_t)i * L + j] + d[j] - top);
  for (int i = 0; i < L; i++)
    for (int j = 0; j < L; j++)
      out[(int64_t)i * g.stride + j] += exp_one(c[i] + score[(int64_t)i * L + j] + d[j] - top) / sum;
  return g.maximise ? top : top + std::log(sum);
}

template <int VECS>
double finish_edge(const graph::View& g, int64_t e, double* out, double* spare) {
  const int L = g.labels, stride = g.stride, vectors = vectors_of<VECS>(stride);
  double *c = spare, *d = spare + stride, *x = spare + 2 * stride, *y = spare + 3 * stride, *z = spare + 4 * stride;
  const double* message = g.message + 2 * e * stride;
  without<VECS>(stride, g.belief + (int64_t)g.tail[e] * stride, message + stride, c);
  without<VECS>(stride, g.belief + (int64_t)g.head[e] * stride, message, d);
  const int64_t form = g.form[e];
  if (g.maximise) return finish_exact(g, form, c, d, out);
  const double* table = g.table + form * g.table_size();
  const double tops = weights<VECS>(stride, c, x) + weights<VECS>(stride, d, y);
  times<VECS>(L, stride, x, table, z);
  double sum = 0;
  for (int j = 0; j < L; j++) sum += z[j] * y[j];
  if (!(sum >= graph::LEAST)) return finish_exact(g, form, c, d, out);
  for (int i = 0; i < L; i++) {
    const V weight = every(x[i] / sum);
    double* row = out + (int64_t)i * stride;
    for (int v = 0; v < vectors; v++)
      store(row + v * LANES, load(row + v * LANES) +
                                 weight * load(table + (int64_t)i * stride + v * LANES) * load(y + v * LANES));
  }
  return tops + g.shift[form] + std::log(sum);
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
