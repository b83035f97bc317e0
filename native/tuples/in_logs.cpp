// One sequence in logarithms: exact for any scores, finite or -inf, at an exp for every edge and step.
#include <cmath>
#include <limits>
#include <vector>

#include "accumulator.hpp"
#include "tuples/tuples.hpp"

namespace crfield {
namespace tuples {
namespace {

const double NEVER = -std::numeric_limits<double>::infinity();

double bring_to_zero(int64_t n, double* x) {
  double top = NEVER;
  for (int64_t k = 0; k < n; k++) top = x[k] > top ? x[k] : top;
  for (int64_t k = 0; top > NEVER && k < n; k++) x[k] -= top;
  return top;
}

// x = exp(x) / Σ exp(x); all zero where nothing is possible
void normalise(int64_t n, double* x) {
  const double top = bring_to_zero(n, x);
  double sum = 0;
  for (int64_t k = 0; k < n; k++) sum += x[k] = top > NEVER ? std::exp(x[k]) : 0.0;
  for (int64_t k = 0; sum > 0 && k < n; k++) x[k] /= sum;
}

}  // namespace

double sum_in_logs(const Edges& e, const double* node, int64_t steps, double factor, double* belief, double* uses) {
  const int64_t S = e.states, L = e.labels;
  std::vector<double> alpha((size_t)(steps * S), NEVER), best((size_t)S), sum((size_t)S), beta((size_t)S, 0.0);
  std::vector<double> joint((size_t)(S * L)), chance((size_t)S);
  Accumulator total;
  for (int64_t t = 0; t < steps; t++) {
    double* now = alpha.data() + t * S;
    if (t == 0) {
      for (int64_t y = 0; y < L; y++) now[y] = node[y];
    } else {
      const double* before = now - S;
      for (int64_t s = 0; s < S; s++) best[s] = NEVER, sum[s] = 0;
      for (int64_t k = 0; k < S * L; k++) {
        const double x = before[k / L] + e.log[k];
        if (x > best[e.after[k]]) best[e.after[k]] = x;
      }
      for (int64_t k = 0; k < S * L; k++) {
        const double x = before[k / L] + e.log[k];
        if (x > NEVER) sum[e.after[k]] += std::exp(x - best[e.after[k]]);
      }
      for (int64_t s = 0; s < S; s++)
        if (best[s] > NEVER) now[s] = best[s] + std::log(sum[s]) + node[t * L + e.label[s]];
    }
    const double top = bring_to_zero(S, now);
    if (top == NEVER) {
      for (int64_t k = 0; k < steps * L; k++) belief[k] = 0;
      return NEVER;
    }
    total.add(top);
  }
  double last = 0;
  for (int64_t s = 0; s < S; s++) last += std::exp(alpha[(size_t)((steps - 1) * S + s)]);
  total.add(std::log(last));
  for (int64_t t = steps - 1; t >= 0; t--) {
    const double* now = alpha.data() + t * S;
    for (int64_t s = 0; s < S; s++) chance[s] = now[s] + beta[s];
    normalise(S, chance.data());
    for (int64_t y = 0; y < L; y++) belief[t * L + y] = 0;
    for (int64_t s = 0; s < S; s++) belief[t * L + e.label[s]] += chance[s];
    if (t == 0) break;
    const double* before = now - S;
    for (int64_t p = 0; p < S; p++) {
      double top = NEVER, part = 0;
      for (int64_t k = p * L; k < (p + 1) * L; k++) {
        joint[k] = e.log[k] + node[t * L + k - p * L] + beta[e.after[k]];
        top = joint[k] > top ? joint[k] : top;
      }
      for (int64_t k = p * L; top > NEVER && k < (p + 1) * L; k++) part += std::exp(joint[k] - top);
      chance[p] = top > NEVER ? top + std::log(part) : NEVER;
      for (int64_t k = p * L; k < (p + 1) * L; k++) joint[k] += before[p];
    }
    beta.swap(chance);
    bring_to_zero(S, beta.data());
    normalise(S * L, joint.data());
    for (int64_t k = 0; k < S * L; k++) uses[k] += factor * joint[k];
  }
  return total.value();
}

double best_in_logs(const Edges& e, const double* node, int64_t steps, int32_t* path) {
  const int64_t S = e.states, L = e.labels;
  std::vector<double> delta((size_t)S, NEVER), now((size_t)S);
  std::vector<int32_t> came((size_t)(steps * S), 0);
  for (int64_t y = 0; y < L; y++) delta[y] = node[y];
  double taken = 0;
  for (int64_t t = 1; t < steps; t++) {
    int32_t* from = came.data() + t * S;
    for (int64_t s = 0; s < S; s++) now[s] = NEVER;
    for (int64_t p = 0; p < S; p++) {
      if (delta[p] == NEVER) continue;
      for (int64_t k = p * L; k < (p + 1) * L; k++) {
        const double x = delta[p] + e.log[k];
        if (x > now[e.after[k]]) now[e.after[k]] = x, from[e.after[k]] = (int32_t)p;
      }
    }
    for (int64_t s = 0; s < S; s++) now[s] += node[t * L + e.label[s]];
    delta.swap(now);
    if (t % 16 == 0) {  // long sequences of large scores keep their digits
      const double top = bring_to_zero(S, delta.data());
      if (top > NEVER) taken += top;
    }
  }
  int64_t state = 0;
  for (int64_t s = 1; s < S; s++)
    if (delta[s] > delta[state]) state = s;
  const double total = delta[state] + taken;
  for (int64_t t = steps - 1; t >= 0; t--) {
    path[t] = e.label[state];
    state = came[(size_t)(t * S + state)];
  }
  return total;
}

}  // namespace tuples
}  // namespace crfield
