// Sum-product on trees in probabilities: up with products of messages, down with conditionals.
//
//   b_n = ψ_n ∘ Π_{children c} m_c / z_n         m_n(i) = Σ_j E(i, j) b_n(j)          log Z = Σ_n (log z_n + shifts)
//   p(y_n = j | i) = E(i, j) b_n(j) / m_n(i)     x_n(i) = p_parent(i) / m_n(i)
//   p_n(j) = b_n(j) Σ_i x_n(i) E(i, j)           p(i, j) = x_n(i) E(i, j) b_n(j)
//
// with ψ_n = exp(node_n - max), E = exp(edge - max) and i the label of n's parent. Every b sums to one, and so does
// every p without being made to. One exp per node score and none per edge that shares its table. Positions of one
// level are independent, and those that share a table are one matrix product.
//
// When is that exact? What falls below e^-708 is lost. Let R be the spread of an edge's scores, if all are finite.
// Then m_c(i) >= e^-R for each i, because b_c sums to one, and m_c <= 1. The label with ψ = 1 keeps a belief of
// e^-S at least, where S adds up R over all edges of the node; what is lost weighs at most L e^(S - 708) of it. With
// R <= 300 for each edge and S <= 600 that is nothing, however far the node scores spread. A node whose children add
// up to more than 300 (a `hub`) gathers logarithms of messages instead, which cannot be lost; then only the parent's
// message is still to come. So a tree of finite tables within 300 nats needs no further care.
//
// In other trees (forbidden pairs, a wider spread) a lost label may be the only one that can go on. Every label that
// is possible given all that lies below must have kept its weight, b and each m above 1e-200 before scaling; what
// products lost to the smallest numbers is then no part of them. This is followed label by label (`check_alive`),
// and a tree that fails is done again in logs.
#include "forest/parts.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {
namespace {

using forest::Forest;
using forest::ForestWork;
using forest::TreeSet;

constexpr double SAFE_SPREAD = 300.0, TINY = 1e-200;
constexpr double UNSAFE_WEIGHT = 40.0;  // what a table that is not safe adds to the spread below a node

inline bool ordinary(double x) { return x > 1e-100 && x < 1e100; }

// log Z is the logarithm of a product, taken now and then.
inline void multiply(double z, double& product, double& high, double& low) {
  if (!ordinary(z)) {
    add_exactly(std::log(z), high, low);
    return;
  }
  product *= z;
  if (!ordinary(product)) {
    add_exactly(std::log(product), high, low);
    product = 1;
  }
}

// psi = exp(score - max) in place; gives the maximum (0 for a row with nothing allowed)
inline double exponentiate_row(int vectors, double* p) {
  V top = load(p);
  for (int v = 1; v < vectors; v++) {
    const V x = load(p + v * LANES);
    top = x > top ? x : top;
  }
  double shift = max_lanes(top);
  if (shift == -INF) shift = 0;
  const V by = fill(shift);
  for (int v = 0; v < vectors; v++) store(p + v * LANES, exp_vector(load(p + v * LANES) - by));
  return shift;
}

// exp of a link's table in place; gives its largest score and sets its spread (+inf: some pair is forbidden)
double exponentiate_link(const Forest& f, double* table, double& spread) {
  double top = -INF, low = INF;
  for (int64_t i = 0; i < f.labels; i++)
    for (int64_t j = 0; j < f.labels; j++) {
      const double x = table[i * f.stride + j];
      top = x > top ? x : top;
      low = x < low ? x : low;
    }
  spread = low == -INF ? INF : top - low;
  if (top == -INF) top = 0;
  const V by = fill(top);
  for (int64_t k = 0; k < (int64_t)f.labels * f.stride; k += LANES)
    store(table + k, exp_vector(load(table + k) - by));
  return top;
}

// Tables of single use, which trees must be checked, which nodes are hubs; then ψ.
void prepare(const Forest& f, const TreeSet& set, const ForestWork& w) {
  const int64_t rows = set.last - set.first, size = (int64_t)f.labels * f.stride;
  int64_t own = 0;
  for (int64_t r = 0; r < rows; r++) {
    const int64_t p = set.first + r, up = f.parent[p];
    w.below[r] = 0;
    if (up < 0) {
      w.tree[r] = (int32_t)r;
      w.product[r] = 1;
      w.high[r] = w.low[r] = 0;
      w.checked[r] = w.lost[r] = 0;
      continue;
    }
    const int32_t tree = w.tree[r] = w.tree[up - set.first];
    double spread, shift;
    if (f.use[p] == forest::OWN) {
      w.slot[r] = own;
      double* table = w.own + own++ * size;
      fill_link(f, p, table);
      shift = exponentiate_link(f, table, spread);
    } else {
      shift = f.shift[f.use[p]];
      spread = f.spread[f.use[p]];
    }
    add_exactly(shift, w.high[tree], w.low[tree]);
    const bool safe = spread <= SAFE_SPREAD;
    if (!safe) w.checked[tree] = 1;
    w.below[up - set.first] += safe ? spread : UNSAFE_WEIGHT;
  }
  const int vectors = f.stride / LANES;
  // two loops: a vector read right after the scalars it is made of were written would wait for them
  for (int64_t r = 0; r < rows; r++) gather_row(f, set.first + r, w.b + r * f.stride);
  for (int64_t r = 0; r < rows; r++) {
    w.hub[r] = w.below[r] > SAFE_SPREAD;
    if (w.hub[r]) continue;
    add_exactly(exponentiate_row(vectors, w.b + r * f.stride), w.high[w.tree[r]], w.low[w.tree[r]]);
  }
}

// Positions from r on that share one table in one direction: the end of the run.
inline int64_t run_end(const Forest& f, int64_t p, int64_t stop) {
  int64_t q = p + 1;
  while (q < stop && f.use[q] == f.use[p] && f.turned[q] == f.turned[p]) q++;
  return q;
}

void scale(const Forest& f, const TreeSet& set, const ForestWork& w, int64_t begin, int64_t end) {
  const int vectors = f.stride / LANES;
  for (int64_t r = begin - set.first; r < end - set.first; r++) {
    double* b = w.b + r * f.stride;
    const int32_t tree = w.tree[r];
    if (w.hub[r]) add_exactly(exponentiate_row(vectors, b), w.high[tree], w.low[tree]);
    V sum = V{};
    for (int v = 0; v < vectors; v++) sum += load(b + v * LANES);
    const double z = sum_lanes(sum);
    const double inverse = z > 0 ? 1 / z : 0;
    w.inverse[r] = inverse;
    if (z > 0)
      multiply(z, w.product[tree], w.high[tree], w.low[tree]);
    else
      w.lost[tree] = 1;
    const V by = fill(inverse);
    for (int v = 0; v < vectors; v++) store(b + v * LANES, load(b + v * LANES) * by);
  }
}

// Messages of one level to their parents.
void send_up(const Forest& f, const TreeSet& set, const ForestWork& w, int64_t begin, int64_t end) {
  const int vectors = f.stride / LANES;
  const int64_t size = (int64_t)f.labels * f.stride;
  for (int64_t p = begin; p < end;) {
    const int64_t r = p - set.first;
    double* m = w.m + r * f.stride;
    if (f.use[p] != forest::OWN) {
      const int64_t q = run_end(f, p, end);
      const double* E = (f.turned[p] ? f.prob : f.prob_t) + f.use[p] * size;
      times_table(q - p, f.labels, f.stride, w.b + r * f.stride, E, m);
      p = q;
      continue;
    }
    const double *E = w.own + w.slot[r] * size, *b = w.b + r * f.stride;
    for (int i = 0; i < f.labels; i++) {
      V sum = V{};
      for (int v = 0; v < vectors; v++) sum += load(E + (int64_t)i * f.stride + v * LANES) * load(b + v * LANES);
      m[i] = sum_lanes(sum);
    }
    for (int i = f.labels; i < f.stride; i++) m[i] = 0;
    p++;
  }
  for (int64_t p = begin; p < end; p++) {
    const int64_t up = f.parent[p] - set.first;
    const double* m = w.m + (p - set.first) * f.stride;
    double* b = w.b + up * f.stride;
    if (w.hub[up])
      for (int i = 0; i < f.labels; i++) b[i] += std::log(m[i]);
    else
      for (int v = 0; v < vectors; v++) store(b + v * LANES, load(b + v * LANES) * load(m + v * LANES));
  }
}

// Follow which labels are possible given all that lies below; mark trees in which one of them lost its weight.
void check_alive(const Forest& f, const TreeSet& set, const ForestWork& w) {
  const int64_t rows = set.last - set.first, L = f.labels;
  bool any = false;
  for (int64_t r = 0; r < rows && f.parent[set.first + r] < 0; r++) any |= w.checked[r] && !w.lost[r];
  if (!any) return;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t j = 0; j < L; j++) w.alive[r * L + j] = f.node_score[f.node[set.first + r] * L + j] > -INF;
  for (int64_t r = rows - 1; r >= 0; r--) {
    const int32_t tree = w.tree[r];
    if (!w.checked[tree] || w.lost[tree]) continue;
    const int64_t p = set.first + r;
    const uint8_t* alive = w.alive + r * L;
    for (int64_t j = 0; j < L; j++)
      if (alive[j] && !(w.b[r * f.stride + j] > TINY * w.inverse[r])) w.lost[tree] = 1;
    if (f.parent[p] < 0) continue;
    fill_link(f, p, w.table);
    uint8_t* above = w.alive + (f.parent[p] - set.first) * L;
    for (int64_t i = 0; i < L; i++) {
      bool reached = false;
      for (int64_t j = 0; j < L && !reached; j++) reached = alive[j] && w.table[i * f.stride + j] > -INF;
      if (!reached)
        above[i] = 0;
      else if (above[i] && !(w.m[r * f.stride + i] > TINY))
        w.lost[tree] = 1;
    }
  }
}

