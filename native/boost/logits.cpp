// A row of scores to (w, w z) for each class. Two classes need one exponential and one pair; a logarithm serves many
// rows, because what it is taken of lies in [1, K] and can be multiplied first.
#include "boost/logits.hpp"

#include "chain/exp.hpp"
#include "level.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {
namespace {

using boost::Logits;

void exponentiate(double* x, int64_t n) {
  int64_t k = 0;
  for (; k + LANES <= n; k += LANES) store(x + k, exp_vector(load(x + k)));
  for (; k < n; k++) x[k] = exp_one(x[k]);
}

// log of a product of numbers in [1, 2^20), taken before it can leave the double numbers
struct LogProduct {
  double product = 1.0, sum = 0.0;
  void times(double factor) {
    product *= factor;
    if (product > 1e280) sum += __builtin_log(product), product = 1.0;
  }
  double log() const { return sum + __builtin_log(product); }
};

inline void pair(const Logits& x, double p, double truth, double by, double* out) {
  const double curve = p * (1.0 - p), w = curve > x.least ? curve : x.least;
  double z = (truth - p) / w;
  z = z > x.limit ? x.limit : z < -x.limit ? -x.limit : z;
  out[0] = by * w, out[1] = by * w * z;
}

double two_classes(const Logits& x, int64_t first, int64_t last, double* spare) {
  const int64_t n = last - first;
  const double* scores = x.scores + 2 * first;
  for (int64_t k = 0; k < n; k++) {
    const double d = scores[2 * k + 1] - scores[2 * k];
    spare[k] = d < 0.0 ? d : -d;
  }
  exponentiate(spare, n);
  double loss = 0.0;
  LogProduct parts;
  for (int64_t k = 0; k < n; k++) {
    const int32_t label = x.labels[first + k];
    const double d = scores[2 * k + 1] - scores[2 * k], e = spare[k];
    const double p = (d < 0.0 ? e : 1.0) / (1.0 + e);
    const double by = label < 0 ? 0.0 : x.weight ? x.weight[first + k] : 1.0;
    pair(x, p, label == 1 ? 1.0 : 0.0, by, x.pairs + 2 * (first + k));
    if (label < 0) continue;
    // -log p(label) = log(1 + e) + the margin where it is on the wrong side
    const double wrong = (label == 1) == (d < 0.0) ? (d < 0.0 ? -d : d) : 0.0;
    if (x.weight)
      loss += by * (__builtin_log1p(e) + wrong);
    else
      loss += wrong, parts.times(1.0 + e);
  }
  return loss + parts.log();
}

double many_classes(const Logits& x, int64_t first, int64_t last, double* spare) {
  const int64_t n = last - first, K = x.classes;
  const double* scores = x.scores + K * first;
  double loss = 0.0;
  LogProduct parts;
  for (int64_t k = 0; k < n; k++) {
    double top = scores[k * K];
    for (int64_t c = 1; c < K; c++) top = scores[k * K + c] > top ? scores[k * K + c] : top;
    for (int64_t c = 0; c < K; c++) spare[k * K + c] = scores[k * K + c] - top;
    const int32_t label = x.labels[first + k];
    if (label >= 0) loss -= (x.weight ? x.weight[first + k] : 1.0) * spare[k * K + label];
  }
  exponentiate(spare, n * K);
  for (int64_t k = 0; k < n; k++) {
    double sum = 0.0;
    for (int64_t c = 0; c < K; c++) sum += spare[k * K + c];
    const int32_t label = x.labels[first + k];
    const double by = label < 0 ? 0.0 : x.weight ? x.weight[first + k] : 1.0;
    for (int64_t c = 0; c < K; c++)
      pair(x, spare[k * K + c] / sum, c == label ? 1.0 : 0.0, by, x.pairs + 2 * (c * x.rows + first + k));
    if (label < 0) continue;
    if (x.weight)
      loss += by * __builtin_log(sum);
    else
      parts.times(sum);
  }
  return loss + parts.log();
}

}  // namespace
}  // namespace CRFIELD_LEVEL_NAME

namespace boost {

double CRFIELD_JOIN(logit_rows_level, CRFIELD_LEVEL)(const Logits& x, int64_t first, int64_t last, double* spare) {
  using namespace CRFIELD_LEVEL_NAME;
  return x.classes == 2 ? two_classes(x, first, last, spare) : many_classes(x, first, last, spare);
}

}  // namespace boost
}  // namespace crfield
