// Columns to scores and back: score_n = base + Σ_k x_nk W_k and its adjoint G_k += Σ_n x_nk belief_n.
//
// This is memory traffic, not arithmetic: more than half of an evaluation on text. So weights of columns seen
// with several labels lie in dense rows (one prefetched stretch each), rare (column, label) features stand
// alone, and prefetches run ahead of both lists.
//
// Weights may be of single precision and so may scores and beliefs, which halves what is read; the gradient never is.
#include "chain/single.hpp"
#include "chain/sweep.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {
namespace {

// Always inlined: gcc takes a function that only prefetches for one without effects and drops calls of it.
template <bool WRITE, class T>
__attribute__((always_inline)) inline void prefetch_row(const T* p, int numbers) {
  const char* q = (const char*)p;
  const int bytes = numbers * (int)sizeof(T);
  for (int o = 0; o < bytes; o += 64) __builtin_prefetch(q + o, WRITE);
  __builtin_prefetch(q + bytes - 1, WRITE);  // rows need not begin with a cache line
}

template <bool WRITE, class T>
__attribute__((always_inline)) inline void prefetch_list(const NodeRows& x, int64_t q, const T* single,
                                                         const int32_t* label) {
  const int32_t from = x.list_begin[q];
  __builtin_prefetch(single + from, WRITE);
  __builtin_prefetch(single + from + 8, WRITE);
  __builtin_prefetch(label + from);
}

// Where a row of weights or of a gradient lies. SPLIT: merged rows are in a table of their own, which is chosen without
// a branch, as nobody could foresee it.
template <bool SPLIT, class T>
struct Rows {
  T* rows;
  int64_t step, first_merged = 0, away = 0, more = 0;  // in bytes
  template <class M>
  Rows(const NodeWeights& w, T* rows_, M* merged)
      : rows(rows_), step(sizeof(T) * (sizeof(T) == sizeof(double) ? w.row_stride : w.stride)) {
    if constexpr (SPLIT) {
      first_merged = w.n_rows;
      more = (w.stride - w.row_stride) * 8;
      away = (int64_t)((intptr_t)merged - (intptr_t)rows) - w.n_rows * w.stride * 8;
    }
  }
  __attribute__((always_inline)) T* operator[](int64_t item) const {
    int64_t at = item * step;
    if constexpr (SPLIT) at += -(int64_t)(item >= first_merged) & (away + item * more);
    return (T*)((intptr_t)rows + at);
  }
};

// The weights to read: of double precision where there are no others.
template <class T>
struct Weights {
  const T *rows, *single;
};
inline Weights<double> weights_of(const NodeWeights& w, double) { return {w.rows, w.single}; }
inline Weights<float> weights_of(const NodeWeights& w, float) { return {w.float_rows, w.float_single}; }

// Rows of weights of type T, sums of type S. VECS > 0: the row of scores lives in registers; 0: any number of vectors,
// the row lives in the first cache.
template <int VECS, bool VALUES, bool SPLIT, class T, class S>
void gather_rows(const NodeWeights& w, const NodeRows& x, int64_t row, int64_t n, const double* base, S* score) {
  using B = typename Of<T>::Block;
  using C = typename Of<S>::Block;
  const int vectors = VECS ? VECS : w.stride / LANES;
  const int64_t stride = w.stride;
  const int64_t* ptr = x.row_ptr + row;
  const uint32_t* order = x.row_order + row;
  const int32_t* item = x.row_item;
  const Rows<SPLIT, const T> rows(w, weights_of(w, T()).rows, w.merged);
  for (int64_t k = 0; k < n; k++) {
    S* s = score + order[k] * stride;
    int64_t p = ptr[k];
    const int64_t stop = ptr[k + 1];
    if constexpr (VECS > 0) {
      B acc[VECS];
      for (int v = 0; v < VECS; v++) acc[v] = converted<B>(load(base + v * LANES));
      for (; p < stop; p++) {
        prefetch_row<false>(rows[item[p + AHEAD_ROWS]], VECS * LANES);
        const T* from = rows[item[p]];
        if constexpr (VALUES) {
          const B by = block_of((T)x.row_value[p]);
          for (int v = 0; v < VECS; v++) acc[v] += by * block_at(from + v * LANES);
        } else {
          for (int v = 0; v < VECS; v++) acc[v] += block_at(from + v * LANES);
        }
      }
      for (int v = 0; v < VECS; v++) put(s + v * LANES, converted<C>(acc[v]));
    } else {
      for (int v = 0; v < vectors; v++) put(s + v * LANES, converted<C>(load(base + v * LANES)));
      for (; p < stop; p++) {
        prefetch_row<false>(rows[item[p + 2]], stride);
        const T* from = rows[item[p]];
        const B by = block_of(VALUES ? (T)x.row_value[p] : (T)1);
        for (int v = 0; v < vectors; v++)
          put(s + v * LANES, block_at(s + v * LANES) + converted<C>(by * block_at(from + v * LANES)));
      }
    }
  }
}

template <int VECS, bool VALUES, bool MASK, bool SPLIT, class S>
void scatter_rows(const NodeWeights& w, const NodeRows& x, int64_t row, int64_t n, const S* belief,
                  const double* mask, const NodeGradient& g) {
  const int vectors = VECS ? VECS : w.stride / LANES;
  const int64_t stride = w.stride;
  const int64_t* ptr = x.row_ptr + row;
  const uint32_t* order = x.row_order + row;
  const int32_t* item = x.row_item;
  const Rows<SPLIT, double> rows(w, g.rows, g.merged);
  for (int64_t k = 0; k < n; k++) {
    const S* m = belief + order[k] * stride;
    V held[VECS ? VECS : 1];
    if constexpr (VECS > 0)
      for (int v = 0; v < VECS; v++) held[v] = converted<V>(block_at(m + v * LANES));
    for (int64_t p = ptr[k], stop = ptr[k + 1]; p < stop; p++) {
      if constexpr (VECS > 0) prefetch_row<true>(rows[item[p + AHEAD_ROWS]], VECS * LANES);
      double* to = rows[item[p]];
      const V by = fill(VALUES ? x.row_value[p] : 1.0);
      for (int v = 0; v < vectors; v++) {
        V add = VECS > 0 ? held[VECS ? v : 0] : converted<V>(block_at(m + v * LANES));
        if constexpr (VALUES) add *= by;
        if constexpr (MASK) add *= load(mask + (to - g.rows) + v * LANES);
        store(to + v * LANES, load(to + v * LANES) + add);
      }
    }
  }
}

template <int N>
struct Number {
  static constexpr int COUNT = N;
};

// score += w or gradient += belief for columns with K single features
template <bool VALUES, int K, class Cell, class T, class S>
void gather_singles(const SingleLists& x, const Cell* cell, int64_t row, int64_t n, const T* w, S* score) {
  const int32_t* item = x.item;
  for (int64_t q = x.ptr[row], end = x.ptr[row + n]; q < end; q++) {
    __builtin_prefetch(w + item[q + AHEAD_SINGLES]);
    const T by = VALUES ? (T)x.value[q] : (T)1;
    for (int k = 0; k < K; k++) score[cell[q * K + k]] += (S)(by * w[item[q] + k]);
  }
}

template <bool VALUES, int K, class Cell, class S>
void scatter_singles(const SingleLists& x, const Cell* cell, int64_t row, int64_t n, const S* belief, double* g) {
  const int32_t* item = x.item;
  for (int64_t q = x.ptr[row], end = x.ptr[row + n]; q < end; q++) {
    __builtin_prefetch(g + item[q + AHEAD_SINGLES], 1);
    const double by = VALUES ? x.value[q] : 1.0;
    for (int k = 0; k < K; k++) g[item[q] + k] += by * belief[cell[q * K + k]];
  }
}

template <bool VALUES, class T, class S>
void gather_few(const NodeWeights& w, const NodeRows& x, int64_t row, int64_t n, S* score) {
  const T* single = weights_of(w, T()).single;
  auto all = [&](auto k, const SingleLists& lists) {
    constexpr int K = decltype(k)::COUNT;
    if (!lists.ptr) return;
    if (lists.short_cell)
      gather_singles<VALUES, K>(lists, lists.short_cell, row, n, single, score);
    else
      gather_singles<VALUES, K>(lists, lists.long_cell, row, n, single, score);
  };
  all(Number<1>(), x.single[0]);
  all(Number<2>(), x.single[1]);
  all(Number<3>(), x.single[2]);
  const int32_t* label = w.feature_label;
  for (int64_t r = 0; x.list_ptr && r < n; r++)
    for (int64_t q = x.list_ptr[row + r]; q < x.list_ptr[row + r + 1]; q++) {
      prefetch_list<false>(x, q + AHEAD_LISTS, single, label);
      const T by = VALUES ? (T)x.list_value[q] : (T)1;
      S* s = score + r * w.stride;
      for (int32_t f = x.list_begin[q], end = x.list_end[q]; f < end; f++) s[label[f]] += (S)(by * single[f]);
    }
}

template <bool VALUES, class S>
void scatter_few(const NodeWeights& w, const NodeRows& x, int64_t row, int64_t n, const S* belief, double* g) {
  auto all = [&](auto k, const SingleLists& lists) {
    constexpr int K = decltype(k)::COUNT;
    if (!lists.ptr) return;
    if (lists.short_cell)
      scatter_singles<VALUES, K>(lists, lists.short_cell, row, n, belief, g);
    else
      scatter_singles<VALUES, K>(lists, lists.long_cell, row, n, belief, g);
  };
  all(Number<1>(), x.single[0]);
  all(Number<2>(), x.single[1]);
  all(Number<3>(), x.single[2]);
  const int32_t* label = w.feature_label;
  for (int64_t r = 0; x.list_ptr && r < n; r++)
    for (int64_t q = x.list_ptr[row + r]; q < x.list_ptr[row + r + 1]; q++) {
      prefetch_list<true>(x, q + AHEAD_LISTS, g, label);
      const double by = VALUES ? x.list_value[q] : 1.0;
      const S* m = belief + r * w.stride;
      for (int32_t f = x.list_begin[q], end = x.list_end[q]; f < end; f++) g[f] += by * m[label[f]];
    }
}

// The same sums from rows that are not packed: each column is looked up on the way. Columns without a dense row are
// put aside while the row of scores is in registers (VECS > 0).
template <int VECS>
void gather_csr_rows(const NodeWeights& w, const CsrRows& x, int64_t row, int64_t n, const double* base,
                     double* score) {
  constexpr int ASIDE = 64, AHEAD = 12;
  const int64_t end = x.indptr[row + n];
  int64_t aside[ASIDE];
  for (int64_t r = 0; r < n; r++) {
    double* s = score + r * w.stride;
    V acc[VECS];
    for (int v = 0; v < VECS; v++) acc[v] = load(base + v * LANES);
    int n_aside = 0;
    const int64_t stop = x.indptr[row + r + 1];
    for (int64_t p = x.indptr[row + r]; p <= stop; p++) {
      if (p == stop || n_aside == ASIDE) {
        for (int v = 0; v < VECS; v++) store(s + v * LANES, acc[v]);
        for (int k = 0; k < n_aside; k++) {
          const int64_t c = x.indices[aside[k]];
          const double value = x.values ? x.values[aside[k]] : 1.0;
          for (int64_t f = w.feature_ptr[c]; f < w.feature_ptr[c + 1]; f++)
            s[w.feature_label[f]] += value * w.single[f];
        }
        if (p == stop) break;
        n_aside = 0;
        for (int v = 0; v < VECS; v++) acc[v] = load(s + v * LANES);
      }
      if (p + 2 * AHEAD < end && x.row_of_column) __builtin_prefetch(x.row_of_column + x.indices[p + 2 * AHEAD]);
      if (p + AHEAD < end) {
        const int64_t c = x.indices[p + AHEAD], at = x.row_of_column ? x.row_of_column[c] : c;
        if (at >= 0)
          prefetch_row<false>(w.rows + at * w.row_stride, VECS * LANES);
        else
          __builtin_prefetch(w.feature_ptr + c);
      }
      const int64_t c = x.indices[p], at = x.row_of_column ? x.row_of_column[c] : c;
      if (at < 0) {
        __builtin_prefetch(w.single + w.feature_ptr[c]);
        __builtin_prefetch(w.feature_label + w.feature_ptr[c]);
        aside[n_aside++] = p;
        continue;
      }
      const double* from = w.rows + at * w.row_stride;
      const V value = fill(x.values ? x.values[p] : 1.0);
      for (int v = 0; v < VECS; v++) acc[v] += value * load(from + v * LANES);
    }
  }
}

template <>
void gather_csr_rows<0>(const NodeWeights& w, const CsrRows& x, int64_t row, int64_t n, const double* base,
                        double* score) {
  for (int64_t r = 0; r < n; r++) {
    double* s = score + r * w.stride;
    for (int j = 0; j < w.stride; j++) s[j] = base[j];
    for (int64_t p = x.indptr[row + r]; p < x.indptr[row + r + 1]; p++) {
      const int64_t c = x.indices[p], at = x.row_of_column ? x.row_of_column[c] : c;
      const double value = x.values ? x.values[p] : 1.0;
      if (at >= 0) {
        const double* from = w.rows + at * w.row_stride;
        for (int j = 0; j < w.labels; j++) s[j] += value * from[j];
      } else {
        for (int64_t f = w.feature_ptr[c]; f < w.feature_ptr[c + 1]; f++) s[w.feature_label[f]] += value * w.single[f];
      }
    }
  }
}

template <int VECS, class T, class S>
void gather_by(const NodeWeights& w, const NodeRows& x, int64_t row, int64_t n, const double* base, S* score) {
  constexpr bool DOUBLE = sizeof(T) == sizeof(double);  // other rows have merged ones behind them
  if (x.values)
    gather_rows<VECS, true, false, T>(w, x, row, n, base, score);
  else if (DOUBLE && w.merged)
    gather_rows<VECS, false, DOUBLE, T>(w, x, row, n, base, score);
  else
    gather_rows<VECS, false, false, T>(w, x, row, n, base, score);
}

template <int VECS, class S>
void scatter_by(const NodeWeights& w, const NodeRows& x, int64_t row, int64_t n, const S* belief, const double* mask,
                const NodeGradient& g) {
  if (x.values && mask)
    scatter_rows<VECS, true, true, false>(w, x, row, n, belief, mask, g);
  else if (x.values)
    scatter_rows<VECS, true, false, false>(w, x, row, n, belief, mask, g);
  else if (mask)
    scatter_rows<VECS, false, true, false>(w, x, row, n, belief, mask, g);
  else if (w.merged)
    scatter_rows<VECS, false, false, true>(w, x, row, n, belief, mask, g);
  else
    scatter_rows<VECS, false, false, false>(w, x, row, n, belief, mask, g);
}

// work(Number<VECS>()) for rows of that many vectors; Number<0> for rows that do not fit the registers.
template <class Work>
void by_vectors(int vectors, const Work& work) {
  switch (vectors) {
    case 1: return work(Number<1>());
    case 2: return work(Number<2>());
    case 3: return work(Number<3>());
    case 4: return work(Number<4>());
    case 5: return work(Number<5>());
    case 6: return work(Number<6>());
    case 7: return work(Number<7>());
    case 8: return work(Number<8>());
    default: return work(Number<0>());
  }
}

// score += X V for the dense block
void gather_dense(const NodeWeights& w, const double* dense, int64_t row, int64_t n, double* score) {
  if (w.n_dense)
    product<true>(n, w.n_dense, w.stride / LANES, dense + row * w.n_dense, w.n_dense, 1, w.dense, w.stride, score,
                  w.stride);
}

template <class T, class S>
void gather_sparse(const NodeWeights& w, const NodeRows& x, int64_t row, int64_t n, const double* base, S* score) {
  by_vectors(w.stride / LANES, [&](auto v) { gather_by<decltype(v)::COUNT, T>(w, x, row, n, base, score); });
  if (x.values)
    gather_few<true, T>(w, x, row, n, score);
  else
    gather_few<false, T>(w, x, row, n, score);
}

template <class S>
void scatter_sparse(const NodeWeights& w, const NodeRows& x, int64_t row, int64_t n, const S* belief,
                    const double* mask, const NodeGradient& g) {
  by_vectors(w.stride / LANES, [&](auto v) { scatter_by<decltype(v)::COUNT>(w, x, row, n, belief, mask, g); });
  if (x.values)
    scatter_few<true>(w, x, row, n, belief, g.single);
  else
    scatter_few<false>(w, x, row, n, belief, g.single);
}

}  // namespace

