// Elimination by min-fill: the next node is the one whose neighbours lack the fewest edges among themselves.
//
// Keys (missing edges, neighbours, number) lie in a heap; a node whose key changed is pushed again and the stale entry
// is skipped when it comes up. Eliminating n changes the keys of its neighbours, and those of whoever has both ends
// of an edge that was added. Neighbours are sorted lists from which eliminated nodes are dropped only now and then.
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>

#include "forest/graphs.hpp"

namespace crfield {
namespace forest {
namespace {

using Key = std::tuple<int64_t, int32_t, int32_t>;
using List = std::vector<int32_t>;

class Eliminator {
 public:
  explicit Eliminator(const Ends& g) : around_(g.nodes), live_(g.nodes), gone_(g.nodes, 0), key_(g.nodes), seen_(g.nodes, 0) {
    for (int64_t e = 0; e < g.edges; e++) {
      around_[g.tails[e]].push_back((int32_t)g.heads[e]);
      around_[g.heads[e]].push_back((int32_t)g.tails[e]);
    }
    for (int64_t n = 0; n < g.nodes; n++) {
      List& a = around_[n];
      std::sort(a.begin(), a.end());
      a.erase(std::unique(a.begin(), a.end()), a.end());
      live_[n] = (int32_t)a.size();
    }
    for (int64_t n = 0; n < g.nodes; n++) push((int32_t)n);
  }

  std::vector<int32_t> chosen;
  std::vector<List> scopes;

  // False when a node of more than WIDEST neighbours had to be chosen.
  bool run() {
    while (!heap_.empty()) {
      const Key key = heap_.top();
      heap_.pop();
      const int32_t n = std::get<2>(key);
      if (gone_[n] || key != key_[n]) continue;
      tidy(n);
      gone_[n] = 1;
      chosen.push_back(n);
      scopes.push_back(std::move(around_[n]));
      around_[n] = List();
      const List& scope = scopes.back();
      if (scope.size() > (size_t)WIDEST) return false;
      for (int32_t m : scope) live_[m]--;
      touched_.clear();
      for (int32_t m : scope) touch(m);
      if (std::get<0>(key)) join(scope);
      for (int32_t m : touched_) {
        seen_[m] = 0;
        push(m);
      }
    }
    return true;
  }

 private:
  void tidy(int32_t n) {
    List& a = around_[n];
    if ((int64_t)a.size() > live_[n])
      a.erase(std::remove_if(a.begin(), a.end(), [&](int32_t m) { return gone_[m] != 0; }), a.end());
  }
  bool joined(int32_t a, int32_t b) const {
    const List& shorter = around_[a].size() <= around_[b].size() ? around_[a] : around_[b];
    return std::binary_search(shorter.begin(), shorter.end(), &shorter == &around_[a] ? b : a);
  }
  void touch(int32_t n) {
    if (seen_[n]) return;
    seen_[n] = 1;
    touched_.push_back(n);
  }
  void push(int32_t n) {
    int64_t missing = (int64_t)1 << 40;
    if (live_[n] <= WIDE) {
      tidy(n);
      const List& a = around_[n];
      missing = 0;
      for (size_t i = 0; i < a.size(); i++)
        for (size_t j = i + 1; j < a.size(); j++) missing += !joined(a[i], a[j]);
    }
    key_[n] = Key(missing, live_[n], n);
    heap_.push(key_[n]);
  }
  void join(const List& scope) {
    // when a wide node is chosen all others are wide too, and their keys do not depend on the edges around them
    if (scope.size() <= (size_t)WIDE)
      for (size_t i = 0; i < scope.size(); i++)
        for (size_t j = i + 1; j < scope.size(); j++)
          if (!joined(scope[i], scope[j])) touch_common(around_[scope[i]], around_[scope[j]]);
    for (int32_t m : scope) {
      tidy(m);
      List wider;
      wider.reserve(around_[m].size() + scope.size());
      std::set_union(around_[m].begin(), around_[m].end(), scope.begin(), scope.end(), std::back_inserter(wider));
      wider.erase(std::lower_bound(wider.begin(), wider.end(), m));
      live_[m] = (int32_t)wider.size();
      around_[m].swap(wider);
    }
  }
  void touch_common(const List& a, const List& b) {
    for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
      if (a[i] < b[j]) {
        i++;
      } else if (a[i] > b[j]) {
        j++;
      } else {
        if (!gone_[a[i]]) touch(a[i]);
        i++, j++;
      }
    }
  }

