// Plain sources: which of the levels that were built is used.
//
// A build for the machine at hand has one level, wheels have all (CRFIELD_LEVELS in CMakeLists.txt). A level that was not
// built has null addresses (CRFIELD_OPTIONAL in native/level.hpp). A better processor runs the next lower level that is
// there; one below all that is there is told so: `_chain` cannot be imported then, and the NumPy bodies run with a warning.
#pragma once
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "level.hpp"

namespace crfield {

template <class T>
struct AtLevel {
  int level;
  T* body;  // a function or a table of them
};

// CRFIELD_LEVEL=2, 3 or 4 in the environment asks for a lower level than the processor has, for tests.
template <class T>
AtLevel<T> best_of(T* two, T* three, T* four) {
  const char* wish = std::getenv("CRFIELD_LEVEL");
  const int best = best_level(), asked = wish ? std::atoi(wish) : 0;
  const int level = asked >= 2 && asked < best ? asked : best;
  if (level >= 4 && four) return {4, four};
  if (level >= 3 && three) return {3, three};
  if (two) return {2, two};
  throw std::runtime_error("they were built for processors of x86-64 level " + std::to_string(three ? 3 : 4) +
                           ", and level " + std::to_string(level) +
                           " is wanted here; build all levels with 'make setup' or 'pip install .'");
}

template <class T>
T* at_level(T* two, T* three, T* four) {
  return best_of(two, three, four).body;
}

}  // namespace crfield
