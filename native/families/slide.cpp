// Windows by blocks (van Herk, Gil and Werman), and codes of values among thresholds.
#include <algorithm>
#include <cmath>
#include <vector>

#include "families/families.hpp"

namespace crfield {
namespace families {
namespace {

struct Most {
  double operator()(double a, double b) const { return a < b ? b : a; }
};
struct Least {
  double operator()(double a, double b) const { return b < a ? b : a; }
};
struct Sum {
  double operator()(double a, double b) const { return a + b; }
};

template <class Join>
void windows(const double* values, int64_t length, int64_t width, Join join, double* behind, double* out) {
  for (int64_t start = 0; start < length; start += width) {
    const int64_t end = std::min(start + width, length);
    double ahead = values[start];
    out[start] = start == 0 || width == 1 ? ahead : join(behind[1], ahead);
    for (int64_t t = start + 1; t < end; t++) {
      ahead = join(ahead, values[t]);
      const int64_t at = t - start + 1;  // where the window begins in the block before
      out[t] = start == 0 || at == width ? ahead : join(behind[at], ahead);
    }
    if (end - start < width) break;
    behind[width - 1] = values[end - 1];
    for (int64_t k = width - 2; k >= 0; k--) behind[k] = join(behind[k + 1], values[start + k]);
  }
}

}  // namespace

void slide(const double* values, const int64_t* offsets, int64_t sequences, int64_t width, int kind, double* out) {
  std::vector<double> behind((size_t)width);
  for (int64_t s = 0; s < sequences; s++) {
    const double* from = values + offsets[s];
    double* to = out + offsets[s];
    const int64_t length = offsets[s + 1] - offsets[s];
    if (kind == 0) windows(from, length, width, Most(), behind.data(), to);
    if (kind == 1) windows(from, length, width, Least(), behind.data(), to);
    if (kind == 2) {
      windows(from, length, width, Sum(), behind.data(), to);
      for (int64_t t = 0; t < length; t++) to[t] /= (double)std::min(t + 1, width);
    }
  }
}

void codes(const double* values, int64_t count, const double* thresholds, int64_t n_thresholds, uint16_t* out) {
  const double *first = thresholds, *last = thresholds + n_thresholds;
  // on an even grid the place can be computed, and is at most one off; elsewhere it is looked for
  const double start = n_thresholds ? first[0] : 0.0;
  const double scale = n_thresholds > 1 ? (double)(n_thresholds - 1) / (last[-1] - start) : 0.0;
  bool even = n_thresholds > 1;
  for (int64_t k = 0; k < n_thresholds && even; k++) {
    const double off = (first[k] - start) * scale - (double)k;
    even = off > -0.25 && off < 0.25;
  }
  // thresholds 0 … base-1 are certainly below, those from base+3 on are not; no branch waits for the three between
  std::vector<double> padded(first, last);
  padded.insert(padded.end(), 4, HUGE_VAL);
  const double* grid = padded.data();
  const double most = (double)n_thresholds;
  for (int64_t n = 0; n < count; n++) {
    const double v = values[n];
    int64_t below;
    if (even) {
      double place = (v - start) * scale - 1.0;
      place = place > 0.0 ? place : 0.0;
      place = place < most ? place : most;
      const int64_t base = (int64_t)place;
      below = base + (grid[base] < v) + (grid[base + 1] < v) + (grid[base + 2] < v);
    } else {
      below = std::lower_bound(first, last, v) - first;
    }
    out[n] = (uint16_t)(2 * below + (grid[below] == v));
  }
}

}  // namespace families
}  // namespace crfield
