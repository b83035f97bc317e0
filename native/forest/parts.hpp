// Parts of the sweeps over forests and cliques that their levelled sources share.
#pragma once
#include <cmath>
#include <limits>

#include "chain/exp.hpp"
#include "chain/tiles.hpp"
#include "forest/contract.hpp"
#include "level.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {

constexpr double INF = std::numeric_limits<double>::infinity();

// The trees of the set that are marked lost, in logs; see sweep_log.cpp.
void log_trees(const forest::Forest& f, const forest::TreeSet& set, const forest::ForestWork& w);

// high + low += x without loss (Knuth's two-sum): totals add up to 1e10 and more beside differences of order one.
inline void add_exactly(double x, double& high, double& low) {
  const double sum = high + x, back = sum - high;
  low += (high - (sum - back)) + (x - back);
  high = sum;
}

inline void gather_row(const forest::Forest& f, int64_t position, double* row) {
  const double* from = f.node_score + f.node[position] * f.labels;
  for (int j = 0; j < f.labels; j++) row[j] = from[j];
  for (int j = f.labels; j < f.stride; j++) row[j] = -INF;
}

// Scores of a position with its parent, all links added up: rows for the parent's label, padding -inf.
inline void fill_link(const forest::Forest& f, int64_t position, double* table) {
  const int64_t L = f.labels;
  for (int64_t i = 0; i < L; i++)
    for (int64_t j = 0; j < f.stride; j++) table[i * f.stride + j] = j < L ? 0.0 : -INF;
  for (int64_t k = f.link_ptr[position]; k < f.link_ptr[position + 1]; k++) {
    const int64_t e = f.link[k];
    const double* from = f.edge_score + f.table[e] * L * L;
    const bool turned = f.tails[e] == f.node[position];
    for (int64_t i = 0; i < L; i++)
      for (int64_t j = 0; j < L; j++) table[i * f.stride + j] += turned ? from[j * L + i] : from[i * L + j];
  }
}

// Add the marginals of a position with its parent (L, stride) to those of the tables of all its links.
inline void give_link(const forest::Forest& f, const forest::ForestWork& w, int64_t position, const double* pairs) {
  const int64_t L = f.labels;
  for (int64_t k = f.link_ptr[position]; k < f.link_ptr[position + 1]; k++) {
    const int64_t e = f.link[k], t = f.table[e];
    const bool turned = f.tails[e] == f.node[position], common = f.shared[t] >= 0;
    double* to = common ? w.direct + f.shared[t] * L * f.stride : f.edge_out + t * L * L;
    const int64_t step = common ? f.stride : L;
    for (int64_t i = 0; i < L; i++)
      for (int64_t j = 0; j < L; j++) to[turned ? j * step + i : i * step + j] += pairs[i * f.stride + j];
  }
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
