// The two products of side_by_side.cpp, with a vector for one label of several sequences: x M for a step, and expected
// pairs of labels over all steps; of whole tables, and where few pairs carry a weight.
#pragma once
#include "chain/single.hpp"
#include "chain/sweep.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {
namespace {

// Labels of a tile of the product: as many sums as registers hold beside what they are made of.
constexpr int REGISTERS = CRFIELD_LEVEL == 4 ? 24 : 12;
// and of the tile of expected pairs, earlier x later labels
template <int N>
struct Steps {
  static constexpr int COUNT = N;
};
constexpr int PAIR_ROWS = CRFIELD_LEVEL == 4 ? 4 : 3, PAIR_COLUMNS = CRFIELD_LEVEL == 4 ? 6 : 4;

template <class T>
constexpr int WHOLE = LANES * Of<T>::BLOCKS;  // lanes of a whole vector
template <class T>
using Whole = typename Of<T>::Whole;
template <class T>
using Block = typename Of<T>::Block;

// The tables in either precision
template <class T>
struct Tables;
template <>
struct Tables<double> {
  const double *prob, *prob_t, *later_extra, *earlier_extra;
  explicit Tables(const EdgeTable& t)
      : prob(t.prob), prob_t(t.prob_t), later_extra(t.by_later_extra), earlier_extra(t.by_earlier_extra) {}
  static constexpr double LOW = 1e-3;  // of the ground: what comes out below is doubtful
};
template <>
struct Tables<float> {
  const float *prob, *prob_t, *later_extra, *earlier_extra;
  explicit Tables(const EdgeTable& t)
      : prob(t.single_prob),
        prob_t(t.single_prob_t),
        later_extra(t.single_later_extra),
        earlier_extra(t.single_earlier_extra) {}
  static constexpr float LOW = 1.0f / 32;
};

// y_j = Σ_i x_i M[i, j] for J labels j; x and y (labels, WIDE vectors)
template <class T, int WIDE, int J>
inline void product_tile(int labels, const T* x, const T* M, int stride, T* y) {
  constexpr int SIDE = WIDE * WHOLE<T>;
  Whole<T> sum[J][WIDE];
  for (int j = 0; j < J; j++)
    for (int h = 0; h < WIDE; h++) sum[j][h] = Whole<T>{};
  for (int i = 0; i < labels; i++, x += SIDE, M += stride) {
    Whole<T> from[WIDE];
    for (int h = 0; h < WIDE; h++) from[h] = whole_at(x + h * WHOLE<T>);
    for (int j = 0; j < J; j++) {
      const Whole<T> by = whole_of(M[j]);
      for (int h = 0; h < WIDE; h++) sum[j][h] += by * from[h];
    }
  }
  for (int j = 0; j < J; j++)
    for (int h = 0; h < WIDE; h++) put(y + j * SIDE + h * WHOLE<T>, sum[j][h]);
}

// The same for n <= MOST labels
template <class T, int WIDE, int MOST>
inline void product_upto(int n, int labels, const T* x, const T* M, int stride, T* y) {
  if constexpr (MOST > 0) {
    if (n == MOST)
      product_tile<T, WIDE, MOST>(labels, x, M, stride, y);
    else
      product_upto<T, WIDE, MOST - 1>(n, labels, x, M, stride, y);
  }
}

template <class T, int WIDE>
inline void product_side(int labels, const T* x, const T* M, int stride, T* y) {
  constexpr int MOST = REGISTERS / WIDE < 12 ? REGISTERS / WIDE : 12;
  const int tiles = (labels + MOST - 1) / MOST;
  for (int k = 0; k < tiles; k++) {
    const int from = labels * k / tiles, to = labels * (k + 1) / tiles;
    product_upto<T, WIDE, MOST>(to - from, labels, x, M + from, stride, y + (int64_t)from * WIDE * WHOLE<T>);
  }
}

// y = x M where few pairs carry a weight: M = g 1 1ᵀ + D (sparse_edges.cpp, which also tells the trap). `sum` is Σ_i x_i.
template <class T, int WIDE>
void product_sparse(const EdgeTable& t, bool transposed, const T* x, const Whole<T>* sum, T* y) {
  constexpr int SIDE = WIDE * WHOLE<T>;
  const Tables<T> tables(t);
  const int32_t* ptr = transposed ? t.by_earlier_ptr : t.by_later_ptr;
  const int32_t* other = transposed ? t.by_earlier : t.by_later;
  const T* extra = transposed ? tables.earlier_extra : tables.later_extra;
  Whole<T> ground[WIDE], low[WIDE];
  typename Of<T>::Mask doubtful = {};
  for (int h = 0; h < WIDE; h++) ground[h] = sum[h] * (T)t.ground, low[h] = ground[h] * Tables<T>::LOW;
  for (int j = 0; j < t.labels; j++) {
    Whole<T> acc[WIDE], odd[WIDE];
    for (int h = 0; h < WIDE; h++) acc[h] = ground[h], odd[h] = Whole<T>{};
    auto add = [&](int32_t p, Whole<T>(&sum)[WIDE]) __attribute__((always_inline)) {
      const T* from = x + (int64_t)other[p] * SIDE;
      const Whole<T> d = whole_of(extra[p]);
      for (int h = 0; h < WIDE; h++) sum[h] += d * whole_at(from + h * WHOLE<T>);
    };
    int32_t p = ptr[j];
    for (; p + 1 < ptr[j + 1]; p += 2) {
      add(p, acc);
      add(p + 1, odd);
    }
    if (p < ptr[j + 1]) add(p, acc);
    for (int h = 0; h < WIDE; h++) acc[h] += odd[h];
    for (int h = 0; h < WIDE; h++) {
      doubtful |= (acc[h] <= low[h]) & (low[h] > Whole<T>{});
      put(y + (int64_t)j * SIDE + h * WHOLE<T>, acc[h]);
    }
  }
  bool any = false;
  for (int b = 0; b < WHOLE<T>; b++) any |= doubtful[b] != 0;
  if (!any) return;
  // row j of the other table holds the weights into label j
  const T* column = transposed ? tables.prob : tables.prob_t;
  for (int j = 0; j < t.labels; j++)
    for (int b = 0; b < SIDE; b++) {
      T& at = y[(int64_t)j * SIDE + b];
      const T least = low[b / WHOLE<T>][b % WHOLE<T>];
      if (at > least || !(least > 0)) continue;
      at = 0;
      for (int i = 0; i < t.labels; i++) at += x[(int64_t)i * SIDE + b] * column[(int64_t)j * t.stride + i];
    }
}

// counts += Σ_t Σ_lanes factor α_t(i) v_{t+1}(j) for the pairs (i, j) that carry a weight, a few steps at a time
// so that a sum across lanes serves them all; in single precision (P vectors of `spare`) it serves all steps
template <class T, int WIDE>
void count_pairs_sparse(const EdgeTable& t, int64_t steps, const T* alpha, const T* v, const Whole<T>* factor,
                        const Beside<T>& s, T* spare) {
  constexpr bool KEPT = Of<T>::BLOCKS > 1;
  constexpr int SIDE = WIDE * WHOLE<T>, BLOCK = WIDE > 4 ? 1 : CRFIELD_LEVEL == 4 ? 12 / WIDE : 4 / WIDE;
  const int64_t cells = (int64_t)t.labels * SIDE;
  auto count = [&](int i, int32_t p) -> double& {
    return t.sparse ? s.pair_counts[p] : s.counts[(int64_t)i * s.stride + t.by_earlier[p]];
  };
  auto some = [&](auto block, int64_t first) {
    constexpr int B = decltype(block)::COUNT;
    const T *a = alpha + first * cells, *b = v + first * cells;
    for (int i = 0; i < t.labels; i++) {
      Whole<T> from[B][WIDE];
      for (int k = 0; k < B; k++)
        for (int h = 0; h < WIDE; h++) from[k][h] = factor[h] * whole_at(a + k * cells + i * SIDE + h * WHOLE<T>);
      for (int32_t p = t.by_earlier_ptr[i]; p < t.by_earlier_ptr[i + 1]; p++) {
        const T* to = b + (int64_t)t.by_earlier[p] * SIDE;
        Whole<T> sum[2] = {};
        if constexpr (KEPT) sum[0] = whole_at(spare + p * WHOLE<T>);
        for (int k = 0; k < B; k++)
          for (int h = 0; h < WIDE; h++)
            sum[(k * WIDE + h) % 2] += from[k][h] * whole_at(to + k * cells + h * WHOLE<T>);
        if constexpr (KEPT)
          put(spare + p * WHOLE<T>, sum[0] + sum[1]);
        else
          count(i, p) += sum_across(sum[0] + sum[1]);
      }
    }
  };
  if constexpr (KEPT)
    for (int32_t p = 0; p < t.by_earlier_ptr[t.labels]; p++) put(spare + p * WHOLE<T>, Whole<T>{});
  int64_t k = 0;
  for (; k + BLOCK <= steps; k += BLOCK) some(Steps<BLOCK>(), k);
  if constexpr (KEPT && BLOCK > 4)
    for (; k + 4 <= steps; k += 4) some(Steps<4>(), k);
  for (; k < steps; k++) some(Steps<1>(), k);
  if constexpr (KEPT)
    for (int i = 0; i < t.labels; i++)
      for (int32_t p = t.by_earlier_ptr[i]; p < t.by_earlier_ptr[i + 1]; p++)
        count(i, p) += sum_across(whole_at(spare + p * WHOLE<T>));
}

// counts[i, j] += Σ_t Σ_lanes factor α_t(i) v_{t+1}(j) for I x J pairs of labels
template <class T, int WIDE, int I, int J>
void pair_tile(int64_t steps, int labels, const T* alpha, const T* v, const Whole<T>* factor, int stride,
               double* counts) {
  constexpr int SIDE = WIDE * WHOLE<T>;
  Whole<T> sum[I][J];
  for (int i = 0; i < I; i++)
    for (int j = 0; j < J; j++) sum[i][j] = Whole<T>{};
  for (int h = 0; h < WIDE; h++) {
    Whole<T> part[I][J];
    for (int i = 0; i < I; i++)
      for (int j = 0; j < J; j++) part[i][j] = Whole<T>{};
    const T *a = alpha + h * WHOLE<T>, *b = v + h * WHOLE<T>;
    for (int64_t t = 0; t < steps; t++, a += labels * SIDE, b += labels * SIDE) {
      Whole<T> from[I];
      for (int i = 0; i < I; i++) from[i] = whole_at(a + i * SIDE);
      for (int j = 0; j < J; j++) {
        const Whole<T> to = whole_at(b + j * SIDE);
        for (int i = 0; i < I; i++) part[i][j] += from[i] * to;
      }
    }
    for (int i = 0; i < I; i++)
      for (int j = 0; j < J; j++) sum[i][j] += factor[h] * part[i][j];
  }
  for (int i = 0; i < I; i++)
    for (int j = 0; j < J; j++) counts[(int64_t)i * stride + j] += sum_across(sum[i][j]);
}

template <class T, int WIDE, int I, int MOST>
inline void pair_upto(int n, int64_t steps, int labels, const T* alpha, const T* v, const Whole<T>* factor,
                      int stride, double* counts) {
  if constexpr (MOST > 0) {
    if (n == MOST)
      pair_tile<T, WIDE, I, MOST>(steps, labels, alpha, v, factor, stride, counts);
    else
      pair_upto<T, WIDE, I, MOST - 1>(n, steps, labels, alpha, v, factor, stride, counts);
  }
}

template <class T, int WIDE, int I>
inline void pair_panel(int64_t steps, int labels, const T* alpha, const T* v, const Whole<T>* factor, int stride,
                       double* counts) {
  const int tiles = (labels + PAIR_COLUMNS - 1) / PAIR_COLUMNS;
  for (int k = 0; k < tiles; k++) {
    const int from = labels * k / tiles, to = labels * (k + 1) / tiles;
    pair_upto<T, WIDE, I, PAIR_COLUMNS>(to - from, steps, labels, alpha, v + (int64_t)from * WIDE * WHOLE<T>, factor,
                                        stride, counts + from);
  }
}

template <class T, int WIDE, int MOST>
inline void pair_rows(int n, int64_t steps, int labels, const T* alpha, const T* v, const Whole<T>* factor,
                      int stride, double* counts) {
  if constexpr (MOST > 0) {
    if (n == MOST)
      pair_panel<T, WIDE, MOST>(steps, labels, alpha, v, factor, stride, counts);
    else
      pair_rows<T, WIDE, MOST - 1>(n, steps, labels, alpha, v, factor, stride, counts);
  }
}

}  // namespace
}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
