#include "graph/wiring.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "at_level.hpp"

namespace crfield {
namespace graph {
namespace {

void require(bool good, const char* message) {
  if (!good) throw std::invalid_argument(message);
}

// Spreads of the tables around one node may add up to this many nats: see scaled.hpp.
constexpr double CALM = 300.0;

}  // namespace

std::vector<int64_t> check(const Input& in) {
  require(in.offsets[0] == 0, "offsets must start at 0");
  for (int64_t b = 0; b < in.graphs; b++) require(in.offsets[b] <= in.offsets[b + 1], "offsets must not fall");
  require(in.offsets[in.graphs] == in.nodes, "node scores do not fit");
  require(in.labels >= 1 && in.labels <= 65535, "node scores do not fit");
  require(in.nodes < (int64_t(1) << 31) && in.edges < (int64_t(1) << 30), "too many nodes or edges");
  std::vector<int64_t> first(in.graphs + 1, in.edges);
  int64_t b = 0;
  first[0] = 0;
  for (int64_t e = 0; e < in.edges; e++) {
    const int64_t tail = in.tails[e], head = in.heads[e];
    require(tail >= 0 && tail < in.nodes && head >= 0 && head < in.nodes && in.table[e] >= 0 && in.table[e] < in.tables,
            "an edge names a node or a table that does not exist");
    require(tail != head, "an edge must join two different nodes of one graph");
    require(tail >= in.offsets[b], "edges must be sorted by graph");
    while (tail >= in.offsets[b + 1]) first[++b] = e;
    require(head >= in.offsets[b] && head < in.offsets[b + 1], "an edge must join two different nodes of one graph");
    if (in.rho) require(in.rho[e] > 0 && in.rho[e] <= 1, "rho must lie in (0, 1]");
  }
  return first;
}

Neighbours::Neighbours(const Input& in)
    : tail(in.tails, in.tails + in.edges),
      head(in.heads, in.heads + in.edges),
      indptr(in.nodes + 1, 0),
      into(2 * in.edges) {
  for (int64_t e = 0; e < in.edges; e++) indptr[tail[e] + 1]++, indptr[head[e] + 1]++;
  for (int64_t n = 0; n < in.nodes; n++) indptr[n + 1] += indptr[n];
  std::vector<int64_t> next(indptr.begin(), indptr.end() - 1);
  for (int64_t e = 0; e < in.edges; e++) {
    into[next[head[e]]++] = (int32_t)(2 * e);
    into[next[tail[e]]++] = (int32_t)(2 * e + 1);
  }
}

void breadth_first(const Neighbours& near, int64_t first, int64_t last, int32_t* order, uint8_t* met) {
  int64_t done = 0, queued = 0;
  for (int64_t root = first; root < last; root++) {
    if (met[root]) continue;
    met[root] = 1;
    order[queued++] = (int32_t)root;
    for (; done < queued; done++) {
      const int32_t n = order[done];
      for (int64_t k = near.indptr[n]; k < near.indptr[n + 1]; k++) {
        const int32_t other = near.source(near.into[k]);
        if (met[other]) continue;
        met[other] = 1;
        order[queued++] = other;
      }
    }
  }
}

const Kernels* best_kernels(int labels) {
#if defined(CRFIELD_X86)
  return at_level(kernels_level2, kernels_level3, kernels_level4)(labels);
#else
  return kernels_level0(labels);
#endif
}

Input Wiring::reordered(const Input& given, bool sorted, Order& order) {
  auto lower = [&](int64_t e) { return std::min(given.tails[e], given.heads[e]); };
  bool in_order = true;
  for (int64_t e = 1; e < given.edges && in_order; e++) in_order = lower(e - 1) <= lower(e);
  if (!sorted || in_order) return given;
  std::vector<int64_t> next(given.nodes + 1, 0);
  for (int64_t e = 0; e < given.edges; e++) next[lower(e) + 1]++;
  for (int64_t n = 0; n < given.nodes; n++) next[n + 1] += next[n];
  order.edge.resize(given.edges);
  for (int64_t e = 0; e < given.edges; e++) order.edge[next[lower(e)]++] = e;
  for (const int64_t e : order.edge) {
    order.tails.push_back(given.tails[e]);
    order.heads.push_back(given.heads[e]);
    order.table.push_back(given.table[e]);
    if (given.rho) order.rho.push_back(given.rho[e]);
  }
  Input in = given;
  in.tails = order.tails.data();
  in.heads = order.heads.data();
  in.table = order.table.data();
  in.rho = given.rho ? order.rho.data() : nullptr;
  return in;
}

Wiring::Wiring(const Input& given, bool maximise, bool sorted, bool spreads)
    : in_(reordered(given, sorted, order_)),
      near_(in_),
      kernels_(best_kernels((int)given.labels)),
      maximise_(maximise),
      form_(given.edges) {
  const Input& in = in_;
  const int lanes = kernels_->lanes;
  stride_ = (int)((in.labels + lanes - 1) / lanes * lanes);
  // One prepared table for each (table, rho) that occurs, or one for each table.
  std::vector<int64_t> table;
  std::vector<double> weight;
  if (in.rho) {
    std::vector<int64_t> order(in.edges);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return in.table[a] != in.table[b] ? in.table[a] < in.table[b] : in.rho[a] < in.rho[b];
    });
    for (const int64_t e : order) {
      if (table.empty() || table.back() != in.table[e] || weight.back() != in.rho[e]) {
        table.push_back(in.table[e]);
        weight.push_back(in.rho[e]);
      }
      form_[e] = (int32_t)(table.size() - 1);
    }
  } else {
    require(in.tables < (int64_t(1) << 31), "too many edge tables");
    table.resize(in.tables);
    std::iota(table.begin(), table.end(), 0);
    weight.assign(in.tables, 1.0);
    for (int64_t e = 0; e < in.edges; e++) form_[e] = (int32_t)in.table[e];
  }
  const int64_t L = in.labels, forms = (int64_t)table.size(), size = L * stride_;
  exact_.resize(forms * L * L);
  shift_.assign(forms, 0.0);
  if (spreads) spread_.assign(forms, 0.0);
  table_.resize(forms * size);
  table_t_.resize(forms * size);
  for (int64_t f = 0; f < forms; f++) {
    const double* from = in.edge + table[f] * L * L;
    double *score = exact_.data() + f * L * L, *made = table_.data() + f * size, *made_t = table_t_.data() + f * size;
    double top = -INFINITY, low = INFINITY;
    for (int64_t k = 0; k < L * L; k++) {
      score[k] = from[k] / weight[f];
      top = std::max(top, score[k]);
      low = std::min(low, score[k]);
    }
    if (spreads) spread_[f] = top - low;
    shift_[f] = top == -INFINITY ? 0.0 : top;
    for (int64_t i = 0; i < L; i++) {
      double *row = made + i * stride_, *row_t = made_t + i * stride_;
      for (int64_t j = 0; j < L; j++) row[j] = score[i * L + j], row_t[j] = score[j * L + i];
      // Padding repeats the first label: see contract.hpp.
      for (int64_t j = L; j < stride_; j++) row[j] = row[0], row_t[j] = row_t[0];
    }
    if (!maximise) {
      kernels_->exponentiate(size, made, shift_[f], made);
      kernels_->exponentiate(size, made_t, shift_[f], made_t);
    }
  }
  message_.resize(2 * in.edges * stride_);
  local_.resize(in.nodes * stride_);
  belief_.resize(in.nodes * stride_);
}