// x_n of one level, then its marginals and those of its links.
void send_down(const Forest& f, const TreeSet& set, const ForestWork& w, int64_t begin, int64_t end) {
  const int vectors = f.stride / LANES;
  const int64_t size = (int64_t)f.labels * f.stride;
  for (int64_t p = begin; p < end; p++) {
    const double* above = w.b + (f.parent[p] - set.first) * f.stride;
    double* m = w.m + (p - set.first) * f.stride;
    for (int v = 0; v < vectors; v++) {
      const V message = load(m + v * LANES);
      const V x = load(above + v * LANES) / message;
      store(m + v * LANES, message > V{} ? x : V{});
    }
  }
  for (int64_t p = begin; p < end;) {
    const int64_t r = p - set.first;
    double *x = w.m + r * f.stride, *b = w.b + r * f.stride, *q = w.q + (p - begin) * f.stride;
    if (f.use[p] != forest::OWN) {
      const int64_t stop = run_end(f, p, end), n = stop - p;
      const double* E = (f.turned[p] ? f.prob_t : f.prob) + f.use[p] * size;
      times_table(n, f.labels, f.stride, x, E, q);
      double* counts = w.counts + f.use[p] * size;
      add_outer(n, f.labels, f.stride, f.turned[p] ? b : x, f.turned[p] ? x : b, counts);
      p = stop;
      continue;
    }
    const double* E = w.own + w.slot[r] * size;
    for (int v = 0; v < vectors; v++) store(q + v * LANES, V{});
    for (int i = 0; i < f.labels; i++) {
      const V by = fill(x[i]);
      for (int v = 0; v < vectors; v++) {
        const V y = by * load(E + (int64_t)i * f.stride + v * LANES);
        store(q + v * LANES, load(q + v * LANES) + y);
        store(w.table + (int64_t)i * f.stride + v * LANES, y * load(b + v * LANES));
      }
    }
    give_link(f, w, p, w.table);
    p++;
  }
  for (int64_t p = begin; p < end; p++) {
    double* b = w.b + (p - set.first) * f.stride;
    const double* q = w.q + (p - begin) * f.stride;
    for (int v = 0; v < vectors; v++) store(b + v * LANES, load(b + v * LANES) * load(q + v * LANES));
  }
}

}  // namespace

