// Sums of rows of the gradient by code, for several series side by side; one copy for each level (level.hpp).
#pragma once
#include <cstdint>

#include "level.hpp"

namespace crfield {
namespace families {

constexpr int TOGETHER = 4;  // series that share one pass over the gradient
constexpr int64_t LINE = 8;  // doubles of a cache line: tables begin at one, and no vector lies on two

// doubles from one row of a table to the next: whole vectors of the level
inline int64_t stride_of(int64_t columns, int level) {
  const int64_t lanes = level >= 4 ? 8 : level == 3 ? 4 : 2;
  return (columns + lanes - 1) / lanes * lanes;
}

// table[j][codes[j][lists[j][r]] * stride + m] += gradient[r * columns + m] for r in from … to-1 and every j. Where a
// row of the table is wider than one of the gradient, what lies behind the latter is added too and means nothing:
// `stride` doubles must be readable at every row.
struct Pass {
  const uint16_t* codes[TOGETHER];
  const int64_t* lists[TOGETHER];
  double* table[TOGETHER];
  const double* gradient;
  int64_t columns, stride;
};

}  // namespace families

#define CRFIELD_SUMS(level) \
  namespace level {         \
  CRFIELD_OPTIONAL void sums(const families::Pass& pass, int64_t from, int64_t to); \
  }
CRFIELD_SUMS(level0)
CRFIELD_SUMS(level2)
CRFIELD_SUMS(level3)
CRFIELD_SUMS(level4)
#undef CRFIELD_SUMS

}  // namespace crfield
