// Python's door to the kernels of threshold families; the contract is in src/crfield/kernels/families.py.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "arrays.hpp"
#include "families/families.hpp"

namespace crfield {
namespace families {
namespace {

void slide_door(Array1<const double> values, Array1<const int64_t> offsets, int64_t width, int kind,
                Array1<double> out) {
  const int64_t nodes = (int64_t)values.shape(0), sequences = (int64_t)offsets.shape(0) - 1;
  require(sequences >= 0 && offsets(0) == 0 && offsets((size_t)sequences) == nodes, "offsets must run from 0 to N");
  for (int64_t s = 0; s < sequences; s++) require(offsets((size_t)s) <= offsets((size_t)s + 1), "offsets must not fall");
  require((int64_t)out.shape(0) == nodes, "out has the wrong shape");
  require(width >= 1 && width <= std::max<int64_t>(nodes, 1), "width must be between 1 and N");
  require(kind >= 0 && kind <= 2, "unknown kind of window");
  nb::gil_scoped_release release;
  slide(values.data(), offsets.data(), sequences, width, kind, out.data());
}

void codes_door(Array1<const double> values, Array1<const double> thresholds, Array1<uint16_t> out) {
  const int64_t count = (int64_t)values.shape(0), m = (int64_t)thresholds.shape(0);
  require((int64_t)out.shape(0) == count, "out has the wrong shape");
  require(m <= 32000, "too many thresholds");
  for (int64_t k = 0; k + 1 < m; k++)
    require(thresholds((size_t)k) < thresholds((size_t)k + 1), "thresholds must rise");
  nb::gil_scoped_release release;
  codes(values.data(), count, thresholds.data(), m, out.data());
}

void histograms_door(Array2<const uint16_t> codes, Array2<const int64_t> rows, Array2<const double> gradient,
                     int64_t bins, Array4<double> out, int n_jobs) {
  const int64_t series = (int64_t)codes.shape(0), nodes = (int64_t)codes.shape(1);
  const int64_t lists = (int64_t)rows.shape(0), steps = (int64_t)rows.shape(1), columns = (int64_t)gradient.shape(1);
  require((int64_t)gradient.shape(0) == steps, "rows and gradient do not fit");
  require(bins >= 0 && (int64_t)out.shape(0) == series && (int64_t)out.shape(1) == lists &&
              (int64_t)out.shape(2) == bins && (int64_t)out.shape(3) == columns,
          "out has the wrong shape");
  const int64_t* row = rows.data();
  bool good = true;
  for (int64_t k = 0; k < lists * steps; k++) good &= row[k] >= 0 && row[k] < nodes;
  require(good, "a row names a step that does not exist");
  const uint16_t* code = codes.data();
  uint16_t most = 0;
  for (int64_t k = 0; k < series * nodes; k++) most = std::max(most, code[k]);
  require(series * nodes == 0 || most < bins, "a code is out of range");
  std::fill(out.data(), out.data() + series * lists * bins * columns, 0.0);
  nb::gil_scoped_release release;
  histograms(code, series, nodes, row, lists, steps, gradient.data(), columns, bins, out.data(), n_jobs);
}

}  // namespace
}  // namespace families
}  // namespace crfield

NB_MODULE(_families, m) {
  nanobind::set_leak_warnings(false);  // an array still alive when Python ends is no fault
  m.def("slide", &crfield::families::slide_door);
  m.def("codes", &crfield::families::codes_door);
  m.def("histograms", &crfield::families::histograms_door);
}
