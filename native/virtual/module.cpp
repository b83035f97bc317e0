// Python's door to the kernels of virtual evidence; the contract is in src/crfield/kernels/virtual.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <optional>
#include <stdexcept>

#include "arrays.hpp"
#include "virtual/sweep.hpp"

namespace crfield {
namespace virtual_evidence {
namespace {

template <class T>
using Array4 = nb::ndarray<T, nb::ndim<4>, nb::c_contig, nb::device::cpu>;
using Index = Array1<const int64_t>;

void require(bool good, const char* message) {
  if (!good) throw std::invalid_argument(message);
}

template <class A, class... Sizes>
bool shaped(const A& array, Sizes... sizes) {
  const int64_t wanted[] = {(int64_t)sizes...};
  for (size_t k = 0; k < sizeof...(sizes); k++)
    if ((int64_t)array.shape(k) != wanted[k]) return false;
  return true;
}

Wiring wiring_of(const Index& indptr, const Index& other, const Index& mate, const Index& group, int64_t labels,
                 int64_t groups) {
  Wiring w{};
  w.nodes = (int64_t)indptr.shape(0) - 1, w.messages = (int64_t)other.shape(0);
  w.labels = labels, w.groups = groups;
  require(labels >= 1 && labels < (1 << 15), "there must be at least one label");
  require(w.nodes >= 0 && indptr(0) == 0 && indptr(w.nodes) == w.messages, "indptr must run from 0 to the messages");
  require(shaped(mate, w.messages) && shaped(group, w.messages), "every message needs a sender, a mate and a group");
  for (int64_t n = 0; n < w.nodes; n++) require(indptr(n) <= indptr(n + 1), "indptr must not fall");
  for (int64_t s = 0; s < w.messages; s++)
    require(other(s) >= 0 && other(s) < w.nodes && mate(s) >= 0 && mate(s) < w.messages && group(s) >= 0 &&
                group(s) < groups,
            "a message names a node, a mate or a group that does not exist");
  w.indptr = indptr.data(), w.other = other.data(), w.mate = mate.data(), w.group = group.data();
  return w;
}

void advance_door(Index indptr, Index other, Index mate, Index group, Array2<const double> local,
                  Array2<const double> total, Array2<const double> messages, Array3<const double> factors,
                  Array2<double> evidence, Array2<double> arriving, Array2<double> total_out, Array2<double> beliefs,
                  bool maximise, int n_jobs) {
  const int64_t labels = (int64_t)local.shape(1);
  const Wiring w = wiring_of(indptr, other, mate, group, labels, (int64_t)factors.shape(0));
  require(shaped(local, w.nodes, labels) && shaped(total, w.nodes, labels) && shaped(total_out, w.nodes, labels) &&
              shaped(beliefs, w.nodes, labels) && shaped(messages, w.messages, labels) &&
              shaped(evidence, w.messages, labels) && shaped(arriving, w.messages, labels) &&
              shaped(factors, w.groups, labels, labels),
          "an array has the wrong shape");
  const SweepArrays a{local.data(),    total.data(),    messages.data(),  factors.data(),
                      evidence.data(), arriving.data(), total_out.data(), beliefs.data()};
  nb::gil_scoped_release release;
  advance(w, a, maximise, n_jobs);
}

void couple_door(Index indptr, Index other, Index mate, Index group, Array2<const double> evidence,
                 Array2<const double> weight, Array2<const double> response, Array3<double> moment,
                 Array3<double> mass, std::optional<Array4<double>> square, int n_jobs) {
  const int64_t labels = (int64_t)weight.shape(1);
  const Wiring w = wiring_of(indptr, other, mate, group, labels, (int64_t)moment.shape(0));
  require(shaped(weight, w.nodes, labels) && shaped(response, w.nodes, labels) &&
              shaped(evidence, w.messages, labels) && shaped(moment, w.groups, labels, labels) &&
              shaped(mass, w.groups, labels, labels) && (!square || shaped(*square, w.groups, labels, labels, labels)),
          "an array has the wrong shape");
  const SumArrays a{evidence.data(), weight.data(), response.data(),
                    moment.data(),   mass.data(),   square ? square->data() : nullptr};
  nb::gil_scoped_release release;
  couple(w, a, n_jobs);
}

}  // namespace
}  // namespace virtual_evidence
}  // namespace crfield

NB_MODULE(_virtual, m) {
  nanobind::set_leak_warnings(false);  // an array still alive when Python ends is no fault
  m.def("advance", &crfield::virtual_evidence::advance_door);
  m.def("couple", &crfield::virtual_evidence::couple_door, nanobind::arg("indptr"), nanobind::arg("other"),
        nanobind::arg("mate"), nanobind::arg("group"), nanobind::arg("evidence"), nanobind::arg("weight"),
        nanobind::arg("response"), nanobind::arg("moment"), nanobind::arg("mass"), nanobind::arg("square").none(),
        nanobind::arg("n_jobs"));
}
