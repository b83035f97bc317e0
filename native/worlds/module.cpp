// Python's door to the worlds; the contract is in src/crfield/kernels/worlds.py. Limits are bounded so that no distance
// can overflow: the nearest of several robots then always exists.
#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

#include "arrays.hpp"
#include "worlds/soccer.hpp"
#include "worlds/tag.hpp"

namespace crfield {
namespace worlds {
namespace {

constexpr int64_t kMostRobots = 4096;

template <class... Values>
void require_positive(Values... values) {
  for (double value : {values...}) require(value >= 1e-4 && value <= 1e9, "limits must lie between 0.0001 and 1e9");
}

int64_t tag_door(Array3<double> positions, Array1<int64_t> labels, bool hourglass, uint64_t seed, double half_x,
                 double half_y, double top_speed, double top_acceleration, int64_t pause_steps, double diameter,
                 double gap, double away, double reach, double rate, bool contact) {
  const int64_t steps = (int64_t)positions.shape(0), robots = (int64_t)positions.shape(1);
  require(positions.shape(2) == 2 && (int64_t)labels.shape(0) == steps, "positions (T, R, 2) need labels (T,)");
  require(robots >= 2 && robots <= kMostRobots, "tag needs at least two robots");
  require_positive(half_x, half_y, top_speed, top_acceleration, diameter, reach, rate);
  require(gap >= 0.0 && gap <= 1e9 && away >= 0.0 && away <= 1e9 && pause_steps >= 0,
          "gap, away and pause must lie between 0 and 1e9");
  const TagRules rules{hourglass,   contact,  seed, half_x, half_y, top_speed, top_acceleration,
                       pause_steps, diameter, gap,  away,   reach,  rate};
  double* place = positions.data();
  int64_t* label = labels.data();
  nb::gil_scoped_release free;
  return tag_steps(rules, steps, (int)robots, place, label);
}

void soccer_door(Array3<double> positions, Array1<int64_t> possession, Array1<int64_t> carrier, Array2<int64_t> roles,
                 Array1<int64_t> goals, uint64_t seed, double half_x, double half_y, double half_goal, double top_speed,
                 double top_acceleration, double kick_speed, double friction, double diameter, double rate) {
  const int64_t steps = (int64_t)positions.shape(0), robots = (int64_t)roles.shape(1);
  require(robots >= 4 && robots % 2 == 0 && robots <= kMostRobots, "soccer needs two teams of at least two");
  require(positions.shape(2) == 2 && (int64_t)positions.shape(1) == robots + 1 && (int64_t)roles.shape(0) == steps &&
              (int64_t)possession.shape(0) == steps && (int64_t)carrier.shape(0) == steps && goals.shape(0) == 2,
          "positions (T, 2n + 1, 2) need possession (T,), carrier (T,), roles (T, 2n) and goals (2,)");
  require_positive(half_x, half_y, half_goal, top_speed, top_acceleration, kick_speed, friction, diameter, rate);
  const SoccerRules rules{seed,       half_x,   half_y,   half_goal, top_speed, top_acceleration,
                          kick_speed, friction, diameter, rate};
  const SoccerTable table{positions.data(), possession.data(), carrier.data(), roles.data(), goals.data()};
  nb::gil_scoped_release free;
  soccer_steps(rules, steps, (int)(robots / 2), table);
}

void track_door(Array3<const double> measured, Array2<const uint8_t> seen, double alpha, double beta,
                Array3<double> out) {
  const size_t steps = measured.shape(0), robots = measured.shape(1), width = 2 * robots;
  require(measured.shape(2) == 2 && out.shape(2) == 2 && out.shape(0) == steps && out.shape(1) == robots &&
              seen.shape(0) == steps && seen.shape(1) == robots,
          "measured (T, R, 2) need seen (T, R) and room for (T, R, 2)");
  if (!steps || !robots) return;
  const double* from = measured.data();
  const uint8_t* flag = seen.data();
  double* to = out.data();
  nb::gil_scoped_release free;
  std::vector<double> place(from, from + width), pace(width, 0.0);
  for (size_t t = 0; t < steps; t++)
    for (size_t k = 0; k < width; k++, from++, to++) {
      place[k] += pace[k];
      const double surprise = flag[t * robots + k / 2] ? *from - place[k] : 0.0;
      place[k] += alpha * surprise;
      pace[k] += beta * surprise;
      *to = place[k];
    }
}

}  // namespace
}  // namespace worlds
}  // namespace crfield

NB_MODULE(_worlds, m) {
  m.def("tag_steps", &crfield::worlds::tag_door);
  m.def("soccer_steps", &crfield::worlds::soccer_door);
  m.def("track", &crfield::worlds::track_door);
}
