// Orders of elimination of small width, for each connected component.
//
// Min-fill: the next node is the one whose neighbours lack the fewest edges among themselves. Keys (missing edges,
// neighbours, number) lie in a heap; a node whose key changed is pushed again and the stale entry is skipped when it
// comes up. Eliminating n changes the keys of its neighbours, and those of whoever has both ends of an edge that was
// added. Neighbours are sorted lists from which eliminated nodes are dropped only now and then.
//
// Where edges were added two plain sweeps are tried as well (as numbered, and breadth first from far out). The scopes
// of a given order cost no more than they are long: what follows among a node's neighbours, and in the scopes whose
// first node it is.
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

// Neighbours of every node, sorted, each once.
std::vector<List> neighbours(const Ends& g) {
  std::vector<List> links(g.nodes);
  for (int64_t e = 0; e < g.edges; e++) {
    links[g.tails[e]].push_back((int32_t)g.heads[e]);
    links[g.heads[e]].push_back((int32_t)g.tails[e]);
  }
  for (List& a : links) {
    std::sort(a.begin(), a.end());
    a.erase(std::unique(a.begin(), a.end()), a.end());
  }
  return links;
}

class MinFill {
 public:
  MinFill(const std::vector<List>& links, const std::vector<int64_t>& component)
      : when(links.size(), (int64_t)links.size()),
        scopes(links.size()),
        filled(links.size(), 0),
        hopeless(links.size(), 0),
        component_(component),
        around_(links),
        live_(links.size()),
        gone_(links.size(), 0),
        key_(links.size()),
        seen_(links.size(), 0) {
    for (size_t n = 0; n < links.size(); n++) live_[n] = (int32_t)links[n].size();
    for (size_t n = 0; n < links.size(); n++) push((int32_t)n);
  }

  std::vector<int64_t> when;               // by node: its turn
  std::vector<List> scopes;                // by node
  std::vector<uint8_t> filled, hopeless;   // by component: edges were added; given up

  void run() {
    int64_t step = 0;
    while (!heap_.empty()) {
      const Key key = heap_.top();
      heap_.pop();
      const int32_t n = std::get<2>(key);
      if (gone_[n] || key != key_[n] || hopeless[component_[n]]) continue;
      tidy(n);
      gone_[n] = 1;
      when[n] = step++;
      scopes[n].swap(around_[n]);
      const List& scope = scopes[n];
      if (std::get<0>(key)) filled[component_[n]] = 1;
      if (scope.size() > (size_t)WIDEST) {
        hopeless[component_[n]] = 1;
        continue;
      }
      for (int32_t m : scope) live_[m]--;
      touched_.clear();
      for (int32_t m : scope) touch(m);
      if (std::get<0>(key)) join(scope);
      for (int32_t m : touched_) {
        seen_[m] = 0;
        push(m);
      }
    }
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

  const std::vector<int64_t>& component_;
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

// Nodes by their distance from one that lies far out (Cuthill and McKee 1969).
List breadth_first(int32_t first, const std::vector<List>& links, std::vector<uint8_t>& seen) {
  List found(1, first);
  for (int turn = 0; turn < 2; turn++) {
    found.assign(1, int32_t(found.back()));
    seen[found[0]] = 1;
    for (size_t at = 0; at < found.size(); at++) {
      const size_t begin = found.size();
      for (int32_t m : links[found[at]]) {
        if (seen[m]) continue;
        seen[m] = 1;
        found.push_back(m);
      }
      std::sort(found.begin() + begin, found.end(), [&](int32_t a, int32_t b) {
        return links[a].size() != links[b].size() ? links[a].size() < links[b].size() : a < b;
      });
    }
    for (int32_t n : found) seen[n] = 0;
  }
  return found;
}

// Scopes of an order that is given, as places in it, sorted; nothing if one of them has `below` places or more.
std::vector<List> scopes_of(const List& order, const std::vector<List>& links, std::vector<int32_t>& place, size_t below) {
  std::vector<List> scopes(order.size()), children(order.size());
  for (size_t k = 0; k < order.size(); k++) place[order[k]] = (int32_t)k;
  List wider;
  for (size_t k = 0; k < order.size(); k++) {
    List& scope = scopes[k];
    for (int32_t m : links[order[k]])
      if (place[m] > (int32_t)k) scope.push_back(place[m]);
    std::sort(scope.begin(), scope.end());
    for (int32_t child : children[k]) {
      wider.clear();
      std::set_union(scope.begin(), scope.end(), scopes[child].begin() + 1, scopes[child].end(), std::back_inserter(wider));
      scope.swap(wider);
    }
    if (scope.size() >= below) return {};
    if (!scope.empty()) children[scope[0]].push_back((int32_t)k);
  }
  return scopes;
}

// Where min-fill had to add edges, take a plain sweep if it is narrower.
void try_sweeps(const std::vector<List>& links, const std::vector<int64_t>& component, MinFill& found) {
  const size_t nodes = links.size();
  std::vector<List> members(nodes);
  for (size_t n = 0; n < nodes; n++)
    if (found.filled[component[n]]) members[component[n]].push_back((int32_t)n);
  std::vector<uint8_t> seen(nodes, 0);
  std::vector<int32_t> place(nodes, 0);
  for (size_t c = 0; c < nodes; c++) {
    if (members[c].empty()) continue;
    size_t width = 0;
    for (int32_t n : members[c]) width = std::max(width, found.scopes[n].size());
    if (found.hopeless[c]) width = (size_t)WIDEST + 1;
    for (const List& order : {members[c], breadth_first(members[c][0], links, seen)}) {
      const std::vector<List> scopes = scopes_of(order, links, place, width);
      if (scopes.empty()) continue;
      width = 0;
      found.hopeless[c] = 0;
      for (size_t k = 0; k < order.size(); k++) {
        width = std::max(width, scopes[k].size());
        found.when[order[k]] = (int64_t)k;
        found.scopes[order[k]].clear();
        for (int32_t later : scopes[k]) found.scopes[order[k]].push_back(order[later]);
      }
    }
  }
}

}  // namespace

nb::tuple eliminate(Ints offsets_, Ints tails_, Ints heads_) {
  const Ends g(offsets_, tails_, heads_);
  std::vector<int64_t> node(g.nodes), scope_ptr{0}, scope, edge_ptr(g.nodes + 1, 0), edge(g.edges), unit{0};
  bool complete;
  {
    nb::gil_scoped_release unlocked;
    const std::vector<int64_t> component = components(g);
    const std::vector<List> links = neighbours(g);
    MinFill found(links, component);
    found.run();
    try_sweeps(links, component, found);
    complete = std::find(found.hopeless.begin(), found.hopeless.end(), 1) == found.hopeless.end();
    // one component after another; nodes that were never eliminated take the last places of theirs
    std::vector<int64_t> place(g.nodes);
    std::iota(node.begin(), node.end(), 0);
    std::stable_sort(node.begin(), node.end(), [&](int64_t a, int64_t b) {
      return component[a] != component[b] ? component[a] < component[b] : found.when[a] < found.when[b];
    });
    for (int64_t k = 0; k < g.nodes; k++) place[node[k]] = k;
    scope_ptr.reserve(g.nodes + 1);
    for (int64_t k = 0; k < g.nodes; k++) {
      for (int32_t m : found.scopes[node[k]]) scope.push_back(place[m]);
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
