// What a round does besides the search: scores to working pairs, and a learner's values to scores.
#include <algorithm>
#include <vector>

#include "boost/columns.hpp"
#include "boost/logits.hpp"
#include "at_level.hpp"
#include "threads.hpp"

namespace crfield {
namespace boost {
namespace {

LogitRows best_rows() {
#if defined(CRFIELD_X86)
  return at_level(logit_rows_level2, logit_rows_level3, logit_rows_level4);
#else
  return logit_rows_level0;
#endif
}

constexpr int64_t ROWS_WORTH_A_THREAD = 8192;

int parts_for(int64_t rows, int threads) {
  return (int)std::max<int64_t>(1, std::min<int64_t>(threads, rows / ROWS_WORTH_A_THREAD));
}

}  // namespace

double logit_pairs(const Logits& x, int threads) {
  const LogitRows rows = best_rows();
  const int64_t blocks = (x.rows + LOGIT_ROWS - 1) / LOGIT_ROWS;
  std::vector<double> loss(blocks);
  const int parts = parts_for(x.rows, threads);
  run_parts(parts, [&](int part) {
    std::vector<double> spare(LOGIT_ROWS * x.classes + 8);
    for (int64_t b = blocks * part / parts; b < blocks * (part + 1) / parts; b++)
      loss[b] = rows(x, b * LOGIT_ROWS, std::min(x.rows, (b + 1) * LOGIT_ROWS), spare.data());
  });
  double total = 0.0;
  for (double one : loss) total += one;
  return total;
}

void add_by_code(int64_t rows, int64_t classes, const uint16_t* codes, const double* values, double* scores,
                 int threads) {
  const int parts = parts_for(rows, threads);
  run_parts(parts, [&](int part) {
    const int64_t first = rows * part / parts, last = rows * (part + 1) / parts;
    if (classes == 2) {
      for (int64_t i = first; i < last; i++) {
        const double* own = values + 2 * codes[i];
        scores[2 * i] += own[0], scores[2 * i + 1] += own[1];
      }
      return;
    }
    for (int64_t i = first; i < last; i++)
      for (int64_t c = 0; c < classes; c++) scores[i * classes + c] += values[codes[i] * classes + c];
  });
}

}  // namespace boost
}  // namespace crfield
