// Breadth-first orders of forests, and the checks of what Python hands in.
//
// A tree is rooted in the middle of one of its longest paths: the levels are then as few as they can be, and as many
// positions as possible lie side by side. The middle is found by two searches, as both ends of such a path are
// farthest from something (Handler 1973).
#include <cmath>
#include <numeric>

#include "forest/graphs.hpp"
#include "at_level.hpp"

namespace crfield {
namespace forest {

const Kernels* best_kernels() {
#if defined(CRFIELD_X86)
  return at_level(kernels_level2, kernels_level3, kernels_level4)();
#else
  return kernels_level0();
#endif
}

Ends::Ends(const Ints& offsets_, const Ints& tails_, const Ints& heads_) {
  require(offsets_.shape(0) >= 1 && offsets_(0) == 0, "offsets must start at 0");
  graphs = (int64_t)offsets_.shape(0) - 1;
  edges = (int64_t)tails_.shape(0);
  require((int64_t)heads_.shape(0) == edges, "tails and heads must have one length");
  offsets = offsets_.data(), tails = tails_.data(), heads = heads_.data();
  for (int64_t b = 0; b < graphs; b++) require(offsets[b + 1] >= offsets[b], "offsets must not fall");
  nodes = offsets[graphs];
  require(nodes < (int64_t)1 << 31, "too many nodes");
  for (int64_t e = 0; e < edges; e++)
    require(tails[e] >= 0 && tails[e] < nodes && heads[e] >= 0 && heads[e] < nodes,
            "an edge names a node that does not exist");
  graph_of.resize(nodes);
  for (int64_t b = 0; b < graphs; b++) std::fill(graph_of.begin() + offsets[b], graph_of.begin() + offsets[b + 1], b);
  for (int64_t e = 0; e < edges; e++)
    require(tails[e] != heads[e] && graph_of[tails[e]] == graph_of[heads[e]],
            "an edge must join two nodes of one graph");
}

// Before anything is made for as many nodes as the offsets promise.
static const Ints& fitting(const Ints& offsets, const Array2<const double>& node) {
  require(offsets.shape(0) >= 1 && (int64_t)node.shape(0) == offsets(offsets.shape(0) - 1), "node scores do not fit");
  return offsets;
}

Scores::Scores(const Ints& offsets_, const Ints& tails_, const Ints& heads_, const Ints& table_,
               const Array2<const double>& node_, const Array3<const double>& edge_)
    : ends(fitting(offsets_, node_), tails_, heads_) {
  labels = (int64_t)node_.shape(1);
  tables = (int64_t)edge_.shape(0);
  require(labels >= 1 && labels <= 65535, "node scores do not fit");
  require((int64_t)edge_.shape(1) == labels && (int64_t)edge_.shape(2) == labels, "edge scores do not fit the labels");
  require((int64_t)table_.shape(0) == ends.edges, "a table is out of range");
  table = table_.data(), node = node_.data(), edge = edge_.data();
  for (int64_t e = 0; e < ends.edges; e++) require(table[e] >= 0 && table[e] < tables, "a table is out of range");
}

SharedTables::SharedTables(const int64_t* table, int64_t edges, int64_t tables) : number(tables, -1) {
  std::vector<uint8_t> uses(tables, 0);
  for (int64_t e = 0; e < edges; e++) uses[table[e]] = (uint8_t)std::min(2, uses[table[e]] + 1);
  for (int64_t t = 0; t < tables; t++)
    if (uses[t] > 1) {
      number[t] = (int32_t)original.size();
      original.push_back(t);
    }
}

void check_permutation(const Ints& node, int64_t nodes) {
  require((int64_t)node.shape(0) == nodes, "the order does not fit the nodes");
  std::vector<uint8_t> seen(nodes, 0);
  for (int64_t p = 0; p < nodes; p++) {
    require(node(p) >= 0 && node(p) < nodes && !seen[node(p)], "the order must name every node once");
    seen[node(p)] = 1;
  }
}

void check_pointers(const Ints& ptr, int64_t rows, int64_t entries, const char* message) {
  require((int64_t)ptr.shape(0) == rows + 1 && ptr(0) == 0 && ptr(rows) == entries, message);
  for (int64_t r = 0; r < rows; r++) require(ptr(r) <= ptr(r + 1), message);
}

void GraphTotals::add(int64_t graph, double x) {
  pieces_[graph]++;
  if (x == -INFINITY) {
    dead_[graph]++;
    return;
  }
  const double sum = high_[graph] + x, back = sum - high_[graph];
  low_[graph] += (high_[graph] - (sum - back)) + (x - back);
  high_[graph] = sum;
}

void GraphTotals::store(double* total) const {
  for (size_t b = 0; b < high_.size(); b++) total[b] = dead_[b] ? -INFINITY : high_[b] + low_[b];
}

bool GraphTotals::mark_mixed(std::vector<uint8_t>& dead) const {
  bool any = false;
  for (size_t b = 0; b < dead.size(); b++)
    if (dead_[b] && dead_[b] < pieces_[b]) {
      dead[b] = 1;
      any = true;
    }
  return any;
}

namespace {

// Both ends of every edge, by node.
struct Meetings {
  std::vector<int64_t> ptr, edge, other;
  explicit Meetings(const Ends& g) : ptr(g.nodes + 1, 0), edge(2 * g.edges), other(2 * g.edges) {
    for (int64_t e = 0; e < g.edges; e++) ptr[g.tails[e] + 1]++, ptr[g.heads[e] + 1]++;
    std::partial_sum(ptr.begin(), ptr.end(), ptr.begin());
    std::vector<int64_t> next(ptr.begin(), ptr.end() - 1);
    for (int64_t e = 0; e < g.edges; e++) {
      int64_t at = next[g.tails[e]]++;
      edge[at] = e, other[at] = g.heads[e];
      at = next[g.heads[e]]++;
      edge[at] = e, other[at] = g.tails[e];
    }
  }
};

// Nodes of one tree from a root; above[n] is the node that n was found from, -1 for the root, -2 if not yet found.
void search(const Meetings& meets, int64_t root, std::vector<int64_t>& above, std::vector<int64_t>& found) {
  found.assign(1, root);
  above[root] = -1;
  for (size_t at = 0; at < found.size(); at++) {
    const int64_t n = found[at];
    for (int64_t k = meets.ptr[n]; k < meets.ptr[n + 1]; k++) {
      const int64_t other = meets.other[k];
      if (above[other] != -2) continue;
      above[other] = n;
      found.push_back(other);
    }
  }
}

}  // namespace

nb::tuple order(Ints offsets_, Ints tails_, Ints heads_, int n_jobs) {
  const Ends g(offsets_, tails_, heads_);
  std::vector<int64_t> node, parent, level{0}, link_ptr{0}, link;
  int64_t loop = -1;
  {
    nb::gil_scoped_release unlocked;
    const Meetings meets(g);
    // components by their smallest node; the first loop ends it
    std::vector<int64_t> above(g.nodes, -2), found, root, size;
    for (int64_t n = 0; n < g.nodes && loop < 0; n++) {
      if (above[n] != -2) continue;
      found.assign(1, n);
      above[n] = -1;
      for (size_t at = 0; at < found.size() && loop < 0; at++) {
        const int64_t m = found[at];
        for (int64_t k = meets.ptr[m]; k < meets.ptr[m + 1]; k++) {
          const int64_t other = meets.other[k];
          if (other == above[m]) continue;
          if (above[other] == -2) {
            above[other] = m;
            found.push_back(other);
          } else if (above[other] != m) {
            loop = g.graph_of[m];
            break;
          }
        }
      }
      root.push_back(n);
      size.push_back((int64_t)found.size());
    }
    if (loop < 0) {
      std::fill(above.begin(), above.end(), -2);
      for (size_t c = 0; c < root.size(); c++) {
        if (size[c] < 3) continue;
        search(meets, root[c], above, found);
        const int64_t end = found.back();
        for (int64_t n : found) above[n] = -2;
        search(meets, end, above, found);
        int64_t steps = 0, middle = found.back();
        for (int64_t n = middle; above[n] >= 0; n = above[n]) steps++;
        for (int64_t s = 0; s < steps / 2; s++) middle = above[middle];
        root[c] = middle;
        for (int64_t n : found) above[n] = -2;
      }
      const int64_t trees = (int64_t)root.size(), jobs = std::max(1, n_jobs);
      std::vector<int64_t> by_size(trees);
      std::iota(by_size.begin(), by_size.end(), 0);
      std::stable_sort(by_size.begin(), by_size.end(), [&](int64_t a, int64_t b) { return size[a] > size[b]; });
      const int64_t wide = std::min<int64_t>(8, (trees + jobs - 1) / jobs);
      const int64_t enough = std::min<int64_t>(512, std::max<int64_t>(1, g.nodes / jobs));
      node.reserve(g.nodes), parent.reserve(g.nodes), link_ptr.reserve(g.nodes + 1), link.reserve(g.edges);
      for (int64_t c = 0; c < trees;) {
        int64_t rows = 0, first = c;
        while (c < trees && (c - first < wide || rows < enough)) {
          const int64_t n = root[by_size[c]];
          node.push_back(n);
          parent.push_back(-1);
          link_ptr.push_back((int64_t)link.size());
          above[n] = -1;
          rows += size[by_size[c++]];
        }
        // one level after another: all children of a level follow it
        int64_t at = level.back();
        while (at < (int64_t)node.size()) {
          const int64_t end = (int64_t)node.size();
          level.push_back(end);
          for (; at < end; at++) {
            const int64_t n = node[at];
            const size_t children = node.size();
            for (int64_t k = meets.ptr[n]; k < meets.ptr[n + 1]; k++) {
              const int64_t other = meets.other[k];
              if (above[other] != -2) continue;
              above[other] = n;
              node.push_back(other);
              parent.push_back(at);
            }
            for (size_t p = children; p < node.size(); p++) {
              for (int64_t k = meets.ptr[node[p]]; k < meets.ptr[node[p] + 1]; k++)
                if (meets.other[k] == n) link.push_back(meets.edge[k]);
              link_ptr.push_back((int64_t)link.size());
            }
          }
        }
      }
    }
  }
  if (loop >= 0) return nb::make_tuple(loop);
  return nb::make_tuple(-1, to_numpy(std::move(node)), to_numpy(std::move(parent)), to_numpy(std::move(level)),
                        to_numpy(std::move(link_ptr)), to_numpy(std::move(link)));
}

}  // namespace forest
}  // namespace crfield
