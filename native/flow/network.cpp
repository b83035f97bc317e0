#include "flow/network.hpp"

#include <limits>
#include <stdexcept>

namespace crfield {
namespace flow {
namespace {

constexpr int32_t FAR = std::numeric_limits<int32_t>::max();

}  // namespace

Network::Network(int64_t nodes, const double* excess)
    : degree_((size_t)nodes + 1, 0), nodes_(nodes + 1), size_(nodes) {
  for (int64_t n = 0; n <= nodes; n++) nodes_[n] = Node{n < nodes ? excess[n] : 0, 0, NONE, 0, 0, false, false};
}

void Network::arrange() {
  int64_t arcs = 0;
  for (int64_t n = 0; n < size_; n++) degree_[n + 1] += degree_[n];
  arcs = degree_[size_];
  if (arcs >= FAR) throw std::length_error("a network of more than 2^30 arcs");
  arcs_.resize(arcs);
  for (int64_t n = 0; n <= size_; n++) nodes_[n].first = (int32_t)degree_[n];
}

void Network::set(int64_t start, int64_t end, double forward, double back) {
  const int32_t a = (int32_t)degree_[start]++, b = (int32_t)degree_[end]++;
  arcs_[a] = Arc{(int32_t)end, b, forward};
  arcs_[b] = Arc{(int32_t)start, a, back};
}

// The arc from the source's tree to the sink's where they touch at n, or NONE; on the way n takes free neighbours in.
int32_t Network::grow(int32_t n) {
  const Node& own = nodes_[n];
  const int32_t last = end(n);
  for (int32_t a = begin(n); a < last; a++) {
    const Arc& arc = arcs_[a];
    if (!((own.sink ? arcs_[arc.sister].left : arc.left) > 0)) continue;
    Node& other = nodes_[arc.head];
    if (other.parent == NONE) {
      other.sink = own.sink, other.parent = arc.sister, other.seen = own.seen, other.distance = own.distance + 1;
      wake(arc.head);
    } else if (other.sink != own.sink) {
      return own.sink ? arc.sister : a;
    } else if (other.seen <= own.seen && other.distance > own.distance) {
      other.parent = arc.sister, other.seen = own.seen, other.distance = own.distance + 1;  // a shorter way
    }
  }
  return NONE;
}

// Push what the path through the arc `middle` carries; nodes whose arc to the parent it filled become orphans.
double Network::push(int32_t middle) {
  double most = arcs_[middle].left;
  int32_t n = arcs_[arcs_[middle].sister].head;
  for (int32_t a; (a = nodes_[n].parent) != TERMINAL; n = arcs_[a].head) {
    const double left = arcs_[arcs_[a].sister].left;
    if (left < most) most = left;
  }
  if (nodes_[n].left < most) most = nodes_[n].left;
  for (n = arcs_[middle].head; nodes_[n].parent != TERMINAL; n = arcs_[nodes_[n].parent].head) {
    const double left = arcs_[nodes_[n].parent].left;
    if (left < most) most = left;
  }
  if (-nodes_[n].left < most) most = -nodes_[n].left;

  arcs_[middle].left -= most, arcs_[arcs_[middle].sister].left += most;
  n = arcs_[arcs_[middle].sister].head;
  for (int32_t a; (a = nodes_[n].parent) != TERMINAL;) {
    const int32_t above = arcs_[a].head;
    arcs_[a].left += most;
    if (!((arcs_[arcs_[a].sister].left -= most) > 0)) cut_off(n);
    n = above;
  }
  if (!((nodes_[n].left -= most) > 0)) cut_off(n);
  n = arcs_[middle].head;
  for (int32_t a; (a = nodes_[n].parent) != TERMINAL;) {
    const int32_t above = arcs_[a].head;
    arcs_[arcs_[a].sister].left += most;
    if (!((arcs_[a].left -= most) > 0)) cut_off(n);
    n = above;
  }
  if (!((nodes_[n].left += most) < 0)) cut_off(n);
  return most;
}

// How far n is from the root of its tree; FAR where the way up ends at an orphan.
int32_t Network::distance_of(int32_t n) {
  int32_t far = 0;
  for (int32_t m = n;;) {
    const Node& at = nodes_[m];
    if (at.seen == now_) {
      far += at.distance;
      break;
    }
    far++;
    if (at.parent == TERMINAL) {
      nodes_[m].seen = now_, nodes_[m].distance = 1;
      break;
    }
    if (at.parent == ORPHAN || at.parent == NONE) return FAR;
    m = arcs_[at.parent].head;
  }
  int32_t left = far;
  for (int32_t m = n; nodes_[m].seen != now_; m = arcs_[nodes_[m].parent].head)
    nodes_[m].seen = now_, nodes_[m].distance = left--;
  return far;
}

// A new parent for an orphan, the nearest to the root; without one it is free, and its children are orphans.
void Network::adopt(int32_t n) {
  Node& own = nodes_[n];
  const int32_t first = begin(n), last = end(n);
  int32_t parent = NONE, nearest = FAR;
  for (int32_t a = first; a < last; a++) {
    const Arc& arc = arcs_[a];
    if (!((own.sink ? arc.left : arcs_[arc.sister].left) > 0)) continue;
    const Node& other = nodes_[arc.head];
    if (other.sink != own.sink || other.parent == NONE) continue;
    const int32_t far = distance_of(arc.head);
    if (far < nearest) parent = a, nearest = far;
  }
  own.parent = parent;
  if (parent != NONE) {
    own.seen = now_, own.distance = nearest + 1;
    return;
  }
  for (int32_t a = first; a < last; a++) {
    const Arc& arc = arcs_[a];
    Node& other = nodes_[arc.head];
    if (other.sink != own.sink || other.parent == NONE) continue;
    if ((own.sink ? arc.left : arcs_[arc.sister].left) > 0) wake(arc.head);
    if (other.parent >= 0 && arcs_[other.parent].head == n) cut_off(arc.head);
  }
}

// Push from each node of the source to neighbours of the sink, before there are trees to keep. On a noisy picture these
// are most of the paths, and here they cost two additions instead of a branch cut off and adopted again.
void Network::push_across(Accumulator& total) {
  for (int64_t n = 0; n < size_; n++) {
    Node& own = nodes_[n];
    for (int32_t a = begin((int32_t)n); a < end((int32_t)n) && own.left > 0; a++) {
      Arc& arc = arcs_[a];
      Node& other = nodes_[arc.head];
      if (!(other.left < 0) || !(arc.left > 0)) continue;
      double most = own.left < arc.left ? own.left : arc.left;
      if (-other.left < most) most = -other.left;
      own.left -= most, other.left += most;
      arc.left -= most, arcs_[arc.sister].left += most;
      total.add(most);
    }
  }
}

double Network::largest_flow() {
  Accumulator total;
  push_across(total);
  for (int64_t n = 0; n < size_; n++) {
    Node& own = nodes_[n];
    if (own.left == 0) continue;
    own.sink = own.left < 0, own.parent = TERMINAL, own.distance = 1;
    wake((int32_t)n);
  }
  // Nodes that touched the other tree stay in front; those that woke meanwhile are taken in the next round.
  std::vector<int32_t> round;
  while (!active_.empty()) {
    round.swap(active_);
    active_.clear();
    for (const int32_t n : round) {
      nodes_[n].queued = false;
      while (nodes_[n].parent != NONE) {
        const int32_t middle = grow(n);
        if (middle == NONE) break;
        now_++;
        total.add(push(middle));
        for (size_t k = 0; k < orphans_.size(); k++) adopt(orphans_[k]);
        orphans_.clear();
      }
    }
  }
  return total.value();
}

}  // namespace flow
}  // namespace crfield
