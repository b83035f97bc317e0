// Codes of a table of numbers: how many thresholds lie below each value. The table is read by rows and written by
// columns, a block of rows at a time, so that both stay in the cache; the search has no branches.
#include <limits>
#include <vector>

#include "boost/columns.hpp"
#include "threads.hpp"

namespace crfield {
namespace boost {

// Thresholds of all columns, each padded with +inf to 2^steps - 1.
struct Ladder {
  std::vector<double> cuts;
  std::vector<int64_t> begin;
  std::vector<int> steps;
};

namespace {

constexpr int64_t BLOCK = 64;

Ladder ladder_of(int64_t columns, const int64_t* begin, const double* cuts) {
  Ladder made;
  made.begin.resize(columns), made.steps.resize(columns);
  for (int64_t f = 0; f < columns; f++) {
    const int64_t n = begin[f + 1] - begin[f];
    int steps = 0;
    while (((int64_t)1 << steps) - 1 < n) steps++;
    made.begin[f] = (int64_t)made.cuts.size(), made.steps[f] = steps;
    made.cuts.insert(made.cuts.end(), cuts + begin[f], cuts + begin[f + 1]);
    made.cuts.resize(made.begin[f] + ((int64_t)1 << steps) - 1, std::numeric_limits<double>::infinity());
  }
  return made;
}

inline int64_t count_below(const double* cuts, int steps, double value) {
  int64_t found = 0;
  for (int step = steps - 1; step >= 0; step--) {
    const int64_t half = (int64_t)1 << step;
    found += cuts[found + half - 1] < value ? half : 0;
  }
  return found;
}

}  // namespace

template <class Real>
void bin_codes(int64_t rows, int64_t columns, const Real* table, const int64_t* begin, const double* cuts,
               uint8_t* codes, uint8_t* seen, int threads) {
  const Ladder ladder = ladder_of(columns, begin, cuts);
  const int64_t blocks = (rows + BLOCK - 1) / BLOCK;
  const int parts = (int)(threads < 1 ? 1 : threads < blocks ? threads : blocks < 1 ? 1 : blocks);
  std::vector<std::vector<uint8_t>> met(parts, std::vector<uint8_t>(columns, 0));
  const double most = std::numeric_limits<double>::max();
  run_parts(parts, [&](int part) {
    for (int64_t block = blocks * part / parts; block < blocks * (part + 1) / parts; block++) {
      const int64_t first = block * BLOCK, last = first + BLOCK < rows ? first + BLOCK : rows;
      for (int64_t f = 0; f < columns; f++) {
        const double* at = ladder.cuts.data() + ladder.begin[f];
        const int steps = ladder.steps[f];
        const uint8_t missing = (uint8_t)(begin[f + 1] - begin[f] + 1);
        uint8_t flags = 0;
        for (int64_t i = first; i < last; i++) {
          const double value = (double)table[i * columns + f];
          const bool known = value == value;
          flags |= known ? (value <= most && value >= -most ? 0 : 2) : 1;
          codes[f * rows + i] = known ? (uint8_t)count_below(at, steps, value) : missing;
        }
        met[part][f] |= flags;
      }
    }
  });
  for (int64_t f = 0; f < columns; f++) {
    seen[f] = 0;
    for (const auto& one : met) seen[f] |= one[f];
  }
}

template void bin_codes(int64_t, int64_t, const double*, const int64_t*, const double*, uint8_t*, uint8_t*, int);
template void bin_codes(int64_t, int64_t, const float*, const int64_t*, const double*, uint8_t*, uint8_t*, int);

}  // namespace boost
}  // namespace crfield
