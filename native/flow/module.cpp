// Python's door to the largest flow; the contract is in src/crfield/kernels/flow.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include <cmath>
#include <tuple>

#include "accumulator.hpp"
#include "arrays.hpp"
#include "flow/network.hpp"

namespace crfield {
namespace flow {
namespace {

using Doubles = Array1<const double>;
using Places = Array1<const int64_t>;

constexpr int64_t MOST = int64_t(1) << 30;

// Capacity of what leaves the source's side, of the terminals' arcs and of one arc.
double terminal_cut(const Network& net, int64_t n, double excess) {
  return net.source_side(n) ? (excess < 0 ? -excess : 0) : (excess > 0 ? excess : 0);
}
double arc_cut(const Network& net, int64_t start, int64_t end, double forward, double back) {
  const bool from = net.source_side(start), to = net.source_side(end);
  return from == to ? 0 : from ? forward : back;
}

double minimum_cut(Doubles excess, Places starts, Places ends, Doubles forward, Doubles back, Array1<uint8_t> side) {
  const int64_t n = (int64_t)excess.shape(0), m = (int64_t)starts.shape(0);
  require(n < MOST && m < MOST / 2 && shaped(ends, m) && shaped(forward, m) && shaped(back, m) && shaped(side, n),
          "arcs do not fit");
  for (int64_t k = 0; k < n; k++) require(std::isfinite(excess(k)), "excess must be finite");
  for (int64_t a = 0; a < m; a++)
    require(starts(a) >= 0 && starts(a) < n && ends(a) >= 0 && ends(a) < n && starts(a) != ends(a) && forward(a) >= 0 &&
                back(a) >= 0,
            "an arc leads nowhere, to itself, or has a capacity below 0");
  nb::gil_scoped_release unlocked;
  Network net(n, excess.data());
  for (int64_t a = 0; a < m; a++) net.announce(starts(a), ends(a));
  net.arrange();
  for (int64_t a = 0; a < m; a++) net.set(starts(a), ends(a), forward(a), back(a));
  const double flow = net.largest_flow();
  Accumulator gap;
  gap.add(-flow);
  for (int64_t k = 0; k < n; k++) side(k) = net.source_side(k), gap.add(terminal_cut(net, k, excess(k)));
  for (int64_t a = 0; a < m; a++) gap.add(arc_cut(net, starts(a), ends(a), forward(a), back(a)));
  return std::fabs(gap.value());
}

// One edge's table of the two states of its ends, as pair(a, b) = constant + pull a + push b - half [a != b].
struct Pair {
  double pull, push, half, size;
  bool simple;

  Pair(double p00, double p01, double p10, double p11) {
    const double alike = p00 + p11, unlike = p01 + p10, bend = alike - unlike;
    double largest = std::fabs(p00);
    for (double x : {p01, p10, p11}) largest = std::fabs(x) > largest ? std::fabs(x) : largest;
    size = std::fabs(p00) + std::fabs(p01) + std::fabs(p10) + std::fabs(p11);
    // Rounding counts as nothing; what repels, or is not finite, is not for a single cut.
    simple = bend >= -4 * 2.220446049250313e-16 * largest && std::isfinite(size);
    half = bend > 4 * 2.220446049250313e-16 * largest ? bend / 2 : 0;
    pull = 0.5 * (p10 + p11 - p00 - p01), push = 0.5 * (p01 + p11 - p00 - p10);
  }
};

std::tuple<bool, double, double> best_states(Array2<const double> node, Array3<const double> edge, Places tables,
                                             Places tails, Places heads, Array2<const int64_t> labels,
                                             Array1<uint8_t> state) {
  const int64_t N = (int64_t)node.shape(0), L = (int64_t)node.shape(1), E = (int64_t)tails.shape(0);
  const int64_t T = (int64_t)edge.shape(0);
  require(N < MOST && E < MOST / 2 && shaped(heads, E) && shaped(tables, E) && shaped(edge, T, L, L) &&
              shaped(labels, N, 2) && shaped(state, N),
          "scores, labels and edges do not fit");
  for (int64_t n = 0; n < N; n++)
    for (int64_t k = 0; k < 2; k++) require(labels(n, k) >= 0 && labels(n, k) < L, "a label is out of range");
  for (int64_t e = 0; e < E; e++)
    require(tails(e) >= 0 && tails(e) < N && heads(e) >= 0 && heads(e) < N && tails(e) != heads(e) && tables(e) >= 0 &&
                tables(e) < T,
            "an edge is out of range");
  nb::gil_scoped_release unlocked;
  const int64_t *two = labels.data(), *tail = tails.data(), *head = heads.data(), *table = tables.data();
  const auto fixed = [&](int64_t n) { return two[2 * n] == two[2 * n + 1]; };
  Accumulator magnitude;
  std::vector<double> excess((size_t)N, 0.0), half((size_t)E, 0.0);
  double sizes = 0;
  for (int64_t n = 0; n < N; n++) {
    const double zero = node(n, two[2 * n]), one = node(n, two[2 * n + 1]);
    if (!std::isfinite(zero) || !std::isfinite(one)) return {false, 0.0, 0.0};
    sizes += std::fabs(zero) + std::fabs(one);
    if (!fixed(n)) excess[n] = one - zero;
  }
  magnitude.add(sizes);
  sizes = 0;
  for (int64_t e = 0; e < E; e++) {
    const int64_t *a = two + 2 * tail[e], *b = two + 2 * head[e];
    const double *row0 = edge.data() + (table[e] * L + a[0]) * L, *row1 = edge.data() + (table[e] * L + a[1]) * L;
    const bool still = fixed(tail[e]), standing = fixed(head[e]);
    const double p00 = row0[b[0]], p01 = row0[b[1]], p10 = row1[b[0]], p11 = row1[b[1]];
    const Pair pair(p00, p01, p10, p11);
    if (!pair.simple) return {false, 0.0, 0.0};
    sizes += pair.size;
    if (still && standing) continue;
    if (still) {
      excess[head[e]] += p01 - p00;
    } else if (standing) {
      excess[tail[e]] += p10 - p00;
    } else {
      excess[tail[e]] += pair.pull, excess[head[e]] += pair.push, half[e] = pair.half;
    }
  }
  magnitude.add(sizes);
  Network net(N, excess.data());
  for (int64_t e = 0; e < E; e++)
    if (half[e] > 0) net.announce(tail[e], head[e]);
  net.arrange();
  for (int64_t e = 0; e < E; e++)
    if (half[e] > 0) net.set(tail[e], head[e], half[e], half[e]);
  Accumulator gap;
  gap.add(-net.largest_flow());
  double sum = 0;
  for (int64_t n = 0; n < N; n++) {
    state(n) = !fixed(n) && net.source_side(n);
    if (!fixed(n)) sum += terminal_cut(net, n, excess[n]);
  }
  gap.add(sum), sum = 0;
  for (int64_t e = 0; e < E; e++)
    if (half[e] > 0) sum += arc_cut(net, tail[e], head[e], half[e], half[e]);
  gap.add(sum);
  return {true, std::fabs(gap.value()), magnitude.value()};
}

}  // namespace
}  // namespace flow
}  // namespace crfield

NB_MODULE(_flow, module) {
  nanobind::set_leak_warnings(false);  // an array still alive when Python ends is no fault
  module.def("minimum_cut", &crfield::flow::minimum_cut);
  module.def("best_states", &crfield::flow::best_states);
}
