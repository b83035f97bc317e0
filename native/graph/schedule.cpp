#include "graph/schedule.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "graph/team.hpp"
#include "threads.hpp"

namespace crfield {
namespace graph {
namespace {

// A graph of at least so many products a sweep is divided among threads, if it is a good part of the batch.
constexpr int64_t WORTH_DIVIDING = 20000;

constexpr int64_t LOOK_AHEAD = 4;  // nodes

struct Graph {
  int64_t number, first_node, last_node, first_edge, last_edge;
  bool scaled;
  double damping;
  int64_t messages() const { return 2 * (last_edge - first_edge); }
};

struct End {
  double residual = 0;
  int64_t sweeps = 0;
};

// Part `member` of [first, last) cut into `size` parts, for nodes by the messages that arrive.
int64_t cut_edges(const Graph& g, int member, int size) {
  return g.first_edge + (g.last_edge - g.first_edge) * member / size;
}
int64_t cut_nodes(const View& v, const Graph& g, int member, int size) {
  if (member == 0) return g.first_node;
  if (member == size) return g.last_node;
  const int64_t *from = v.indptr + g.first_node, *to = v.indptr + g.last_node;
  const int64_t wanted = *from + (*to - *from) * member / size;
  return g.first_node + (std::lower_bound(from, to, wanted) - from);
}

// One member's share of the synchronous sweeps. All members come to the same decision from the same numbers, and a
// message does not depend on who computes it, so the bits are the same for any size of the team.
template <class Meet>
End synchronous(const View& v, const Kernels& k, const Graph& g, const Options& o, int member, int size, double* spare,
                double* found, Meet meet) {
  const int64_t node = cut_nodes(v, g, member, size), node_end = cut_nodes(v, g, member + 1, size);
  const int64_t edge = cut_edges(g, member, size), edge_end = cut_edges(g, member + 1, size);
  End end;
  while (end.sweeps < o.max_sweeps) {
    // Members write to the places of this sweep while a slow one may still read those of the last.
    double* here = found + (end.sweeps & 1) * size;
    if (g.scaled) {
      k.products(v, node, node_end);
      meet();
      here[member] = k.edges_scaled(v, edge, edge_end, spare);
    } else {
      k.sums(v, node, node_end);
      meet();
      here[member] = k.edges_log(v, edge, edge_end, g.damping, spare);
    }
    meet();
    double largest = here[0];
    for (int other = 1; other < size; other++) largest = std::max(largest, here[other]);
    end.residual = !g.scaled ? largest : largest > LEAST_RATIO ? std::log(largest) : 0.0;
    end.sweeps++;
    if (end.residual <= o.tol) break;
  }
  return end;
}

// From the last node to the first and back, each sending to those that come after it on the way.
End in_order(const View& v, const Kernels& k, const Neighbours& near, const Graph& g, const Options& o, double* spare,
             std::vector<int32_t>& order, std::vector<uint8_t>& met, std::vector<int32_t>& place) {
  const int64_t nodes = g.last_node - g.first_node;
  order.resize(nodes);
  breadth_first(near, g.first_node, g.last_node, order.data(), met.data());
  for (int64_t at = 0; at < nodes; at++) place[order[at]] = (int32_t)at;
  double *made = spare + 2 * MANY * v.stride, change[MANY];
  int64_t message[MANY];
  // Neighbours in the graph lie anywhere in memory: ask for those of a later node while this one is computed.
  auto prepare = [&](int32_t n) {
    __builtin_prefetch(v.local + (int64_t)n * v.stride);
    for (int64_t q = v.indptr[n]; q < v.indptr[n + 1]; q++) {
      __builtin_prefetch(v.message + (int64_t)v.into[q] * v.stride);
      __builtin_prefetch(v.message + (int64_t)(v.into[q] ^ 1) * v.stride);
    }
  };
  End end;
  while (end.sweeps < o.max_sweeps) {
    end.residual = 0;
    for (int way = 0; way < 2; way++)
      for (int64_t at = 0; at < nodes; at++) {
        const int32_t n = order[way ? at : nodes - 1 - at];
        if (at + LOOK_AHEAD < nodes) prepare(order[way ? at + LOOK_AHEAD : nodes - 1 - at - LOOK_AHEAD]);
        k.sums(v, n, n + 1);
        for (int64_t q = v.indptr[n], stop = v.indptr[n + 1]; q < stop;) {
          int count = 0;
          for (; q < stop && count < MANY; q++)
            if ((place[near.source(v.into[q])] > place[n]) == (way == 1)) message[count++] = v.into[q] ^ 1;
          k.renew(v, count, message, g.damping, made, change, spare);
          for (int c = 0; c < count; c++) {
            std::memcpy(v.message + message[c] * v.stride, made + c * v.stride, sizeof(double) * v.stride);
            end.residual = std::max(end.residual, change[c]);
          }
        }
      }
    end.sweeps++;
    if (end.residual <= o.tol) break;
  }
  return end;
}

// Messages by how much they would change, the largest first and the first of equals: a heap that knows its places.
class Queue {
 public:
  explicit Queue(int64_t n) : change_(n, 0.0), heap_(n), place_(n) {
    for (int64_t k = 0; k < n; k++) heap_[k] = place_[k] = (int32_t)k;
  }
  int32_t best() const { return heap_[0]; }
  double most() const { return change_[heap_[0]]; }
  void set(int32_t item, double change) {
    const bool more = change > change_[item];
    change_[item] = change;
    more ? rise(place_[item]) : sink(place_[item]);
  }

