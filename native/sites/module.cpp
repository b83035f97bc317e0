// Python's door to the site kernels; the contract is in src/crfield/kernels/sites.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <optional>

#include "arrays.hpp"
#include "sites/field.hpp"

namespace crfield {
namespace sites {
namespace {

using Index = Array1<const int64_t>;
using Release = nb::gil_scoped_release;

Field field_of(const Index& offsets, const Index& indptr, const Index& other, const Index& slot,
               const Array2<const double>& node, const Array3<const double>& edge) {
  Field f{};
  f.graphs = (int64_t)offsets.shape(0) - 1;
  f.nodes = (int64_t)node.shape(0);
  f.labels = (int64_t)node.shape(1);
  f.tables = (int64_t)edge.shape(0);
  require(f.labels >= 1 && f.labels < (1 << 30) && shaped(edge, f.tables, f.labels, f.labels),
          "node and edge scores must be of the same labels");
  require(f.graphs >= 0 && offsets(0) == 0 && offsets(f.graphs) == f.nodes, "offsets must run from 0 to the nodes");
  for (int64_t b = 0; b < f.graphs; b++) require(offsets(b) <= offsets(b + 1), "offsets must not fall");
  const int64_t places = (int64_t)other.shape(0);
  require(shaped(indptr, f.nodes + 1) && indptr(0) == 0 && indptr(f.nodes) == places && shaped(slot, places),
          "the lists of neighbours do not fit the nodes");
  for (int64_t b = 0; b < f.graphs; b++)
    for (int64_t n = offsets(b); n < offsets(b + 1); n++) {
      require(indptr(n) <= indptr(n + 1) && indptr(n + 1) <= places, "indptr must not fall");
      for (int64_t place = indptr(n); place < indptr(n + 1); place++)
        require(other(place) >= offsets(b) && other(place) < offsets(b + 1) && slot(place) >= 0 &&
                    slot(place) < 2 * f.tables,
                "a neighbour or an edge table is out of range");
    }
  f.offsets = offsets.data(), f.indptr = indptr.data(), f.other = other.data(), f.slot = slot.data();
  f.node = node.data(), f.edge = edge.data();
  return f;
}

void check_labels(const Field& f, const Array2<int32_t>& labels) {
  require(shaped(labels, labels.shape(0), f.nodes), "labels must have one entry for each node");
  const int32_t* y = labels.data();
  for (size_t k = 0; k < labels.size(); k++) require(y[k] >= 0 && y[k] < f.labels, "a label is out of range");
}

void gibbs_door(Index offsets, Index indptr, Index other, Index slot, Array2<const double> node,
                Array3<const double> edge, Array1<const double> node_scale, Array1<const double> edge_scale,
                int64_t burn_in, int64_t n_batches, uint64_t seed, Array2<int32_t> labels, Array2<int32_t> best,
                Array2<double> best_score, Array2<double> trace, Array3<double> work, Array4<double> conditional,
                Array4<int32_t> drawn, Array3<double> batch_square, Array4<double> pairs, int n_jobs) {
  const Field f = field_of(offsets, indptr, other, slot, node, edge);
  check_labels(f, labels);
  Walks w{};
  w.chains = (int64_t)labels.shape(0), w.sweeps = (int64_t)node_scale.shape(0);
  w.burn_in = burn_in, w.batches = n_batches, w.seed = seed;
  const int64_t kept = w.sweeps - burn_in, rows = kept ? f.nodes : 0;
  require(burn_in >= 0 && kept >= 0 && n_batches >= 1 && kept % n_batches == 0,
          "the sweeps kept must be a multiple of the number of batches");
  require(shaped(edge_scale, w.sweeps) && shaped(best, w.chains, f.nodes) && shaped(best_score, w.chains, f.graphs) &&
              shaped(trace, w.chains, w.sweeps) && shaped(work, w.chains, f.graphs, 2) &&
              shaped(conditional, w.chains, 2, rows, f.labels) && shaped(drawn, w.chains, 2, rows, f.labels) &&
              shaped(batch_square, w.chains, rows, f.labels) &&
              shaped(pairs, w.chains, kept ? f.tables : 0, f.labels, f.labels),
          "an array for results has the wrong shape");
  w.node_scale = node_scale.data(), w.edge_scale = edge_scale.data();
  w.labels = labels.data(), w.best = best.data(), w.best_score = best_score.data();
  w.trace = trace.data(), w.work = work.data(), w.conditional = conditional.data(), w.drawn = drawn.data();
  w.batch_square = batch_square.data(), w.pairs = pairs.data();
  Release release;
  gibbs(f, w, n_jobs);
}

void icm_door(Index offsets, Index indptr, Index other, Index slot, Array2<const double> node,
              Array3<const double> edge, Array2<int32_t> labels, int64_t max_sweeps, Array2<int64_t> sweeps,
              Array2<uint8_t> settled, int n_jobs) {
  const Field f = field_of(offsets, indptr, other, slot, node, edge);
  check_labels(f, labels);
  const int64_t chains = (int64_t)labels.shape(0);
  require(shaped(sweeps, chains, f.graphs) && shaped(settled, chains, f.graphs),
          "an array for results has the wrong shape");
  int32_t* y = labels.data();
  int64_t* count = sweeps.data();
  uint8_t* done = settled.data();
  Release release;
  icm(f, chains, y, max_sweeps, count, done, n_jobs);
}

void mean_field_door(Index offsets, Index indptr, Index other, Index slot, Array2<const double> node,
                     Array3<const double> edge, Array3<double> beliefs, int64_t max_sweeps, double tol,
                     Array2<double> bound, Array2<int64_t> sweeps, Array2<uint8_t> settled, int n_jobs) {
  const Field f = field_of(offsets, indptr, other, slot, node, edge);
  const int64_t starts = (int64_t)beliefs.shape(0);
  require(shaped(beliefs, starts, f.nodes, f.labels) && shaped(bound, starts, f.graphs) &&
              shaped(sweeps, starts, f.graphs) && shaped(settled, starts, f.graphs),
          "an array for results has the wrong shape");
  double *q = beliefs.data(), *out = bound.data();
  int64_t* count = sweeps.data();
  uint8_t* done = settled.data();
  Release release;
  mean_field(f, starts, q, max_sweeps, tol, out, count, done, n_jobs);
}

double pseudo_likelihood_door(Array2<const double> node, Array3<const double> edge, Index tails, Index heads,
                              Index tables, Array1<const int32_t> labels, std::optional<Array2<const uint8_t>> allowed,
                              std::optional<Array1<const double>> weight, Array2<double> node_gradient,
                              Array3<double> edge_gradient) {
  Gold g{};
  g.nodes = (int64_t)node.shape(0), g.labels = (int64_t)node.shape(1);
  g.tables = (int64_t)edge.shape(0), g.edges = (int64_t)tails.shape(0);
  require(g.labels >= 1 && g.labels < (1 << 30) && shaped(edge, g.tables, g.labels, g.labels),
          "node and edge scores must be of the same labels");
  require(shaped(heads, g.edges) && shaped(tables, g.edges), "every edge needs a tail, a head and a table");
  require(shaped(labels, g.nodes) && (!allowed || shaped(*allowed, g.nodes, g.labels)) &&
              (!weight || shaped(*weight, g.nodes)),
          "labels, allowed and weight must fit the nodes");
  require(shaped(node_gradient, g.nodes, g.labels) && shaped(edge_gradient, g.tables, g.labels, g.labels),
          "an array for results has the wrong shape");
  g.node = node.data(), g.edge = edge.data();
  g.tails = tails.data(), g.heads = heads.data(), g.table = tables.data(), g.label = labels.data();
  g.allowed = allowed ? allowed->data() : nullptr, g.weight = weight ? weight->data() : nullptr;
  g.node_gradient = node_gradient.data(), g.edge_gradient = edge_gradient.data();
  Release release;
  return pseudo_likelihood(g);
}

}  // namespace
}  // namespace sites
}  // namespace crfield

