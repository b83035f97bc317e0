// Where points lie in the permutohedral lattice: the simplex around each and its barycentric coordinates.
//
// Structure of arrays in blocks of 64 points, so that every step is a loop over points without branches (Adams, Baek
// & Davis 2010, section 3). Ranks are found by comparing all pairs of residuals.
#include <cmath>

#include "dense/levels.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {

using dense::BLOCK;
using dense::Embedded;
using dense::MOST_DIMENSIONS;

// D = 0: the number of dimensions is known only when it runs.
template <int D>
static void embed_as(const float* features, int64_t points, int dimensions, int64_t from, int count,
                        const uint64_t* strides, Embedded& e) {
  const int d = D ? D : dimensions;
  constexpr int ROOM = (D ? D : MOST_DIMENSIONS) + 1;
  alignas(64) float elevated[ROOM][BLOCK], rounded[ROOM][BLOCK], residual[ROOM][BLOCK], rank[ROOM][BLOCK];
  alignas(64) float by_rank[ROOM][BLOCK], sum[BLOCK], feature[BLOCK];
  const float most = (float)d, side = (float)(d + 1), inverse = 1.f / side;
  for (int b = 0; b < BLOCK; b++) sum[b] = feature[b] = 0.f;
  for (int j = d; j >= 1; j--) {
    const float scale = dense_scale(d, j - 1), jf = (float)j;
    const float* own = features + (int64_t)(j - 1) * points + from;
    for (int b = 0; b < count; b++) feature[b] = own[b];
    for (int b = 0; b < BLOCK; b++) {
      const float c = feature[b] * scale;
      elevated[j][b] = sum[b] - jf * c;
      sum[b] += c;
    }
  }
  for (int b = 0; b < BLOCK; b++) elevated[0][b] = sum[b], sum[b] = 0.f;
  for (int i = 0; i <= d; i++)
    for (int b = 0; b < BLOCK; b++) {
      const float x = __builtin_nearbyintf(elevated[i][b] * inverse);
      rounded[i][b] = x;
      sum[b] += x;
      residual[i][b] = elevated[i][b] - x * side;
    }
  for (int i = 0; i <= d; i++)
    for (int b = 0; b < BLOCK; b++) rank[i][b] = sum[b];
  for (int i = 0; i < d; i++)
    for (int j = i + 1; j <= d; j++)
      for (int b = 0; b < BLOCK; b++) {
        const float less = residual[i][b] < residual[j][b] ? 1.f : 0.f;
        rank[i][b] += less;
        rank[j][b] += 1.f - less;
      }
  // the rounded point may lie off the plane of sum zero: move the coordinates at its far end
  for (int i = 0; i <= d; i++)
    for (int b = 0; b < BLOCK; b++) {
      const float x = rank[i][b], step = (x < 0.f ? 1.f : 0.f) - (x > most ? 1.f : 0.f);
      rank[i][b] = x + step * side;
      e.first[i][b] = rounded[i][b] + step;
      residual[i][b] = (residual[i][b] - step * side) * inverse;
    }
  for (int q = 0; q <= d; q++) {
    const float qf = (float)q;
    for (int b = 0; b < BLOCK; b++) {
      float left = 0.f, who = 0.f;
      for (int i = 0; i <= d; i++) {
        const float here = rank[i][b] == qf ? 1.f : 0.f;
        left += here * residual[i][b];
        who += here * (float)i;
      }
      by_rank[q][b] = left;
      e.with_rank[q][b] = who;
    }
  }
  for (int b = 0; b < BLOCK; b++) e.share[0][b] = by_rank[d][b] + 1.f - by_rank[0][b];
  for (int k = 1; k <= d; k++)
    for (int b = 0; b < BLOCK; b++) e.share[k][b] = by_rank[d - k][b] - by_rank[d - k + 1][b];
  if (!strides) return;
  for (int b = 0; b < BLOCK; b++) e.key[b] = e.order[b] = 0;
  for (int i = 0; i < d; i++) {
    const uint64_t stride = strides[i] * (uint64_t)(d + 1);
    for (int b = 0; b < BLOCK; b++) e.key[b] += stride * (uint64_t)(int64_t)(int32_t)e.first[i][b];
  }
  for (int q = 1; q <= d; q++)
    for (int b = 0; b < BLOCK; b++) e.order[b] = (e.order[b] << 4) | (uint64_t)(int32_t)e.with_rank[q][b];
}

void dense_embed(const float* features, int64_t points, int dimensions, int64_t from, int count,
                 const uint64_t* strides, Embedded& e) {
  switch (dimensions) {
    case 2: return embed_as<2>(features, points, dimensions, from, count, strides, e);
    case 3: return embed_as<3>(features, points, dimensions, from, count, strides, e);
    case 4: return embed_as<4>(features, points, dimensions, from, count, strides, e);
    case 5: return embed_as<5>(features, points, dimensions, from, count, strides, e);
    default: return embed_as<0>(features, points, dimensions, from, count, strides, e);
  }
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