 private:
  bool before(int32_t a, int32_t b) const {
    return change_[a] > change_[b] || (change_[a] == change_[b] && a < b);
  }
  void put(int64_t at, int32_t item) {
    heap_[at] = item;
    place_[item] = (int32_t)at;
  }
  void rise(int64_t at) {
    const int32_t item = heap_[at];
    while (at && before(item, heap_[(at - 1) / 2])) {
      put(at, heap_[(at - 1) / 2]);
      at = (at - 1) / 2;
    }
    put(at, item);
  }
  void sink(int64_t at) {
    const int32_t item = heap_[at];
    const int64_t n = (int64_t)heap_.size();
    for (int64_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
      if (child + 1 < n && before(heap_[child + 1], heap_[child])) child++;
      if (!before(heap_[child], item)) break;
      put(at, heap_[child]);
      at = child;
    }
    put(at, item);
  }
  std::vector<double> change_;
  std::vector<int32_t> heap_, place_;
};

bool is_forest(const Neighbours& near, const Graph& g) {
  std::vector<int64_t> root(g.last_node - g.first_node);
  for (size_t n = 0; n < root.size(); n++) root[n] = (int64_t)n;
  auto find = [&](int64_t n) {
    while (root[n] != n) n = root[n] = root[root[n]];
    return n;
  };
  for (int64_t m = 2 * g.first_edge; m < 2 * g.last_edge; m += 2) {
    const int64_t a = find(near.source((int32_t)m) - g.first_node);
    const int64_t b = find(near.source((int32_t)(m ^ 1)) - g.first_node);
    if (a == b) return false;
    root[a] = b;
  }
  return true;
}

// Always the message that would change most. A change is followed by those it causes: all that leave the node where
// it arrived, and, damped, the message itself. What is left at the end are many changes of up to the tolerance, and
// beliefs add them up; where there is no loop to wait for, `run` follows with one sweep in order, which is exact.
End by_residual(const View& v, const Kernels& k, const Neighbours& near, const Graph& g, const Options& o,
                double* spare) {
  const int64_t n_messages = g.messages(), base = 2 * g.first_edge, stride = v.stride;
  Buffer<double> candidate(n_messages * stride);
  Queue queue(n_messages);
  int64_t message[MANY];
  double change[MANY], *made = spare + 2 * MANY * stride;
  int count = 0;
  auto flush = [&] {
    k.renew(v, count, message, g.damping, made, change, spare);
    for (int c = 0; c < count; c++) {
      std::memcpy(candidate.data() + (message[c] - base) * stride, made + c * stride, sizeof(double) * stride);
      queue.set((int32_t)(message[c] - base), change[c]);
    }
    count = 0;
  };
  auto ask = [&](int64_t m) {
    message[count++] = m;
    if (count == MANY) flush();
  };
  k.sums(v, g.first_node, g.last_node);
  for (int64_t m = base; m < base + n_messages; m++) ask(m);
  flush();
  int64_t updates = 0;
  while (queue.most() > o.tol && updates < o.max_sweeps * n_messages) {
    const int64_t best = base + queue.best();
    std::memcpy(v.message + best * stride, candidate.data() + (best - base) * stride, sizeof(double) * stride);
    updates++;
    ask(best);
    const int32_t target = near.source((int32_t)(best ^ 1));
    k.sums(v, target, target + 1);
    for (int64_t q = v.indptr[target]; q < v.indptr[target + 1]; q++) ask(v.into[q] ^ 1);
    flush();
  }
  End end;
  end.residual = queue.most();
  end.sweeps = (updates + n_messages - 1) / n_messages;
  return end;
}

}  // namespace

void run(Wiring& wiring, const std::vector<int64_t>& first_edge, const Options& o, double* messages, double* residual,
         int64_t* sweeps) {
  const Input& in = wiring.input();
  const Neighbours& near = wiring.neighbours();
  const View v = wiring.view();
  const Kernels& k = *wiring.kernels();
  std::vector<Graph> small, large;
  const int64_t labour = 2 * in.edges * in.labels * v.stride;
  for (int64_t b = 0; b < in.graphs; b++) {
    Graph g{b, in.offsets[b], in.offsets[b + 1], first_edge[b], first_edge[b + 1], false, o.damping[b]};
    g.scaled = o.schedule == Schedule::synchronous && !v.maximise && !in.rho && g.damping == 0 &&
               wiring.calm(g.first_node, g.last_node);
    const int64_t own = g.messages() * in.labels * v.stride;
    const bool divide = o.schedule == Schedule::synchronous && o.n_jobs > 1 && own >= WORTH_DIVIDING &&
                        own > labour / (2 * o.n_jobs);
    (divide ? large : small).push_back(g);
  }
  // The share of a member before the first sweep and after the last.
  auto enter = [&](const Graph& g, int member, int size) {
    const int64_t node = cut_nodes(v, g, member, size), edge = cut_edges(g, member, size);
    const int64_t edge_end = cut_edges(g, member + 1, size);
    wiring.load_nodes(node, cut_nodes(v, g, member + 1, size), g.scaled);
    wiring.load_messages(messages, edge, edge_end);
    if (g.scaled) k.to_probabilities(2 * (edge_end - edge), v.stride, v.message + 2 * edge * v.stride);
  };
  auto leave = [&](const Graph& g, int member, int size) {
    const int64_t node = cut_nodes(v, g, member, size), edge = cut_edges(g, member, size);
    const int64_t edge_end = cut_edges(g, member + 1, size);
    if (g.scaled) {
      k.to_logs(2 * (edge_end - edge), v.stride, v.message + 2 * edge * v.stride);
      wiring.load_nodes(node, cut_nodes(v, g, member + 1, size), false);
    }
    wiring.store_messages(messages, edge, edge_end);
  };
  if (!large.empty()) {
    Buffer<double> spare((int64_t)o.n_jobs * (SPARE_ROWS * v.stride + 16));
    std::vector<double> found(2 * o.n_jobs);
    run_team(o.n_jobs, [&](int member, int size, Barrier& barrier) {
      double* mine = spare.data() + (int64_t)member * (SPARE_ROWS * v.stride + 16);
      for (const Graph& g : large) {
        enter(g, member, size);
        barrier.wait();
        const End end =
            synchronous(v, k, g, o, member, size, mine, found.data(), [&] { barrier.wait(); });
        leave(g, member, size);
        if (member == 0) residual[g.number] = end.residual, sweeps[g.number] = end.sweeps;
        barrier.wait();
      }
    });
  }
  std::atomic<size_t> next{0};
  std::vector<uint8_t> met;
  std::vector<int32_t> place;
  if (o.schedule != Schedule::synchronous) met.assign(in.nodes, 0), place.resize(in.nodes);
  Options once = o;
  once.max_sweeps = 1;
  const int parts = std::max(1, (int)std::min<int64_t>(o.n_jobs, (int64_t)small.size()));
  run_parts(parts, [&](int) {
    Buffer<double> spare(SPARE_ROWS * v.stride);
    std::vector<int32_t> order;
    double found[2] = {0, 0};
    for (size_t at = next++; at < small.size(); at = next++) {
      const Graph& g = small[at];
      enter(g, 0, 1);
      End end;
      if (g.messages() > 0) {
        if (o.schedule == Schedule::sweeps)
          end = in_order(v, k, near, g, o, spare.data(), order, met, place);
        else if (o.schedule == Schedule::residual) {
          end = by_residual(v, k, near, g, o, spare.data());
          if (end.residual <= o.tol && g.damping == 0 && is_forest(near, g))
            in_order(v, k, near, g, once, spare.data(), order, met, place);
        } else
          end = synchronous(v, k, g, o, 0, 1, spare.data(), found, [] {});
      }
      leave(g, 0, 1);
      residual[g.number] = end.residual, sweeps[g.number] = end.sweeps;
    }
  });
}

}  // namespace graph
}  // namespace crfield
