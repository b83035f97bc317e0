// The recursion in logs, one sequence at a time: slower (an exp per pair and step) and right for any scores.
//
//   a_t(j) = log Σ_i exp(a_{t-1}(i) + e_t(i, j)) + node_t(j)        b_{t-1}(i) = log Σ_j exp(e_t(i, j) + node_t(j) + b_t(j))
//
// Both are shifted to a maximum of zero at each step, so a hundred thousand steps of large scores lose no digits
// of the differences that matter; marginals are normalised locally, where rounding is smallest.
#include <cmath>

#include "accumulator.hpp"
#include "chain/sweep.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {
namespace {

// Memory of this call; no std::vector, see contract.hpp.
struct Doubles {
  double* at;
  explicit Doubles(int64_t n) : at(new double[n > 0 ? n : 1]) {}
  ~Doubles() { delete[] at; }
  Doubles(const Doubles&) = delete;
  Doubles& operator=(const Doubles&) = delete;
};

inline double shift_to_zero(int labels, double* x) {
  double top = -INF;
  for (int j = 0; j < labels; j++) top = x[j] > top ? x[j] : top;
  if (top != -INF)
    for (int j = 0; j < labels; j++) x[j] -= top;
  return top;
}

// p = exp(x) / Σ exp(x); all zero when nothing is possible
inline void normalise(int64_t n, double* x) {
  double top = -INF, sum = 0;
  for (int64_t k = 0; k < n; k++) top = x[k] > top ? x[k] : top;
  if (top == -INF) {
    for (int64_t k = 0; k < n; k++) x[k] = 0;
    return;
  }
  int64_t k = 0;
  V lanes = V{};
  for (; k + LANES <= n; k += LANES) {
    const V y = exp_vector(load(x + k) - top);
    lanes += y;
    store(x + k, y);
  }
  for (; k < n; k++) sum += x[k] = exp_one(x[k] - top);
  sum += sum_lanes(lanes);
  for (k = 0; k < n; k++) x[k] /= sum;
}

}  // namespace

void log_sequence(const EdgeTable* table, const EdgeSource* source, int64_t first_edge, Sweep& s, int b,
                  const double* score) {
  const int L = s.labels, stride = s.stride, vectors = stride / LANES;
  const int64_t size = (int64_t)L * stride;
  Doubles filled_(source ? size : 0), expected_(size), rows_(4 * (int64_t)stride);
  double *filled = filled_.at, *expected = expected_.at, *best = rows_.at, *sum = best + stride;
  double *beta = sum + stride, *next = beta + stride;
  int length = 0;
  while (length < s.steps && s.active[length] > b) length++;
  auto row_of = [&](int step) { return s.start[step] + b; };
  auto edges = [&](int step) -> const double* {
    if (!source) return table->log;
    source->fill(first_edge + step - 1, filled);
    return filled;
  };
  Accumulator total;
  bool possible = true;
  for (int step = 0; step < length && possible; step++) {
    const double* node = score + row_of(step) * stride;
    double* a = s.alpha + row_of(step) * stride;
    if (step == 0) {
      for (int j = 0; j < stride; j++) a[j] = node[j];
    } else {
      const double* e = edges(step);
      const double* before = s.alpha + row_of(step - 1) * stride;
      for (int j = 0; j < stride; j++) best[j] = -INF, sum[j] = 0;
      for (int i = 0; i < L; i++) {
        const V from = fill(before[i]);
        for (int v = 0; v < vectors; v++) {
          const V x = from + load(e + (int64_t)i * stride + v * LANES), y = load(best + v * LANES);
          store(best + v * LANES, x > y ? x : y);
        }
      }
      for (int i = 0; i < L; i++) {
        const V from = fill(before[i]);
        for (int v = 0; v < vectors; v++) {
          V top = load(best + v * LANES);
          top = top == -INF ? V{} : top;
          const V x = from + load(e + (int64_t)i * stride + v * LANES) - top;
          store(sum + v * LANES, load(sum + v * LANES) + exp_vector(x));
        }
      }
      for (int j = 0; j < stride; j++)
        a[j] = j < L && best[j] != -INF ? best[j] + std::log(sum[j]) + node[j] : -INF;
    }
    const double top = shift_to_zero(L, a);
    possible = top != -INF;
    if (possible) total.add(top);
  }
  if (!possible) {
    s.total[b] = -INF;
    for (int step = 0; step < length; step++)
      for (int j = 0; j < stride; j++) s.belief[row_of(step) * stride + j] = 0;
    return;
  }
  double last = 0;
  for (int j = 0; j < L; j++) last += exp_one(s.alpha[row_of(length - 1) * stride + j]);
  total.add(std::log(last));
  s.total[b] = total.value();

  for (int j = 0; j < stride; j++) beta[j] = 0;
  for (int step = length - 1; step >= 0; step--) {
    double* m = s.belief + row_of(step) * stride;
    const double* a = s.alpha + row_of(step) * stride;
    for (int j = 0; j < stride; j++) m[j] = j < L ? a[j] + beta[j] : -INF;
    normalise(stride, m);
    if (step == 0) break;
    const double* e = edges(step);
    const double* node = score + row_of(step) * stride;
    const double* before = s.alpha + row_of(step - 1) * stride;
    for (int j = 0; j < stride; j++) next[j] = j < L ? node[j] + beta[j] : -INF;
    for (int i = 0; i < L; i++) {
      double* out = expected + (int64_t)i * stride;
      double top = -INF, total_i = 0;
      for (int j = 0; j < stride; j++) {
        out[j] = j < L ? e[(int64_t)i * stride + j] + next[j] : -INF;
        top = out[j] > top ? out[j] : top;
      }
      if (top != -INF)
        for (int v = 0; v < vectors; v++) total_i += sum_lanes(exp_vector(load(out + v * LANES) - top));
      beta[i] = top != -INF ? top + std::log(total_i) : -INF;
      for (int j = 0; j < L; j++) out[j] += before[i];
    }
    shift_to_zero(L, beta);
    normalise(size, expected);
    if (source)
      source->take(first_edge + step - 1, expected, s.factor[b]);
    else if (s.direct)
      for (int64_t k = 0; k < size; k++) s.direct[k] += s.factor[b] * expected[k];
  }
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
