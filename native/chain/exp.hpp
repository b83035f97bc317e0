// exp on a whole vector, for arguments at most zero (scores minus their maximum).
#pragma once
#include "level.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {

// x = n ln 2 + r with |r| <= ln 2 / 2 (Cody and Waite's split of ln 2), exp(r) by its series to degree 12
// (remainder below 1e-16 there), 2^n by the exponent bits. Below -708, where the result would leave the
// normal numbers, it is zero; so it is for -inf.
__attribute__((always_inline)) inline V exp_vector(V x) {
  const V floor = fill(-708.0), magic = fill(6755399441055744.0);  // 1.5 * 2^52 rounds to an integer
  const VI dead = x < floor;
  x = dead ? floor : x;
  V n = x * 1.4426950408889634 + magic;
  const VI bits = (VI)n;
  n -= magic;
  V r = x - n * 0.693145751953125;
  r -= n * 1.42860682030941723212e-6;
  V p = fill(1.0 / 479001600.0);
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  const V y = (V)((VI)p + (bits << 52));
  return dead ? V{} : y;
}

inline double exp_one(double x) { return exp_vector(fill(x))[0]; }

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
