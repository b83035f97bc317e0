// Densities and moments of normal columns for a run of rows; one copy for each level (level.hpp).
#pragma once
#include <cstdint>

#include "level.hpp"

namespace crfield {
namespace emission {

// Tables of parameters are (columns, stride): labels lie side by side, padded with zeros to whole vectors.
struct Scores {
  const double *rows, *mean, *inverse, *bias;
  int64_t columns, labels, stride;
  const double* parts = nullptr;  // what each column adds where it is observed; of `observed_scores` alone
};

struct Moments {
  const double *rows, *centre;
  int64_t columns, labels, stride;
};

// doubles from one row of a table to the next
inline int64_t stride_of(int64_t labels) { return (labels + 7) / 8 * 8; }

}  // namespace emission

#define CRFIELD_EMISSION(level)                                                                              \
  namespace level {                                                                                          \
  /* out (count, stride): rows from … from + count - 1 */                                                    \
  CRFIELD_OPTIONAL void scores(const emission::Scores& given, int64_t from, int64_t count, double* out);                      \
  /* sums (1 + 2 columns, stride) += mass, first and second moments; responsibility (count, stride) */       \
  CRFIELD_OPTIONAL void moments(const emission::Moments& given, int64_t from, int64_t count, const double* responsibility,    \
               double* sums);                                                                                \
  /* the same of cells that are not NaN; sums (3 columns, stride): a column has a mass of its own */         \
  CRFIELD_OPTIONAL void observed_scores(const emission::Scores& given, int64_t from, int64_t count, double* out);             \
  CRFIELD_OPTIONAL void observed_moments(const emission::Moments& given, int64_t from, int64_t count,                         \
                        const double* responsibility, double* sums);                                         \
  }
CRFIELD_EMISSION(level0)
CRFIELD_EMISSION(level2)
CRFIELD_EMISSION(level3)
CRFIELD_EMISSION(level4)
#undef CRFIELD_EMISSION

}  // namespace crfield
