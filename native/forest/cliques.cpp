// Sums and maxima over cliques, one component at a time.
//
//   up      T_k = node_k + Σ edges + Σ messages of children      μ_k = log Σ_{label of k} exp T_k
//   down    p_k = p(scope of k) exp(T_k - μ_k)                   p(scope of k) summed out of the parent's p
//
// exp(T_k - μ_k) is the probability of k's label given its scope: it is formed on the way up, takes the place of T_k
// and needs no division on the way down. Messages are shifted to a maximum of zero, the shifts add up to log Z.
//
// A table is built axis by axis from the fastest (k itself) to the slowest. An edge to axis a is added when that axis
// is, a child's message when its slowest axis is: so all but the last steps work on small tables and a clique costs
// little more than its own size, whatever number of edges it has. Marginals are taken the same way backwards.
#include "forest/parts.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {
namespace {

using forest::Cliques;
using forest::CliqueWork;

// How a table over some positions lies within one over more of them, both falling.
struct Layout {
  int dims = 0;                       // outer axes of the larger table
  int64_t size[forest::WIDEST + 2];   // their sizes
  int64_t step[forest::WIDEST + 2];   // distance in the smaller table, 0 for an axis that it lacks
  int64_t block = 1, outer = 1;       // fastest entries that both have in common; number of such blocks
};

// axes (n) of the larger table from slow to fast, part (m) those of the smaller; both end in the same position
void lay_out(const Cliques& c, const int64_t* axes, int64_t n, const int64_t* part, int64_t m, Layout& out) {
  out.block = out.outer = 1;
  int64_t a = n - 1, b = m - 1;
  while (a >= 0 && b >= 0 && axes[a] == part[b]) {
    out.block *= c.size[axes[a]];
    a--, b--;
  }
  out.dims = (int)(a + 1);
  int64_t step = out.block;
  for (; a >= 0; a--) {
    out.size[a] = c.size[axes[a]];
    out.outer *= out.size[a];
    out.step[a] = 0;
    if (b >= 0 && axes[a] == part[b]) {
      out.step[a] = step;
      step *= out.size[a];
      b--;
    }
  }
}

// larger += smaller, repeated over what the smaller lacks (OUT = false), or smaller += larger, summed (OUT = true)
template <bool OUT>
void combine(const Layout& l, double* larger, double* smaller) {
  int64_t index[forest::WIDEST + 2];
  for (int d = 0; d < l.dims; d++) index[d] = 0;
  int64_t at = 0;
  for (int64_t o = 0; o < l.outer; o++) {
    double *x = larger + o * l.block, *y = smaller + at;
    int64_t k = 0;
    for (; k + LANES <= l.block; k += LANES) {
      const V sum = load(x + k) + load(y + k);
      store(OUT ? y + k : x + k, sum);
    }
    for (; k < l.block; k++) (OUT ? y[k] : x[k]) = x[k] + y[k];
    for (int d = l.dims - 1; d >= 0; d--) {
      at += l.step[d];
      if (++index[d] < l.size[d]) break;
      at -= l.step[d] * l.size[d];
      index[d] = 0;
    }
  }
}

// The positions of clique k from slow to fast: its scope, then k.
inline int64_t axes_of(const Cliques& c, int64_t k, int64_t* axes) {
  const int64_t depth = c.scope_ptr[k + 1] - c.scope_ptr[k];
  for (int64_t a = 0; a < depth; a++) axes[a] = c.scope[c.scope_ptr[k] + a];
  axes[depth] = k;
  return depth;
}

// Score of listed edge q of clique k between label i of the other end and label j of k.
struct EdgeView {
  const double* score;
  const int32_t *row, *column;  // labels of the other end and of k
  int64_t row_step, column_step;
  double at(int64_t i, int64_t j) const { return score[row[i] * row_step + column[j] * column_step]; }
};

inline EdgeView view_of(const Cliques& c, int64_t k, int64_t q, const double* tables) {
  const int64_t L = c.labels, other = c.scope[c.scope_ptr[k] + c.axis[q]];
  const bool tail = c.is_tail[q];
  return {tables, c.label + c.label_ptr[c.node[other]], c.label + c.label_ptr[c.node[k]], tail ? 1 : L, tail ? L : 1};
}

// x (length) += row (n) again and again; `pattern` holds n * LANES doubles
void add_rows(int64_t length, int64_t n, const double* from, const double* row, double* pattern, double* x) {
  int64_t k = 0;
  if (length >= 2 * n * LANES) {
    for (int64_t r = 0; r < LANES; r++)
      for (int64_t j = 0; j < n; j++) pattern[r * n + j] = row[j];
    for (; k + n * LANES <= length; k += n * LANES)
      for (int64_t j = 0; j < n * LANES; j += LANES) store(x + k + j, load(from + k + j) + load(pattern + j));
  }
  for (; k < length; k += n)
    for (int64_t j = 0; j < n; j++) x[k + j] = from[k + j] + row[j];
}

// row (n) = Σ of the rows of x (length)
void sum_rows(int64_t length, int64_t n, const double* x, double* pattern, double* row) {
  for (int64_t j = 0; j < n; j++) row[j] = 0;
  int64_t k = 0;
  if (length >= 2 * n * LANES) {
    for (int64_t j = 0; j < n * LANES; j += LANES) store(pattern + j, V{});
    for (; k + n * LANES <= length; k += n * LANES)
      for (int64_t j = 0; j < n * LANES; j += LANES) store(pattern + j, load(pattern + j) + load(x + k + j));
    for (int64_t r = 0; r < LANES; r++)
      for (int64_t j = 0; j < n; j++) row[j] += pattern[r * n + j];
  }
  for (; k < length; k += n)
    for (int64_t j = 0; j < n; j++) row[j] += x[k + j];
}

// T_k into `table`, from scores and the messages of children.
void build(const Cliques& c, int64_t k, const CliqueWork& w, double* table) {
  int64_t axes[forest::WIDEST + 2];
  const int64_t depth = axes_of(c, k, axes), n = c.size[k], L = c.labels;
  const int32_t* labels = c.label + c.label_ptr[c.node[k]];
  for (int64_t j = 0; j < n; j++) table[j] = c.node_score[c.node[k] * L + labels[j]];
  double *pairs = w.rows, *pattern = w.rows + L * L;
  int64_t length = n;
  Layout layout;
  for (int64_t a = depth;; a--) {
    if (a < depth) {
      const int64_t rows = c.size[axes[a]];
      bool linked = false;
      for (int64_t q = c.edge_ptr[k]; q < c.edge_ptr[k + 1]; q++) {
        if (c.axis[q] != a) continue;
        const EdgeView e = view_of(c, k, q, c.edge_score + c.table[c.edge[q]] * L * L);
        for (int64_t i = 0; i < rows; i++)
          for (int64_t j = 0; j < n; j++) pairs[i * n + j] = (linked ? pairs[i * n + j] : 0.0) + e.at(i, j);
        linked = true;
      }
      // the slowest label last in memory, so that the table so far is overwritten last
      for (int64_t i = rows - 1; i >= 0; i--) {
        double* to = table + i * length;
        if (linked)
          add_rows(length, n, table, pairs + i * n, pattern, to);
        else if (i)
          for (int64_t x = 0; x < length; x++) to[x] = table[x];
      }
      length *= rows;
    }
    for (int64_t q = c.child_ptr[k]; q < c.child_ptr[k + 1]; q++) {
      const int64_t child = c.child[q], *scope = c.scope + c.scope_ptr[child];
      if (scope[0] != axes[a]) continue;
      lay_out(c, axes + a, depth + 1 - a, scope, c.scope_ptr[child + 1] - c.scope_ptr[child], layout);
      combine<false>(layout, table, w.message + c.message_at[child]);
    }
    if (a == 0) break;
  }
}

// T -> exp(T - μ), μ = log Σ_j exp T; N is the number of labels where it is known to the compiler
template <int N>
void condition(int64_t entries, int64_t n_, double* table, double* message) {
  const int64_t n = N ? N : n_;
  for (int64_t s = 0; s < entries; s++) {
    double top = table[s * n];
    for (int64_t j = 1; j < n; j++) top = table[s * n + j] > top ? table[s * n + j] : top;
    message[s] = top;
    if (top == -INF) top = 0;
    for (int64_t j = 0; j < n; j++) table[s * n + j] -= top;
  }
  int64_t x = 0;
  for (; x + LANES <= entries * n; x += LANES) store(table + x, exp_vector(load(table + x)));
  for (; x < entries * n; x++) table[x] = exp_one(table[x]);
  for (int64_t s = 0; s < entries; s++) {
    if (message[s] == -INF) continue;
    double sum = 0;
    for (int64_t j = 0; j < n; j++) sum += table[s * n + j];
    message[s] += std::log(sum);
    const double by = 1 / sum;
    for (int64_t j = 0; j < n; j++) table[s * n + j] *= by;
  }
}

// Shift a message to a maximum of zero; gives what it was shifted by.
double shift_message(int64_t entries, double* message) {
  double top = -INF;
  for (int64_t s = 0; s < entries; s++) top = message[s] > top ? message[s] : top;
  if (top != -INF)
    for (int64_t s = 0; s < entries; s++) message[s] -= top;
  return top;
}

// Node and edge marginals of clique k from its p; spare is overwritten.
void give(const Cliques& c, int64_t k, const CliqueWork& w, const double* p) {
  const int64_t depth = c.scope_ptr[k + 1] - c.scope_ptr[k], n = c.size[k], L = c.labels;
  double *pattern = w.rows + L * L, *row = pattern + L * 8;
  int64_t length = c.entries[k] * n;
  for (int64_t a = 0; a < depth; a++) {
    const int64_t rows = c.size[c.scope[c.scope_ptr[k] + a]];
    length /= rows;
    bool linked = false;
    for (int64_t q = c.edge_ptr[k]; q < c.edge_ptr[k + 1]; q++) {
      if (c.axis[q] != a) continue;
      if (!linked)
        for (int64_t i = 0; i < rows; i++) {
          sum_rows(length, n, p + i * length, pattern, row);
          for (int64_t j = 0; j < n; j++) w.rows[i * n + j] = row[j];
        }
      linked = true;
      const int64_t t = c.table[c.edge[q]];
      double* to = c.shared[t] >= 0 ? w.direct + c.shared[t] * L * L : c.edge_out + t * L * L;
      const EdgeView e = view_of(c, k, q, to);
      for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++) to[e.row[i] * e.row_step + e.column[j] * e.column_step] += w.rows[i * n + j];
    }
    if (rows == 1) continue;
    for (int64_t x = 0; x < length; x++) w.spare[x] = p[x];
    for (int64_t i = 1; i < rows; i++) {
      const double* from = p + i * length;
      int64_t x = 0;
      for (; x + LANES <= length; x += LANES) store(w.spare + x, load(w.spare + x) + load(from + x));
      for (; x < length; x++) w.spare[x] += from[x];
    }
    p = w.spare;
  }
  const int32_t* labels = c.label + c.label_ptr[c.node[k]];
  for (int64_t j = 0; j < n; j++) c.node_out[c.node[k] * L + labels[j]] = p[j];
}

}  // namespace

