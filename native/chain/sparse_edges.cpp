// Products with an edge table of which few pairs carry a weight.
//
// With L = 321 labels only some 5,000 of 103,000 pairs occur in a treebank; the others have the score 0, so
//
//   E = g 1 1ᵀ + D,   g = exp(0 - c),  D sparse        x E = g (Σ x) 1ᵀ + x D
//
// Rows are turned label-major, sixteen sequences side by side, so that one weighted pair is a couple of vector
// operations for all of them.
//
// The trap: where E_ij is far below g the term g Σx + x_i (E_ij - g) cancels. An entry that comes out below
// g Σx / 1000 has lost three digits or more, and is computed again by the plain sum over all labels.
#include <cmath>

#include "chain/sweep.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {
namespace {

constexpr int SIDE = 16;
constexpr int SIDE_VECS = SIDE / LANES;

void turn(int labels, int stride, int64_t rows, const double* A, double* out) {
  for (int j = 0; j < labels; j++) {
    double* to = out + (int64_t)j * SIDE;
    for (int64_t r = 0; r < rows; r++) to[r] = A[r * stride + j];
    for (int64_t r = rows; r < SIDE; r++) to[r] = 0;
  }
}

}  // namespace

void times_sparse(const EdgeTable& t, bool transposed, int64_t rows, const double* A, double* out, double* spare) {
  const int L = t.labels, stride = t.stride;
  const int32_t* ptr = transposed ? t.by_earlier_ptr : t.by_later_ptr;
  const int32_t* other = transposed ? t.by_earlier : t.by_later;
  const double* extra = transposed ? t.by_earlier_extra : t.by_later_extra;
  const double* column = transposed ? t.prob : t.prob_t;  // row k of it holds the weights into label k
  double* x = spare;                                       // (L, SIDE)
  for (int64_t first = 0; first < rows; first += SIDE) {
    const int64_t n = rows - first < SIDE ? rows - first : SIDE;
    turn(L, stride, n, A + first * stride, x);
    V ground[SIDE_VECS];
    for (int v = 0; v < SIDE_VECS; v++) ground[v] = V{};
    for (int i = 0; i < L; i++)
      for (int v = 0; v < SIDE_VECS; v++) ground[v] += load(x + (int64_t)i * SIDE + v * LANES);
    for (int v = 0; v < SIDE_VECS; v++) ground[v] *= t.ground;
    for (int j = 0; j < L; j++) {
      V acc[SIDE_VECS];
      for (int v = 0; v < SIDE_VECS; v++) acc[v] = ground[v];
      for (int32_t p = ptr[j]; p < ptr[j + 1]; p++) {
        const double* from = x + (int64_t)other[p] * SIDE;
        const V d = fill(extra[p]);
        for (int v = 0; v < SIDE_VECS; v++) acc[v] += d * load(from + v * LANES);
      }
      for (int v = 0; v < SIDE_VECS; v++) {
        const V low = ground[v] * 1e-3;
        for (int lane = 0; lane < LANES; lane++) {
          const int64_t r = v * LANES + lane;
          if (r >= n) break;
          double y = acc[v][lane];
          if (!(y > low[lane])) {
            const double* a = A + (first + r) * stride;
            const double* e = column + (int64_t)j * stride;
            V sum = V{};
            for (int k = 0; k < stride; k += LANES) sum += load(a + k) * load(e + k);
            y = sum_lanes(sum);
          }
          out[(first + r) * stride + j] = y;
        }
      }
    }
    for (int64_t r = 0; r < n; r++)
      for (int j = L; j < stride; j++) out[(first + r) * stride + j] = 0;
  }
}

void count_sparse(const EdgeTable& t, int64_t rows, const double* A, const double* B, double* spare, double* counts) {
  const int L = t.labels, stride = t.stride;
  double *x = spare, *y = spare + (int64_t)L * SIDE;
  for (int64_t first = 0; first < rows; first += SIDE) {
    const int64_t n = rows - first < SIDE ? rows - first : SIDE;
    turn(L, stride, n, A + first * stride, x);
    turn(L, stride, n, B + first * stride, y);
    for (int i = 0; i < L; i++) {
      V a[SIDE_VECS];
      for (int v = 0; v < SIDE_VECS; v++) a[v] = load(x + (int64_t)i * SIDE + v * LANES);
      for (int32_t p = t.by_earlier_ptr[i]; p < t.by_earlier_ptr[i + 1]; p++) {
        const double* b = y + (int64_t)t.by_earlier[p] * SIDE;
        V sum = V{};
        for (int v = 0; v < SIDE_VECS; v++) sum += a[v] * load(b + v * LANES);
        counts[p] += sum_lanes(sum);
      }
    }
  }
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
