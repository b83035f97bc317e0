// Vectors of float32 for rows of labels: eight at a time, or four where there are no more labels than that.
//
// Eight from x86-64-v3 on, four below; at v4 rows of sixteen would only add padding (21 labels are 24 floats in
// eights, and 32 in sixteens).
#pragma once
#include <cstdint>

#include "level.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {

typedef float F8 __attribute__((vector_size(32)));
typedef int32_t I8 __attribute__((vector_size(32)));
typedef float F8mem __attribute__((vector_size(32), aligned(4), may_alias));
typedef float F4 __attribute__((vector_size(16)));
typedef int32_t I4 __attribute__((vector_size(16)));
typedef float F4mem __attribute__((vector_size(16), aligned(4), may_alias));

struct Eight {
  typedef F8 V;
  typedef I8 I;
  typedef F8mem Memory;
  static constexpr int lanes = 8;
};
struct Four {
  typedef F4 V;
  typedef I4 I;
  typedef F4mem Memory;
  static constexpr int lanes = 4;
};

#if CRFIELD_LEVEL == 4
typedef float F16 __attribute__((vector_size(64)));
typedef int32_t I16 __attribute__((vector_size(64)));
typedef float F16mem __attribute__((vector_size(64), aligned(4), may_alias));
struct Widest {  // for what does not care where rows end
  typedef F16 V;
  typedef I16 I;
  typedef F16mem Memory;
  static constexpr int lanes = 16;
};
#else
typedef Eight Widest;
#endif

#if CRFIELD_LEVEL >= 3
typedef Eight Wide;
#else
typedef Four Wide;
#endif

// x = 2^x for x ≤ 120; below -126 it is 2^-126. The exponent is added as an integer to a polynomial of degree 5 on
// [-1/2, 1/2], 1e-7 relative. Adding 1.5 · 2^23 rounds to the nearest integer and leaves it in the lowest bits.
template <class K>
inline void exp2_of(typename K::V& x) {
  typedef typename K::V V;
  typedef typename K::I I;
  const V low = V{} - 126.f;
  x = x > low ? x : low;
  const V shifted = x + 12582912.f;
  const V r = x - (shifted - 12582912.f);
  V p = 1.3276472e-3f * r + 9.6755419e-3f;
  p = p * r + 5.5507131e-2f;
  p = p * r + 2.4022120e-1f;
  p = p * r + 6.9314694e-1f;
  p = p * r + 1.0000001f;
  x = (V)((I)p + ((I)shifted << 23));
}

inline float sum_of(const F4& v) { return (v[0] + v[1]) + (v[2] + v[3]); }
inline float largest_of(const F4& v) {
  const float a = v[0] > v[1] ? v[0] : v[1], b = v[2] > v[3] ? v[2] : v[3];
  return a > b ? a : b;
}
#if CRFIELD_LEVEL >= 3
inline float sum_of(const F8& v) { return ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7])); }
inline float largest_of(const F8& v) {
  const F4 low = __builtin_shufflevector(v, v, 0, 1, 2, 3), high = __builtin_shufflevector(v, v, 4, 5, 6, 7);
  const F4 top = low > high ? low : high;
  return largest_of(top);
}
#endif

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
