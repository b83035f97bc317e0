// What Python hands in, checked once; everything behind trusts it.
#pragma once
#include <algorithm>
#include <stdexcept>
#include <vector>

#include "arrays.hpp"
#include "forest/contract.hpp"
#include "memory.hpp"

namespace crfield {
namespace forest {

using Ints = Array1<const int64_t>;

const Kernels* best_kernels();

inline int padded(int labels, const Kernels* k) { return (labels + k->lanes - 1) / k->lanes * k->lanes; }

// A batch of graphs; graph_of is the graph of each node.
struct Ends {
  int64_t graphs = 0, nodes = 0, edges = 0;
  const int64_t *offsets = nullptr, *tails = nullptr, *heads = nullptr;
  std::vector<int64_t> graph_of;
  Ends(const Ints& offsets, const Ints& tails, const Ints& heads);
};

struct Scores {
  Ends ends;
  int64_t labels = 0, tables = 0;
  const int64_t* table = nullptr;
  const double *node = nullptr, *edge = nullptr;
  Scores(const Ints& offsets, const Ints& tails, const Ints& heads, const Ints& table, const Array2<const double>& node,
         const Array3<const double>& edge);
};

// Tables that more than one edge uses are numbered; their marginals are summed by thread, others written straight.
struct SharedTables {
  std::vector<int32_t> number;    // (T) or -1
  std::vector<int64_t> original;  // table of each number
  SharedTables(const int64_t* table, int64_t edges, int64_t tables);
};

// Node permutation, or an exception.
void check_permutation(const Ints& node, int64_t nodes);
void check_pointers(const Ints& ptr, int64_t rows, int64_t entries, const char* message);

// Totals of pieces (value, graph) added up by graph, -inf if one piece is.
class GraphTotals {
 public:
  explicit GraphTotals(int64_t graphs) : high_(graphs, 0.0), low_(graphs, 0.0), pieces_(graphs, 0), dead_(graphs, 0) {}
  void add(int64_t graph, double x);
  void store(double* total) const;
  // graphs that are impossible although another piece of them is not: they must be done again without it
  bool mark_mixed(std::vector<uint8_t>& dead) const;

 private:
  std::vector<double> high_, low_;
  std::vector<int64_t> pieces_;
  std::vector<int64_t> dead_;
};

nb::tuple order(Ints offsets, Ints tails, Ints heads, int n_jobs);
nb::tuple eliminate(Ints offsets, Ints tails, Ints heads);
void sum_product(Ints node_of, Ints parent, Ints level, Ints link_ptr, Ints link, Ints offsets, Ints tails, Ints heads,
                 Ints table, Array2<const double> node, Array3<const double> edge, Array1<double> total,
                 Array2<double> node_out, Array3<double> edge_out, int n_jobs);
void max_product(Ints node_of, Ints parent, Ints level, Ints link_ptr, Ints link, Ints offsets, Ints tails, Ints heads,
                 Ints table, Array2<const double> node, Array3<const double> edge, Array1<double> total,
                 Array1<int32_t> labels, int n_jobs);
void clique_sum_product(Ints node_of, Ints scope_ptr, Ints scope, Ints edge_ptr, Ints edges, Ints unit, Ints offsets,
                        Ints tails, Ints heads, Ints table, Array2<const double> node, Array3<const double> edge,
                        Ints label_ptr, Array1<const int32_t> label, Array1<double> total, Array2<double> node_out,
                        Array3<double> edge_out, int n_jobs);
void clique_max_product(Ints node_of, Ints scope_ptr, Ints scope, Ints edge_ptr, Ints edges, Ints unit, Ints offsets,
                        Ints tails, Ints heads, Ints table, Array2<const double> node, Array3<const double> edge,
                        Ints label_ptr, Array1<const int32_t> label, Array1<double> total, Array1<int32_t> labels,
                        int n_jobs);

}  // namespace forest
}  // namespace crfield
