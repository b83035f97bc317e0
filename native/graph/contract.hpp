// What the levelled sources offer to the schedules: one structure that describes a problem, one table of functions.
//
// A row holds `stride` doubles, the labels padded to whole vectors. Where a message is padded it repeats its first
// label, which changes neither its maximum nor its largest change; where node scores are padded they are -inf (or
// zero, as probabilities), so that sums over labels need no mask. Message 2 e goes to the head of edge e, message
// 2 e + 1 to its tail: the message that answers m is m ^ 1.
//
// Levelled sources call no function template of the standard library, see chain/contract.hpp.
#pragma once
#include <cstdint>

#include "level.hpp"

namespace crfield {
namespace graph {

// Below this a sum of weights at most one may have lost terms to the smallest numbers; above it, none that matter.
constexpr double LEAST = 1e-280;

// The change of messages in probabilities is followed as a ratio; ratios below this one count as one.
constexpr double LEAST_RATIO = 1.0 + 1.8e-15;

constexpr int MANY = 16;                  // messages that are made side by side
constexpr int SPARE_ROWS = 3 * MANY + 1;  // rows of scratch that the functions ask for

struct View {
  int labels = 0, stride = 0;
  bool maximise = false;
  const int32_t *tail = nullptr, *head = nullptr;  // (E)
  const int32_t* form = nullptr;                   // (E) which prepared table the edge uses
  const double* rho = nullptr;                     // (E) or null: all one
  const int64_t* indptr = nullptr;                 // (N + 1)
  const int32_t* into = nullptr;                   // (2 E) messages that arrive at each node, in the order of edges
  // Prepared tables (labels, stride) one after the other: by tail, and transposed. LOG: exp(score / rho - shift).
  // MAX: score / rho.
  const double *table = nullptr, *table_t = nullptr;
  const double* shift = nullptr;                   // LOG only
  const double* exact = nullptr;                   // (…, labels, labels) score / rho, not padded
  double* message = nullptr;                       // (2 E, stride)
  double* local = nullptr;                         // (N, stride) node scores, or their exp
  double* belief = nullptr;                        // (N, stride)
  int64_t table_size() const { return (int64_t)labels * stride; }
};

struct Kernels {
  int level, lanes;
  // belief = local times all messages that arrive, in probabilities; nodes [first, last)
  void (*products)(const View&, int64_t first, int64_t last);
  // New messages of edges [first, last) in place, in probabilities; the largest ratio of new and old.
  double (*edges_scaled)(const View&, int64_t first, int64_t last, double* spare);
  // The same in logs: belief = local + sum of rho message; new messages, damped; the largest change.
  void (*sums)(const View&, int64_t first, int64_t last);
  double (*edges_log)(const View&, int64_t first, int64_t last, double damping, double* spare);
  // Up to MANY messages in logs from the beliefs of the nodes that they leave, into rows `made`; their changes.
  void (*renew)(const View&, int count, const int64_t* message, double damping, double* made, double* change,
                double* spare);
  void (*to_probabilities)(int64_t rows, int stride, double* row);
  void (*to_logs)(int64_t rows, int stride, double* row);
  // Log of the sum (or the maximum) of a node's belief as `sums` left it, and the belief as probabilities (labels).
  double (*finish_node)(const View&, int64_t node, double* out, double* spare);
  // The same for an edge; its probabilities are added to `out` (labels, stride).
  double (*finish_edge)(const View&, int64_t edge, double* out, double* spare);
  // exp(x - shift) for rows of any length
  void (*exponentiate)(int64_t n, const double* x, double shift, double* out);
};


CRFIELD_OPTIONAL const Kernels* kernels_level0(int labels);
CRFIELD_OPTIONAL const Kernels* kernels_level2(int labels);
CRFIELD_OPTIONAL const Kernels* kernels_level3(int labels);
CRFIELD_OPTIONAL const Kernels* kernels_level4(int labels);

}  // namespace graph
}  // namespace crfield
