// Sum-product and max-product on forests: the order checked, tables prepared, trees split over threads.
#include <cmath>
#include <cstring>

#include "forest/graphs.hpp"
#include "threads.hpp"

namespace crfield {
namespace forest {
namespace {

// A checked order with all that a sweep derives from it.
class Prepared {
 public:
  Prepared(const Scores& s, const Ints& node_of, const Ints& parent, const Ints& level, const Ints& link_ptr,
           const Ints& link)
      : kernels(best_kernels()), tables(s.table, s.ends.edges, s.tables), scores_(s) {
    f.labels = (int)s.labels, f.stride = padded((int)s.labels, kernels);
    f.node = node_of.data(), f.parent = parent.data(), f.level = level.data();
    f.link_ptr = link_ptr.data(), f.link = link.data();
    f.tails = s.ends.tails, f.table = s.table;
    f.node_score = s.node, f.edge_score = s.edge;
    f.shared = tables.number.data();
    check_permutation(node_of, s.ends.nodes);
    require((int64_t)parent.shape(0) == s.ends.nodes, "the order does not fit the nodes");
    require(level.shape(0) >= 1, "levels must divide the positions");
    find_sets(level);
    check_links(link_ptr, link);
    find_uses();
  }

  // Scores of the shared tables, and their exponentials if asked.
  void fill_tables(bool exponentials) {
    const int64_t L = f.labels, stride = f.stride, size = L * stride, count = (int64_t)tables.original.size();
    for (auto* b : {&log_, &log_t_}) b->resize(count * size);
    for (auto* b : {&prob_, &prob_t_}) b->resize(exponentials ? count * size : 0);
    shift_.assign(count, 0.0);
    spread_.assign(count, 0.0);
    for (int64_t t = 0; t < count; t++) {
      const double* from = scores_.edge + tables.original[t] * L * L;
      double top = -INFINITY, low = INFINITY;
      for (int64_t i = 0; i < L; i++)
        for (int64_t j = 0; j < stride; j++) {
          log_[t * size + i * stride + j] = j < L ? from[i * L + j] : -INFINITY;
          log_t_[t * size + i * stride + j] = j < L ? from[j * L + i] : -INFINITY;
        }
      for (int64_t k = 0; k < L * L; k++) top = std::max(top, from[k]), low = std::min(low, from[k]);
      shift_[t] = top == -INFINITY ? 0.0 : top;
      spread_[t] = low == -INFINITY ? INFINITY : top - low;
      if (!exponentials) continue;
      kernels->exponentiate(size, log_.data() + t * size, shift_[t], prob_.data() + t * size);
      kernels->exponentiate(size, log_t_.data() + t * size, shift_[t], prob_t_.data() + t * size);
    }
    f.log = log_.data(), f.log_t = log_t_.data(), f.prob = prob_.data(), f.prob_t = prob_t_.data();
    f.shift = shift_.data(), f.spread = spread_.data();
  }

  Forest f;
  const Kernels* kernels;
  SharedTables tables;
  std::vector<TreeSet> sets;
  const double* prob() const { return prob_.data(); }

 private:
  void find_sets(const Ints& level) {
    const int64_t nodes = scores_.ends.nodes, levels = (int64_t)level.shape(0) - 1;
    check_pointers(level, levels, nodes, "levels must divide the positions");
    for (int64_t k = 0; k < levels; k++) {
      const int64_t first = level(k), last = level(k + 1);
      if (first == last) continue;
      const bool roots = f.parent[first] < 0;
      if (roots) sets.push_back({first, first, k, k, 0});
      require(!sets.empty(), "a parent must lie in the level before");
      for (int64_t p = first; p < last; p++)
        require(roots ? f.parent[p] == -1 : f.parent[p] >= level(k - 1) && f.parent[p] < first,
                "a parent must lie in the level before");
      sets.back().last = last;
      sets.back().level_last = k + 1;
    }
  }
  void check_links(const Ints& link_ptr, const Ints& link) {
    const int64_t nodes = scores_.ends.nodes, edges = scores_.ends.edges;
    require((int64_t)link.shape(0) == edges, "every edge must be a link");
    check_pointers(link_ptr, nodes, edges, "links must divide the edges");
    std::vector<uint8_t> seen(edges, 0);
    for (int64_t p = 0; p < nodes; p++) {
      require((f.parent[p] < 0) == (link_ptr(p) == link_ptr(p + 1)), "a position has links if it has a parent");
      for (int64_t k = link_ptr(p); k < link_ptr(p + 1); k++) {
        const int64_t e = link(k), n = f.node[p], up = f.node[f.parent[p]];
        require(e >= 0 && e < edges && !seen[e], "every edge must be a link once");
        seen[e] = 1;
        const int64_t tail = scores_.ends.tails[e], head = scores_.ends.heads[e];
        require((tail == n && head == up) || (tail == up && head == n), "a link must join a position and its parent");
      }
    }
  }
  void find_uses() {
    const int64_t nodes = scores_.ends.nodes;
    use_.assign(nodes, ROOT);
    turned_.assign(nodes, 0);
    for (TreeSet& set : sets)
      for (int64_t p = set.first; p < set.last; p++) {
        const int64_t first = f.link_ptr[p], links = f.link_ptr[p + 1] - first;
        if (!links) continue;
        const int32_t number = tables.number[f.table[f.link[first]]];
        use_[p] = links == 1 && number >= 0 ? number : OWN;
        turned_[p] = f.tails[f.link[first]] == f.node[p];
        set.own += use_[p] == OWN;
      }
    f.use = use_.data(), f.turned = turned_.data();
  }

