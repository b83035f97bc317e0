// Random numbers of the worlds: SplitMix64, as in src/crfield/kernels/reference/worlds.py.
#pragma once
#include <cstdint>

namespace crfield {
namespace worlds {

class Draws {
 public:
  explicit Draws(uint64_t seed) : state_(seed) {}

  double uniform() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1.0p-53;
  }

 private:
  uint64_t state_;
};

constexpr int kTries = 1000;

}  // namespace worlds
}  // namespace crfield
