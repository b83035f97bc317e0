// One synchronous sweep, node by node. Exponentials and logarithms are taken of nodes only: a message is divided out
// of its sender's product, and the messages that arrive at a node are multiplied before one logarithm is taken of
// them, or earlier if the product becomes so small that the next factor could send it below what a double holds.
#include "virtual/sweep.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "threads.hpp"

namespace crfield {
namespace virtual_evidence {
namespace {

constexpr double kFloor = 1e-30;
constexpr double kSmall = 1e-250;
constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// exp(scores − max) and their sum; zeros where nothing is possible.
double powers(const double* scores, int64_t labels, double* out) {
  double top = kMinusInfinity;
  for (int64_t l = 0; l < labels; l++) top = std::max(top, scores[l]);
  const double shift = top == kMinusInfinity ? 0.0 : top;
  double sum = 0;
  for (int64_t l = 0; l < labels; l++) sum += out[l] = scores[l] == top ? (top == kMinusInfinity ? 0.0 : 1.0)
                                                                        : std::exp(scores[l] - shift);
  return sum;
}

void normalise(double* row, int64_t labels) {
  double sum = 0;
  for (int64_t l = 0; l < labels; l++) sum += row[l];
  if (sum > 0) {
    for (int64_t l = 0; l < labels; l++) row[l] /= sum;
  } else {
    for (int64_t l = 0; l < labels; l++) row[l] = 1.0 / (double)labels;
  }
}

struct Range {
  int64_t first, last;
};

// Nodes of a part, by the number of messages that they hear.
Range part_of(const Wiring& w, int part, int parts) {
  auto cut = [&](int p) {
    if (p <= 0) return (int64_t)0;
    if (p >= parts) return w.nodes;
    const int64_t wanted = (w.nodes + w.messages) / parts * p;
    int64_t low = 0, high = w.nodes;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (middle + w.indptr[middle] < wanted) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  return {cut(part), cut(part + 1)};
}

int parts_for(const Wiring& w, int n_jobs) {
  const int64_t worth = (w.nodes + w.messages) / 4096 + 1;  // fewer do not pay for a thread
  return (int)std::max<int64_t>(1, std::min<int64_t>(n_jobs, worth));
}

// `fixed` labels known when compiling, or 0.
template <int fixed>
void sweep(const Wiring& w, const SweepArrays& a, bool maximise, const double* power, Range range) {
  const int64_t labels = fixed ? fixed : w.labels;
  std::vector<double> product(labels), logs(labels);
  for (int64_t n = range.first; n < range.last; n++) {
    std::fill(product.begin(), product.end(), 1.0);
    std::fill(logs.begin(), logs.end(), 0.0);
    for (int64_t s = w.indptr[n]; s < w.indptr[n + 1]; s++) {
      double* sent = a.evidence + s * labels;
      const double *from = power + w.other[s] * labels, *back = a.messages + w.mate[s] * labels;
      for (int64_t d = 0; d < labels; d++) sent[d] = from[d] / std::max(back[d], kFloor);
      normalise(sent, labels);
      const double* factor = a.factors + w.group[s] * labels * labels;
      double* mu = a.arriving + s * labels;
      for (int64_t c = 0; c < labels; c++) mu[c] = 0;
      for (int64_t d = 0; d < labels; d++)
        for (int64_t c = 0; c < labels; c++) {
          const double term = sent[d] * factor[d * labels + c];
          mu[c] = maximise ? std::max(mu[c], term) : mu[c] + term;
        }
      normalise(mu, labels);
      for (int64_t c = 0; c < labels; c++) mu[c] = std::max(mu[c], kFloor);
      normalise(mu, labels);
      for (int64_t c = 0; c < labels; c++) {
        product[c] *= mu[c];
        if (product[c] < kSmall) logs[c] += std::log(product[c]), product[c] = 1.0;
      }
    }
    double* total = a.total_out + n * labels;
    for (int64_t c = 0; c < labels; c++)
      total[c] = a.local[n * labels + c] + (product[c] == 1.0 ? logs[c] : logs[c] + std::log(product[c]));
    double* beliefs = a.beliefs + n * labels;
    const double sum = std::max(powers(total, labels, beliefs), 1e-300);
    for (int64_t c = 0; c < labels; c++) beliefs[c] /= sum;
  }
}

template <int fixed>
void add_up(const Wiring& w, const SumArrays& a, Range range, double* moment, double* mass, double* square) {
  const int64_t labels = fixed ? fixed : w.labels, pairs = labels * labels;
  std::vector<double> count(w.groups * labels, 0.0), own(square ? w.groups * pairs : 0, 0.0);
  std::vector<int64_t> heard;  // groups that the node hears of
  std::vector<char> several(w.groups, 0);
  for (int64_t n = range.first; n < range.last; n++) {
    const double *weight = a.weight + n * labels, *response = a.response + n * labels;
    heard.clear();
    for (int64_t s = w.indptr[n]; s < w.indptr[n + 1]; s++) {
      const int64_t g = w.group[s];
      const double* sent = a.evidence + s * labels;
      double* c = count.data() + g * labels;
      const bool known = std::find(heard.begin(), heard.end(), g) != heard.end();
      if (!known) {
        heard.push_back(g);
        several[g] = 0;
        for (int64_t d = 0; d < labels; d++) c[d] = sent[d];
        if (square)
          for (int64_t d = 0; d < labels; d++)
            for (int64_t e = 0; e < labels; e++) own[g * pairs + d * labels + e] = sent[d] * sent[e];
      } else {
        several[g] = 1;
        for (int64_t d = 0; d < labels; d++) c[d] += sent[d];
        if (square)
          for (int64_t d = 0; d < labels; d++)
            for (int64_t e = 0; e < labels; e++) own[g * pairs + d * labels + e] += sent[d] * sent[e];
      }
    }
    for (const int64_t g : heard) {
      const double* c = count.data() + g * labels;
      for (int64_t l = 0; l < labels; l++) {
        if (weight[l] == 0.0) continue;
        const double moved = weight[l] * response[l];
        double *at = moment + g * pairs + l * labels, *under = mass + g * pairs + l * labels;
        for (int64_t d = 0; d < labels; d++) at[d] += moved * c[d], under[d] += weight[l] * c[d];
        if (square && several[g]) {
          double* q = square + (g * labels + l) * pairs;
          const double* o = own.data() + g * pairs;
          for (int64_t d = 0; d < labels; d++)
            for (int64_t e = 0; e < labels; e++) q[d * labels + e] += weight[l] * (c[d] * c[e] - o[d * labels + e]);
        }
      }
    }
  }
}

}  // namespace

void advance(const Wiring& w, const SweepArrays& a, bool maximise, int n_jobs) {
  const int parts = parts_for(w, n_jobs);
  std::vector<double> power(w.nodes * w.labels);
  run_parts(parts, [&](int part) {
    const Range range = part_of(w, part, parts);
    for (int64_t n = range.first; n < range.last; n++) {
      double* row = power.data() + n * w.labels;
      const double sum = std::max(powers(a.total + n * w.labels, w.labels, row), 1e-300);
      for (int64_t l = 0; l < w.labels; l++) row[l] /= sum;
    }
  });
  run_parts(parts, [&](int part) {
    const Range range = part_of(w, part, parts);
    if (w.labels == 2) sweep<2>(w, a, maximise, power.data(), range);
    else sweep<0>(w, a, maximise, power.data(), range);
  });
}

void couple(const Wiring& w, const SumArrays& a, int n_jobs) {
  const int parts = parts_for(w, n_jobs);
  const int64_t pairs = w.groups * w.labels * w.labels, cubes = a.square ? pairs * w.labels : 0;
  std::vector<std::vector<double>> sums(parts);
  run_parts(parts, [&](int part) {
    std::vector<double>& own = sums[part];
    own.assign(2 * pairs + cubes, 0.0);
    double* square = a.square ? own.data() + 2 * pairs : nullptr;
    const Range range = part_of(w, part, parts);
    if (w.labels == 2) add_up<2>(w, a, range, own.data(), own.data() + pairs, square);
    else add_up<0>(w, a, range, own.data(), own.data() + pairs, square);
  });
  for (const std::vector<double>& own : sums) {
    for (int64_t k = 0; k < pairs; k++) a.moment[k] += own[k], a.mass[k] += own[pairs + k];
    for (int64_t k = 0; k < cubes; k++) a.square[k] += own[2 * pairs + k];
  }
}

}  // namespace virtual_evidence
}  // namespace crfield
