// Pseudo-likelihood in three streams: gold neighbours are added to the node scores edge by edge, rows become
// probabilities a block at a time, and what is left over goes back to the tables edge by edge.
//
// Edges are read as they lie, not by node: both ends of an edge are usually near each other, and no list of
// neighbours need be made or read. The gradient's own memory holds the local scores in between. One logarithm serves
// many rows: their sums lie in [1, L], so the product of a few hundred of them is taken first.
#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "at_level.hpp"
#include "sites/field.hpp"
#include "sites/softmax.hpp"

namespace crfield {
namespace sites {
namespace {

constexpr double INFINITE = std::numeric_limits<double>::infinity();

Exponentiate exponentiate() {
#if defined(CRFIELD_X86)
  return at_level(level2::exponentiate_rows, level3::exponentiate_rows, level4::exponentiate_rows);
#else
  return level0::exponentiate_rows;
#endif
}

bool counts(const Gold& g, int64_t n) { return !g.weight || g.weight[n] != 0; }

// Σ weight log(sum), with the logarithm of a product wherever rows of one weight follow each other.
class LogSums {
 public:
  void add(double weight, double sum) {
    if (weight != weight_ || product_ > 1e200) flush();
    weight_ = weight;
    product_ *= sum;
  }
  double total() {
    flush();
    return total_;
  }

