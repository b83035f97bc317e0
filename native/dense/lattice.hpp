// The permutohedral lattice around points: which vertices carry them, and which vertices are neighbours.
#pragma once
#include <cstdint>
#include <vector>

namespace crfield {
namespace dense {

struct Neighbours {
  int64_t nodes = 0;
  bool exact = true;            // whether keys of vertices are their coordinates, and not a hash of them
  std::vector<int32_t> pairs;   // (D + 1, M, 2), M where there is none
  std::vector<float> mass;      // (M + 1,) the shares that a vertex has of points, added up
};

// Vertices `at` (N, D + 1) and shares (N, D + 1) of features (D, N), all finite and below 2^19 in size.
Neighbours build_lattice(const float* features, int64_t points, int dimensions, bool halo, int32_t* at, float* share,
                         int threads);

// sums (N,) = gain · K 1; with `fold` shares are divided by their roots.
void sum_rows(const Neighbours& lattice, int64_t points, int dimensions, float gain, const int32_t* at, float* share,
              float* sums, bool fold);

}  // namespace dense
}  // namespace crfield
