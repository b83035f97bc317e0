// Columns to scores and back: score_n = base + Σ_k x_nk W_k and its adjoint G_k += Σ_n x_nk belief_n.
//
// This is memory traffic, not arithmetic: more than half of an evaluation on text. So weights of columns seen
// with several labels lie in dense rows (one prefetched stretch each), rare (column, label) features stand
// alone, and prefetches run ahead of both lists.
#include "chain/sweep.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {
namespace {

constexpr int AHEAD_ROWS = 48, AHEAD_PAIRS = 32;

inline void prefetch_row(const double* p, int doubles, bool write) {
  const char* q = (const char*)p;
  if (write)
    for (int o = 0; o < doubles * 8; o += 64) __builtin_prefetch(q + o, 1);
  else
    for (int o = 0; o < doubles * 8; o += 64) __builtin_prefetch(q + o, 0);
}

// VECS > 0: the row of scores lives in registers; 0: any number of vectors, the row lives in the first cache.
template <int VECS, bool VALUES>
void gather_rows(const NodeWeights& w, const NodeRows& x, int64_t row, int64_t n, const double* base, double* score) {
  const int vectors = VECS ? VECS : w.stride / LANES;
  const int64_t row_end = x.row_ptr[row + n], pair_end = x.pair_ptr[row + n];
  for (int64_t r = 0; r < n; r++) {
    double* s = score + r * w.stride;
    int64_t p = x.row_ptr[row + r];
    const int64_t stop = x.row_ptr[row + r + 1];
    if constexpr (VECS > 0) {
      V acc[VECS];
      for (int v = 0; v < VECS; v++) acc[v] = load(base + v * LANES);
      for (; p < stop; p++) {
        if (p + AHEAD_ROWS < row_end)
          prefetch_row(w.rows + x.row_item[p + AHEAD_ROWS] * w.row_stride, VECS * LANES, false);
        const double* from = w.rows + x.row_item[p] * w.row_stride;
        if constexpr (VALUES) {
          const V by = fill(x.row_value[p]);
          for (int v = 0; v < VECS; v++) acc[v] += by * load(from + v * LANES);
        } else {
          for (int v = 0; v < VECS; v++) acc[v] += load(from + v * LANES);
        }
      }
      for (int v = 0; v < VECS; v++) store(s + v * LANES, acc[v]);
    } else {
      for (int v = 0; v < vectors; v++) store(s + v * LANES, load(base + v * LANES));
      for (; p < stop; p++) {
        if (p + 2 < row_end) prefetch_row(w.rows + x.row_item[p + 2] * w.row_stride, w.stride, false);
        const double* from = w.rows + x.row_item[p] * w.row_stride;
        const V by = fill(VALUES ? x.row_value[p] : 1.0);
        for (int v = 0; v < vectors; v++) store(s + v * LANES, load(s + v * LANES) + by * load(from + v * LANES));
      }
    }
    for (int64_t q = x.pair_ptr[row + r]; q < x.pair_ptr[row + r + 1]; q++) {
      if (q + AHEAD_PAIRS < pair_end) __builtin_prefetch(w.single + x.pair_item[q + AHEAD_PAIRS]);
      s[x.pair_label[q]] += (VALUES ? x.pair_value[q] : 1.0) * w.single[x.pair_item[q]];
    }
    for (int64_t q = x.list_ptr ? x.list_ptr[row + r] : 0; x.list_ptr && q < x.list_ptr[row + r + 1]; q++) {
      const double by = VALUES ? x.list_value[q] : 1.0;
      const int64_t column = x.list_item[q];
      for (int64_t f = w.feature_ptr[column]; f < w.feature_ptr[column + 1]; f++)
        s[w.feature_label[f]] += by * w.single[f];
    }
  }
}

template <int VECS, bool VALUES, bool MASK>
void scatter_rows(const NodeWeights& w, const NodeRows& x, int64_t row, int64_t n, const double* belief,
                  const double* mask, const NodeGradient& g) {
  const int vectors = VECS ? VECS : w.stride / LANES;
  const int64_t row_end = x.row_ptr[row + n], pair_end = x.pair_ptr[row + n];
  for (int64_t r = 0; r < n; r++) {
    const double* m = belief + r * w.stride;
    V held[VECS ? VECS : 1];
    if constexpr (VECS > 0)
      for (int v = 0; v < VECS; v++) held[v] = load(m + v * LANES);
    for (int64_t p = x.row_ptr[row + r]; p < x.row_ptr[row + r + 1]; p++) {
      if (VECS > 0 && p + AHEAD_ROWS < row_end)
        prefetch_row(g.rows + x.row_item[p + AHEAD_ROWS] * w.row_stride, VECS * LANES, true);
      const int64_t at = x.row_item[p] * w.row_stride;
      double* to = g.rows + at;
      const V by = fill(VALUES ? x.row_value[p] : 1.0);
      for (int v = 0; v < vectors; v++) {
        V add = VECS > 0 ? held[VECS ? v : 0] : load(m + v * LANES);
        if constexpr (VALUES) add *= by;
        if constexpr (MASK) add *= load(mask + at + v * LANES);
        store(to + v * LANES, load(to + v * LANES) + add);
      }
    }
    for (int64_t q = x.pair_ptr[row + r]; q < x.pair_ptr[row + r + 1]; q++) {
      if (q + AHEAD_PAIRS < pair_end) __builtin_prefetch(g.single + x.pair_item[q + AHEAD_PAIRS], 1);
      g.single[x.pair_item[q]] += (VALUES ? x.pair_value[q] : 1.0) * m[x.pair_label[q]];
    }
    for (int64_t q = x.list_ptr ? x.list_ptr[row + r] : 0; x.list_ptr && q < x.list_ptr[row + r + 1]; q++) {
      const double by = VALUES ? x.list_value[q] : 1.0;
      const int64_t column = x.list_item[q];
      for (int64_t f = w.feature_ptr[column]; f < w.feature_ptr[column + 1]; f++)
        g.single[f] += by * m[w.feature_label[f]];
    }
  }
}

// The same sums from rows that are not packed: each column is looked up on the way. Columns without a dense row are
// put aside while the row of scores is in registers.
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
          prefetch_row(w.rows + at * w.row_stride, VECS * LANES, false);
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

// Any number of vectors: the row of scores lives in the first cache.
void gather_csr_any(const NodeWeights& w, const CsrRows& x, int64_t row, int64_t n, const double* base, double* score) {
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

template <int VECS>
void gather_by(const NodeWeights& w, const NodeRows& x, int64_t row, int64_t n, const double* base, double* score) {
  if (x.values)
    gather_rows<VECS, true>(w, x, row, n, base, score);
  else
    gather_rows<VECS, false>(w, x, row, n, base, score);
}

template <int VECS>
void scatter_by(const NodeWeights& w, const NodeRows& x, int64_t row, int64_t n, const double* belief,
                const double* mask, const NodeGradient& g) {
  if (x.values && mask)
    scatter_rows<VECS, true, true>(w, x, row, n, belief, mask, g);
  else if (x.values)
    scatter_rows<VECS, true, false>(w, x, row, n, belief, mask, g);
  else if (mask)
    scatter_rows<VECS, false, true>(w, x, row, n, belief, mask, g);
  else
    scatter_rows<VECS, false, false>(w, x, row, n, belief, mask, g);
}

}  // namespace

void gather(const NodeWeights& w, const NodeRows& x, int64_t row, int64_t n, const double* base, double* score) {
  switch (w.stride / LANES) {
    case 1: gather_by<1>(w, x, row, n, base, score); break;
    case 2: gather_by<2>(w, x, row, n, base, score); break;
    case 3: gather_by<3>(w, x, row, n, base, score); break;
    case 4: gather_by<4>(w, x, row, n, base, score); break;
    case 5: gather_by<5>(w, x, row, n, base, score); break;
    case 6: gather_by<6>(w, x, row, n, base, score); break;
    case 7: gather_by<7>(w, x, row, n, base, score); break;
    case 8: gather_by<8>(w, x, row, n, base, score); break;
    default: gather_by<0>(w, x, row, n, base, score); break;
  }
  if (w.n_dense)
    product<true>(n, w.n_dense, w.stride / LANES, x.dense + row * w.n_dense, w.n_dense, 1, w.dense, w.stride, score,
                  w.stride);
}

void scatter(const NodeWeights& w, const NodeRows& x, int64_t row, int64_t n, const double* belief,
             const double* mask, const NodeGradient& g) {
  switch (w.stride / LANES) {
    case 1: scatter_by<1>(w, x, row, n, belief, mask, g); break;
    case 2: scatter_by<2>(w, x, row, n, belief, mask, g); break;
    case 3: scatter_by<3>(w, x, row, n, belief, mask, g); break;
    case 4: scatter_by<4>(w, x, row, n, belief, mask, g); break;
    case 5: scatter_by<5>(w, x, row, n, belief, mask, g); break;
    case 6: scatter_by<6>(w, x, row, n, belief, mask, g); break;
    case 7: scatter_by<7>(w, x, row, n, belief, mask, g); break;
    case 8: scatter_by<8>(w, x, row, n, belief, mask, g); break;
    default: scatter_by<0>(w, x, row, n, belief, mask, g); break;
  }
  if (w.n_dense)
    product<true>(w.n_dense, n, w.stride / LANES, x.dense + row * w.n_dense, 1, w.n_dense, belief, w.stride, g.dense,
                  w.stride);
}

void gather_csr(const NodeWeights& w, const CsrRows& x, int64_t row, int64_t n, const double* base, double* score) {
  switch (w.stride / LANES) {
    case 1: gather_csr_rows<1>(w, x, row, n, base, score); break;
    case 2: gather_csr_rows<2>(w, x, row, n, base, score); break;
    case 3: gather_csr_rows<3>(w, x, row, n, base, score); break;
    case 4: gather_csr_rows<4>(w, x, row, n, base, score); break;
    case 5: gather_csr_rows<5>(w, x, row, n, base, score); break;
    case 6: gather_csr_rows<6>(w, x, row, n, base, score); break;
    case 7: gather_csr_rows<7>(w, x, row, n, base, score); break;
    case 8: gather_csr_rows<8>(w, x, row, n, base, score); break;
    default: gather_csr_any(w, x, row, n, base, score); break;
  }
  if (w.n_dense)
    product<true>(n, w.n_dense, w.stride / LANES, x.dense + row * w.n_dense, w.n_dense, 1, w.dense, w.stride, score,
                  w.stride);
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