void gather(const NodeWeights& w, const NodeRows& x, int64_t row, int64_t n, const double* base, double* score) {
  gather_sparse<double>(w, x, row, n, base, score);
  gather_dense(w, x.dense, row, n, score);
}

void scatter(const NodeWeights& w, const NodeRows& x, int64_t row, int64_t n, const double* belief,
             const double* mask, const NodeGradient& g) {
  scatter_sparse(w, x, row, n, belief, mask, g);
  if (w.n_dense)
    product<true>(w.n_dense, n, w.stride / LANES, x.dense + row * w.n_dense, 1, w.n_dense, belief, w.stride, g.dense,
                  w.stride);
}

void gather_single(const NodeWeights& w, const NodeRows& x, int64_t row, int64_t n, const double* base, float* score) {
  if (w.float_rows)
    gather_sparse<float>(w, x, row, n, base, score);
  else
    gather_sparse<double>(w, x, row, n, base, score);
}

void scatter_single(const NodeWeights& w, const NodeRows& x, int64_t row, int64_t n, const float* belief,
                    const NodeGradient& g) {
  scatter_sparse(w, x, row, n, belief, nullptr, g);
}

void gather_csr(const NodeWeights& w, const CsrRows& x, int64_t row, int64_t n, const double* base, double* score) {
  by_vectors(w.stride / LANES, [&](auto v) { gather_csr_rows<decltype(v)::COUNT>(w, x, row, n, base, score); });
  gather_dense(w, x.dense, row, n, score);
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
