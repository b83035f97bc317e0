// A game of soccer; the rules are in src/crfield/kernels/reference/worlds_soccer.py.
#pragma once
#include <cstdint>

namespace crfield {
namespace worlds {

struct SoccerRules {
  uint64_t seed;
  double half_x, half_y, half_goal, top_speed, top_acceleration, kick_speed, friction, diameter, rate;
};

// Where a game is written: positions (steps, 2n + 1, 2), possession and carrier (steps), roles (steps, 2n), goals (2).
struct SoccerTable {
  double* positions;
  int64_t *possession, *carrier, *roles, *goals;
};

void soccer_steps(const SoccerRules& rules, int64_t steps, int players, const SoccerTable& table);

}  // namespace worlds
}  // namespace crfield
