// The gradient summed by code. Codes of a series stay the same for many steps: sums are kept in registers until the
// code changes, which also breaks the wait for one's own last store.
#include <algorithm>

#include "families/families.hpp"
#include "threads.hpp"

namespace crfield {
namespace families {
namespace {

template <int M>
void one(const uint16_t* codes, const int64_t* list, int64_t rows, const double* gradient, double* out) {
  double sum[M] = {0};
  int64_t code = rows ? codes[list[0]] : 0;
  for (int64_t r = 0; r < rows; r++) {
    const int64_t next = codes[list[r]];
    if (next != code) {
      for (int m = 0; m < M; m++) out[code * M + m] += sum[m], sum[m] = 0;
      code = next;
    }
    for (int m = 0; m < M; m++) sum[m] += gradient[r * M + m];
  }
  if (rows)
    for (int m = 0; m < M; m++) out[code * M + m] += sum[m];
}

void any(const uint16_t* codes, const int64_t* list, int64_t rows, const double* gradient, int64_t columns,
         double* out) {
  for (int64_t r = 0; r < rows; r++) {
    double* to = out + (int64_t)codes[list[r]] * columns;
    const double* from = gradient + r * columns;
    for (int64_t m = 0; m < columns; m++) to[m] += from[m];
  }
}

}  // namespace

void histograms(const uint16_t* codes, int64_t series, int64_t nodes, const int64_t* lists, int64_t n_lists,
                int64_t rows, const double* gradient, int64_t columns, int64_t bins, double* out, int threads) {
  const int64_t jobs = series * n_lists;
  const int parts = (int)std::max<int64_t>(1, std::min<int64_t>(threads, jobs));
  run_parts(parts, [&](int part) {
    for (int64_t job = part; job < jobs; job += parts) {
      const uint16_t* code = codes + job / n_lists * nodes;
      const int64_t* list = lists + job % n_lists * rows;
      double* to = out + job * bins * columns;
      switch (columns) {
        case 2: one<2>(code, list, rows, gradient, to); break;
        case 3: one<3>(code, list, rows, gradient, to); break;
        case 4: one<4>(code, list, rows, gradient, to); break;
        case 5: one<5>(code, list, rows, gradient, to); break;
        case 9: one<9>(code, list, rows, gradient, to); break;
        case 16: one<16>(code, list, rows, gradient, to); break;
        case 25: one<25>(code, list, rows, gradient, to); break;
        default: any(code, list, rows, gradient, columns, to);
      }
    }
  });
}

}  // namespace families
}  // namespace crfield
