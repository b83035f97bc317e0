// The middle of pseudo-likelihood, compiled per x86-64 level: local scores to probabilities, a block of rows at once.
#pragma once
#include <cstdint>

#include "level.hpp"

namespace crfield {
namespace sites {

constexpr int64_t ROWS = 256;  // rows of a block

// In place: scores (rows, labels) to exp(score - top) with sums[r] of each row and tops[r]; a row whose scores are all
// -inf becomes zeros with the sum zero.
using Exponentiate = void (*)(int64_t rows, int64_t labels, double* scores, double* tops, double* sums);

}  // namespace sites

namespace level0 { CRFIELD_OPTIONAL void exponentiate_rows(int64_t, int64_t, double*, double*, double*); }
namespace level2 { CRFIELD_OPTIONAL void exponentiate_rows(int64_t, int64_t, double*, double*, double*); }
namespace level3 { CRFIELD_OPTIONAL void exponentiate_rows(int64_t, int64_t, double*, double*, double*); }
namespace level4 { CRFIELD_OPTIONAL void exponentiate_rows(int64_t, int64_t, double*, double*, double*); }

}  // namespace crfield
