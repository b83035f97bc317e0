// A batch of graphs as the kernels read it: neighbours, prepared tables, padded rows.
#pragma once
#include <cstdint>
#include <vector>

#include "graph/contract.hpp"
#include "memory.hpp"

namespace crfield {
namespace graph {

// Arrays as Python handed them in, checked.
struct Input {
  int64_t graphs = 0, nodes = 0, edges = 0, tables = 0, labels = 0;
  const int64_t* offsets = nullptr;  // (B + 1)
  const int64_t *tails = nullptr, *heads = nullptr, *table = nullptr;  // (E)
  const double* node = nullptr;      // (N, L)
  const double* edge = nullptr;      // (T, L, L)
  const double* rho = nullptr;       // (E) or null
};

// Throws std::invalid_argument for whatever does not fit; gives the first edge of each graph (B + 1).
std::vector<int64_t> check(const Input&);

// Who arrives at whom.
struct Neighbours {
  std::vector<int32_t> tail, head;  // (E)
  std::vector<int64_t> indptr;      // (N + 1)
  std::vector<int32_t> into;        // (2 E) messages that arrive at each node, in the order of edges
  explicit Neighbours(const Input&);
  int32_t source(int32_t message) const { return message & 1 ? head[message >> 1] : tail[message >> 1]; }
};

// The nodes [first, last) of a graph, each component from its smallest on, neighbours in the order of edges. `order`
// has room for them all; `met` (N) is zero there before and one after.
void breadth_first(const Neighbours&, int64_t first, int64_t last, int32_t* order, uint8_t* met);

const Kernels* best_kernels(int labels);

// The scores of a call in the form that the kernels want, and its messages.
class Wiring {
 public:
  // `sorted`: edges are taken in the order of their lower nodes, so that a stretch of edges and a stretch of nodes meet
  // the same messages; `spreads`: also find out over how many nats the tables spread (`calm`).
  Wiring(const Input&, bool maximise, bool sorted, bool spreads);
  View view();
  // As it was handed in, but for the order of edges within a graph; all numbers of edges here are in that order.
  const Input& input() const { return in_; }
  const Neighbours& neighbours() const { return near_; }
  const Kernels* kernels() const { return kernels_; }
  int stride() const { return stride_; }
  // Whether messages of these nodes may be kept as probabilities: see scaled.hpp.
  bool calm(int64_t first_node, int64_t last_node) const;
  // Node scores of these nodes into the padded rows, as logs or as exp(score - max).
  void load_nodes(int64_t first, int64_t last, bool probabilities);
  // Messages (E, 2, L), as Python numbers them, in and out of the padded rows.
  void load_messages(const double* from, int64_t first_edge, int64_t last_edge);
  void store_messages(double* to, int64_t first_edge, int64_t last_edge) const;

 private:
  struct Order {
    std::vector<int64_t> edge, tails, heads, table;  // empty: as handed in
    std::vector<double> rho;
  };
  static Input reordered(const Input&, bool sorted, Order&);
  int64_t handed_in(int64_t edge) const { return order_.edge.empty() ? edge : order_.edge[edge]; }

  Order order_;
  Input in_;
  Neighbours near_;
  const Kernels* kernels_;
  int stride_;
  bool maximise_;
  std::vector<int32_t> form_;
  std::vector<double> exact_, shift_, spread_;
  Buffer<double> table_, table_t_, message_, local_, belief_;
};

}  // namespace graph
}  // namespace crfield
