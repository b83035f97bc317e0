// Sums and maxima over cliques: the elimination checked, components dealt out to threads.
#include <cmath>

#include "forest/graphs.hpp"
#include "threads.hpp"

namespace crfield {
namespace forest {
namespace {

constexpr int64_t MOST_ENTRIES = (int64_t)1 << 40;  // of all tables of one component

class PreparedCliques {
 public:
  PreparedCliques(const Scores& s, const Ints& node_of, const Ints& scope_ptr, const Ints& scope, const Ints& edge_ptr,
                  const Ints& edges, const Ints& unit, const Ints& label_ptr, const Array1<const int32_t>& label)
      : kernels(best_kernels()), tables(s.table, s.ends.edges, s.tables), nodes_(s.ends.nodes) {
    c.labels = (int)s.labels;
    c.node = node_of.data(), c.scope_ptr = scope_ptr.data(), c.scope = scope.data();
    c.edge_ptr = edge_ptr.data(), c.edge = edges.data(), c.table = s.table;
    c.label_ptr = label_ptr.data(), c.label = label.data();
    c.node_score = s.node, c.edge_score = s.edge;
    c.shared = tables.number.data();
    check_permutation(node_of, nodes_);
    check_labels(s, label_ptr, label);
    check_units(unit);
    check_scopes(scope_ptr, scope);
    find_edges(s, edge_ptr, edges);
    find_places();
  }

  struct Unit {
    int64_t first, last;
    int64_t table = 0, message = 0, largest = 0;  // entries of all tables and messages, and of the largest table
  };
  Cliques c;
  const Kernels* kernels;
  SharedTables tables;
  std::vector<Unit> units;

 private:
  void check_labels(const Scores& s, const Ints& label_ptr, const Array1<const int32_t>& label) {
    check_pointers(label_ptr, nodes_, (int64_t)label.shape(0), "labels must be listed for every node");
    size_.resize(nodes_);
    for (int64_t k = 0; k < nodes_; k++) {
      size_[k] = label_ptr(c.node[k] + 1) - label_ptr(c.node[k]);
      require(size_[k] >= 1 && size_[k] <= s.labels, "every node needs a label");
    }
    for (size_t q = 0; q < label.shape(0); q++) require(label(q) >= 0 && label(q) < s.labels, "a label is out of range");
    c.size = size_.data();
  }
  void check_units(const Ints& unit) {
    require(unit.shape(0) >= 1, "units must divide the positions");
    const int64_t count = (int64_t)unit.shape(0) - 1;
    check_pointers(unit, count, nodes_, "units must divide the positions");
    unit_of_.resize(nodes_);
    for (int64_t u = 0; u < count; u++) {
      if (unit(u) == unit(u + 1)) continue;
      units.push_back({unit(u), unit(u + 1)});
      std::fill(unit_of_.begin() + unit(u), unit_of_.begin() + unit(u + 1), (int64_t)units.size() - 1);
    }
  }
  void check_scopes(const Ints& scope_ptr, const Ints& scope) {
    check_pointers(scope_ptr, nodes_, (int64_t)scope.shape(0), "scopes must be listed for every clique");
    child_ptr_.assign(nodes_ + 1, 0);
    for (int64_t k = 0; k < nodes_; k++) {
      const int64_t first = scope_ptr(k), last = scope_ptr(k + 1);
      require(last - first <= WIDEST, "a scope is too wide");
      for (int64_t q = first; q < last; q++)
        require(scope(q) > k && scope(q) < nodes_ && unit_of_[scope(q)] == unit_of_[k] &&
                    (q == first || scope(q) < scope(q - 1)),
                "a scope must name later positions of its component, falling");
      if (first == last) continue;
      const int64_t upper = scope(last - 1);
      int64_t at = scope_ptr(upper);
      for (int64_t q = first; q < last - 1; q++) {
        while (at < scope_ptr(upper + 1) && scope(at) > scope(q)) at++;
        require(at < scope_ptr(upper + 1) && scope(at) == scope(q), "a scope must lie in its parent's clique");
      }
      child_ptr_[upper + 1]++;
    }
    for (int64_t k = 0; k < nodes_; k++) child_ptr_[k + 1] += child_ptr_[k];
    child_.resize(child_ptr_[nodes_]);
    std::vector<int64_t> next(child_ptr_.begin(), child_ptr_.end() - 1);
    for (int64_t k = 0; k < nodes_; k++)
      if (scope_ptr(k + 1) > scope_ptr(k)) child_[next[scope(scope_ptr(k + 1) - 1)]++] = k;
    c.child_ptr = child_ptr_.data(), c.child = child_.data();
  }
  void find_edges(const Scores& s, const Ints& edge_ptr, const Ints& edges) {
    require((int64_t)edges.shape(0) == s.ends.edges, "every edge must lie in a clique");
    check_pointers(edge_ptr, nodes_, s.ends.edges, "every edge must lie in a clique");
    axis_.resize(s.ends.edges);
    is_tail_.resize(s.ends.edges);
    std::vector<uint8_t> seen(s.ends.edges, 0);
    for (int64_t k = 0; k < nodes_; k++)
      for (int64_t q = edge_ptr(k); q < edge_ptr(k + 1); q++) {
        const int64_t e = edges(q);
        require(e >= 0 && e < s.ends.edges && !seen[e], "every edge must lie in one clique");
        seen[e] = 1;
        const int64_t tail = s.ends.tails[e], head = s.ends.heads[e];
        require(tail == c.node[k] || head == c.node[k], "an edge must lie in its clique");
        is_tail_[q] = tail == c.node[k];
        const int64_t other = is_tail_[q] ? head : tail;
        axis_[q] = -1;
        for (int64_t r = c.scope_ptr[k]; r < c.scope_ptr[k + 1]; r++)
          if (c.node[c.scope[r]] == other) axis_[q] = (int32_t)(r - c.scope_ptr[k]);
        require(axis_[q] >= 0, "an edge must lie in its clique");
      }
    c.axis = axis_.data(), c.is_tail = is_tail_.data();
  }
  void find_places() {
    for (auto* v : {&entries_, &table_at_, &message_at_}) v->resize(nodes_);
    for (Unit& u : units)
      for (int64_t k = u.first; k < u.last; k++) {
        int64_t entries = 1;
        for (int64_t q = c.scope_ptr[k]; q < c.scope_ptr[k + 1]; q++) {
          entries *= size_[c.scope[q]];
          require(entries * size_[k] <= MOST_ENTRIES, "a table is too large");
        }
        entries_[k] = entries;
        table_at_[k] = u.table;
        message_at_[k] = u.message;
        u.table += entries * size_[k];
        u.message += entries;
        u.largest = std::max(u.largest, entries * size_[k]);
        require(u.table <= MOST_ENTRIES, "the tables are too large");
      }
    c.entries = entries_.data(), c.table_at = table_at_.data(), c.message_at = message_at_.data();
  }

