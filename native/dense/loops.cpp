// Which level's loops run, asked once a call.
#include <cstdlib>

#include "dense/dense.hpp"
#include "level.hpp"

namespace crfield {
namespace dense {

// CRFIELD_LEVEL=2, 3 or 4 in the environment asks for a lower level than the processor has, for tests.
const Loops& loops_in_use() {
#if defined(CRFIELD_X86)
  const int best = best_level();
  const char* wish = std::getenv("CRFIELD_LEVEL");
  const int asked = wish ? std::atoi(wish) : 0;
  const int level = asked >= 2 && asked < best ? asked : best;
  return level >= 4 ? level4::dense_loops : level == 3 ? level3::dense_loops : level2::dense_loops;
#else
  return level0::dense_loops;
#endif
}

}  // namespace dense
}  // namespace crfield
