// Blocks over threads, and sums that do not depend on how many threads there are.
#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

#include "at_level.hpp"
#include "threads.hpp"
#include "vectors/passes.hpp"

namespace crfield {
namespace vectors {

inline const Passes& passes() {
#if defined(CRFIELD_X86)
  return *at_level(&level2::passes, &level3::passes, &level4::passes);
#else
  return level0::passes;
#endif
}

// body(begin, count, sums) for every block; gives the `width` sums of all blocks, added in the order of blocks.
template <class Body>
std::vector<double> over_blocks(size_t n, size_t width, int n_jobs, Body body) {
  const size_t blocks = (n + BLOCK - 1) / BLOCK;
  const size_t parts = std::min<size_t>(std::max(n_jobs, 1), std::max<size_t>(blocks, 1));
  std::vector<double> partial(blocks * width), total(width, 0.0);
  run_parts((int)parts, [&](int part) {
    const size_t first = blocks * part / parts, last = blocks * (part + 1) / parts;
    for (size_t block = first; block < last; block++) {
      const size_t begin = block * BLOCK;
      body(begin, std::min(BLOCK, n - begin), partial.data() + block * width);
    }
  });
  for (size_t block = 0; block < blocks; block++)
    for (size_t k = 0; k < width; k++) total[k] += partial[block * width + k];
  return total;
}

}  // namespace vectors
}  // namespace crfield
