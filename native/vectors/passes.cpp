// The passes of passes.hpp, written as plain loops for the compiler to vectorise.
//
// Long histories are worked through in tiles: the vectors that meet every pair stay in the first cache levels
// while the pairs stream by, and each of these is read once per pass.
#include "vectors/passes.hpp"

#include <algorithm>
#include <cmath>

#include "level.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {
namespace {

using vectors::NewPair;
using vectors::Pairs;

constexpr size_t TILE = 2048;

void dot(size_t n, const double* a, const double* b, double* sums) {
  double total = 0;
#pragma omp simd reduction(+ : total)
  for (size_t k = 0; k < n; k++) total += a[k] * b[k];
  sums[0] = total;
}

void step(size_t n, const double* w, const double* d, double t, double* out) {
#pragma omp simd
  for (size_t k = 0; k < n; k++) out[k] = w[k] + t * d[k];
}

void l1_norm(size_t n, const double* w, const uint8_t* penalised, double* sums) {
  double total = 0;
  if (penalised) {
#pragma omp simd reduction(+ : total)
    for (size_t k = 0; k < n; k++) total += penalised[k] ? std::fabs(w[k]) : 0.0;
  } else {
#pragma omp simd reduction(+ : total)
    for (size_t k = 0; k < n; k++) total += std::fabs(w[k]);
  }
  sums[0] = total;
}

void ridge(size_t n, const double* w, double* g, const double* d, double l2, const uint8_t* penalised, double* sums) {
  double squares = 0, slope = 0, norm = 0;
  if (penalised) {
#pragma omp simd reduction(+ : squares)
    for (size_t k = 0; k < n; k++) {
      const double held = penalised[k] ? w[k] : 0.0;
      g[k] += l2 * held;
      squares += held * held;
    }
  } else {
#pragma omp simd reduction(+ : squares)
    for (size_t k = 0; k < n; k++) {
      g[k] += l2 * w[k];
      squares += w[k] * w[k];
    }
  }
  if (d) {
#pragma omp simd reduction(+ : slope, norm)
    for (size_t k = 0; k < n; k++) slope += g[k] * d[k], norm += g[k] * g[k];
  } else {
    dot(n, g, g, &norm);
  }
  sums[0] = squares, sums[1] = slope, sums[2] = norm;
}

inline double subgradient(double w, double g, double l1) {
  const double beyond = std::fabs(g) - l1;  // gcc makes no vectors of fmax
  const double shrunk = std::copysign(beyond > 0 ? beyond : 0.0, g);
  return w == 0 ? shrunk : g + std::copysign(l1, w);
}

void pseudo(size_t n, const double* w, const double* g, double l1, const uint8_t* penalised, double* out,
            double* sums) {
  if (penalised) {
#pragma omp simd
    for (size_t k = 0; k < n; k++) out[k] = penalised[k] ? subgradient(w[k], g[k], l1) : g[k];
  } else {
#pragma omp simd
    for (size_t k = 0; k < n; k++) out[k] = subgradient(w[k], g[k], l1);
  }
  dot(n, out, out, sums);
}

void orthant(size_t n, const double* w, const double* g, const double* d, double t, double l1,
             const uint8_t* penalised, double* out, double* sums) {
  double slope = 0, absolute = 0, active = 0;
  if (penalised) {
#pragma omp simd reduction(+ : slope, absolute, active)
    for (size_t k = 0; k < n; k++) {
      const double moved = w[k] + t * d[k];
      const bool held = penalised[k] != 0;
      const double kept = (held && moved * w[k] < 0) ? 0.0 : moved;
      slope += (held ? subgradient(w[k], g[k], l1) : g[k]) * (kept - w[k]);
      absolute += held ? std::fabs(kept) : 0.0;
      active += kept != 0 ? 1.0 : 0.0;
      out[k] = kept;
    }
  } else {
#pragma omp simd reduction(+ : slope, absolute, active)
    for (size_t k = 0; k < n; k++) {
      const double moved = w[k] + t * d[k];
      const double kept = moved * w[k] < 0 ? 0.0 : moved;
      slope += subgradient(w[k], g[k], l1) * (kept - w[k]);
      absolute += std::fabs(kept);
      active += kept != 0 ? 1.0 : 0.0;
      out[k] = kept;
    }
  }
  sums[0] = slope, sums[1] = absolute, sums[2] = active;
}

// The new pair at one tile: s and y rounded to T, y as double and D y kept in the tile's buffers.
template <class T>
void take_pair(size_t n, const NewPair<T>& fresh, size_t at, const double* diagonal, double* y, double* dy,
               double* sums) {
  const double *w = fresh.weights + at, *v = fresh.old_weights + at;
  const double *g = fresh.gradient + at, *h = fresh.old_gradient + at;
  T *s_out = fresh.s + at, *y_out = fresh.y + at;
  double sy = 0, yy = 0, ydy = 0;
#pragma omp simd reduction(+ : sy, yy)
  for (size_t k = 0; k < n; k++) {
    const T s_k = (T)(w[k] - v[k]), y_k = (T)(g[k] - h[k]);
    s_out[k] = s_k, y_out[k] = y_k, y[k] = (double)y_k;
    sy += (double)s_k * (double)y_k;
    yy += (double)y_k * (double)y_k;
  }
  if (diagonal) {
#pragma omp simd reduction(+ : ydy)
    for (size_t k = 0; k < n; k++) {
      dy[k] = diagonal[at + k] * y[k];
      ydy += y[k] * dy[k];
    }
  } else {
    ydy = yy;
  }
  sums[vectors::S_Y] += sy, sums[vectors::Y_Y] += yy, sums[vectors::Y_DY] += ydy;
}

// sums[0] += s·a, sums[1] += y·b
template <class T>
void two_products(size_t n, const T* s, const T* y, const double* a, const double* b, double* sums) {
  double sa = 0, yb = 0;
#pragma omp simd reduction(+ : sa, yb)
  for (size_t k = 0; k < n; k++) sa += (double)s[k] * a[k], yb += (double)y[k] * b[k];
  sums[0] += sa, sums[1] += yb;
}

template <class T>
void products(size_t n, Pairs<T> pairs, const NewPair<T>* fresh, const double* g, const double* diagonal,
              double* sums) {
  alignas(64) double y[TILE], scaled_y[TILE], scaled_g[TILE];
  double* of_pairs = sums + vectors::NEW_SUMS;
  std::fill(sums, of_pairs + vectors::PAIR_SUMS * pairs.count, 0.0);
  for (size_t at = 0; at < n; at += TILE) {
    const size_t m = std::min(TILE, n - at);
    const double *dy = diagonal ? scaled_y : y, *dg = g ? g + at : nullptr;
    if (fresh) take_pair(m, *fresh, at, diagonal, y, scaled_y, sums);
    if (g && diagonal) {
#pragma omp simd
      for (size_t k = 0; k < m; k++) scaled_g[k] = diagonal[at + k] * g[at + k];
      dg = scaled_g;
    }
    if (fresh && g) two_products(m, fresh->s + at, fresh->y + at, g + at, dg, sums + vectors::S_G);
    for (int i = 0; i < pairs.count; i++) {
      const T *s_i = pairs.s[i] + at, *y_i = pairs.y[i] + at;
      double* mine = of_pairs + vectors::PAIR_SUMS * i;
      if (fresh) two_products(m, s_i, y_i, y, dy, mine + vectors::SI_Y);
      if (g) two_products(m, s_i, y_i, g + at, dg, mine + vectors::SI_G);
    }
  }
}

// q += sum over the pairs of coefficient[i] vector[i], two at a time to halve the traffic of q.
template <class T>
void add_up(size_t n, const T* const* vector, const double* coefficient, int count, size_t at, double* q) {
  int i = 0;
  for (; i + 1 < count; i += 2) {
    const T *u = vector[i] + at, *v = vector[i + 1] + at;
    const double a = coefficient[i], b = coefficient[i + 1];
#pragma omp simd
    for (size_t k = 0; k < n; k++) q[k] += a * (double)u[k] + b * (double)v[k];
  }
  if (i < count) {
    const T* u = vector[i] + at;
    const double a = coefficient[i];
#pragma omp simd
    for (size_t k = 0; k < n; k++) q[k] += a * (double)u[k];
  }
}

template <class T>
void combine(size_t n, Pairs<T> pairs, const double* a, const double* b, double gamma, const double* g,
             const double* diagonal, const double* orthant, const uint8_t* penalised, double* out, double* sums) {
  alignas(64) double q[TILE];
  double slope = 0;
  for (size_t at = 0; at < n; at += TILE) {
    const size_t m = std::min(TILE, n - at);
    const double* g_at = g + at;
    std::copy(g_at, g_at + m, q);
    add_up(m, pairs.y, a, pairs.count, at, q);
    if (diagonal) {
#pragma omp simd
      for (size_t k = 0; k < m; k++) q[k] *= gamma * diagonal[at + k];
    } else {
#pragma omp simd
      for (size_t k = 0; k < m; k++) q[k] *= gamma;
    }
    add_up(m, pairs.s, b, pairs.count, at, q);
    if (orthant && penalised) {
#pragma omp simd
      for (size_t k = 0; k < m; k++)
        q[k] = (penalised[at + k] && orthant[at + k] == 0 && !(q[k] * g_at[k] > 0)) ? 0.0 : q[k];
    } else if (orthant) {
#pragma omp simd
      for (size_t k = 0; k < m; k++) q[k] = (orthant[at + k] == 0 && !(q[k] * g_at[k] > 0)) ? 0.0 : q[k];
    }
    double part = 0;
#pragma omp simd reduction(+ : part)
    for (size_t k = 0; k < m; k++) {
      part += g_at[k] * q[k];
      out[at + k] = -q[k];
    }
    slope -= part;
  }
  sums[0] = slope;
}

}  // namespace

extern const vectors::Passes passes;
const vectors::Passes passes = {dot,
                                step,
                                l1_norm,
                                ridge,
                                pseudo,
                                orthant,
                                {products<float>, combine<float>},
                                {products<double>, combine<double>}};

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
