// Vectors of single precision beside those of double, for sources that are written once for both.
//
// A register holds LANES doubles or 2 LANES floats. Rows of labels are padded to LANES numbers in either precision, so
// that places in them are the same; a *block* is LANES numbers of a row, a *whole* vector is what fills a register:
//
//   double: whole = block = V          float: block = F (half a register), whole = W = two blocks
#pragma once
#include "chain/transpose.hpp"
#include "level.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {

typedef float F __attribute__((vector_size(LANES * 4)));
typedef float Fmem __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef float W __attribute__((vector_size(LANES * 8)));
typedef float Wmem __attribute__((vector_size(LANES * 8), aligned(4), may_alias));
typedef int32_t WI __attribute__((vector_size(LANES * 8)));

template <class T>
struct Of;
template <>
struct Of<double> {
  using Whole = V;
  using Mask = VI;
  using Block = V;
  static constexpr int BLOCKS = 1;  // of a whole vector
};
template <>
struct Of<float> {
  using Whole = W;
  using Mask = WI;
  using Block = F;
  static constexpr int BLOCKS = 2;
};

inline V whole_at(const double* p) { return load(p); }
inline W whole_at(const float* p) { return *(const Wmem*)p; }
inline V block_at(const double* p) { return load(p); }
inline F block_at(const float* p) { return *(const Fmem*)p; }
inline void put(double* p, V x) { store(p, x); }
inline void put(float* p, W x) { *(Wmem*)p = x; }
inline void put(float* p, F x) { *(Fmem*)p = x; }

inline V whole_of(double x) { return fill(x); }
inline W whole_of(float x) {
#if CRFIELD_LEVEL == 4
  return W{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
#elif CRFIELD_LEVEL == 3
  return W{x, x, x, x, x, x, x, x};
#else
  return W{x, x, x, x};
#endif
}
inline F block_of(float x) {
#if CRFIELD_LEVEL == 4
  return F{x, x, x, x, x, x, x, x};
#elif CRFIELD_LEVEL == 3
  return F{x, x, x, x};
#else
  return F{x, x};
#endif
}
inline V block_of(double x) { return fill(x); }

// A block in the other precision
template <class To, class From>
inline To converted(From x) {
  if constexpr (sizeof(To) == sizeof(From))
    return x;
  else
    return __builtin_convertvector(x, To);
}

// Blocks of a vector side by side, and a vector as blocks of doubles
inline V join(const V (&m)[1]) { return m[0]; }
inline W join(const F (&m)[2]) {
#if CRFIELD_LEVEL == 4
  return __builtin_shufflevector(m[0], m[1], 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#elif CRFIELD_LEVEL == 3
  return __builtin_shufflevector(m[0], m[1], 0, 1, 2, 3, 4, 5, 6, 7);
#else
  return __builtin_shufflevector(m[0], m[1], 0, 1, 2, 3);
#endif
}
inline void widen(V x, V (&out)[1]) { out[0] = x; }
inline void widen(W x, V (&out)[2]) {
#if CRFIELD_LEVEL == 4
  const F low = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7);
  const F high = __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
#elif CRFIELD_LEVEL == 3
  const F low = __builtin_shufflevector(x, x, 0, 1, 2, 3), high = __builtin_shufflevector(x, x, 4, 5, 6, 7);
#else
  const F low = __builtin_shufflevector(x, x, 0, 1), high = __builtin_shufflevector(x, x, 2, 3);
#endif
  out[0] = __builtin_convertvector(low, V);
  out[1] = __builtin_convertvector(high, V);
}

inline double sum_across(W x) {
  V part[2];
  widen(x, part);
  return sum_across(part[0] + part[1]);
}

// exp of arguments at most zero, as in exp.hpp: the series to degree 7 is within 6e-9 for |r| <= ln 2 / 2. Below -87,
// where the result would leave the normal numbers, it is zero.
__attribute__((always_inline)) inline W exp_vector(W x) {
  const W floor = whole_of(-87.0f), magic = whole_of(12582912.0f);  // 1.5 * 2^23 rounds to an integer
  const WI dead = x < floor;
  x = dead ? floor : x;
  W n = x * 1.44269504f + magic;
  const WI bits = (WI)n;
  n -= magic;
  W r = x - n * 0.693359375f;
  r -= n * -2.12194440e-4f;
  W p = whole_of(1.0f / 5040.0f);
  p = p * r + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const W y = (W)((WI)p + (bits << 23));
  return dead ? W{} : y;
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
