// Turning rows of labels into vectors of sequences, and back.
//
// A row holds the labels of one sequence; a vector of LANES doubles holds one label of LANES sequences. A block of
// LANES x LANES numbers is turned in registers, LANES log2 LANES shuffles.
#pragma once
#include "level.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {

// m[r][j] becomes m[j][r], for vectors of LANES numbers
template <class T>
__attribute__((always_inline)) inline void transpose(T (&m)[LANES]) {
#if CRFIELD_LEVEL == 4
  T a[8];
  for (int k = 0; k < 8; k += 2) {
    a[k] = __builtin_shufflevector(m[k], m[k + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    a[k + 1] = __builtin_shufflevector(m[k], m[k + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
  T b[8];
  for (int k = 0; k < 8; k += 4)
    for (int j = 0; j < 2; j++) {
      b[k + j] = __builtin_shufflevector(a[k + j], a[k + 2 + j], 0, 1, 8, 9, 4, 5, 12, 13);
      b[k + 2 + j] = __builtin_shufflevector(a[k + j], a[k + 2 + j], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  for (int j = 0; j < 4; j++) {
    m[j] = __builtin_shufflevector(b[j], b[4 + j], 0, 1, 2, 3, 8, 9, 10, 11);
    m[4 + j] = __builtin_shufflevector(b[j], b[4 + j], 4, 5, 6, 7, 12, 13, 14, 15);
  }
#elif CRFIELD_LEVEL == 3
  T a[4];
  for (int k = 0; k < 4; k += 2) {
    a[k] = __builtin_shufflevector(m[k], m[k + 1], 0, 4, 2, 6);
    a[k + 1] = __builtin_shufflevector(m[k], m[k + 1], 1, 5, 3, 7);
  }
  for (int j = 0; j < 2; j++) {
    m[j] = __builtin_shufflevector(a[j], a[2 + j], 0, 1, 4, 5);
    m[2 + j] = __builtin_shufflevector(a[j], a[2 + j], 2, 3, 6, 7);
  }
#else
  const T first = __builtin_shufflevector(m[0], m[1], 0, 2);
  m[1] = __builtin_shufflevector(m[0], m[1], 1, 3);
  m[0] = first;
#endif
}

// The sum of a vector's lanes, halves to halves
inline double sum_across(V v) {
#if CRFIELD_LEVEL == 4
  v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3);
  v += __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5);
#elif CRFIELD_LEVEL == 3
  v += __builtin_shufflevector(v, v, 2, 3, 0, 1);
#endif
  return v[0] + v[1];
}

// The sums of LANES vectors as one vector
__attribute__((always_inline)) inline V sum_each(V (&m)[LANES]) {
  transpose(m);
  V sum = m[0];
  for (int k = 1; k < LANES; k++) sum += m[k];
  return sum;
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
