// The loops of a primal–dual step: columns of a sequence to scores, changes of columns, and the step itself.
//
// Columns are visited one by one, each with the rows that have it, so that a column's change is summed in registers and
// its weights, duals and step sizes are read once. A place of a row that is no weight (padding, or a pair that was never
// seen) has the step size 0 and stays 0.
#include "chain/primal_dual.hpp"
#include "chain/sweep.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {
namespace {

constexpr int WIDE = LANES < 8 ? 2 * LANES : LANES;  // single-precision lanes: rows are seldom wider than eight or three times that
constexpr int AHEAD = 12, CHUNK = 8;
constexpr float FAINT = 1e-9f;
typedef float F __attribute__((vector_size(WIDE * 4)));
typedef float Fmem __attribute__((vector_size(WIDE * 4), aligned(4), may_alias));
typedef int32_t FI __attribute__((vector_size(WIDE * 4)));

inline F get(const float* p) { return *(const Fmem*)p; }
inline void put(float* p, F x) { *(Fmem*)p = x; }
inline double sum_wide(F x) {
  double s = 0;
  for (int i = 0; i < WIDE; i++) s += x[i];
  return s;
}

inline void prefetch(const float* p, int floats) {
  for (int k = 0; k < floats; k += 16) __builtin_prefetch(p + k, 1);
}

template <int N>
struct Chunk {
  static constexpr int COUNT = N;
};

// work(Chunk<N>(), first place) for pieces of up to CHUNK vectors
template <class Work>
inline void by_chunks(int64_t stride, const Work& work) {
  const int vectors = (int)(stride / WIDE);
  for (int v = 0; v < vectors; v += CHUNK) {
    switch (vectors - v < CHUNK ? vectors - v : CHUNK) {
      case 1: work(Chunk<1>(), v * WIDE); break;
      case 2: work(Chunk<2>(), v * WIDE); break;
      case 3: work(Chunk<3>(), v * WIDE); break;
      case 4: work(Chunk<4>(), v * WIDE); break;
      case 5: work(Chunk<5>(), v * WIDE); break;
      case 6: work(Chunk<6>(), v * WIDE); break;
      case 7: work(Chunk<7>(), v * WIDE); break;
      default: work(Chunk<8>(), v * WIDE); break;
    }
  }
}

// work(column, first place in row_at, one behind the last) for every column; those met once come first
template <class Work>
inline void each_row(const DualLists& x, const Work& work) {
  for (int64_t u = 0; u < x.rows_once; u++) work(u, (int32_t)u, (int32_t)u + 1);
  for (int64_t u = x.rows_once, k = 0; u < x.n_rows; u++, k++) work(u, x.row_ptr[k], x.row_ptr[k + 1]);
}

template <class Work>
inline void each_single(const DualLists& x, const Work& work) {
  for (int64_t u = 0; u < x.single_once; u++) work(u, (int32_t)u, (int32_t)u + 1);
  for (int64_t u = x.single_once, k = 0; u < x.n_single; u++, k++) work(u, x.single_ptr[k], x.single_ptr[k + 1]);
}

// the sum of a column's rows, N vectors of them
template <int N>
inline void sum_rows(const DualLists& x, int32_t q, int32_t stop, const float* from, int64_t stride, F (&sum)[N]) {
  for (int v = 0; v < N; v++) sum[v] = get(from + x.row_at[q] * stride + v * WIDE);
  if (x.row_value) {
    for (int v = 0; v < N; v++) sum[v] *= x.row_value[q];
    for (q++; q < stop; q++)
      for (int v = 0; v < N; v++) sum[v] += x.row_value[q] * get(from + x.row_at[q] * stride + v * WIDE);
  } else {
    for (q++; q < stop; q++)
      for (int v = 0; v < N; v++) sum[v] += get(from + x.row_at[q] * stride + v * WIDE);
  }
}

inline float sum_single(const DualLists& x, int32_t q, int32_t stop, const float* from) {
  float sum = 0;
  for (; q < stop; q++) sum += (x.single_value ? x.single_value[q] : 1.0f) * from[x.single_at[q]];
  return sum;
}

template <int N>
void score_rows(const DualLists& x, const DualSlots& s, int first, float* score) {
  each_row(x, [&](int64_t u, int32_t q, int32_t stop) {
    if (u + AHEAD < x.rows_ahead) prefetch(s.block + x.row[u + AHEAD] * 3 * s.stride + first, N * WIDE);
    const float* from = s.block + x.row[u] * 3 * s.stride + first;
    F w[N];
    for (int v = 0; v < N; v++) w[v] = get(from + v * WIDE);
    for (; q < stop; q++) {
      float* to = score + x.row_at[q] * s.stride + first;
      if (x.row_value)
        for (int v = 0; v < N; v++) put(to + v * WIDE, get(to + v * WIDE) + x.row_value[q] * w[v]);
      else
        for (int v = 0; v < N; v++) put(to + v * WIDE, get(to + v * WIDE) + w[v]);
    }
  });
}

template <int N>
double squares_rows(const DualLists& x, const DualSlots& s, int first, const float* delta) {
  F total = F{};
  each_row(x, [&](int64_t u, int32_t q, int32_t stop) {
    if (u + AHEAD < x.rows_ahead) prefetch(s.block + (x.row[u + AHEAD] * 3 + 2) * s.stride + first, N * WIDE);
    const float* tau = s.block + (x.row[u] * 3 + 2) * s.stride + first;
    F sum[N];
    sum_rows<N>(x, q, stop, delta + first, s.stride, sum);
    for (int v = 0; v < N; v++) total += get(tau + v * WIDE) * sum[v] * sum[v];
  });
  return sum_wide(total);
}

template <int N>
void add_rows(const DualLists& x, const DualSlots& s, int first, const float* delta, float* rows) {
  each_row(x, [&](int64_t u, int32_t q, int32_t stop) {
    float* to = rows + x.row[u] * s.stride + first;
    for (; q < stop; q++) {
      const float by = x.row_value ? x.row_value[q] * x.row_value[q] : 1.0f;
      const float* from = delta + x.row_at[q] * s.stride + first;
      for (int v = 0; v < N; v++) put(to + v * WIDE, get(to + v * WIDE) + by * get(from + v * WIDE));
    }
  });
}

// the same sums in double precision, values as they are
template <int N>
void total_rows(const DualLists& x, int64_t stride, int first, const float* delta, double* rows) {
  each_row(x, [&](int64_t u, int32_t q, int32_t stop) {
    double* to = rows + x.row[u] * stride + first;
    F sum[N];
    sum_rows<N>(x, q, stop, delta + first, stride, sum);
    for (int v = 0; v < N; v++)
      for (int i = 0; i < WIDE; i++) to[v * WIDE + i] += (double)sum[v][i];
  });
}

inline F root(F x) {
  F y;
  for (int i = 0; i < WIDE; i++) y[i] = __builtin_sqrtf(x[i]);
  return y;
}

// towards zero by `by`, no further
inline F shrink(F w, F by) { return w > by ? w - by : w < -by ? w + by : F{}; }

template <int N>
void move_rows(const DualLists& x, const DualSlots& s, int first, const float* delta, const DualStep& step) {
  const float gamma = (float)step.gamma, l2 = (float)step.l2, l1 = (float)step.l1, rate = (float)step.rate;
  each_row(x, [&](int64_t u, int32_t q, int32_t stop) {
    if (u + AHEAD < x.rows_ahead) {
      const float* next = s.block + x.row[u + AHEAD] * 3 * s.stride + first;
      prefetch(next, N * WIDE);
      prefetch(next + s.stride, N * WIDE);
      prefetch(next + 2 * s.stride, N * WIDE);
    }
    float* w = s.block + x.row[u] * 3 * s.stride + first;
    float *d = w + s.stride, *tau = d + s.stride;
    const float share = s.share[x.row[u]];
    F sum[N];
    sum_rows<N>(x, q, stop, delta + first, s.stride, sum);
    for (int v = 0; v < N; v++) {
      const F weight = get(w + v * WIDE), dual = get(d + v * WIDE), size = get(tau + v * WIDE);
      const F change = gamma * sum[v];
      F moved, reach;
      if (rate > 0) {
        const FI known = size > F{};
        const F g = sum[v] + l2 * weight * share, squares = known ? size + g * g : F{};
        reach = known ? rate / root(squares) : F{};
        moved = weight - reach * g;
        put(tau + v * WIDE, squares);
      } else {
        reach = size;
        moved = weight - size * (change + (dual + l2 * weight) * share);
      }
      if (l1 > 0) moved = shrink(moved, reach * (share * l1));
      put(w + v * WIDE, moved);
      put(d + v * WIDE, dual + change);
    }
  });
}

void score(const DualLists& x, const DualSlots& s, float* out) {
  by_chunks(s.stride, [&](auto n, int at) { score_rows<decltype(n)::COUNT>(x, s, at, out); });
  each_single(x, [&](int64_t u, int32_t q, int32_t stop) {
    if (u + 2 * AHEAD < x.single_ahead) __builtin_prefetch(s.single + x.single[u + 2 * AHEAD], 1);
    const float w = s.single[x.single[u]].weight;
    for (; q < stop; q++) out[x.single_at[q]] += (x.single_value ? x.single_value[q] : 1.0f) * w;
  });
}

double squares(const DualLists& x, const DualSlots& s, const float* delta) {
  double total = 0;
  by_chunks(s.stride, [&](auto n, int at) { total += squares_rows<decltype(n)::COUNT>(x, s, at, delta); });
  float single = 0;
  each_single(x, [&](int64_t u, int32_t q, int32_t stop) {
    const float sum = sum_single(x, q, stop, delta);
    single += s.single[x.single[u]].tau * sum * sum;
  });
  return total + single;
}

void add(const DualLists& x, const DualSlots& s, const float* delta, float* rows, float* single) {
  by_chunks(s.stride, [&](auto n, int at) { add_rows<decltype(n)::COUNT>(x, s, at, delta, rows); });
  each_single(x, [&](int64_t u, int32_t q, int32_t stop) {
    for (; q < stop; q++) {
      const float by = x.single_value ? x.single_value[q] * x.single_value[q] : 1.0f;
      single[x.single[u]] += by * delta[x.single_at[q]];
    }
  });
}

void total(const DualLists& x, int64_t stride, const float* delta, double* rows, double* single) {
  by_chunks(stride, [&](auto n, int at) { total_rows<decltype(n)::COUNT>(x, stride, at, delta, rows); });
  each_single(x, [&](int64_t u, int32_t q, int32_t stop) { single[x.single[u]] += sum_single(x, q, stop, delta); });
}

void move(const DualLists& x, const DualSlots& s, const float* delta, const DualStep& step) {
  by_chunks(s.stride, [&](auto n, int at) { move_rows<decltype(n)::COUNT>(x, s, at, delta, step); });
  each_single(x, [&](int64_t u, int32_t q, int32_t stop) {
    s.single[x.single[u]].move(sum_single(x, q, stop, delta), step);
  });
}

// 2 artanh(s) = 2 s (1 + s²/3 + s⁴/5 + …) for |s| < 0.18
inline F twice_artanh(F s) {
  const F q = s * s;
  return 2.0f * s * ((((q * (1.0f / 9) + 1.0f / 7) * q + 1.0f / 5) * q + 1.0f / 3) * q + 1.0f);
}

// log of positive normal numbers: x = 2^n m with m in [√½, √2), and log m = 2 artanh((m - 1) / (m + 1))
inline F log_wide(F x) {
  const FI bits = (FI)x, n = (bits - 0x3f3504f3) >> 23;  // bits of √½
  const F m = (F)(bits - (n << 23));
  return __builtin_convertvector(n, F) * 0.69314718f + twice_artanh((m - 1.0f) / (m + 1.0f));
}

double differ(const DualRows& x, const double* belief, const float* table, float* delta, bool distance) {
  F total = F{};
  const float by = (float)x.weight, back = x.weight > 0 ? (float)(1 / x.weight) : 0.0f;
  for (int64_t t = 0; t < x.steps; t++) {
    const double* p = belief + (int64_t)x.from[t] * x.stride;
    const float* stored = table + x.at[t] * x.wide;
    const int32_t gold = x.gold[x.at[t]];
    float* d = delta + x.at[t] * x.wide;
    for (int j = 0; j < x.labels; j++) d[j] = (float)p[j];
    for (int64_t j = x.labels; j < x.wide; j++) d[j] = 0;
    for (int64_t v = 0; v < x.wide; v += WIDE) {
      const F now = get(d + v), old = get(stored + v);
      F is_gold = F{};
      if (gold >= v && gold < v + WIDE) is_gold[gold - v] = 1;
      // what is too small to matter is nothing: its squares would be numbers that processors are slow with
      F change = by * (now - is_gold) - old;
      change = change > FAINT || change < -FAINT ? change : F{};
      put(d + v, change);
      if (!distance) continue;
      F before = back * old + is_gold;
      before = before > F{} ? before : F{};
      // log(now / before); where the two are near, from their difference, which the quotient would have lost
      const F part = (now - before) / (now + before + 2 * FAINT);
      const F far = log_wide((now + FAINT) / (before + FAINT));
      total += change * (part < 0.17f && part > -0.17f ? twice_artanh(part) : far);
    }
  }
  return sum_wide(total);
}

void mix(const DualRows& x, const float* delta, double gamma, float* table) {
  const float by = (float)gamma;
  for (int64_t t = 0; t < x.steps; t++) {
    const int64_t at = x.at[t] * x.wide;
    for (int64_t v = at; v < at + x.wide; v += WIDE) put(table + v, get(table + v) + by * get(delta + v));
  }
}

void score_dense(const DualRows& x, int64_t columns, const double* dense, const float* block, float* out) {
  for (int64_t t = 0; t < x.steps; t++) {
    const double* from = dense + x.at[t] * columns;
    float* to = out + x.at[t] * x.wide;
    for (int64_t c = 0; c < columns; c++) {
      if (from[c] == 0) continue;
      const float by = (float)from[c];
      for (int64_t v = 0; v < x.wide; v += WIDE) put(to + v, get(to + v) + by * get(block + c * 3 * x.wide + v));
    }
  }
}

void pull_dense(const DualRows& x, int64_t columns, const double* dense, const float* delta, float* change) {
  for (int64_t t = 0; t < x.steps; t++) {
    const double* from = dense + x.at[t] * columns;
    const float* d = delta + x.at[t] * x.wide;
    for (int64_t c = 0; c < columns; c++) {
      if (from[c] == 0) continue;
      const float by = (float)from[c];
      for (int64_t v = 0; v < x.wide; v += WIDE)
        put(change + c * x.wide + v, get(change + c * x.wide + v) + by * get(d + v));
    }
  }
}

void outer(int64_t n, int labels, int stride, int64_t step, const double* A, const double* B, double* counts) {
  product<true>(labels, n, stride / LANES, A, 1, step * stride, B, step * stride, counts, stride);
}

}  // namespace
}  // namespace CRFIELD_LEVEL_NAME

const DualKernels* CRFIELD_JOIN(dual_kernels_level, CRFIELD_LEVEL)() {
  using namespace CRFIELD_LEVEL_NAME;
  static const DualKernels table{WIDE, score, squares, add, total, move, differ, mix, score_dense, pull_dense, outer};
  return &table;
}

}  // namespace crfield
