// The gradient summed by code: which series go together, on which thread, and on how many rows at a time.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "families/families.hpp"
#include "families/sums.hpp"
#include "at_level.hpp"
#include "threads.hpp"

namespace crfield {
namespace families {
namespace {

constexpr int64_t ROWS = 1024;  // of the gradient: they stay in the cache while all series take their turn

AtLevel<void(const Pass&, int64_t, int64_t)> sums_in_use() {
#if defined(CRFIELD_X86)
  return best_of(level2::sums, level3::sums, level4::sums);
#else
  return {0, level0::sums};
#endif
}

}  // namespace

void histograms(const uint16_t* codes, int64_t series, int64_t nodes, const int64_t* lists, int64_t n_lists,
                int64_t rows, const double* gradient, int64_t columns, int64_t bins, double* out, int threads) {
  const int64_t jobs = series * n_lists, teams = (jobs + TOGETHER - 1) / TOGETHER;
  if (!jobs || !rows || !columns) return;
  const auto sums = sums_in_use();
  const int64_t stride = stride_of(columns, sums.level), size = (bins * stride + LINE - 1) / LINE * LINE;
  const int parts = (int)std::max<int64_t>(1, std::min<int64_t>(threads, teams));
  // the last rows once more, with room behind them to read whole vectors
  const int64_t tail = std::min(rows, (stride + columns - 1) / columns), body = rows - tail;
  std::vector<double> copy((size_t)(tail * columns + stride));
  std::copy(gradient + body * columns, gradient + rows * columns, copy.begin());
  std::vector<double> memory((size_t)(teams * TOGETHER * size + LINE));
  double* tables = memory.data();
  while ((uintptr_t)tables % (LINE * sizeof(double))) tables++;
  run_parts(parts, [&](int part) {
    for (int64_t from = 0; from < rows; from += ROWS)
      for (int64_t team = part; team < teams; team += parts) {
        Pass pass{};
        pass.gradient = gradient, pass.columns = columns, pass.stride = stride;
        // a team that is not full repeats its last series, into a table that nobody reads
        for (int k = 0; k < TOGETHER; k++) {
          const int64_t job = std::min(team * TOGETHER + k, jobs - 1);
          pass.codes[k] = codes + job / n_lists * nodes;
          pass.lists[k] = lists + job % n_lists * rows;
          pass.table[k] = tables + (team * TOGETHER + k) * size;
        }
        const int64_t end = std::min(from + ROWS, rows), middle = std::max(from, std::min(end, body));
        sums.body(pass, from, middle);
        if (middle == end) continue;
        pass.gradient = copy.data();
        for (int k = 0; k < TOGETHER; k++) pass.lists[k] += body;
        sums.body(pass, middle - body, end - body);
      }
    for (int64_t team = part; team < teams; team += parts)
      for (int64_t job = team * TOGETHER; job < std::min((team + 1) * TOGETHER, jobs); job++)
        for (int64_t b = 0; b < bins; b++)
          for (int64_t m = 0; m < columns; m++)
            out[(job * bins + b) * columns + m] = tables[job * size + b * stride + m];
  });
}

}  // namespace families
}  // namespace crfield
