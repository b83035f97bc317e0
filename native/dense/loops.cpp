// Which level's loops run, asked once a call.
#include "at_level.hpp"
#include "dense/dense.hpp"

namespace crfield {
namespace dense {

const Loops& loops_in_use() {
#if defined(CRFIELD_X86)
  return *at_level(&level2::dense_loops, &level3::dense_loops, &level4::dense_loops);
#else
  return level0::dense_loops;
#endif
}

}  // namespace dense
}  // namespace crfield
