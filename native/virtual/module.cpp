// Python's door to the kernel of virtual evidence; the contract is in src/crfield/kernels/virtual.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "arrays.hpp"
#include "virtual/listen.hpp"

namespace crfield {
namespace virtual_evidence {
namespace {

using Index = Array1<const int64_t>;
using Numbers = Array1<const int32_t>;

// Who hears whom. All numbers are looked at once, when it is made, and cannot change afterwards.
class Wires {
 public:
  Wires(Index indptr, Numbers other, Numbers mate, Numbers group)
      : indptr_(indptr.data(), indptr.data() + indptr.shape(0)),
        other_(other.data(), other.data() + other.shape(0)),
        mate_(mate.data(), mate.data() + mate.shape(0)),
        group_(group.data(), group.data() + group.shape(0)) {
    const int64_t nodes = (int64_t)indptr_.size() - 1, messages = (int64_t)other_.size();
    require(nodes >= 0 && nodes < INT32_MAX && messages < INT32_MAX && indptr_[0] == 0 && indptr_[nodes] == messages,
            "indptr must run from 0 to the messages");
    for (int64_t n = 0; n < nodes; n++) require(indptr_[n] <= indptr_[n + 1], "indptr must not fall");
    require(mate_.size() == other_.size() && group_.size() == other_.size(),
            "every message needs a sender, a mate and a group");
    for (int64_t s = 0; s < messages; s++) {
      require(other_[s] >= 0 && other_[s] < nodes && mate_[s] >= 0 && mate_[s] < messages && group_[s] >= 0,
              "a message names a node, a mate or a group that does not exist");
      groups_ = std::max<int64_t>(groups_, (int64_t)group_[s] + 1);
    }
  }

  void fill(Round& r) const {
    r.nodes = (int64_t)indptr_.size() - 1, r.messages = (int64_t)other_.size();
    r.indptr = indptr_.data(), r.other = other_.data(), r.mate = mate_.data(), r.group = group_.data();
    require(groups_ <= r.groups, "messages ask for a table that does not exist");
  }

 private:
  std::vector<int64_t> indptr_;
  std::vector<int32_t> other_, mate_, group_;
  int64_t groups_ = 0;
};

void listen_door(const Wires& wires, Array2<const double> local, Array2<const double> before, Array2<const double> sent, Array3<const double> factors, Index truth,
                 Array1<const double> weight, Array1<const uint8_t> held, Array2<double> arriving,
                 Array2<double> beliefs, Array3<double> pairs, Array1<double> loss, Array3<double> moment,
                 Array3<double> mass, std::optional<Array4<double>> square, double limit, bool maximise,
                 int n_jobs) {
  Round r{};
  r.labels = (int64_t)local.shape(1), r.groups = (int64_t)factors.shape(0);
  wires.fill(r);
  const int64_t labels = r.labels, groups = r.groups;
  require(labels >= 1 && labels < (1 << 15), "there must be at least one label");
  require(shaped(local, r.nodes, labels) && shaped(before, r.nodes, labels) && shaped(beliefs, r.nodes, labels) &&
              shaped(sent, r.messages, labels) &&
              shaped(arriving, r.messages, labels) && shaped(factors, groups, labels, labels) &&
              shaped(truth, r.nodes) && shaped(weight, r.nodes) && shaped(held, r.nodes) &&
              shaped(pairs, labels == 2 ? 1 : labels, r.nodes, 2) && shaped(loss, 2) &&
              shaped(moment, groups, labels, labels) && shaped(mass, groups, labels, labels) &&
              (!square || shaped(*square, groups, labels, labels, labels)),
          "an array has the wrong shape");
  int64_t most = -1, least = -1;
  for (int64_t n = 0; n < r.nodes; n++) most = std::max(most, truth(n)), least = std::min(least, truth(n));
  require(least >= -1 && most < labels, "a label is out of range");
  r.local = local.data(), r.before = before.data(), r.sent = sent.data(), r.factors = factors.data();
  r.truth = truth.data(), r.weight = weight.data(), r.held = held.data();
  r.arriving = arriving.data(), r.beliefs = beliefs.data();
  r.pairs = pairs.data(), r.loss = loss.data();
  r.moment = moment.data(), r.mass = mass.data(), r.square = square ? square->data() : nullptr;
  r.limit = limit, r.maximise = maximise;
  nb::gil_scoped_release release;
  listen(r, n_jobs);
}

template <class T>
void scale_door(Array2<double> local, Array2<double> beliefs, Array1<const T> codes, Array2<const double> factors) {
  const int64_t nodes = (int64_t)local.shape(0), labels = (int64_t)local.shape(1), steps = (int64_t)factors.shape(0);
  require(shaped(beliefs, nodes, labels) && shaped(codes, nodes) && shaped(factors, steps, labels),
          "an array has the wrong shape");
  const T* code = codes.data();
  T most = 0, least = 0;
  for (int64_t n = 0; n < nodes; n++) most = std::max(most, code[n]), least = std::min(least, code[n]);
  require(least >= 0 && (nodes == 0 || (int64_t)most < steps), "a code is out of range");
  double *f = local.data(), *b = beliefs.data();
  const double* table = factors.data();
  nb::gil_scoped_release release;
  if (labels == 2) {
    for (int64_t n = 0; n < nodes; n++) {
      const double *row = table + 2 * (int64_t)code[n], low = row[0], high = row[1];
      f[2 * n] *= low, f[2 * n + 1] *= high;
      b[2 * n] *= low, b[2 * n + 1] *= high;
    }
    return;
  }
  for (int64_t n = 0; n < nodes; n++) {
    const double* row = table + (int64_t)code[n] * labels;
    for (int64_t l = 0; l < labels; l++) f[n * labels + l] *= row[l], b[n * labels + l] *= row[l];
  }
}

}  // namespace
}  // namespace virtual_evidence
}  // namespace crfield

NB_MODULE(_virtual, m) {
  nanobind::set_leak_warnings(false);  // an array still alive when Python ends is no fault
  using crfield::virtual_evidence::Wires;
  nanobind::class_<Wires>(m, "Wires")
      .def(nanobind::init<crfield::virtual_evidence::Index, crfield::virtual_evidence::Numbers,
                          crfield::virtual_evidence::Numbers, crfield::virtual_evidence::Numbers>());
  m.def("listen", &crfield::virtual_evidence::listen_door);
  m.def("scale", &crfield::virtual_evidence::scale_door<uint16_t>);
  m.def("scale", &crfield::virtual_evidence::scale_door<int64_t>);
}