  const Scores& scores_;
  std::vector<int32_t> use_;
  std::vector<uint8_t> turned_;
  Buffer<double> log_, log_t_, prob_, prob_t_;
  std::vector<double> shift_, spread_;
};

// Memory of one thread.
class Desk {
 public:
  Desk(const Prepared& p, size_t first, size_t last, bool sums) {
    int64_t rows = 0, own = 0;
    for (size_t q = first; q < last; q++) {
      rows = std::max(rows, p.sets[q].last - p.sets[q].first);
      own = std::max(own, p.sets[q].own);
    }
    const int64_t L = p.f.labels, stride = p.f.stride, size = L * stride;
    const int64_t common = sums ? (int64_t)p.tables.original.size() * size : 0;
    w.b = doubles(rows * stride);
    w.table = doubles(size);
    w.high = doubles(rows), w.low = doubles(rows);
    w.tree = ints(rows), w.label = ints(rows), w.lost = bytes(rows);
    if (sums) {
      w.m = doubles(rows * stride), w.q = doubles(rows * stride);
      w.own = doubles(own * size);
      w.inverse = doubles(rows), w.below = doubles(rows), w.product = doubles(rows);
      slots_.resize(rows);
      w.slot = slots_.data();
      w.hub = bytes(rows), w.checked = bytes(rows), w.alive = bytes(rows * L);
      w.counts = doubles(common), w.direct = doubles(common);
      std::fill(w.counts, w.counts + common, 0.0);
      std::fill(w.direct, w.direct + common, 0.0);
    }
  }
  ForestWork w;