  std::vector<List> around_;
  std::vector<int32_t> live_;
  std::vector<uint8_t> gone_;
  std::vector<Key> key_;
  std::vector<uint8_t> seen_;
  List touched_;
  std::priority_queue<Key, std::vector<Key>, std::greater<Key>> heap_;
};

// The smallest node of each node's component.
std::vector<int64_t> components(const Ends& g) {
  std::vector<int64_t> lead(g.nodes);
  std::iota(lead.begin(), lead.end(), 0);
  auto find = [&](int64_t n) {
    while (lead[n] != n) n = lead[n] = lead[lead[n]];
    return n;
  };
  for (int64_t e = 0; e < g.edges; e++) {
    const int64_t a = find(g.tails[e]), b = find(g.heads[e]);
    lead[std::max(a, b)] = std::min(a, b);
  }
  for (int64_t n = 0; n < g.nodes; n++) lead[n] = find(n);
  return lead;
}

}  // namespace

nb::tuple eliminate(Ints offsets_, Ints tails_, Ints heads_) {
  const Ends g(offsets_, tails_, heads_);
  std::vector<int64_t> node(g.nodes), scope_ptr{0}, scope, edge_ptr(g.nodes + 1, 0), edge(g.edges), unit{0};
  bool complete;
  {
    nb::gil_scoped_release unlocked;
    Eliminator eliminator(g);
    complete = eliminator.run();
    // one component after another; nodes that were never eliminated take the last places of theirs
    const std::vector<int64_t> component = components(g);
    std::vector<int64_t> when(g.nodes, g.nodes), place(g.nodes);
    for (size_t k = 0; k < eliminator.chosen.size(); k++) when[eliminator.chosen[k]] = (int64_t)k;
    std::iota(node.begin(), node.end(), 0);
    std::stable_sort(node.begin(), node.end(), [&](int64_t a, int64_t b) {
      return component[a] != component[b] ? component[a] < component[b] : when[a] < when[b];
    });
    for (int64_t k = 0; k < g.nodes; k++) place[node[k]] = k;
    scope_ptr.reserve(g.nodes + 1);
    for (int64_t k = 0; k < g.nodes; k++) {
      if (when[node[k]] < g.nodes)
        for (int32_t m : eliminator.scopes[when[node[k]]]) scope.push_back(place[m]);
      std::sort(scope.begin() + scope_ptr.back(), scope.end(), std::greater<int64_t>());
      scope_ptr.push_back((int64_t)scope.size());
      if (k + 1 < g.nodes ? component[node[k]] != component[node[k + 1]] : true) unit.push_back(k + 1);
    }
    auto clique = [&](int64_t e) { return std::min(place[g.tails[e]], place[g.heads[e]]); };
    for (int64_t e = 0; e < g.edges; e++) edge_ptr[clique(e) + 1]++;
    std::partial_sum(edge_ptr.begin(), edge_ptr.end(), edge_ptr.begin());
    std::vector<int64_t> next(edge_ptr.begin(), edge_ptr.end() - 1);
    for (int64_t e = 0; e < g.edges; e++) edge[next[clique(e)]++] = e;
  }
  return nb::make_tuple(to_numpy(std::move(node)), to_numpy(std::move(scope_ptr)), to_numpy(std::move(scope)),
                        to_numpy(std::move(edge_ptr)), to_numpy(std::move(edge)), to_numpy(std::move(unit)), complete);
}

}  // namespace forest
}  // namespace crfield
