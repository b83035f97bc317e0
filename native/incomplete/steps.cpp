// One step of a weight, and sweeps of them: the same arithmetic as incomplete_numpy.py, cell by cell.
#include "incomplete/steps.hpp"

#include <algorithm>
#include <cmath>

namespace crfield {
namespace incomplete {

namespace {

constexpr int TURNS = 200;
constexpr double LARGEST = 700.0;  // e^x beyond it is infinite

// W of all cells of one datum; see boosting/incomplete/losses.py.
void weigh(const Sweep& s, int64_t datum) {
  const int64_t Y = s.labels, first = s.offsets[datum], last = s.offsets[datum + 1], own = s.label[datum];
  const double c = s.weight[datum];
  if (s.loss == 0) {
    for (int64_t m = first; m < last; m++) {
      const double *score = s.scores + m * Y, share = c * s.prior[m];
      for (int64_t y = 0; y < Y; y++) s.heavy[m * Y + y] = share * std::exp(std::min(score[y] - score[own], LARGEST));
    }
    return;
  }
  double top = -INFINITY;  // of the exponents of the shares, which decide what e^x is relative to
  for (int64_t m = first; m < last; m++) {
    const double* score = s.scores + m * Y;
    double* heavy = s.heavy + m * Y;
    double most = score[0], sum = 0.0;
    for (int64_t y = 1; y < Y; y++) most = std::max(most, score[y]);
    for (int64_t y = 0; y < Y; y++) heavy[y] = std::exp(score[y] - most), sum += heavy[y];
    for (int64_t y = 0; y < Y; y++) heavy[y] /= sum;
    // log Z = log sum + most - score[own]; kept where p(own) stands, which no step reads
    const double log_z = std::log(sum) + most - score[own];
    heavy[own] = s.loss == 2 ? s.prior[m] : std::log(s.prior[m]) + (s.loss == 1 ? log_z : -log_z);
    if (s.loss != 2) top = std::max(top, heavy[own]);
  }
  double total = 1.0;
  if (s.loss != 2) {
    total = 0.0;
    for (int64_t m = first; m < last; m++) total += s.heavy[m * Y + own] = std::exp(s.heavy[m * Y + own] - top);
  }
  for (int64_t m = first; m < last; m++) {
    double* heavy = s.heavy + m * Y;
    const double share = heavy[own] / total * c;
    for (int64_t y = 0; y < Y; y++) heavy[y] *= share;
    heavy[own] = 0.0;
  }
}

double off_label(const Sweep& s, int64_t cell) {
  const int64_t own = s.label[s.owner[cell]];
  double sum = 0.0;
  for (int64_t y = 0; y < s.labels; y++)
    if (y != own) sum += s.heavy[cell * s.labels + y];
  return sum;
}

double off_label_of(const Sweep& s, int64_t datum) {
  double sum = 0.0;
  for (int64_t m = s.offsets[datum]; m < s.offsets[datum + 1]; m++) sum += off_label(s, m);
  return sum;
}

}  // namespace

double step(double plus, double minus, double weight, double scale, const Rule& rule) {
  if (rule.l2 == 0.0) {
    const double found = std::log((minus + rule.smoothing) / (plus + rule.smoothing)) / (2 * scale);
    return std::isnan(found) ? 0.0 : std::min(std::max(found, -rule.longest), rule.longest);
  }
  const double log_plus = std::log(plus), log_minus = std::log(minus);
  // No exponential outgrows what it has to balance at the root, and the left side rises at least as fast as l2 d.
  const double end = -(plus - minus + rule.l2 * weight) / rule.l2;
  double low = 0.0, high = 0.0, d = 0.0;
  if (end > 0) high = std::fmin(end, (std::log(minus + rule.l2 * std::max(-weight, 0.0)) - log_plus) / scale);
  if (end < 0) low = std::fmax(end, (log_minus - std::log(plus + rule.l2 * std::max(weight, 0.0))) / scale);
  double moved = high - low;
  for (int turn = 0; turn < TURNS; turn++) {
    const double up = std::exp(std::min(log_plus + scale * d, LARGEST));
    const double down = std::exp(std::min(log_minus - scale * d, LARGEST));
    const double value = up - down + rule.l2 * (weight + d);
    (value > 0 ? high : low) = d;
    double next = d - value / (scale * (up + down) + rule.l2);
    // On the steep side of an exponential Newton's steps are all alike; halving is faster.
    if (!(next >= low && next <= high && 2 * std::fabs(next - d) <= moved)) next = 0.5 * (low + high);
    moved = std::fabs(next - d);
    d = next;
    if (moved <= 1e-15 + 1e-14 * std::fabs(d)) break;
  }
  return d;
}

void sweep(const Sweep& s) {
  const int64_t Y = s.labels;
  double total = 0.0;
  for (int64_t m = 0; m < s.cells; m++) total += off_label(s, m);
  for (int64_t a = 0; a < s.columns; a++) {
    double largest = 0.0;
    for (int64_t t = s.indptr[a]; t < s.indptr[a + 1]; t++)
      if (s.spans[s.indices[t] + 1] > s.spans[s.indices[t]]) largest = std::max(largest, std::fabs(s.values[t]));
    if (largest == 0.0) continue;
    for (int64_t k = 0; k < Y; k++) {
      double plus = 0.0, minus = 0.0, scale = largest;
      for (int64_t t = s.indptr[a]; t < s.indptr[a + 1]; t++)
        for (int64_t m = s.spans[s.indices[t]]; m < s.spans[s.indices[t] + 1]; m++) {
          const bool own = s.label[s.owner[m]] == k;
          const double push = s.values[t] * (own ? -off_label(s, m) : s.heavy[m * Y + k]);
          (push > 0 ? plus : minus) += std::fabs(push);
        }
      if (!s.tight) {
        scale = std::max(largest, 1.0);
        const double slope = (plus - minus) / scale;
        plus = std::max(0.5 * (total + slope), 0.0);
        minus = std::max(0.5 * (total - slope), 0.0);
      }
      const double d = step(plus, minus, s.table[a * Y + k], scale, s.rule);
      if (d == 0.0) continue;
      s.table[a * Y + k] += d;
      for (int64_t t = s.indptr[a]; t < s.indptr[a + 1]; t++)
        for (int64_t m = s.spans[s.indices[t]]; m < s.spans[s.indices[t] + 1]; m++)
          s.scores[m * Y + k] += d * s.values[t];
      int64_t before = -1;
      for (int64_t t = s.indptr[a]; t < s.indptr[a + 1]; t++)
        for (int64_t m = s.spans[s.indices[t]]; m < s.spans[s.indices[t] + 1]; m++) {
          const int64_t datum = s.owner[m];
          if (datum == before) continue;
          before = datum;
          total -= off_label_of(s, datum);
          weigh(s, datum);
          total += off_label_of(s, datum);
        }
    }
  }
}

}  // namespace incomplete
}  // namespace crfield
