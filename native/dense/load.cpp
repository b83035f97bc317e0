// Scores as they are given, energies or scores, labels or points first, to rows of points in units of log 2.
//
// Where points lie side by side (labels, points), as in pydensecrf, tables of 8 × 8 are turned in registers. Their rows
// are written whole: what is too much is written over by the next row.
#include "dense/levels.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {

using dense::BLOCK;
using dense::Given;
using dense::LOG2E;
using dense::PADDING;

// Of a label's scores, which become part of each point's extremes; `odd` turns NaN where one of them is none.
template <int STEP>
static void largest_and_least(const float* column, int64_t step, int64_t count, float sign, float* top, float* low,
                              float* odd) {
  for (int64_t i = 0; i < count; i++) {
    const float x = sign * column[i * (STEP ? STEP : step)];
    top[i] = x > top[i] ? x : top[i];
    low[i] = x < low[i] ? x : low[i];
    odd[i] += x * 0.f;
  }
}

#if CRFIELD_LEVEL >= 3
// Eight rows of eight become eight columns.
static inline void turn_eight(F8* x) {
  F8 pair[8], four[8];
  for (int i = 0; i < 8; i += 2) {
    pair[i] = __builtin_shufflevector(x[i], x[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    pair[i + 1] = __builtin_shufflevector(x[i], x[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; j++) {
      const F8 a = pair[i + j], b = pair[i + j + 2];
      four[i + 2 * j] = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
      four[i + 2 * j + 1] = __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
    }
  for (int i = 0; i < 4; i++) {
    x[i] = __builtin_shufflevector(four[i], four[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    x[i + 4] = __builtin_shufflevector(four[i], four[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

// Rows of eight points, their scores side by side; a float may be written up to the next multiple of eight labels.
static inline void turned(const Given& g, const float* own, float sign, const float* top, int64_t stride, float* rows) {
  const F8 most = *(const F8mem*)top;
  for (int64_t first = (g.labels - 1) / 8 * 8; first >= 0; first -= 8) {  // backwards: see above
    F8 x[8];
    for (int l = 0; l < 8; l++) {
      x[l] = F8{} + PADDING;
      if (first + l < g.labels) x[l] = (*(const F8mem*)(own + (first + l) * g.label_step) * sign - most) * LOG2E;
    }
    turn_eight(x);
    for (int i = 0; i < 8; i++) *(F8mem*)(rows + i * stride + first) = x[i];
  }
}
#endif

static void row_of(const Given& g, const float* own, float sign, float top, int64_t stride, float* row) {
  for (int64_t l = 0; l < g.labels; l++) row[l] = (sign * own[l * g.label_step] - top) * LOG2E;
  for (int64_t l = g.labels; l < stride; l++) row[l] = PADDING;
}

// Rows less their maximum, which `shift` adds up, in units of log 2; false where a score is not finite or beyond 1e30.
// For the extremes labels are outside and points inside: they do not wait for each other.
bool dense_load(const Given& g, int64_t from, int64_t to, int64_t stride, float* scores, double* shift) {
  const float sign = g.negated ? -1.f : 1.f;
  float top[BLOCK], low[BLOCK], odd[BLOCK];
  bool good = true;
  for (int64_t at = from; at < to; at += BLOCK) {
    const int64_t count = to - at < BLOCK ? to - at : BLOCK;
    const float* own = g.scores + at * g.point_step;
    for (int64_t i = 0; i < count; i++) top[i] = low[i] = sign * own[i * g.point_step], odd[i] = 0.f;
    for (int64_t l = 0; l < g.labels; l++) {
      const float* column = own + l * g.label_step;
      if (g.point_step == 1) {
        // as many streams as labels are too many for the processor to foresee
        for (int64_t ahead = 2 * BLOCK; ahead < 3 * BLOCK && at + ahead < to; ahead += 16)
          __builtin_prefetch(column + ahead);
        largest_and_least<1>(column, 1, count, sign, top, low, odd);
      } else largest_and_least<0>(column, g.point_step, count, sign, top, low, odd);
    }
    for (int64_t i = 0; i < count; i++) {
      good = good && top[i] < -PADDING && low[i] > PADDING && odd[i] == 0.f;
      *shift += top[i];
    }
    int64_t i = 0;
#if CRFIELD_LEVEL >= 3
    const int64_t room = (to - at) * stride, eights = (g.labels + 7) / 8 * 8;
    if (g.point_step == 1)
      for (; i + 8 <= count && (i + 7) * stride + eights <= room; i += 8)
        turned(g, own + i, sign, top + i, stride, scores + (at + i) * stride);
#endif
    for (; i < count; i++) row_of(g, own + i * g.point_step, sign, top[i], stride, scores + (at + i) * stride);
  }
  return good;
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
