// Filters and mean field; callers have checked all sizes and indices.
#pragma once
#include <cstdint>
#include <vector>

#include "dense/dense.hpp"

namespace crfield {
namespace dense {

struct Field : Given {
  int64_t points;
  const float* start;  // (N, L) beliefs to begin with, or null for those of the scores alone
  std::vector<Kernel> kernels;
  std::vector<float> weights;             // of labels that agree; 1 where there is a diagonal or a table
  std::vector<const float*> diagonals;    // (L,) or null
  std::vector<const float*> tables;       // (L, L) or null
};

struct Update {
  int64_t steps;
  float damping;
  bool symmetric;  // blur in both orders and take the mean, so that the filter is its own transpose
  double tol;      // stop when no belief moves by more; only where there is a trace
  float* out;      // (N, L)
  double* trace;   // (steps + 1, 2): the bound of each beliefs, and how far they moved; or null
  int threads;
};

// Returns the steps made, or -1 where a score is not finite or beyond 1e30.
int64_t mean_field(const Field& field, const Update& update);

// out (N, C) = K values, or Kᵀ values
void filter(const Kernel& kernel, const float* values, int64_t channels, bool reverse, float* out, int threads);

// out (D, N): the slope of Σ left · K right in the features of a lattice, (D, N)
void feature_gradient(const Kernel& kernel, const float* features, const float* left, const float* right,
                      int64_t channels, float* out, int threads);

}  // namespace dense
}  // namespace crfield