void sum_set(const Forest& f, const TreeSet& set, const ForestWork& w) {
  const int64_t rows = set.last - set.first;
  prepare(f, set, w);
  for (int64_t k = set.level_last - 1; k >= set.level; k--) {
    scale(f, set, w, f.level[k], f.level[k + 1]);
    if (k > set.level) send_up(f, set, w, f.level[k], f.level[k + 1]);
  }
  check_alive(f, set, w);
  bool any = false;
  for (int64_t r = 0; r < rows && f.parent[set.first + r] < 0; r++) {
    const int64_t p = set.first + r;
    add_exactly(std::log(w.product[r]), w.high[r], w.low[r]);
    f.tree_total[p] = w.high[r] + w.low[r];
    if (f.dead[f.node[p]]) w.lost[r] = 2;
    any |= w.lost[r] != 0;
  }
  // a lost tree takes no part in what follows
  for (int64_t r = 0; any && r < rows; r++)
    if (w.lost[w.tree[r]])
      for (int j = 0; j < f.stride; j++) w.b[r * f.stride + j] = w.m[r * f.stride + j] = 0;
  for (int64_t k = set.level + 1; k < set.level_last; k++) send_down(f, set, w, f.level[k], f.level[k + 1]);
  if (any) log_trees(f, set, w);
  for (int64_t r = 0; r < rows; r++) {
    double* to = f.node_out + f.node[set.first + r] * f.labels;
    for (int j = 0; j < f.labels; j++) to[j] = w.b[r * f.stride + j];
  }
}

void exponentiate(int64_t n, const double* x, double shift, double* out) {
  const V by = fill(shift);
  int64_t k = 0;
  for (; k + LANES <= n; k += LANES) store(out + k, exp_vector(load(x + k) - by));
  for (; k < n; k++) out[k] = exp_one(x[k] - shift);
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