double sum_cliques(const Cliques& c, int64_t first, int64_t last, const CliqueWork& w) {
  double high = 0, low = 0;
  for (int64_t k = first; k < last; k++) {
    double *table = w.table + c.table_at[k], *message = w.message + c.message_at[k];
    build(c, k, w, table);
    switch (c.size[k]) {
      case 1: condition<1>(c.entries[k], 1, table, message); break;
      case 2: condition<2>(c.entries[k], 2, table, message); break;
      case 3: condition<3>(c.entries[k], 3, table, message); break;
      case 4: condition<4>(c.entries[k], 4, table, message); break;
      default: condition<0>(c.entries[k], c.size[k], table, message);
    }
    const double top = shift_message(c.entries[k], message);
    if (top == -INF) return -INF;
    add_exactly(top, high, low);
  }
  Layout layout;
  int64_t axes[forest::WIDEST + 2];
  for (int64_t k = last - 1; k >= first; k--) {
    double* p = w.table + c.table_at[k];
    const int64_t depth = c.scope_ptr[k + 1] - c.scope_ptr[k], n = c.size[k];
    if (depth) {
      const int64_t* scope = c.scope + c.scope_ptr[k];
      const int64_t upper = scope[depth - 1];
      const int64_t above = axes_of(c, upper, axes);
      double* weight = w.message + c.message_at[k];  // the message has done its work
      for (int64_t s = 0; s < c.entries[k]; s++) weight[s] = 0;
      lay_out(c, axes, above + 1, scope, depth, layout);
      combine<true>(layout, w.table + c.table_at[upper], weight);
      for (int64_t s = 0; s < c.entries[k]; s++)
        for (int64_t j = 0; j < n; j++) p[s * n + j] *= weight[s];
    }
    give(c, k, w, p);
  }
  return high + low;
}