NB_MODULE(_sites, m) {
  nanobind::set_leak_warnings(false);  // an array still alive when Python ends is no fault
  namespace nb = nanobind;
  using namespace nb::literals;
  namespace s = crfield::sites;
  // noconvert: a silent copy of an output array would lose what is written to it.
  const auto array = [](const char* name) { return nb::arg(name).noconvert(); };
  const auto none = [](const char* name) { return nb::arg(name).noconvert().none(); };
  m.def("gibbs", &s::gibbs_door, array("offsets"), array("indptr"), array("other"), array("slot"), array("node"),
        array("edge"), array("node_scale"), array("edge_scale"), "burn_in"_a, "n_batches"_a, "seed"_a,
        array("labels"), array("best"), array("best_score"), array("trace"), array("work"), array("conditional"),
        array("drawn"), array("batch_square"), array("pairs"), "n_jobs"_a);
  m.def("icm", &s::icm_door, array("offsets"), array("indptr"), array("other"), array("slot"), array("node"),
        array("edge"), array("labels"), "max_sweeps"_a, array("sweeps"), array("settled"), "n_jobs"_a);
  m.def("mean_field", &s::mean_field_door, array("offsets"), array("indptr"), array("other"), array("slot"),
        array("node"), array("edge"), array("beliefs"), "max_sweeps"_a, "tol"_a, array("bound"), array("sweeps"),
        array("settled"), "n_jobs"_a);
  m.def("pseudo_likelihood", &s::pseudo_likelihood_door, array("node"), array("edge"), array("tails"),
        array("heads"), array("tables"), array("labels"), none("allowed"), none("weight"), array("node_gradient"),
        array("edge_gradient"));
}
