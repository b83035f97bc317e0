// Bags of points, entry by entry: one exponential and one logarithm for each label.
#include "incomplete/bags.hpp"

#include <algorithm>
#include <cmath>

namespace crfield {
namespace incomplete {

void bag_sums(const Bags& b, const double* shares, const double* log_on, const double* log_off, const uint8_t* hidden,
              const double* table, double* logs, double* tilted) {
  const int64_t Y = b.labels;
  for (int64_t i = 0; i < b.bags; i++) {
    double* sum = logs + i * Y;
    std::fill(sum, sum + Y, 0.0);
    const int64_t own = b.label[i];
    for (int64_t e = b.indptr[i]; e < b.indptr[i + 1]; e++) {
      const double *front = table + b.indices[e] * Y, *back = table + (b.words + b.indices[e]) * Y;
      const double front_own = own < 0 ? 0.0 : front[own], back_own = own < 0 ? 0.0 : back[own];
      double* share = tilted + e * Y;
      for (int64_t y = 0; y < Y; y++) {
        const double on = (front[y] - front_own) * b.per_point[e], off = (back[y] - back_own) * b.per_point[e];
        if (!hidden[e]) {
          share[y] = shares[e];
          sum[y] += b.counts[e] * (share[y] * on + (1.0 - share[y]) * off);
          continue;
        }
        const double up = on + log_on[e], down = off + log_off[e], ahead = up - down;
        const double small = std::exp(-std::fabs(ahead));
        share[y] = (ahead >= 0 ? 1.0 : small) / (1.0 + small);
        sum[y] += b.counts[e] * (std::max(up, down) + std::log(1.0 + small));
      }
    }
  }
}

void bag_expected(const Bags& b, const double* tilted, const double* weight, double* out) {
  const int64_t Y = b.labels;
  for (int64_t i = 0; i < b.bags; i++)
    for (int64_t e = b.indptr[i]; e < b.indptr[i + 1]; e++) {
      double *front = out + b.indices[e] * Y, *back = out + (b.words + b.indices[e]) * Y;
      const double size = b.counts[e] * b.per_point[e];
      for (int64_t y = 0; y < Y; y++) {
        const double mass = weight[i * Y + y] * size, on = mass * tilted[e * Y + y];
        const int64_t k = b.label[i] < 0 ? y : b.label[i];
        front[k] += on;
        back[k] += mass - on;
      }
    }
}

}  // namespace incomplete
}  // namespace crfield
