// Tables laid out for vectors, rows in blocks that stay in the cache, and their split over threads.
#include "emission/emission.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "emission/sums.hpp"
#include "level.hpp"
#include "threads.hpp"

namespace crfield {
namespace emission {
namespace {

constexpr int64_t BLOCK = 256;  // rows at a time

// CRFIELD_LEVEL=2, 3 or 4 in the environment asks for a lower level than the processor has, for tests.
int level_in_use() {
  const int best = best_level();
  const char* wish = std::getenv("CRFIELD_LEVEL");
  const int asked = wish ? std::atoi(wish) : 0;
  return asked >= 2 && asked < best ? asked : best;
}

void scores_at(int level, const Scores& given, int64_t from, int64_t count, double* out) {
#if defined(CRFIELD_X86)
  if (level >= 4) return level4::scores(given, from, count, out);
  if (level == 3) return level3::scores(given, from, count, out);
  return level2::scores(given, from, count, out);
#else
  (void)level;
  return level0::scores(given, from, count, out);
#endif
}

void moments_at(int level, const Moments& given, int64_t from, int64_t count, const double* weights, double* sums) {
#if defined(CRFIELD_X86)
  if (level >= 4) return level4::moments(given, from, count, weights, sums);
  if (level == 3) return level3::moments(given, from, count, weights, sums);
  return level2::moments(given, from, count, weights, sums);
#else
  (void)level;
  return level0::moments(given, from, count, weights, sums);
#endif
}

// (labels, columns) as (columns, stride), zeros behind the labels
std::vector<double> turned(const double* table, int64_t labels, int64_t columns, int64_t stride) {
  std::vector<double> out((size_t)(columns * stride), 0.0);
  for (int64_t c = 0; c < labels; c++)
    for (int64_t d = 0; d < columns; d++) out[(size_t)(d * stride + c)] = table[c * columns + d];
  return out;
}

}  // namespace

void normal_scores(const double* rows, int64_t count, int64_t columns, int64_t labels, const double* mean,
                   const double* inverse, const double* bias, double* out, int threads) {
  const int64_t stride = stride_of(labels), blocks = (count + BLOCK - 1) / BLOCK;
  const std::vector<double> means = turned(mean, labels, columns, stride);
  const std::vector<double> inverses = turned(inverse, labels, columns, stride);
  std::vector<double> biases((size_t)stride, 0.0);
  std::copy(bias, bias + labels, biases.begin());
  const Scores given{rows, means.data(), inverses.data(), biases.data(), columns, labels, stride};
  const int level = level_in_use(), parts = (int)std::max<int64_t>(1, std::min<int64_t>(threads, blocks));
  run_parts(parts, [&](int part) {
    std::vector<double> wide((size_t)(BLOCK * stride));
    for (int64_t block = blocks * part / parts; block < blocks * (part + 1) / parts; block++) {
      const int64_t from = block * BLOCK, here = std::min(BLOCK, count - from);
      scores_at(level, given, from, here, wide.data());
      for (int64_t n = 0; n < here; n++)
        std::memcpy(out + (from + n) * labels, wide.data() + n * stride, sizeof(double) * (size_t)labels);
    }
  });
}

void normal_moments(const double* rows, int64_t count, int64_t columns, int64_t labels, const double* responsibility,
                    const double* centre, double* mass, double* first, double* second, int threads) {
  const int64_t stride = stride_of(labels), blocks = (count + BLOCK - 1) / BLOCK;
  const std::vector<double> centres = turned(centre, labels, columns, stride);
  const Moments given{rows, centres.data(), columns, labels, stride};
  const int level = level_in_use(), parts = (int)std::max<int64_t>(1, std::min<int64_t>(threads, blocks));
  std::vector<std::vector<double>> sums((size_t)parts);
  run_parts(parts, [&](int part) {
    auto& own = sums[(size_t)part];
    own.assign((size_t)((1 + 2 * columns) * stride), 0.0);
    std::vector<double> wide((size_t)(BLOCK * stride), 0.0);
    for (int64_t block = blocks * part / parts; block < blocks * (part + 1) / parts; block++) {
      const int64_t from = block * BLOCK, here = std::min(BLOCK, count - from);
      for (int64_t n = 0; n < here; n++)
        std::memcpy(wide.data() + n * stride, responsibility + (from + n) * labels, sizeof(double) * (size_t)labels);
      moments_at(level, given, from, here, wide.data(), own.data());
    }
  });
  for (int64_t c = 0; c < labels; c++) {
    mass[c] = 0;
    for (const auto& own : sums) mass[c] += own[(size_t)c];
    for (int64_t d = 0; d < columns; d++) {
      double one = 0, two = 0;
      for (const auto& own : sums) {
        one += own[(size_t)((1 + d) * stride + c)];
        two += own[(size_t)((1 + columns + d) * stride + c)];
      }
      first[c * columns + d] = one;
      second[c * columns + d] = two;
    }
  }
}

}  // namespace emission
}  // namespace crfield
