// Rows of labels as vectors: logarithms, maxima over lanes, small products.
#pragma once
#include <limits>

#include "chain/exp.hpp"
#include "graph/contract.hpp"
#include "level.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {

constexpr double INF = std::numeric_limits<double>::infinity();
typedef uint64_t VU __attribute__((vector_size(LANES * 8)));

// x in every lane; unlike `fill`, one instruction from memory.
inline V every(double x) {
#if CRFIELD_LEVEL == 4
  return V{x, x, x, x, x, x, x, x};
#elif CRFIELD_LEVEL == 3
  return V{x, x, x, x};
#else
  return V{x, x};
#endif
}

inline V larger(V a, V b) { return a > b ? a : b; }
inline V smaller(V a, V b) { return a < b ? a : b; }

// x = 2^k m with m in [0.7, 1.41], log m = 2 atanh(s) with s = (m - 1) / (m + 1), |s| <= 0.172: eleven terms of the
// series leave less than 1e-17. For positive normal numbers.
inline V log_vector(V x) {
  const VU bits = (VU)x;
  VU k = (bits >> 52) - 1023;
  V m = (V)((bits & 0x000FFFFFFFFFFFFFull) | 0x3FF0000000000000ull);
  const VI high = m > 1.4142135623730951;
  m = high ? m * 0.5 : m;
  k -= (VU)high;  // a true lane is minus one
  const V magic = every(6755399441055744.0);  // 1.5 * 2^52: an integer added to its bits is added to the number
  const V n = (V)(k + (VU)magic) - magic;
  const V f = m - 1.0, s = f / (m + 1.0), z = s * s;
  V p = every(1.0 / 21);
  p = p * z + 1.0 / 19;
  p = p * z + 1.0 / 17;
  p = p * z + 1.0 / 15;
  p = p * z + 1.0 / 13;
  p = p * z + 1.0 / 11;
  p = p * z + 1.0 / 9;
  p = p * z + 1.0 / 7;
  p = p * z + 1.0 / 5;
  p = p * z + 1.0 / 3;
  const V low = n * 1.90821492927058770002e-10 + 2.0 * s * z * p;
  return n * 6.93147180369123816490e-01 + (2.0 * s + low);
}

inline double log_one(double x) { return log_vector(every(x))[0]; }

// The maximum of all lanes, in every lane.
inline V top_lanes(V v) {
#if CRFIELD_LEVEL == 4
  v = larger(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3));
  v = larger(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5));
  return larger(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6));
#elif CRFIELD_LEVEL == 3
  v = larger(v, __builtin_shufflevector(v, v, 2, 3, 0, 1));
  return larger(v, __builtin_shufflevector(v, v, 1, 0, 3, 2));
#else
  return larger(v, __builtin_shufflevector(v, v, 1, 0));
#endif
}

// Vectors in a row: a constant for short rows, so that loops over them vanish; 0 stands for any number.
template <int VECS>
inline int vectors_of(int stride) {
  return VECS ? VECS : stride / LANES;
}

template <int VECS>
inline V top_of(int stride, const double* row) {
  V top = load(row);
  for (int v = 1; v < vectors_of<VECS>(stride); v++) top = larger(top, load(row + v * LANES));
  return top_lanes(top);
}

// out = c · table over the first `labels` entries of c
template <int VECS>
inline void times(int labels, int stride, const double* c, const double* table, double* out) {
  constexpr int TILE = VECS ? VECS : 4;
  int v = 0;
  for (; v + TILE <= vectors_of<VECS>(stride); v += TILE) {
    V sum[TILE];
    for (int w = 0; w < TILE; w++) sum[w] = V{};
    for (int i = 0; i < labels; i++) {
      const V weight = every(c[i]);
      for (int w = 0; w < TILE; w++) sum[w] += weight * load(table + (int64_t)i * stride + (v + w) * LANES);
    }
    for (int w = 0; w < TILE; w++) store(out + (v + w) * LANES, sum[w]);
  }
  for (; v < vectors_of<VECS>(stride); v++) {
    V sum = V{};
    for (int i = 0; i < labels; i++) sum += every(c[i]) * load(table + (int64_t)i * stride + v * LANES);
    store(out + v * LANES, sum);
  }
}

// out_j = max_i c_i + table_ij
template <int VECS>
inline void best_of(int labels, int stride, const double* c, const double* table, double* out) {
  constexpr int TILE = VECS ? VECS : 4;
  int v = 0;
  for (; v + TILE <= vectors_of<VECS>(stride); v += TILE) {
    V best[TILE];
    for (int w = 0; w < TILE; w++) best[w] = every(-INF);
    for (int i = 0; i < labels; i++) {
      const V weight = every(c[i]);
      for (int w = 0; w < TILE; w++)
        best[w] = larger(best[w], weight + load(table + (int64_t)i * stride + (v + w) * LANES));
    }
    for (int w = 0; w < TILE; w++) store(out + (v + w) * LANES, best[w]);
  }
  for (; v < vectors_of<VECS>(stride); v++) {
    V best = every(-INF);
    for (int i = 0; i < labels; i++)
      best = larger(best, every(c[i]) + load(table + (int64_t)i * stride + v * LANES));
    store(out + v * LANES, best);
  }
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
