// Python's door to the kernels of emissions; the contract is in src/crfield/kernels/emission.py.
#include "emission/emission.hpp"

#include <nanobind/nanobind.h>

#include "arrays.hpp"

namespace crfield {
namespace emission {
namespace {

constexpr int64_t MOST = int64_t(1) << 31;  // labels or columns; a larger number is a slip

void scores_door(Array2<const double> rows, Array2<const double> mean, Array2<const double> inverse,
                 Array1<const double> bias, Array2<double> out, int n_jobs) {
  const int64_t count = (int64_t)rows.shape(0), columns = (int64_t)rows.shape(1), labels = (int64_t)mean.shape(0);
  require(labels >= 1 && labels < MOST && columns < MOST, "there must be a label, and not too many");
  require(shaped(mean, labels, columns) && shaped(inverse, labels, columns) && shaped(bias, labels),
          "parameters do not fit the rows");
  require(shaped(out, count, labels), "out has the wrong shape");
  nb::gil_scoped_release release;
  normal_scores(rows.data(), count, columns, labels, mean.data(), inverse.data(), bias.data(), out.data(), n_jobs);
}

void moments_door(Array2<const double> rows, Array2<const double> responsibility, Array2<const double> centre,
                  Array1<double> mass, Array2<double> first, Array2<double> second, int n_jobs) {
  const int64_t count = (int64_t)rows.shape(0), columns = (int64_t)rows.shape(1), labels = (int64_t)centre.shape(0);
  require(labels >= 1 && labels < MOST && columns < MOST, "there must be a label, and not too many");
  require(shaped(responsibility, count, labels) && shaped(centre, labels, columns), "tables do not fit the rows");
  require(shaped(mass, labels) && shaped(first, labels, columns) && shaped(second, labels, columns),
          "outputs have the wrong shape");
  nb::gil_scoped_release release;
  normal_moments(rows.data(), count, columns, labels, responsibility.data(), centre.data(), mass.data(), first.data(),
                 second.data(), n_jobs);
}

void observed_scores_door(Array2<const double> rows, Array2<const double> mean, Array2<const double> inverse,
                          Array2<const double> parts, Array1<const double> bias, Array2<double> out, int n_jobs) {
  const int64_t count = (int64_t)rows.shape(0), columns = (int64_t)rows.shape(1), labels = (int64_t)mean.shape(0);
  require(labels >= 1 && labels < MOST && columns < MOST, "there must be a label, and not too many");
  require(shaped(mean, labels, columns) && shaped(inverse, labels, columns) && shaped(parts, labels, columns) &&
              shaped(bias, labels),
          "parameters do not fit the rows");
  require(shaped(out, count, labels), "out has the wrong shape");
  nb::gil_scoped_release release;
  observed_scores(rows.data(), count, columns, labels, mean.data(), inverse.data(), parts.data(), bias.data(),
                  out.data(), n_jobs);
}

void observed_moments_door(Array2<const double> rows, Array2<const double> responsibility,
                           Array2<const double> centre, Array2<double> mass, Array2<double> first,
                           Array2<double> second, int n_jobs) {
  const int64_t count = (int64_t)rows.shape(0), columns = (int64_t)rows.shape(1), labels = (int64_t)centre.shape(0);
  require(labels >= 1 && labels < MOST && columns < MOST, "there must be a label, and not too many");
  require(shaped(responsibility, count, labels) && shaped(centre, labels, columns), "tables do not fit the rows");
  require(shaped(mass, labels, columns) && shaped(first, labels, columns) && shaped(second, labels, columns),
          "outputs have the wrong shape");
  nb::gil_scoped_release release;
  observed_moments(rows.data(), count, columns, labels, responsibility.data(), centre.data(), mass.data(),
                   first.data(), second.data(), n_jobs);
}

}  // namespace
}  // namespace emission
}  // namespace crfield

NB_MODULE(_emission, m) {
  nanobind::set_leak_warnings(false);  // an array still alive when Python ends is no fault
  m.def("normal_scores", &crfield::emission::scores_door);
  m.def("normal_moments", &crfield::emission::moments_door);
  m.def("observed_scores", &crfield::emission::observed_scores_door);
  m.def("observed_moments", &crfield::emission::observed_moments_door);
}