 private:
  double* doubles(int64_t n) { return keep(doubles_, n); }
  int32_t* ints(int64_t n) { return keep(ints_, n); }
  uint8_t* bytes(int64_t n) { return keep(bytes_, n); }
  template <class T>
  T* keep(std::vector<Buffer<T>>& in, int64_t n) {
    in.emplace_back(n);
    return in.back().data();
  }
  std::vector<Buffer<double>> doubles_;
  std::vector<Buffer<int32_t>> ints_;
  std::vector<Buffer<uint8_t>> bytes_;
  Buffer<int64_t> slots_;
};

// Sets [cut[p], cut[p + 1]) of each part, about the same number of positions each.
std::vector<size_t> split(const std::vector<TreeSet>& sets, int parts, int64_t nodes) {
  std::vector<size_t> cut(parts + 1, sets.size());
  cut[0] = 0;
  size_t at = 0;
  for (int p = 1; p < parts; p++) {
    while (at < sets.size() && (sets[at].first + sets[at].last) / 2 * parts < nodes * p) at++;
    cut[p] = at;
  }
  return cut;
}

void add_trees(const Prepared& p, const Scores& s, const std::vector<double>& tree_total, GraphTotals& totals) {
  for (const TreeSet& set : p.sets)
    for (int64_t q = set.first; q < set.last && p.f.parent[q] < 0; q++)
      totals.add(s.ends.graph_of[p.f.node[q]], tree_total[q]);
}

}  // namespace

void sum_product(Ints node_of, Ints parent, Ints level, Ints link_ptr, Ints link, Ints offsets, Ints tails, Ints heads,
                 Ints table, Array2<const double> node, Array3<const double> edge, Array1<double> total,
                 Array2<double> node_out, Array3<double> edge_out, int n_jobs) {
  const Scores s(offsets, tails, heads, table, node, edge);
  require((int64_t)total.shape(0) == s.ends.graphs && (int64_t)node_out.shape(0) == s.ends.nodes &&
              (int64_t)node_out.shape(1) == s.labels && (int64_t)edge_out.shape(0) == s.tables &&
              (int64_t)edge_out.shape(1) == s.labels && (int64_t)edge_out.shape(2) == s.labels,
          "outputs do not fit");
  Prepared p(s, node_of, parent, level, link_ptr, link);
  nb::gil_scoped_release unlocked;
  p.fill_tables(true);
  const int64_t L = s.labels, stride = p.f.stride;
  std::vector<double> tree_total(s.ends.nodes, 0.0);
  std::vector<uint8_t> dead(s.ends.graphs, 0), dead_node(s.ends.nodes, 0);
  p.f.node_out = node_out.data(), p.f.edge_out = edge_out.data();
  p.f.tree_total = tree_total.data(), p.f.dead = dead_node.data();
  const int parts = (int)std::max<size_t>(1, std::min<size_t>(std::max(1, n_jobs), p.sets.size()));
  const std::vector<size_t> cut = split(p.sets, parts, s.ends.nodes);
  // A graph is impossible if one of its trees is, which may be known only after others have counted: then once more.
  for (bool again = true; again;) {
    std::fill(edge_out.data(), edge_out.data() + s.tables * L * L, 0.0);
    std::vector<Desk> desks;
    desks.reserve(parts);
    for (int part = 0; part < parts; part++) desks.emplace_back(p, cut[part], cut[part + 1], true);
    run_parts(parts, [&](int part) {
      for (size_t q = cut[part]; q < cut[part + 1]; q++) p.kernels->sum_set(p.f, p.sets[q], desks[part].w);
    });
    for (size_t t = 0; t < p.tables.original.size(); t++) {
      double* to = edge_out.data() + p.tables.original[t] * L * L;
      const double* prob = p.prob() + (int64_t)t * L * stride;
      for (int64_t i = 0; i < L; i++)
        for (int64_t j = 0; j < L; j++)
          for (const Desk& desk : desks) {
            const int64_t at = ((int64_t)t * L + i) * stride + j;
            to[i * L + j] += desk.w.counts[at] * prob[i * stride + j] + desk.w.direct[at];
          }
    }
    GraphTotals totals(s.ends.graphs);
    add_trees(p, s, tree_total, totals);
    totals.store(total.data());
    again = totals.mark_mixed(dead);
    for (int64_t n = 0; again && n < s.ends.nodes; n++) dead_node[n] = dead[s.ends.graph_of[n]];
  }
}

void max_product(Ints node_of, Ints parent, Ints level, Ints link_ptr, Ints link, Ints offsets, Ints tails, Ints heads,
                 Ints table, Array2<const double> node, Array3<const double> edge, Array1<double> total,
                 Array1<int32_t> labels, int n_jobs) {
  const Scores s(offsets, tails, heads, table, node, edge);
  require((int64_t)total.shape(0) == s.ends.graphs && (int64_t)labels.shape(0) == s.ends.nodes, "outputs do not fit");
  Prepared p(s, node_of, parent, level, link_ptr, link);
  nb::gil_scoped_release unlocked;
  p.fill_tables(false);
  std::vector<double> tree_total(s.ends.nodes, 0.0);
  p.f.tree_total = tree_total.data();
  p.f.best = labels.data();
  const int parts = (int)std::max<size_t>(1, std::min<size_t>(std::max(1, n_jobs), p.sets.size()));
  const std::vector<size_t> cut = split(p.sets, parts, s.ends.nodes);
  run_parts(parts, [&](int part) {
    const Desk desk(p, cut[part], cut[part + 1], false);
    for (size_t q = cut[part]; q < cut[part + 1]; q++) p.kernels->best_set(p.f, p.sets[q], desk.w);
  });
  GraphTotals totals(s.ends.graphs);
  add_trees(p, s, tree_total, totals);
  totals.store(total.data());
}

}  // namespace forest
}  // namespace crfield
