// Scores to working pairs; compiled once for each level of x86-64.
#pragma once
#include <cstdint>

#include "level.hpp"

namespace crfield {
namespace boost {

constexpr int64_t LOGIT_ROWS = 256;  // rows whose loss is added up together, whatever the number of threads

struct Logits {
  int64_t rows = 0, classes = 0;
  const double* scores = nullptr;     // (rows, classes)
  const int32_t* labels = nullptr;    // (rows), -1 where unknown
  const double* weight = nullptr;     // (rows) or null
  double limit = 0.0, least = 0.0;    // bounds of responses and of weights
  double* pairs = nullptr;            // (classes, rows, 2), or (1, rows, 2) for two classes
};

// Rows [first, last), at most LOGIT_ROWS of them; their weighted -log p(label). `spare` has room for
// LOGIT_ROWS * classes + 8 numbers.
typedef double (*LogitRows)(const Logits&, int64_t first, int64_t last, double* spare);

// All rows; the sum of -log p.
double logit_pairs(const Logits& logits, int threads);

CRFIELD_OPTIONAL double logit_rows_level0(const Logits&, int64_t, int64_t, double*);
CRFIELD_OPTIONAL double logit_rows_level2(const Logits&, int64_t, int64_t, double*);
CRFIELD_OPTIONAL double logit_rows_level3(const Logits&, int64_t, int64_t, double*);
CRFIELD_OPTIONAL double logit_rows_level4(const Logits&, int64_t, int64_t, double*);

}  // namespace boost
}  // namespace crfield
