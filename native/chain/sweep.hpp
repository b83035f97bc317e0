// Parts of the sum-product recursion shared by its sources.
#pragma once
#include <cmath>
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

// Sequences side by side, where that is better: see side_by_side.cpp
bool fits_side(const EdgeTable& t, const Sweep& s);
void sweep_side_by_side(const EdgeTable& t, Sweep& s);

inline double top_of_row(int vectors, const double* p) {
  V top = load(p);
  for (int v = 1; v < vectors; v++) {
    const V x = load(p + v * LANES);
    top = x > top ? x : top;
  }
  return max_lanes(top);
}

// psi = exp(score - top) in place
inline void exponentiate_below(int vectors, double* p, double top) {
  const V by = fill(top);
  for (int v = 0; v < vectors; v++) store(p + v * LANES, exp_vector(load(p + v * LANES) - by));
}

// psi = exp(score - max) in place; gives the maximum (0 for a row with nothing allowed)
inline double exponentiate_row(int vectors, double* p) {
  double shift = top_of_row(vectors, p);
  if (shift == -INF) shift = 0;
  exponentiate_below(vectors, p, shift);
  return shift;
}

// log Z is the logarithm of a product, taken now and then: often enough that the product never leaves the range in
// which doubles have all their digits.
inline bool ordinary(double x) { return x > 1e-100 && x < 1e100; }

inline void multiply(double z, double& product, double& log_part) {
  if (!ordinary(z)) {
    log_part += std::log(z);
    return;
  }
  product *= z;
  if (!ordinary(product)) {
    log_part += std::log(product);
    product = 1;
  }
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
