// Tables laid out for vectors, rows in blocks that stay in the cache, and their split over threads.
#include "emission/emission.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "emission/sums.hpp"
#include "at_level.hpp"
#include "threads.hpp"

namespace crfield {
namespace emission {
namespace {

constexpr int64_t BLOCK = 256;  // rows at a time

using ScoresLoop = void (*)(const Scores&, int64_t, int64_t, double*);
using MomentsLoop = void (*)(const Moments&, int64_t, int64_t, const double*, double*);

struct Loops {
  ScoresLoop scores;
  MomentsLoop moments;
};

// The loops of the level in use; `observed` ones leave out cells that are NaN.
Loops loops_in_use(bool observed) {
#if defined(CRFIELD_X86)
  if (observed)
    return {at_level(level2::observed_scores, level3::observed_scores, level4::observed_scores),
            at_level(level2::observed_moments, level3::observed_moments, level4::observed_moments)};
  return {at_level(level2::scores, level3::scores, level4::scores),
          at_level(level2::moments, level3::moments, level4::moments)};
#else
  return observed ? Loops{level0::observed_scores, level0::observed_moments} : Loops{level0::scores, level0::moments};
#endif
}

// (labels, columns) as (columns, stride), zeros behind the labels
std::vector<double> turned(const double* table, int64_t labels, int64_t columns, int64_t stride) {
  std::vector<double> out((size_t)(columns * stride), 0.0);
  for (int64_t c = 0; c < labels; c++)
    for (int64_t d = 0; d < columns; d++) out[(size_t)(d * stride + c)] = table[c * columns + d];
  return out;
}

int parts_of(int64_t blocks, int threads) { return (int)std::max<int64_t>(1, std::min<int64_t>(threads, blocks)); }

// Scores of all rows; `parts` is null where no cell is missing.
void scored(const double* rows, int64_t count, int64_t columns, int64_t labels, const double* mean,
            const double* inverse, const double* parts, const double* bias, double* out, int threads) {
  const int64_t stride = stride_of(labels), blocks = (count + BLOCK - 1) / BLOCK;
  const std::vector<double> means = turned(mean, labels, columns, stride);
  const std::vector<double> inverses = turned(inverse, labels, columns, stride);
  const std::vector<double> adds = parts ? turned(parts, labels, columns, stride) : std::vector<double>();
  std::vector<double> biases((size_t)stride, 0.0);
  std::copy(bias, bias + labels, biases.begin());
  const Scores given{rows, means.data(), inverses.data(), biases.data(), columns, labels, stride, adds.data()};
  const ScoresLoop loop = loops_in_use(parts != nullptr).scores;
  const int shares = parts_of(blocks, threads);
  run_parts(shares, [&](int part) {
    std::vector<double> wide((size_t)(BLOCK * stride));
    for (int64_t block = blocks * part / shares; block < blocks * (part + 1) / shares; block++) {
      const int64_t from = block * BLOCK, here = std::min(BLOCK, count - from);
      loop(given, from, here, wide.data());
      for (int64_t n = 0; n < here; n++)
        std::memcpy(out + (from + n) * labels, wide.data() + n * stride, sizeof(double) * (size_t)labels);
    }
  });
}

// Sums over all rows, one table (`height`, stride) for each thread.
std::vector<std::vector<double>> summed(const double* rows, int64_t count, int64_t columns, int64_t labels,
                                        const double* responsibility, const double* centre, int64_t height,
                                        MomentsLoop loop, int threads) {
  const int64_t stride = stride_of(labels), blocks = (count + BLOCK - 1) / BLOCK;
  const std::vector<double> centres = turned(centre, labels, columns, stride);
  const Moments given{rows, centres.data(), columns, labels, stride};
  const int parts = parts_of(blocks, threads);
  std::vector<std::vector<double>> sums((size_t)parts);
  run_parts(parts, [&](int part) {
    auto& own = sums[(size_t)part];
    own.assign((size_t)(height * stride), 0.0);
    std::vector<double> wide((size_t)(BLOCK * stride), 0.0);
    for (int64_t block = blocks * part / parts; block < blocks * (part + 1) / parts; block++) {
      const int64_t from = block * BLOCK, here = std::min(BLOCK, count - from);
      for (int64_t n = 0; n < here; n++)
        std::memcpy(wide.data() + n * stride, responsibility + (from + n) * labels, sizeof(double) * (size_t)labels);
      loop(given, from, here, wide.data(), own.data());
    }
  });
  return sums;
}

// out (labels, columns): rows from … from + columns - 1 of the tables, added up
void gathered(const std::vector<std::vector<double>>& sums, int64_t from, int64_t labels, int64_t columns,
              double* out) {
  const int64_t stride = stride_of(labels);
  for (int64_t c = 0; c < labels; c++)
    for (int64_t d = 0; d < columns; d++) {
      double total = 0;
      for (const auto& own : sums) total += own[(size_t)((from + d) * stride + c)];
      out[c * columns + d] = total;
    }
}

}  // namespace

void normal_scores(const double* rows, int64_t count, int64_t columns, int64_t labels, const double* mean,
                   const double* inverse, const double* bias, double* out, int threads) {
  scored(rows, count, columns, labels, mean, inverse, nullptr, bias, out, threads);
}

void observed_scores(const double* rows, int64_t count, int64_t columns, int64_t labels, const double* mean,
                     const double* inverse, const double* parts, const double* bias, double* out, int threads) {
  scored(rows, count, columns, labels, mean, inverse, parts, bias, out, threads);
}

void normal_moments(const double* rows, int64_t count, int64_t columns, int64_t labels, const double* responsibility,
                    const double* centre, double* mass, double* first, double* second, int threads) {
  const auto sums = summed(rows, count, columns, labels, responsibility, centre, 1 + 2 * columns,
                           loops_in_use(false).moments, threads);
  gathered(sums, 0, labels, 1, mass);
  gathered(sums, 1, labels, columns, first);
  gathered(sums, 1 + columns, labels, columns, second);
}

void observed_moments(const double* rows, int64_t count, int64_t columns, int64_t labels,
                      const double* responsibility, const double* centre, double* mass, double* first,
                      double* second, int threads) {
  const auto sums = summed(rows, count, columns, labels, responsibility, centre, 3 * columns,
                           loops_in_use(true).moments, threads);
  gathered(sums, 0, labels, columns, mass);
  gathered(sums, columns, labels, columns, first);
  gathered(sums, 2 * columns, labels, columns, second);
}

}  // namespace emission
}  // namespace crfield