 private:
  void flush() {
    if (product_ != 1.0) total_ += weight_ * std::log(product_);
    product_ = 1.0;
  }
  double weight_ = 0.0, product_ = 1.0, total_ = 0.0;
};

// scores[tail] += table[:, y_head] and scores[head] += table[y_tail, :]
template <int LABELS>
void gather(const Gold& g, double* scores) {
  const int64_t labels = LABELS ? LABELS : g.labels;
  for (int64_t e = 0; e < g.edges; e++) {
    const int64_t tail = g.tails[e], head = g.heads[e];
    const int64_t i = g.label[tail], j = g.label[head];
    const double* table = g.edge + g.table[e] * labels * labels;
    if (j >= 0)
      for (int64_t l = 0; l < labels; l++) scores[tail * labels + l] += table[l * labels + j];
    if (i >= 0)
      for (int64_t l = 0; l < labels; l++) scores[head * labels + l] += table[i * labels + l];
  }
}

// to_tails[table][:, y_head] += p[tail] and to_heads[table][y_tail, :] += p[head]. Neighbouring edges often add to the
// same few places, and each waits for the one before: even and odd edges have places of their own.
template <int LABELS>
void scatter(const Gold& g, double* const* to_tails, double* const* to_heads) {
  const int64_t labels = LABELS ? LABELS : g.labels;
  const double* p = g.node_gradient;
  for (int64_t e = 0; e < g.edges; e++) {
    const int64_t tail = g.tails[e], head = g.heads[e];
    const int64_t i = g.label[tail], j = g.label[head], at = g.table[e] * labels * labels;
    if (j >= 0) {
      double* out = to_tails[e & 1] + at + j;
      for (int64_t l = 0; l < labels; l++) out[l * labels] += p[tail * labels + l];
    }
    if (i >= 0) {
      double* out = to_heads[e & 1] + at + i * labels;
      for (int64_t l = 0; l < labels; l++) out[l] += p[head * labels + l];
    }
  }
}

template <int LABELS>
void pull_back(const Gold& g) {
  constexpr int64_t SMALL = 4096;
  const int64_t size = g.tables * g.labels * g.labels;
  if (size > SMALL) {
    double* both[2] = {g.edge_gradient, g.edge_gradient};
    scatter<LABELS>(g, both, both);
    return;
  }
  std::vector<double> copies(4 * size, 0.0);
  double* to_tails[2] = {copies.data(), copies.data() + size};
  double* to_heads[2] = {copies.data() + 2 * size, copies.data() + 3 * size};
  scatter<LABELS>(g, to_tails, to_heads);
  for (int64_t k = 0; k < size; k++)
    g.edge_gradient[k] += (to_tails[0][k] + to_tails[1][k]) + (to_heads[0][k] + to_heads[1][k]);
}

// Log of the sum of exp over the allowed labels, whose probabilities go to `p`; -inf and zeros where none is possible.
double clamp(const double* scores, const uint8_t* allowed, int64_t labels, double* p) {
  double top = -INFINITE, sum = 0.0;
  for (int64_t l = 0; l < labels; l++) {
    p[l] = allowed[l] ? scores[l] : -INFINITE;
    top = p[l] > top ? p[l] : top;
  }
  if (top == -INFINITE) {
    std::fill(p, p + labels, 0.0);
    return top;
  }
  for (int64_t l = 0; l < labels; l++) sum += p[l] = std::exp(p[l] - top);
  for (int64_t l = 0; l < labels; l++) p[l] /= sum;
  return top + std::log(sum);
}

// Rows of local scores to rows of the gradient; the value of the rows comes back.
template <int LABELS>
double rows_to_gradient(const Gold& g) {
  const int64_t labels = LABELS ? LABELS : g.labels;
  const Exponentiate exponentiate_rows = exponentiate();
  std::vector<double> tops(ROWS), sums(ROWS), gold(ROWS), clamped(g.allowed ? ROWS * labels : 0);
  LogSums logs;
  double value = 0.0;
  for (int64_t first = 0; first < g.nodes; first += ROWS) {
    const int64_t rows = std::min(ROWS, g.nodes - first);
    double* scores = g.node_gradient + first * labels;
    for (int64_t r = 0; r < rows; r++) {
      const int64_t y = g.label[first + r];
      if (y >= 0)
        gold[r] = scores[r * labels + y];
      else
        gold[r] = g.allowed ? clamp(scores + r * labels, g.allowed + (first + r) * labels, labels,
                                    clamped.data() + r * labels)
                            : 0.0;
    }
    exponentiate_rows(rows, labels, scores, tops.data(), sums.data());
    for (int64_t r = 0; r < rows; r++) {
      const int64_t y = g.label[first + r];
      const double weight = g.weight ? g.weight[first + r] : 1.0;
      double* row = scores + r * labels;
      if (weight == 0 || gold[r] == -INFINITE) {
        if (weight != 0) value += weight * INFINITE;
        for (int64_t l = 0; l < labels; l++) row[l] = 0.0;
        continue;
      }
      const double part = weight / sums[r];
      for (int64_t l = 0; l < labels; l++) row[l] *= part;
      if (y >= 0) {
        row[y] -= weight;
        value += weight * (tops[r] - gold[r]);
        logs.add(weight, sums[r]);
      } else {
        for (int64_t l = 0; l < labels; l++) row[l] -= weight * clamped[r * labels + l];
        value += weight * std::max(0.0, tops[r] + std::log(sums[r]) - gold[r]);
      }
    }
  }
  return value + logs.total();
}

template <int LABELS>
double evaluate(const Gold& g) {
  std::copy(g.node, g.node + g.nodes * g.labels, g.node_gradient);
  gather<LABELS>(g, g.node_gradient);
  const double value = rows_to_gradient<LABELS>(g);
  pull_back<LABELS>(g);
  return value;
}

void check(const Gold& g) {
  for (int64_t e = 0; e < g.edges; e++)
    if ((uint64_t)g.tails[e] >= (uint64_t)g.nodes || (uint64_t)g.heads[e] >= (uint64_t)g.nodes ||
        (uint64_t)g.table[e] >= (uint64_t)g.tables)
      throw std::invalid_argument("an edge names a node or a table that there is not");
  bool unknown = false;
  for (int64_t n = 0; n < g.nodes; n++) {
    if (g.label[n] < -1 || g.label[n] >= g.labels) throw std::invalid_argument("a label is out of range");
    unknown |= g.label[n] < 0;
  }
  if (!unknown) return;
  for (int64_t n = 0; n < g.nodes && !g.allowed; n++)
    if (g.label[n] < 0 && counts(g, n))
      throw std::invalid_argument("unknown labels (-1) need the table of what is allowed");
  for (int64_t e = 0; e < g.edges; e++)
    if ((g.label[g.heads[e]] < 0 && counts(g, g.tails[e])) || (g.label[g.tails[e]] < 0 && counts(g, g.heads[e])))
      throw std::invalid_argument("a node that counts is next to one whose label is unknown");
}

}  // namespace

double pseudo_likelihood(const Gold& gold) {
  check(gold);
  switch (gold.labels) {
    case 2: return evaluate<2>(gold);
    case 3: return evaluate<3>(gold);
    case 4: return evaluate<4>(gold);
    default: return evaluate<0>(gold);
  }
}

}  // namespace sites
}  // namespace crfield
