// Chains that remember more than one label; the contract is in src/crfield/kernels/tuples.py.
#pragma once
#include <cstdint>

#include "level.hpp"

namespace crfield {
namespace tuples {

constexpr int SIDE = 8;  // sequences side by side

// The edges: from state p the label y leads to after[p * labels + y].
struct Edges {
  int64_t states = 0, labels = 0;
  const int32_t* after = nullptr;  // (S, L)
  const int32_t* label = nullptr;  // (S)
  const double* log = nullptr;     // (S, L) scores
  const double* prob = nullptr;    // (S, L) exp(score - shift), 0 where forbidden or below 1e-308
  double shift = 0;
};

// Up to SIDE sequences, longest first. Scratch comes from outside.
struct Group {
  int width = 0;
  int64_t steps = 0;                     // of the longest
  int64_t first[SIDE] = {}, length[SIDE] = {};
  double factor[SIDE] = {}, total[SIDE] = {};  // total: out
  bool lost[SIDE] = {};                  // out: must be done in logarithms
  const double* node = nullptr;          // (N, L)
  double* belief = nullptr;              // (N, L) out, where not lost
  double* uses = nullptr;                // (S, L, SIDE) += factor * α v: times prob it is the expected number of uses
  double* alpha = nullptr;               // (steps, S, SIDE)
  double* psi = nullptr;                 // (steps, L, SIDE)
  double* inverse = nullptr;             // (steps, SIDE)
  double* spare = nullptr;               // 2 (S, SIDE) and (L, SIDE)
  uint8_t* alive = nullptr;              // 2 (S): a bit for each sequence
};

// One sequence in logarithms, for any scores; uses (S, L) gets expected numbers. Gives log Z.
double sum_in_logs(const Edges& e, const double* node, int64_t steps, double factor, double* belief, double* uses);
// The best labelling of one sequence and its score.
double best_in_logs(const Edges& e, const double* node, int64_t steps, int32_t* path);

void sum_product(const Edges& e, const int64_t* offsets, int64_t sequences, const double* node, const double* factor,
                 double* total, double* belief, double* uses, int n_jobs);
void max_product(const Edges& e, const int64_t* offsets, int64_t sequences, const double* node, double* total,
                 int32_t* path, int n_jobs);

}  // namespace tuples

#define CRFIELD_TUPLES(level)              \
  namespace level {                        \
  CRFIELD_OPTIONAL void sweep(const tuples::Edges& e, tuples::Group& g); \
  }
CRFIELD_TUPLES(level0)
CRFIELD_TUPLES(level2)
CRFIELD_TUPLES(level3)
CRFIELD_TUPLES(level4)
#undef CRFIELD_TUPLES

}  // namespace crfield
