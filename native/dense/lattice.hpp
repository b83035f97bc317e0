// The permutohedral lattice around points: which vertices carry them, and which vertices are neighbours.
#pragma once
#include <cstdint>
#include <vector>

namespace crfield {
namespace dense {

struct Request {
  const float* features;  // (D, N), all finite and below 2^19 in size
  int64_t points;
  int dimensions;
  bool halo;
  float gain;
  bool fold;       // whether shares are divided by the roots of the sums
  int32_t* at;     // (N, D + 1) vertices
  float* share;    // (N, D + 1)
  float* sums;     // (N,) gain · K 1
};

struct Neighbours {
  int64_t nodes = 0;
  bool exact = true;            // whether keys of vertices are their coordinates, and not a hash of them
  std::vector<int32_t> pairs;   // (D + 1, M, 2), M where there is none
};

// Fills the arrays of a request.
Neighbours build_lattice(const Request& asked, int threads);

}  // namespace dense
}  // namespace crfield
