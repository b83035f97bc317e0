// Binned columns as the kernels see them, and what they do with them. The contract is src/crfield/kernels/boost.py.
#pragma once
#include <cstdint>

namespace crfield {
namespace boost {

struct Columns {
  int64_t rows = 0, columns = 0, words = 0, sparse = 0;
  const uint16_t* joint = nullptr;    // (words, rows)
  const int64_t* sizes = nullptr;     // (words)
  const int32_t *word = nullptr, *stride = nullptr;  // (columns)
  const int64_t* offsets = nullptr;   // (columns + 1)
  const int64_t* indptr = nullptr;    // (sparse + 1)
  const int32_t* entries = nullptr;
  const uint8_t* codes = nullptr;
  const int64_t *column = nullptr, *zero = nullptr;  // (sparse)
  int64_t bins() const { return offsets[columns]; }
  int64_t bins_of(int64_t f) const { return offsets[f + 1] - offsets[f]; }
};

// A word of 16 bits; tables have room for every one, so that no code need be checked.
constexpr int64_t WORD_VALUES = 1 << 16;

// out (classes, bins, 2) += sums of pairs (classes, rows, 2); `chosen` (n_chosen) are the rows, or null for all.
void histograms(const Columns& columns, int64_t classes, const double* pairs, const int32_t* chosen, int64_t n_chosen,
                double* out, int threads);

struct Search {
  int64_t classes = 0, columns = 0;
  const double* sums = nullptr;       // (classes, bins, 2)
  const int64_t* offsets = nullptr;   // (columns + 1)
  const uint8_t *nominal = nullptr, *missing = nullptr;  // (columns)
  const double* counts = nullptr;     // (bins) or null
  double ridge = 0.0, least = 0.0;
  double* gain = nullptr;             // (columns)
  int32_t *cut = nullptr, *side = nullptr;
};

void best_cuts(const Search& search);

// scores (rows, classes) += values[codes] (…, classes); every code must have a row of values.
void add_by_code(int64_t rows, int64_t classes, const uint16_t* codes, const double* values, double* scores,
                 int threads);

// codes (columns, rows) = number of thresholds below each value of table (rows, columns); thresholds of column f are
// cuts[begin[f]] … cuts[begin[f + 1] - 1], sorted. A missing value's code is one more than the number of thresholds
// plus one; seen[f] gets 1 where some are missing, 2 where some are infinite.
template <class Real>
void bin_codes(int64_t rows, int64_t columns, const Real* table, const int64_t* begin, const double* cuts,
               uint8_t* codes, uint8_t* seen, int threads);

}  // namespace boost
}  // namespace crfield