View Wiring::view() {
  View v;
  v.labels = (int)in_.labels;
  v.stride = stride_;
  v.maximise = maximise_;
  v.tail = near_.tail.data();
  v.head = near_.head.data();
  v.form = form_.data();
  v.rho = in_.rho;
  v.indptr = near_.indptr.data();
  v.into = near_.into.data();
  v.table = table_.data();
  v.table_t = table_t_.data();
  v.shift = shift_.data();
  v.exact = exact_.data();
  v.message = message_.data();
  v.local = local_.data();
  v.belief = belief_.data();
  return v;
}

bool Wiring::calm(int64_t first_node, int64_t last_node) const {
  for (int64_t n = first_node; n < last_node; n++) {
    double sum = 0;
    for (int64_t k = near_.indptr[n]; k < near_.indptr[n + 1]; k++) sum += spread_[form_[near_.into[k] >> 1]];
    const double* row = in_.node + n * in_.labels;
    double top = -INFINITY;
    for (int64_t j = 0; j < in_.labels; j++) top = std::max(top, row[j]);
    if (!(sum <= CALM) || !std::isfinite(top)) return false;
  }
  return true;
}

void Wiring::load_nodes(int64_t first, int64_t last, bool probabilities) {
  const int64_t L = in_.labels;
  for (int64_t n = first; n < last; n++) {
    const double* from = in_.node + n * L;
    double* to = local_.data() + n * stride_;
    std::memcpy(to, from, sizeof(double) * L);
    for (int64_t j = L; j < stride_; j++) to[j] = -INFINITY;
    if (!probabilities) continue;
    double top = from[0];
    for (int64_t j = 1; j < L; j++) top = std::max(top, from[j]);
    kernels_->exponentiate(stride_, to, top, to);
  }
}

void Wiring::load_messages(const double* from, int64_t first_edge, int64_t last_edge) {
  const int64_t L = in_.labels;
  for (int64_t m = 2 * first_edge; m < 2 * last_edge; m++) {
    double* to = message_.data() + m * stride_;
    std::memcpy(to, from + (2 * handed_in(m >> 1) + (m & 1)) * L, sizeof(double) * L);
    for (int64_t j = L; j < stride_; j++) to[j] = to[0];
  }
}

void Wiring::store_messages(double* to, int64_t first_edge, int64_t last_edge) const {
  const int64_t L = in_.labels;
  for (int64_t m = 2 * first_edge; m < 2 * last_edge; m++)
    std::memcpy(to + (2 * handed_in(m >> 1) + (m & 1)) * L, message_.data() + m * stride_, sizeof(double) * L);
}

}  // namespace graph
}  // namespace crfield
