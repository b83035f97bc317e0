// What the levelled sources offer to the batches: plain structures and one table of functions per level.
//
// A row of scores holds `stride` doubles, L labels padded with -inf to whole vectors. Levelled sources call no function
// template of the standard library: see native/chain/contract.hpp.
#pragma once
#include <cstdint>

#include "level.hpp"

namespace crfield {
namespace segments {

// Edge scores spread over less than this (in nats) may be used as probabilities: what falls below 1e-308 then weighs
// at most L e^(300 - 708) of the sum that it is missing from.
constexpr double SAFE_SPREAD = 300.0;

// One table for all edges, padded, with all that the recursion needs of it; or where the table of each edge lies.
struct Edges {
  const double* log = nullptr;     // (L, stride), padding -inf; null: each edge has its own
  const double* prob = nullptr;    // (L, stride) exp(log - shift), padding 0; used when safe
  double shift = 0;                // largest score
  bool safe = false;               // finite, spread over less than SAFE_SPREAD
  const double* each = nullptr;    // (T - 1, L, L) of this sequence, labels as the caller numbers them
  const int32_t* order = nullptr;  // (L) the caller's label at each place of a row
};

// One sequence on its way through the recursion.
struct Sweep {
  int64_t steps = 0;
  int labels = 0, stride = 0, most = 0;
  const int64_t* deep = nullptr;   // (vectors) the most steps of any label in a vector, not rising
  const int32_t* wide = nullptr;   // (D) how many vectors have labels that last so long
  double* score = nullptr;         // (T, D, stride) in: scores; out: probabilities; only as deep as vectors go
  double* onwards = nullptr;       // (T + 1, stride) scratch
  double* ending = nullptr;        // (T, stride) scratch
  double* into = nullptr;          // (T, stride) scratch
  double* start = nullptr;         // (T + 1, stride) scratch; out: probability that a segment begins here
  double* end = nullptr;           // (T, stride) out: probability that one ends here
  double* rise = nullptr;          // (T) scratch
  double* table = nullptr;         // (L, stride) scratch
  double factor = 1;               // how much the sequence counts in the next three
  double* counts = nullptr;        // (L, stride) += factor Σ, to be multiplied by prob: of a safe table
  double* direct = nullptr;        // (L, stride) += factor Σ expected pairs: of any other shared table
  double* each_out = nullptr;      // (T - 1, L, L) = factor · expected pairs, labels as the caller numbers them
};

// One sequence of parts; all arrays begin at its first step. Parts that are not there are null. Rows are in the order
// of the sweep, padded with zeros.
struct Own {
  int64_t steps = 0;
  int labels = 0, stride = 0, most = 0;
  const int32_t* wide = nullptr;   // (D) how many vectors have labels that last so long
  const int32_t* place = nullptr;  // (L) where a label stands in a row
  const double *node = nullptr, *first = nullptr, *last = nullptr, *mean = nullptr;  // (T, stride)
  const double* length = nullptr;  // (D, stride), -inf beyond the limits
  const int64_t* ptr = nullptr;    // (T + 1) places of marks
  const int32_t *mark_steps = nullptr, *item = nullptr, *item_label = nullptr;
  const int64_t* item_ptr = nullptr;
  const double* weight = nullptr;
  double factor = 1;
  double *node_out = nullptr, *mean_out = nullptr;  // (T, stride) +=
  double* length_out = nullptr;    // (D, stride) +=
  double* weight_out = nullptr;    // (F) +=
  double* spare = nullptr;         // (2, stride) scratch
};

// One sequence on its way through the recursion in products (products.cpp): no score of a segment is written down. Rows
// are in the order of `from`, padded with zeros; all arrays begin at its first step.
struct Products {
  int64_t steps = 0;
  int labels = 0, stride = 0, most = 0;
  const int32_t *from = nullptr, *deep = nullptr;  // (vectors) the lengths d - 1 in [from, deep) that a vector has
  const double* least = nullptr;   // (stride) the fewest steps of a label; padding: infinity
  const int32_t* place = nullptr;  // (L) where a label stands in a row
  const double *node = nullptr, *first = nullptr, *last = nullptr;  // (T, stride); first and last may be null
  const double* length = nullptr;  // (D, stride) exp(score - length_top), 0 for lengths that a label does not have
  double length_top = 0;
  const double* prob = nullptr;    // (L, stride) exp(edge - edge_top), 0 where forbidden
  const double* prob_back = nullptr;  // its transpose
  double edge_top = 0;
  const int64_t* ptr = nullptr;    // (T + 1) places of marks
  const int32_t *mark_steps = nullptr, *item = nullptr, *item_label = nullptr;
  const int64_t* item_ptr = nullptr;
  const double* weight = nullptr;
  double factor = 1;               // how much the sequence counts in what is added up
  double* window = nullptr;        // (room, stride) scratch: segments that began, one block of steps after the other
  int64_t room = 0;
  int64_t* base = nullptr;         // (T) scratch: the segments that began with m lie in row base[n] + m for ends n
  double *ending = nullptr, *into = nullptr, *inverse = nullptr, *share = nullptr, *pushed = nullptr;  // (T, stride)
  double* marked = nullptr;        // (steps with marks, D, stride) scratch: lengths with the marks of a step
  double* spare = nullptr;         // (3, stride) scratch
  double *start = nullptr, *end = nullptr, *inside = nullptr;  // (T, stride) out: probabilities
  double* lengths = nullptr;       // (D, stride) += factor Σ, to be multiplied by length
  double* lengths_marked = nullptr;  // (D, stride) += factor Σ probabilities, of steps with marks
  double* counts = nullptr;        // (L, stride) += factor Σ, to be multiplied by prob
  double* weight_out = nullptr;    // (F) +=
};

struct Kernels {
  int level, lanes;
  double (*sum)(const Edges&, const Sweep&);                                // total
  double (*best)(const Edges&, const Sweep&, int32_t* length, int32_t* label, int32_t* longest, int32_t* before);
  void (*expand)(const Own&, double* score);                                // (T, D, stride)
  void (*collect)(const Own&, const Sweep&);
  void (*exponentiate)(int64_t n, const double* x, double shift, double* out);
  double (*products)(const Products&);                                      // total; NaN: to be done in logs
};

CRFIELD_OPTIONAL const Kernels* kernels_level0();
CRFIELD_OPTIONAL const Kernels* kernels_level2();
CRFIELD_OPTIONAL const Kernels* kernels_level3();
CRFIELD_OPTIONAL const Kernels* kernels_level4();

}  // namespace segments
}  // namespace crfield
