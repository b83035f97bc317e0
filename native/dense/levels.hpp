// The functions of one level that its sources share.
#pragma once
#include <cstdint>

#include "dense/dense.hpp"
#include "dense/floats.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {

// The factor of feature `i` of d: blurring in the lattice then has the variance of a Gaussian of deviation 1.
inline float dense_scale(int d, int i) {
  return __builtin_sqrtf(2.f / 3.f) * (float)(d + 1) / __builtin_sqrtf((float)((i + 1) * (i + 2)));
}

void dense_embed(const float*, int64_t, int, int64_t, int, const uint64_t*, dense::Embedded&);
bool dense_load(const dense::Given&, int64_t, int64_t, int64_t, float*, double*);
void dense_spread(const dense::Kernel&, int64_t, int64_t, const float*, float*, int64_t);
void dense_gather(const dense::Kernel&, int64_t, int64_t, const float*, float, const float*, float*, int64_t);
bool dense_gather_two(const dense::Pass&, int64_t, int64_t, float*);
bool dense_spread_two(const dense::Pass&, int64_t, int64_t, const float*);
void dense_blur(const dense::Kernel&, int64_t, int64_t, int64_t, const float*, float*, int64_t);
void dense_filter(const dense::Kernel&, int, int64_t, int64_t, const float*, float*, int64_t);
void dense_relate(const dense::Compatibility&, int64_t, int64_t, int64_t, int64_t, float*, float*);
void dense_points(const dense::Pass&, int64_t, int64_t, float*);

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
