// Python's door to the tangent kernel; the contract is in src/crfield/kernels/tangent.py.
#include <nanobind/nanobind.h>

#include "arrays.hpp"
#include "tangent/sweep.hpp"

namespace crfield {
namespace tangent {
namespace {

void belief_tangent(Array1<const int64_t> offsets, Array2<const double> node, Array3<const double> edge,
                    Array2<const double> node_dot, Array3<const double> edge_dot, Array1<const double> weight,
                    Array2<double> node_out, Array3<double> edge_out, bool each, int n_jobs) {
  Chains c{};
  c.sequences = (int64_t)offsets.shape(0) - 1, c.labels = (int64_t)node.shape(1), c.edges = (int64_t)edge.shape(0);
  require(c.sequences >= 0 && offsets(0) == 0, "offsets must start at 0 and not fall");
  int64_t edges = 0;
  for (int64_t s = 0; s < c.sequences; s++) {
    require(offsets(s) <= offsets(s + 1), "offsets must start at 0 and not fall");
    const int64_t steps = offsets(s + 1) - offsets(s);
    edges += steps > 1 ? steps - 1 : 0;
  }
  const int64_t nodes = offsets(c.sequences), L = c.labels;
  require(L >= 1 && L < (1 << 15) && shaped(node, nodes, L) && shaped(node_dot, nodes, L),
          "node marginals and directions do not fit the chains");
  c.one_dot = edge_dot.shape(0) == 1 && edges != 1;
  require(edges == c.edges && shaped(edge, edges, L, L) && shaped(edge_dot, c.one_dot ? 1 : edges, L, L),
          "edge marginals and directions do not fit the chains");
  require(shaped(weight, c.sequences) && shaped(node_out, nodes, L) && shaped(edge_out, each ? edges : 1, L, L),
          "weights or results do not fit the chains");
  require(n_jobs >= 1 && n_jobs <= 1024, "n_jobs must lie in 1 … 1024");
  c.offsets = offsets.data(), c.node = node.data(), c.edge = edge.data();
  c.node_dot = node_dot.data(), c.edge_dot = edge_dot.data(), c.weight = weight.data();
  double *to_node = node_out.data(), *to_edge = edge_out.data();
  nb::gil_scoped_release release;
  sweep(c, to_node, to_edge, each, n_jobs);
}

void pair_marginals(Array1<const int64_t> offsets, Array2<const double> score, Array2<const double> table,
                    Array2<const double> node, Array3<double> edge_out, Array1<uint8_t> hard, int n_jobs) {
  const int64_t sequences = (int64_t)offsets.shape(0) - 1, L = (int64_t)node.shape(1);
  require(sequences >= 0 && offsets(0) == 0, "offsets must start at 0 and not fall");
  int64_t edges = 0;
  for (int64_t s = 0; s < sequences; s++) {
    require(offsets(s) <= offsets(s + 1), "offsets must start at 0 and not fall");
    const int64_t steps = offsets(s + 1) - offsets(s);
    edges += steps > 1 ? steps - 1 : 0;
  }
  const int64_t nodes = offsets(sequences);
  require(L >= 1 && L < (1 << 15) && shaped(node, nodes, L) && shaped(score, nodes, L) && shaped(table, L, L),
          "scores and marginals do not fit the chains");
  require(shaped(edge_out, edges, L, L) && shaped(hard, sequences), "results do not fit the chains");
  require(n_jobs >= 1 && n_jobs <= 1024, "n_jobs must lie in 1 … 1024");
  const int64_t* at = offsets.data();
  const double *scores = score.data(), *weights = table.data(), *p = node.data();
  double* q = edge_out.data();
  uint8_t* flags = hard.data();
  nb::gil_scoped_release release;
  pairs(sequences, L, at, scores, weights, p, q, flags, n_jobs);
}

}  // namespace

}  // namespace tangent
}  // namespace crfield

NB_MODULE(_tangent, m) {
  nanobind::set_leak_warnings(false);  // an array still alive when Python ends is no fault
  m.def("belief_tangent", &crfield::tangent::belief_tangent);
  m.def("pair_marginals", &crfield::tangent::pair_marginals);
}
