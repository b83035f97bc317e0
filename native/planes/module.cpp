// Weight shifted between the planes of one part of a dual; the contract is in src/crfield/kernels/planes.py.
#include <nanobind/nanobind.h>

#include <cmath>

#include "arrays.hpp"

namespace crfield {
namespace planes {
namespace {

int pair_steps(Array1<double> values, Array1<double> shares, Array2<const double> products, double l2, double least,
               int most_steps) {
  const int64_t size = (int64_t)values.shape(0);
  require(size >= 1 && shaped(shares, size) && shaped(products, size, size), "planes do not fit");
  require(l2 > 0, "l2 must be above 0");
  double *value = values.data(), *share = shares.data();
  const double* product = products.data();
  for (int taken = 0; taken < most_steps; taken++) {
    int64_t up = 0, down = -1;
    for (int64_t k = 0; k < size; k++) {
      if (value[k] > value[up]) up = k;
      if (share[k] > 0 && (down < 0 || value[k] < value[down])) down = k;
    }
    if (down < 0) return taken;
    const double gain = value[up] - value[down];
    if (!(gain > least) || !(gain > 0)) return taken;
    const double *row_up = product + up * size, *row_down = product + down * size;
    const double bend = (row_up[up] + row_down[down] - 2 * row_up[down]) / l2;
    const double step = gain >= bend * share[down] ? share[down] : gain / bend;
    share[up] += step;
    share[down] = share[down] - step > 0 ? share[down] - step : 0;
    const double by = step / l2;
    for (int64_t k = 0; k < size; k++) value[k] -= by * (row_up[k] - row_down[k]);
  }
  return most_steps;
}

}  // namespace
}  // namespace planes
}  // namespace crfield

NB_MODULE(_planes, module) {
  nanobind::set_leak_warnings(false);  // an array still alive when Python ends is no fault
  module.def("pair_steps", &crfield::planes::pair_steps);
}
