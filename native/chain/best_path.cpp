// Viterbi: the same recursion with max for sum.
//
//   δ_0 = node_0      δ_t(j) = max_i [δ_{t-1}(i) + edge(i, j)] + node_t(j)
//
// No back-pointers are kept: going back, the best predecessor of the one chosen label is found again from δ_{t-1},
// which costs L a step instead of a second array of L² decisions. The smallest label wins a tie. δ is shifted
// now and then so that long sequences of large scores keep their digits.
#include "chain/sweep.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {
namespace {

constexpr int SHIFT_EVERY = 16;

void step_forward(int labels, int vectors, int stride, const double* before, const double* e, double* now) {
  int v = 0;
  for (; v + 3 <= vectors; v += 3) {
    V best0 = fill(-INF), best1 = best0, best2 = best0;
    for (int i = 0; i < labels; i++) {
      const V from = fill(before[i]);
      const double* row = e + (int64_t)i * stride + v * LANES;
      const V x0 = from + load(row), x1 = from + load(row + LANES), x2 = from + load(row + 2 * LANES);
      best0 = x0 > best0 ? x0 : best0;
      best1 = x1 > best1 ? x1 : best1;
      best2 = x2 > best2 ? x2 : best2;
    }
    store(now + v * LANES, load(now + v * LANES) + best0);
    store(now + (v + 1) * LANES, load(now + (v + 1) * LANES) + best1);
    store(now + (v + 2) * LANES, load(now + (v + 2) * LANES) + best2);
  }
  for (; v < vectors; v++) {
    V best = fill(-INF);
    for (int i = 0; i < labels; i++) {
      const V x = fill(before[i]) + load(e + (int64_t)i * stride + v * LANES);
      best = x > best ? x : best;
    }
    store(now + v * LANES, load(now + v * LANES) + best);
  }
}

// After step t: brings the largest entry of δ_t to zero, now and then and at the end, and gives what was taken off.
// It adds up to the score of the best path; -inf where there is none.
double shift(int64_t t, int64_t steps, int labels, double* delta) {
  if (t % SHIFT_EVERY != SHIFT_EVERY - 1 && t != steps - 1) return 0;
  double top = -INF;
  for (int j = 0; j < labels; j++) top = delta[j] > top ? delta[j] : top;
  if (top == -INF) return top;
  for (int j = 0; j < labels; j++) delta[j] -= top;
  return top;
}

int last_label(int labels, const double* x) {
  int best = 0;
  for (int j = 1; j < labels; j++)
    if (x[j] > x[best]) best = j;
  return best;
}

// The best label i before a chosen one; into(i), the scores of the edges into that one, lie `apart` doubles apart.
int label_before(int labels, const double* before, const double* into, int64_t apart) {
  int best = 0;
  double top = before[0] + into[0];
  for (int i = 1; i < labels; i++) {
    const double x = before[i] + into[i * apart];
    if (x > top) top = x, best = i;
  }
  return best;
}

}  // namespace

double best_path(int labels, int stride, int64_t steps, double* score, const double* log, const double* log_t,
                 int32_t* path) {
  double total = 0;
  for (int64_t t = 0; t < steps; t++) {
    double* now = score + t * stride;
    if (t) step_forward(labels, stride / LANES, stride, now - stride, log, now);
    total += shift(t, steps, labels, now);
  }
  path[steps - 1] = last_label(labels, score + (steps - 1) * stride);
  for (int64_t t = steps - 1; t > 0; t--)
    path[t - 1] = label_before(labels, score + (t - 1) * stride, log_t + (int64_t)path[t] * stride, 1);
  return total;
}

double best_path_each(const EdgeSource& source, int64_t first_edge, int labels, int stride, int64_t steps,
                      double* score, double* table, int32_t* path) {
  double total = 0;
  for (int64_t t = 0; t < steps; t++) {
    double* now = score + t * stride;
    if (t) {
      source.fill(first_edge + t - 1, table);
      step_forward(labels, stride / LANES, stride, now - stride, table, now);
    }
    total += shift(t, steps, labels, now);
  }
  path[steps - 1] = last_label(labels, score + (steps - 1) * stride);
  for (int64_t t = steps - 1; t > 0; t--) {
    source.fill(first_edge + t - 1, table);
    path[t - 1] = label_before(labels, score + (t - 1) * stride, table + path[t], stride);
  }
  return total;
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
