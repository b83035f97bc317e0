// Windows by blocks (van Herk, Gil and Werman), and codes of values among thresholds.
#include <algorithm>
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
  int64_t below = 0;  // thresholds under the value before: series move slowly, so the next is near
  for (int64_t n = 0; n < count; n++) {
    const double v = values[n];
    const bool near = (below == 0 || first[below - 1] < v) && (below == n_thresholds || !(first[below] < v));
    if (!near) below = std::lower_bound(first, last, v) - first;
    const bool on = below < n_thresholds && first[below] == v;
    out[n] = (uint16_t)(2 * below + (on ? 1 : 0));
  }
}

}  // namespace families
}  // namespace crfield
