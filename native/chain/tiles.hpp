// Small matrix products held in registers.
//
// A tile of ROWS x VECS accumulators stays in registers over the whole inner dimension: 4 x 3 fills the sixteen
// registers of AVX2, 8 x 3 most of the thirty-two of AVX-512.
#pragma once
#include "level.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {

constexpr int TILE_ROWS = CRFIELD_LEVEL == 4 ? 8 : 4;
constexpr int TILE_VECS = 3;

// C (ROWS, VECS vectors) = or += Σ_k A[row * row_step + k * k_step] · B[k * b_step + …]
template <int ROWS, int VECS, bool ADD>
inline void tile(int64_t inner, const double* A, int64_t row_step, int64_t k_step, const double* B,
                 int64_t b_step, double* C, int64_t c_step) {
  V acc[ROWS][VECS];
  for (int r = 0; r < ROWS; r++)
    for (int v = 0; v < VECS; v++) acc[r][v] = ADD ? load(C + r * c_step + v * LANES) : V{};
  for (int64_t k = 0; k < inner; k++) {
    V b[VECS];
    for (int v = 0; v < VECS; v++) b[v] = load(B + k * b_step + v * LANES);
    for (int r = 0; r < ROWS; r++) {
      const V a = fill(A[r * row_step + k * k_step]);
      for (int v = 0; v < VECS; v++) acc[r][v] += a * b[v];
    }
  }
  for (int r = 0; r < ROWS; r++)
    for (int v = 0; v < VECS; v++) store(C + r * c_step + v * LANES, acc[r][v]);
}

template <int ROWS, bool ADD>
inline void panel(int64_t inner, int vectors, const double* A, int64_t row_step, int64_t k_step, const double* B,
                  int64_t b_step, double* C, int64_t c_step) {
  int v = 0;
  for (; v + TILE_VECS <= vectors; v += TILE_VECS)
    tile<ROWS, TILE_VECS, ADD>(inner, A, row_step, k_step, B + v * LANES, b_step, C + v * LANES, c_step);
  if (vectors - v == 2)
    tile<ROWS, 2, ADD>(inner, A, row_step, k_step, B + v * LANES, b_step, C + v * LANES, c_step);
  else if (vectors - v == 1)
    tile<ROWS, 1, ADD>(inner, A, row_step, k_step, B + v * LANES, b_step, C + v * LANES, c_step);
}

template <bool ADD>
inline void product(int64_t rows, int64_t inner, int vectors, const double* A, int64_t row_step, int64_t k_step,
                    const double* B, int64_t b_step, double* C, int64_t c_step) {
  int64_t r = 0;
  for (; r + TILE_ROWS <= rows; r += TILE_ROWS)
    panel<TILE_ROWS, ADD>(inner, vectors, A + r * row_step, row_step, k_step, B, b_step, C + r * c_step, c_step);
  A += r * row_step;
  C += r * c_step;
  switch (rows - r) {
    case 7: panel<7, ADD>(inner, vectors, A, row_step, k_step, B, b_step, C, c_step); break;
    case 6: panel<6, ADD>(inner, vectors, A, row_step, k_step, B, b_step, C, c_step); break;
    case 5: panel<5, ADD>(inner, vectors, A, row_step, k_step, B, b_step, C, c_step); break;
    case 4: panel<4, ADD>(inner, vectors, A, row_step, k_step, B, b_step, C, c_step); break;
    case 3: panel<3, ADD>(inner, vectors, A, row_step, k_step, B, b_step, C, c_step); break;
    case 2: panel<2, ADD>(inner, vectors, A, row_step, k_step, B, b_step, C, c_step); break;
    case 1: panel<1, ADD>(inner, vectors, A, row_step, k_step, B, b_step, C, c_step); break;
    default: break;
  }
}

// C (rows, stride) = A (rows, stride; first `inner` columns) · B (inner, stride)
inline void times_table(int64_t rows, int inner, int stride, const double* A, const double* B, double* C) {
  product<false>(rows, inner, stride / LANES, A, stride, 1, B, stride, C, stride);
}

// C (labels, stride) += Aᵀ (labels, n) · B (n, stride)
inline void add_outer(int64_t n, int labels, int stride, const double* A, const double* B, double* C) {
  product<true>(labels, n, stride / LANES, A, 1, stride, B, stride, C, stride);
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
