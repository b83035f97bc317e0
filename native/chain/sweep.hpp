// Parts of the sum-product recursion shared by its sources.
#pragma once
#include <limits>

#include "chain/contract.hpp"
#include "chain/exp.hpp"
#include "chain/tiles.hpp"
#include "level.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {

constexpr double INF = std::numeric_limits<double>::infinity();

// One sequence of the group by the log recursion: beliefs into s.belief, total into s.total[b], expectations to
// s.direct (shared table) or source->take. `score` holds the untouched scores.
void log_sequence(const EdgeTable* table, const EdgeSource* source, int64_t first_edge, Sweep& s, int b,
                  const double* score);

// out (rows, stride) = A · prob, or A · probᵀ, with few weighted pairs
void times_sparse(const EdgeTable& t, bool transposed, int64_t rows, const double* A, double* out, double* spare);
// counts[p] += Σ_rows A_i B_j for the weighted pairs
void count_sparse(const EdgeTable& t, int64_t rows, const double* A, const double* B, double* spare, double* counts);

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

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
