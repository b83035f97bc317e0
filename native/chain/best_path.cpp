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

// now += max_i [before_i + e_i] for N vectors of labels. A maximum waits for the one before it, so several run side by
// side: N of them, WAYS times, each over every WAYS-th label i. At most eight, which leaves registers for the rest.
template <int N, int WAYS>
inline void forward_block(int labels, int stride, const double* before, const double* e, double* now) {
  V best[WAYS][N];
  for (int w = 0; w < WAYS; w++)
    for (int v = 0; v < N; v++) best[w][v] = fill(-INF);
  int i = 0;
  for (; i + WAYS <= labels; i += WAYS)
    for (int w = 0; w < WAYS; w++) {
      const V from = fill(before[i + w]);
      const double* row = e + (int64_t)(i + w) * stride;
      for (int v = 0; v < N; v++) {
        const V x = from + load(row + v * LANES);
        best[w][v] = x > best[w][v] ? x : best[w][v];
      }
    }
  for (; i < labels; i++) {
    const V from = fill(before[i]);
    for (int v = 0; v < N; v++) {
      const V x = from + load(e + (int64_t)i * stride + v * LANES);
      best[0][v] = x > best[0][v] ? x : best[0][v];
    }
  }
  for (int v = 0; v < N; v++) {
    V top = best[0][v];
    for (int w = 1; w < WAYS; w++) top = best[w][v] > top ? best[w][v] : top;
    store(now + v * LANES, load(now + v * LANES) + top);
  }
}

void step_forward(int labels, int vectors, int stride, const double* before, const double* e, double* now) {
  int v = 0;
  for (; v + 8 <= vectors; v += 8) forward_block<8, 1>(labels, stride, before, e + v * LANES, now + v * LANES);
  if (v + 5 <= vectors) {
    forward_block<5, 1>(labels, stride, before, e + v * LANES, now + v * LANES);
    v += 5;
  }
  if (v + 3 <= vectors) {
    forward_block<3, 2>(labels, stride, before, e + v * LANES, now + v * LANES);
    v += 3;
  }
  if (v + 2 <= vectors) {
    forward_block<2, 4>(labels, stride, before, e + v * LANES, now + v * LANES);
    v += 2;
  }
  if (v < vectors) forward_block<1, 8>(labels, stride, before, e + v * LANES, now + v * LANES);
}

// The same for two sequences: what is read of the table serves both, which matters where it does not fit the first cache.
template <int N>
inline void forward_two(int labels, int stride, const double* before, const double* other_before, const double* e,
                        double* now, double* other_now) {
  V best[N], other[N];
  for (int v = 0; v < N; v++) best[v] = other[v] = fill(-INF);
  for (int i = 0; i < labels; i++) {
    const V from = fill(before[i]), other_from = fill(other_before[i]);
    const double* row = e + (int64_t)i * stride;
    for (int v = 0; v < N; v++) {
      const V own = load(row + v * LANES), x = from + own, y = other_from + own;
      best[v] = x > best[v] ? x : best[v];
      other[v] = y > other[v] ? y : other[v];
    }
  }
  for (int v = 0; v < N; v++) {
    store(now + v * LANES, load(now + v * LANES) + best[v]);
    store(other_now + v * LANES, load(other_now + v * LANES) + other[v]);
  }
}

void step_two(int labels, int vectors, int stride, const double* before, const double* other_before, const double* e,
              double* now, double* other_now) {
  constexpr int WIDE = LANES == 8 ? 7 : 4;  // twice as many maxima: AVX-512 has 32 registers, the others 16
  int v = 0;
  auto block = [&](auto f, int n) {
    const int64_t at = v * LANES;
    f(labels, stride, before, other_before, e + at, now + at, other_now + at);
    v += n;
  };
  while (v + WIDE <= vectors) block(forward_two<WIDE>, WIDE);
  if (v + 4 <= vectors) block(forward_two<4>, 4);
  if (v + 3 <= vectors) block(forward_two<3>, 3);
  if (v + 2 <= vectors) block(forward_two<2>, 2);
  while (v < vectors) block(forward_two<1>, 1);
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

// The same where the scores into the chosen label lie side by side, padded to whole vectors by -inf: the maximum first,
// then the first label that has it.
int label_before(int vectors, const double* before, const double* into) {
  V best = load(before) + load(into);
  for (int v = 1; v < vectors; v++) {
    const V x = load(before + v * LANES) + load(into + v * LANES);
    best = x > best ? x : best;
  }
  const double top = max_lanes(best);
  for (int v = 0; v < vectors; v++) {
    const V x = load(before + v * LANES) + load(into + v * LANES);
    const VI same = x == fill(top);
    for (int k = 0; k < LANES; k++)
      if (same[k]) return v * LANES + k;
  }
  return 0;
}

}  // namespace

// From step t on, where `total` has been taken off already.
static double forward_from(int64_t t, int labels, int stride, int64_t steps, double* score, const double* log,
                           double total) {
  for (; t < steps; t++) {
    double* now = score + t * stride;
    if (t) step_forward(labels, stride / LANES, stride, now - stride, log, now);
    total += shift(t, steps, labels, now);
  }
  return total;
}

static void trace_back(int labels, int stride, int64_t steps, const double* score, const double* log_t, int32_t* path) {
  path[steps - 1] = last_label(labels, score + (steps - 1) * stride);
  for (int64_t t = steps - 1; t > 0; t--)
    path[t - 1] = label_before(stride / LANES, score + (t - 1) * stride, log_t + (int64_t)path[t] * stride);
}

double best_path(int labels, int stride, int64_t steps, double* score, const double* log, const double* log_t,
                 int32_t* path) {
  const double total = forward_from(0, labels, stride, steps, score, log, 0);
  trace_back(labels, stride, steps, score, log_t, path);
  return total;
}

void best_two(int labels, int stride, const int64_t* steps, double* const* score, const double* log,
              const double* log_t, int32_t* const* path, double* total) {
  total[0] = total[1] = 0;
  for (int64_t t = 0; t < steps[1]; t++) {
    double *now = score[0] + t * stride, *other = score[1] + t * stride;
    if (t) step_two(labels, stride / LANES, stride, now - stride, other - stride, log, now, other);
    total[0] += shift(t, steps[0], labels, now);
    total[1] += shift(t, steps[1], labels, other);
  }
  total[0] = forward_from(steps[1], labels, stride, steps[0], score[0], log, total[0]);
  for (int k = 0; k < 2; k++) trace_back(labels, stride, steps[k], score[k], log_t, path[k]);
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
