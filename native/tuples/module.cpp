// Python's door to the kernels of longer memories; the contract is in src/crfield/kernels/tuples.py.
#include <nanobind/nanobind.h>

#include "arrays.hpp"
#include "tuples/tuples.hpp"

namespace crfield {
namespace tuples {
namespace {

int64_t check(const Array1<const int64_t>& offsets, const Array2<const double>& node, const Array2<const int32_t>& after,
              const Array1<const int32_t>& label, const Array2<const double>& score, Edges& e) {
  const int64_t B = (int64_t)offsets.shape(0) - 1, S = (int64_t)label.shape(0), L = (int64_t)node.shape(1);
  require(B >= 0 && offsets(0) == 0, "offsets must begin with 0");
  for (int64_t s = 0; s < B; s++) require(offsets(s) <= offsets(s + 1), "offsets must not fall");
  require((int64_t)node.shape(0) == offsets(B), "node scores do not fit");
  require(L >= 1 && S >= L && S < (int64_t(1) << 31) / L, "there must be a label, and not too many states");
  require(shaped(after, S, L) && shaped(score, S, L), "edges do not fit the states");
  for (int64_t s = 0; s < S; s++) require(label(s) >= 0 && label(s) < L, "a state must remember a label");
  for (int64_t y = 0; y < L; y++) require(label(y) == y, "the first states must be those of single labels");
  for (int64_t k = 0; k < S * L; k++) {
    const int32_t to = after.data()[k];
    require(to >= 0 && to < S && label(to) == k % L, "an edge must lead to a state of its label");
  }
  e.states = S;
  e.labels = L;
  e.after = after.data();
  e.label = label.data();
  e.log = score.data();
  return B;
}

void sum_door(Array1<const int64_t> offsets, Array2<const double> node, Array2<const int32_t> after,
              Array1<const int32_t> label, Array2<const double> score, Array1<const double> factor,
              Array1<double> total, Array2<double> belief, Array2<double> uses, int n_jobs) {
  Edges e;
  const int64_t B = check(offsets, node, after, label, score, e);
  require(shaped(factor, B) && shaped(total, B) && shaped(belief, node.shape(0), e.labels) &&
              shaped(uses, e.states, e.labels),
          "outputs do not fit");
  nb::gil_scoped_release release;
  sum_product(e, offsets.data(), B, node.data(), factor.data(), total.data(), belief.data(), uses.data(), n_jobs);
}

void max_door(Array1<const int64_t> offsets, Array2<const double> node, Array2<const int32_t> after,
              Array1<const int32_t> label, Array2<const double> score, Array1<double> total, Array1<int32_t> path,
              int n_jobs) {
  Edges e;
  const int64_t B = check(offsets, node, after, label, score, e);
  require(shaped(total, B) && shaped(path, node.shape(0)), "outputs do not fit");
  nb::gil_scoped_release release;
  max_product(e, offsets.data(), B, node.data(), total.data(), path.data(), n_jobs);
}

}  // namespace
}  // namespace tuples
}  // namespace crfield

NB_MODULE(_tuples, m) {
  nanobind::set_leak_warnings(false);  // an array still alive when Python ends is no fault
  m.def("sum_product", &crfield::tuples::sum_door);
  m.def("max_product", &crfield::tuples::max_door);
}