  int64_t nodes_;
  std::vector<int64_t> size_, unit_of_, child_ptr_, child_, entries_, table_at_, message_at_;
  std::vector<int32_t> axis_;
  std::vector<uint8_t> is_tail_;
};

// Memory of one thread: for the largest of its units.
struct CliqueDesk {
  CliqueDesk(const PreparedCliques& p, const std::vector<size_t>& units, bool sums) {
    int64_t tables = 0, messages = 0, largest = 0, positions = 0;
    for (size_t u : units) {
      tables = std::max(tables, p.units[u].table);
      messages = std::max(messages, p.units[u].message);
      largest = std::max(largest, p.units[u].largest);
      positions = std::max(positions, p.units[u].last - p.units[u].first);
    }
    const int64_t L = p.c.labels;
    table.resize(sums ? tables : 0);
    message.resize(messages);
    // sums collapse an axis of two labels or more into it, maxima build whole tables there
    spare.resize(sums ? largest / 2 + 1 : largest);
    rows.resize(L * L + 16 * L);
    back.resize(sums ? 0 : messages);
    place.resize(positions);
    direct.resize(sums ? (int64_t)p.tables.original.size() * L * L : 0);
    direct.zero();
    w.table = table.data(), w.message = message.data(), w.spare = spare.data(), w.rows = rows.data();
    w.back = back.data(), w.place = place.data(), w.direct = direct.data();
  }
  Buffer<double> table, message, spare, rows, direct;
  Buffer<int32_t> back;
  Buffer<int64_t> place;
  CliqueWork w;
};

// Units of each part: the largest first, each to the part that has least.
std::vector<std::vector<size_t>> deal(const PreparedCliques& p, int n_jobs) {
  const size_t parts = std::max<size_t>(1, std::min<size_t>(std::max(1, n_jobs), p.units.size()));
  std::vector<size_t> by_size(p.units.size());
  for (size_t u = 0; u < by_size.size(); u++) by_size[u] = u;
  std::stable_sort(by_size.begin(), by_size.end(), [&](size_t a, size_t b) { return p.units[a].table > p.units[b].table; });
  std::vector<std::vector<size_t>> out(parts);
  std::vector<int64_t> load(parts, 0);
  for (size_t u : by_size) {
    const size_t part = (size_t)(std::min_element(load.begin(), load.end()) - load.begin());
    out[part].push_back(u);
    load[part] += p.units[u].table;
  }
  return out;
}

}  // namespace

void clique_sum_product(Ints node_of, Ints scope_ptr, Ints scope, Ints edge_ptr, Ints edges, Ints unit, Ints offsets,
                        Ints tails, Ints heads, Ints table, Array2<const double> node, Array3<const double> edge,
                        Ints label_ptr, Array1<const int32_t> label, Array1<double> total, Array2<double> node_out,
                        Array3<double> edge_out, int n_jobs) {
  const Scores s(offsets, tails, heads, table, node, edge);
  require((int64_t)total.shape(0) == s.ends.graphs && (int64_t)node_out.shape(0) == s.ends.nodes &&
              (int64_t)node_out.shape(1) == s.labels && (int64_t)edge_out.shape(0) == s.tables &&
              (int64_t)edge_out.shape(1) == s.labels && (int64_t)edge_out.shape(2) == s.labels,
          "outputs do not fit");
  PreparedCliques p(s, node_of, scope_ptr, scope, edge_ptr, edges, unit, label_ptr, label);
  nb::gil_scoped_release unlocked;
  const int64_t L = s.labels;
  p.c.node_out = node_out.data(), p.c.edge_out = edge_out.data();
  const auto shares = deal(p, n_jobs);
  std::vector<double> unit_total(p.units.size(), 0.0);
  std::vector<uint8_t> dead(s.ends.graphs, 0);
  auto graph_of = [&](size_t u) { return s.ends.graph_of[p.c.node[p.units[u].first]]; };
  // A graph is impossible if one of its components is: where others have counted already, once more without them.
  for (bool again = true; again;) {
    std::fill(node_out.data(), node_out.data() + s.ends.nodes * L, 0.0);
    std::fill(edge_out.data(), edge_out.data() + s.tables * L * L, 0.0);
    std::vector<CliqueDesk> desks;
    desks.reserve(shares.size());
    for (const auto& share : shares) desks.emplace_back(p, share, true);
    run_parts((int)shares.size(), [&](int part) {
      for (size_t u : shares[part])
        unit_total[u] = dead[graph_of(u)]
                            ? -INFINITY
                            : p.kernels->sum_cliques(p.c, p.units[u].first, p.units[u].last, desks[part].w);
    });
    for (size_t t = 0; t < p.tables.original.size(); t++)
      for (int64_t k = 0; k < L * L; k++)
        for (const CliqueDesk& desk : desks) edge_out.data()[p.tables.original[t] * L * L + k] += desk.w.direct[t * L * L + k];
    GraphTotals totals(s.ends.graphs);
    for (size_t u = 0; u < p.units.size(); u++) totals.add(graph_of(u), unit_total[u]);
    totals.store(total.data());
    again = totals.mark_mixed(dead);
  }
}

void clique_max_product(Ints node_of, Ints scope_ptr, Ints scope, Ints edge_ptr, Ints edges, Ints unit, Ints offsets,
                        Ints tails, Ints heads, Ints table, Array2<const double> node, Array3<const double> edge,
                        Ints label_ptr, Array1<const int32_t> label, Array1<double> total, Array1<int32_t> labels,
                        int n_jobs) {
  const Scores s(offsets, tails, heads, table, node, edge);
  require((int64_t)total.shape(0) == s.ends.graphs && (int64_t)labels.shape(0) == s.ends.nodes, "outputs do not fit");
  PreparedCliques p(s, node_of, scope_ptr, scope, edge_ptr, edges, unit, label_ptr, label);
  nb::gil_scoped_release unlocked;
  p.c.best = labels.data();
  const auto shares = deal(p, n_jobs);
  std::vector<double> unit_total(p.units.size(), 0.0);
  run_parts((int)shares.size(), [&](int part) {
    const CliqueDesk desk(p, shares[part], false);
    for (size_t u : shares[part])
      unit_total[u] = p.kernels->best_cliques(p.c, p.units[u].first, p.units[u].last, desk.w);
  });
  GraphTotals totals(s.ends.graphs);
  for (size_t u = 0; u < p.units.size(); u++)
    totals.add(s.ends.graph_of[p.c.node[p.units[u].first]], unit_total[u]);
  totals.store(total.data());
}

}  // namespace forest
}  // namespace crfield
