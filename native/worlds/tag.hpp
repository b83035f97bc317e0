// A game of tag; the contract is in src/crfield/kernels/worlds.py, the same loop to be read in worlds_numpy.py.
#pragma once
#include <cstdint>

namespace crfield {
namespace worlds {

struct TagRules {
  bool hourglass, contact;
  uint64_t seed;
  double half_x, half_y, top_speed, top_acceleration;
  int64_t pause_steps;
  double diameter, gap, away, reach, rate;
};

// Fills positions (steps, robots, 2) and labels (steps); returns the number of tags. Sizes are checked by the caller.
int64_t tag_steps(const TagRules& rules, int64_t steps, int robots, double* positions, int64_t* labels);

}  // namespace worlds
}  // namespace crfield
