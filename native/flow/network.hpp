// A network with a source and a sink, and its largest flow; the contract is in src/crfield/kernels/flow.py.
#pragma once
#include <cstdint>
#include <vector>

#include "accumulator.hpp"
#include "memory.hpp"

namespace crfield {
namespace flow {

// Two trees grow from the source and the sink over arcs with capacity left, until they touch; what the path between
// them carries is pushed, and branches that this cut off look for another place in their tree, or are free again
// (Boykov & Kolmogorov 2004, An experimental comparison of min-cut/max-flow algorithms for energy minimization in
// vision). Trees are kept from one path to the next, which is what makes it fast on grids.
//
// The arcs of a node lie side by side, each with the place of its opposite. Capacities are doubles: the arc that limits
// a path is left with exactly nothing, so every path closes one.
class Network {
 public:
  // `excess` (n) is what the source offers (above 0) or the sink takes (below 0) at each node.
  Network(int64_t nodes, const double* excess);

  // First every arc is announced, then every one is set, in any order; each has a capacity both ways.
  void announce(int64_t start, int64_t end) { degree_[start + 1]++, degree_[end + 1]++; }
  void arrange();
  void set(int64_t start, int64_t end, double forward, double back);

  double largest_flow();
  // After it: whether a node can still be reached from the source.
  bool source_side(int64_t n) const { return nodes_[n].parent != NONE && !nodes_[n].sink; }

 private:
  static constexpr int32_t NONE = -1, TERMINAL = -2, ORPHAN = -3;
  struct Arc {
    int32_t head, sister;
    double left;
  };
  struct Node {
    double left;          // of the arc from the source (above 0) or to the sink (below 0)
    int32_t first;        // its arcs end where those of the next node begin
    int32_t parent;       // the arc to its parent, or one of the above
    int32_t seen;         // when its distance was last known to be right
    int32_t distance;     // from the root of its tree
    bool sink, queued;
  };

  int32_t begin(int32_t n) const { return nodes_[n].first; }
  int32_t end(int32_t n) const { return nodes_[n + 1].first; }
  void wake(int32_t n) {
    if (!nodes_[n].queued) nodes_[n].queued = true, active_.push_back(n);
  }
  void push_across(Accumulator& total);
  int32_t grow(int32_t n);
  double push(int32_t middle);
  void cut_off(int32_t n) { nodes_[n].parent = ORPHAN, orphans_.push_back(n); }
  void adopt(int32_t n);
  int32_t distance_of(int32_t n);

  std::vector<int64_t> degree_;
  Buffer<Node> nodes_;
  Buffer<Arc> arcs_;
  std::vector<int32_t> active_, orphans_;
  int64_t size_;
  int32_t now_ = 0;
};

}  // namespace flow
}  // namespace crfield