double best_cliques(const Cliques& c, int64_t first, int64_t last, const CliqueWork& w) {
  double high = 0, low = 0;
  bool possible = true;
  for (int64_t k = first; k < last; k++) {
    double* message = w.message + c.message_at[k];
    int32_t* back = w.back + c.message_at[k];
    build(c, k, w, w.spare);
    const int64_t n = c.size[k];
    for (int64_t s = 0; s < c.entries[k]; s++) {
      const double* x = w.spare + s * n;
      int64_t best = 0;
      for (int64_t j = 1; j < n; j++)
        if (x[j] > x[best]) best = j;
      message[s] = x[best];
      back[s] = (int32_t)best;
    }
    const double top = shift_message(c.entries[k], message);
    possible &= top != -INF;
    if (possible) add_exactly(top, high, low);
  }
  for (int64_t k = last - 1; k >= first; k--) {
    int64_t at = 0;
    for (int64_t q = c.scope_ptr[k]; q < c.scope_ptr[k + 1]; q++) at = at * c.size[c.scope[q]] + w.place[c.scope[q] - first];
    w.place[k - first] = w.back[c.message_at[k] + at];
    c.best[c.node[k]] = c.label[c.label_ptr[c.node[k]] + w.place[k - first]];
  }
  return possible ? high + low : -INF;
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
