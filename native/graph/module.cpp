// Python's door to the graph kernels; the contract is in src/crfield/kernels/graph.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <stdexcept>
#include <string>

#include "arrays.hpp"
#include "graph/schedule.hpp"

namespace crfield {
namespace graph {
namespace {

using Numbers = Array1<const int64_t>;
using Weights = std::optional<Array1<const double>>;

Input input_of(const Numbers& offsets, const Numbers& tails, const Numbers& heads, const Numbers& tables,
               const Array2<const double>& node, const Array3<const double>& edge, const Weights& rho) {
  require(offsets.shape(0) >= 1, "offsets must start at 0");
  require(edge.shape(1) == node.shape(1) && edge.shape(2) == node.shape(1), "edge scores do not fit the labels");
  require(heads.shape(0) == tails.shape(0) && tables.shape(0) == tails.shape(0) &&
              (!rho || rho->shape(0) == tails.shape(0)),
          "tails, heads, tables and rho must have one entry for each edge");
  Input in;
  in.graphs = (int64_t)offsets.shape(0) - 1;
  in.nodes = (int64_t)node.shape(0);
  in.edges = (int64_t)tails.shape(0);
  in.tables = (int64_t)edge.shape(0);
  in.labels = (int64_t)node.shape(1);
  in.offsets = offsets.data();
  in.tails = tails.data();
  in.heads = heads.data();
  in.table = tables.data();
  in.node = node.data();
  in.edge = edge.data();
  in.rho = rho ? rho->data() : nullptr;
  return in;
}

template <class A>
void check_messages(const A& messages, const Input& in) {
  require((int64_t)messages.shape(0) == in.edges && messages.shape(1) == 2 && (int64_t)messages.shape(2) == in.labels,
          "messages do not fit");
}

Schedule schedule_of(const std::string& name) {
  if (name == "synchronous") return Schedule::synchronous;
  if (name == "sweeps") return Schedule::sweeps;
  if (name == "residual") return Schedule::residual;
  throw std::invalid_argument("there is no such schedule");
}

void propagate(Numbers offsets, Numbers tails, Numbers heads, Numbers tables, Array2<const double> node,
               Array3<const double> edge, Weights rho, Array1<const double> damping, Array3<double> messages,
               Array2<double> node_out, Array3<double> edge_out, Array1<double> total, Array1<double> residual,
               Array1<int64_t> sweeps, bool maximise, const std::string& schedule, int64_t max_sweeps, double tol,
               int n_jobs) {
  const Input in = input_of(offsets, tails, heads, tables, node, edge, rho);
  check_messages(messages, in);
  require((int64_t)node_out.shape(0) == in.nodes && (int64_t)node_out.shape(1) == in.labels &&
              edge_out.shape(0) == edge.shape(0) && edge_out.shape(1) == edge.shape(1) &&
              edge_out.shape(2) == edge.shape(2) && (int64_t)total.shape(0) == in.graphs &&
              (int64_t)residual.shape(0) == in.graphs && (int64_t)sweeps.shape(0) == in.graphs &&
              (int64_t)damping.shape(0) == in.graphs,
          "outputs do not fit");
  for (int64_t b = 0; b < in.graphs; b++) require(damping(b) >= 0 && damping(b) < 1, "damping must lie in [0, 1)");
  require(max_sweeps >= 1 && max_sweeps <= (int64_t(1) << 31), "max_sweeps must be at least 1");
  Options options;
  options.schedule = schedule_of(schedule);
  options.damping = damping.data();
  options.max_sweeps = max_sweeps;
  options.tol = tol;
  options.n_jobs = n_jobs < 1 ? 1 : n_jobs > 256 ? 256 : n_jobs;
  nb::gil_scoped_release unlocked;
  const std::vector<int64_t> first_edge = check(in);
  const bool synchronous = options.schedule == Schedule::synchronous;
  Wiring wiring(in, maximise, synchronous, synchronous && !maximise && !in.rho);
  run(wiring, first_edge, options, messages.data(), residual.data(), sweeps.data());
  answers(wiring, first_edge, options.n_jobs, total.data(), node_out.data(), edge_out.data());
}

void decode_labels(Numbers offsets, Numbers tails, Numbers heads, Numbers tables, Array2<const double> node,
                   Array3<const double> edge, Weights rho, Array3<const double> messages, Array1<int32_t> labels,
                   int n_jobs) {
  const Input in = input_of(offsets, tails, heads, tables, node, edge, rho);
  check_messages(messages, in);
  require((int64_t)labels.shape(0) == in.nodes, "labels do not fit");
  nb::gil_scoped_release unlocked;
  check(in);
  decode(in, messages.data(), labels.data(), n_jobs < 1 ? 1 : n_jobs > 256 ? 256 : n_jobs);
}

}  // namespace
}  // namespace graph
}  // namespace crfield

NB_MODULE(_graph, module) {
  using namespace crfield::graph;
  module.def("level", [] { return best_kernels(1)->level; });
  module.def("propagate", &propagate, nanobind::arg("offsets"), nanobind::arg("tails"), nanobind::arg("heads"),
             nanobind::arg("tables"), nanobind::arg("node"), nanobind::arg("edge"), nanobind::arg("rho").none(),
             nanobind::arg("damping"), nanobind::arg("messages"), nanobind::arg("node_out"),
             nanobind::arg("edge_out"), nanobind::arg("total"), nanobind::arg("residual"), nanobind::arg("sweeps"),
             nanobind::arg("maximise"), nanobind::arg("schedule"), nanobind::arg("max_sweeps"), nanobind::arg("tol"),
             nanobind::arg("n_jobs"));
  module.def("decode", &decode_labels, nanobind::arg("offsets"), nanobind::arg("tails"), nanobind::arg("heads"),
             nanobind::arg("tables"), nanobind::arg("node"), nanobind::arg("edge"), nanobind::arg("rho").none(),
             nanobind::arg("messages"), nanobind::arg("labels"), nanobind::arg("n_jobs"));
}
