// The round of listening for two labels; compiled once for each level of x86-64.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "level.hpp"
#include "virtual/listen.hpp"

namespace crfield {
namespace virtual_evidence {

constexpr double kFloor = 1e-30;
constexpr double kSmall = 1e-200;
constexpr double kLeastWeight = 1e-6;

// Sums of the second label in one group.
struct TwoSums {
  double moment[2] = {0, 0}, mass[2] = {0, 0}, square[3] = {0, 0, 0};
};

// Adds −weight · log b; of many nodes of weight one a single logarithm is taken.
struct Loss {
  double* sum;
  double chance[2] = {1.0, 1.0};

  explicit Loss(double* sum) : sum(sum) {}

  void add(double b, double weight, bool held) {
    b = std::max(b, 1e-300);
    if (weight == 1.0 && b > 1e-30) {
      if ((chance[held] *= b) < kSmall) sum[held] -= std::log(chance[held]), chance[held] = 1.0;
    } else {
      sum[held] -= weight * std::log(b);
    }
  }

  // A product of beliefs of nodes that teach, each of weight one.
  void add_product(double product) { sum[0] -= std::log(product); }

  void finish() {
    for (int side = 0; side < 2; side++) sum[side] -= std::log(chance[side]);
  }
};

// Nodes [from, to): messages, beliefs and pairs are written, sums and loss added to.
typedef void TwoLabels(const Round&, int64_t from, int64_t to, std::vector<TwoSums>& sums, Loss& loss);

CRFIELD_OPTIONAL TwoLabels two_labels_level0, two_labels_level2, two_labels_level3, two_labels_level4;

}  // namespace virtual_evidence
}  // namespace crfield
