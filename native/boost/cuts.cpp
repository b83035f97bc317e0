// The best cut of every column among its sums; a few thousand divisions, so it runs on one thread.
#include <limits>
#include <vector>

#include "boost/columns.hpp"

namespace crfield {
namespace boost {
namespace {

constexpr double NO_WEIGHT = 1e-12, TIE = 1e-10;  // as in the contract

struct Best {
  double gain = -std::numeric_limits<double>::infinity();
  int32_t cut = -1, side = 1;
};

// Scratch for one column: for each class, sums of the lower and of the upper bins, and of missing values.
struct Scratch {
  std::vector<double> above;  // (classes, bins + 1, 2): sums of bins b …
  std::vector<double> below, lost, nothing;
};

Best nominal_column(const Search& s, const double* sums, int64_t stride, int64_t bins, const double* counts,
                    double nothing) {
  Best best;
  double gain = 0.0;
  int64_t used = 0;
  for (int64_t b = 0; b < bins; b++) {
    if (!(sums[2 * b] > nothing)) continue;
    if (counts && counts[b] < s.least) return best;
    used++;
    for (int64_t c = 0; c < s.classes; c++) {
      const double* at = sums + c * stride + 2 * b;
      gain += at[1] * at[1] / (at[0] + s.ridge);
    }
  }
  if (used >= 2) best.gain = gain, best.cut = 0;
  return best;
}

Best numeric_column(const Search& s, const double* sums, int64_t stride, int64_t all, bool missing,
                    const double* counts, Scratch& m) {
  Best best;
  const int64_t bins = all - missing, C = s.classes;
  double count_below = 0.0, count_above = 0.0, count_lost = 0.0;
  if (counts) {
    for (int64_t b = 0; b < bins; b++) count_above += counts[b];
    if (missing) count_lost = counts[bins];
  }
  for (int64_t c = 0; c < C; c++) {
    const double* at = sums + c * stride;
    double* above = m.above.data() + 2 * c * (bins + 1);
    above[2 * bins] = above[2 * bins + 1] = 0.0;
    for (int64_t b = bins - 1; b >= 0; b--)
      above[2 * b] = above[2 * b + 2] + at[2 * b], above[2 * b + 1] = above[2 * b + 3] + at[2 * b + 1];
    m.lost[2 * c] = missing ? at[2 * bins] : 0.0, m.lost[2 * c + 1] = missing ? at[2 * bins + 1] : 0.0;
    m.below[2 * c] = m.below[2 * c + 1] = 0.0;
  }
  for (int64_t k = 0; k < bins - 1 + missing; k++) {
    for (int64_t c = 0; c < C; c++) {
      m.below[2 * c] += sums[c * stride + 2 * k], m.below[2 * c + 1] += sums[c * stride + 2 * k + 1];
    }
    if (counts) count_below += counts[k], count_above -= counts[k];
    for (int side = 1; side >= (missing && k < bins - 1 ? 0 : 1); side--) {
      if (counts && (count_below + (side ? 0.0 : count_lost) < s.least ||
                     count_above + (side ? count_lost : 0.0) < s.least))
        continue;
      double gain = 0.0;
      bool good = true;
      for (int64_t c = 0; c < C && good; c++) {
        const double* above = m.above.data() + 2 * (c * (bins + 1) + k + 1);
        const double* lost = m.lost.data() + 2 * c;
        const double wl = m.below[2 * c] + (side ? 0.0 : lost[0]), pl = m.below[2 * c + 1] + (side ? 0.0 : lost[1]);
        const double wr = above[0] + (side ? lost[0] : 0.0), pr = above[1] + (side ? lost[1] : 0.0);
        good = wl > m.nothing[c] && wr > m.nothing[c];
        gain += pl * pl / (wl + s.ridge) + pr * pr / (wr + s.ridge);
      }
      if (good && (best.cut < 0 || gain > best.gain * (1.0 + TIE))) best.gain = gain, best.cut = (int32_t)k, best.side = side;
    }
  }
  return best;
}

}  // namespace

void best_cuts(const Search& s) {
  const int64_t total = s.offsets[s.columns], stride = 2 * total;
  int64_t most = 0;
  for (int64_t f = 0; f < s.columns; f++) {
    const int64_t bins = s.offsets[f + 1] - s.offsets[f];
    most = bins > most ? bins : most;
  }
  Scratch m;
  m.above.resize(2 * s.classes * (most + 1)), m.below.resize(2 * s.classes), m.lost.resize(2 * s.classes);
  m.nothing.resize(s.classes);
  for (int64_t f = 0; f < s.columns; f++) {
    const int64_t bins = s.offsets[f + 1] - s.offsets[f];
    const double* sums = s.sums + 2 * s.offsets[f];
    const double* counts = s.counts ? s.counts + s.offsets[f] : nullptr;
    for (int64_t c = 0; c < s.classes; c++) {
      m.nothing[c] = 0.0;
      for (int64_t b = 0; b < bins; b++) m.nothing[c] += sums[c * stride + 2 * b];
      m.nothing[c] *= NO_WEIGHT;
    }
    const Best best = s.nominal[f] ? nominal_column(s, sums, stride, bins, counts, m.nothing[0])
                                   : numeric_column(s, sums, stride, bins, s.missing[f] != 0, counts, m);
    s.gain[f] = best.gain, s.cut[f] = best.cut, s.side[f] = best.side;
  }
}

}  // namespace boost
}  // namespace crfield
