// Derivatives of chain marginals along a direction of the scores; formulas in src/crfield/kernels/tangent.py.
#pragma once
#include <cstdint>

namespace crfield {
namespace tangent {

struct Chains {
  int64_t sequences, labels, edges;
  const int64_t* offsets;   // (B + 1)
  const double* node;       // (N, L) marginals
  const double* edge;       // (E, L, L) marginals
  const double* node_dot;   // (N, L)
  const double* edge_dot;   // (E, L, L), or (1, L, L) if one_dot
  const double* weight;     // (B)
  bool one_dot;
};

// node_out (N, L); edge_out (E, L, L) if each, otherwise (1, L, L), which is added to.
void sweep(const Chains& chains, double* node_out, double* edge_out, bool each, int n_jobs);

// Marginals of pairs, edge_out (E, L, L), from node marginals and the scores with one table (L, L) for all edges.
// hard (B) is set where a probability left the range in which doubles have all their digits; its pairs are not valid.
void pairs(int64_t sequences, int64_t labels, const int64_t* offsets, const double* node_score, const double* table,
           const double* node, double* edge_out, uint8_t* hard, int n_jobs);

}  // namespace tangent
}  // namespace crfield
