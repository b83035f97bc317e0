// A compensated sum (Neumaier 1974): totals add up to 1e10 and more beside differences of order one.
//
// In an unnamed namespace: sources that are compiled for several levels of processors must not share its code.
#pragma once
#include <cmath>

namespace crfield {
namespace {

struct Accumulator {
  double sum = 0, rest = 0;
  void add(double x) {
    const double t = sum + x;
    rest += std::fabs(sum) >= std::fabs(x) ? (sum - t) + x : (x - t) + sum;
    sum = t;
  }
  double value() const { return sum + rest; }
};

}  // namespace
}  // namespace crfield
