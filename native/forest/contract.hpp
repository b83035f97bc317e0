// What the levelled sources of the graph kernels offer to the binding: plain structures and a table of functions.
//
// Memory is handed to levelled code as plain pointers: they call no function template of the standard library and
// instantiate no class template that another level might share (see chain/contract.hpp).
#pragma once
#include <cstdint>

#include "level.hpp"

namespace crfield {
namespace forest {

constexpr int ROOT = -1, OWN = -2;  // values of Forest::use
constexpr int WIDE = 30;            // neighbours above which fill is no longer counted
constexpr int WIDEST = 256;         // neighbours above which elimination is given up

// A forest in the order of its sweep. Rows of score tables hold `stride` doubles, L labels padded to whole vectors.
struct Forest {
  int labels = 0, stride = 0;
  const int64_t *node = nullptr, *parent = nullptr;    // (N) by position
  const int64_t *link_ptr = nullptr, *link = nullptr;  // edges of each position to its parent
  const int64_t* level = nullptr;                      // first position of each level
  const int64_t *tails = nullptr, *table = nullptr;    // (E)
  const double *node_score = nullptr, *edge_score = nullptr;
  const int32_t* use = nullptr;      // (N) the shared table of the only link, or ROOT, or OWN
  const uint8_t* turned = nullptr;   // (N) the position is the tail of its only link
  const int32_t* shared = nullptr;   // (T) number among the tables that several edges use, or -1
  // (shared, L, stride) scores and exp(score - shift), rows for the tail, and both transposed
  const double *log = nullptr, *log_t = nullptr, *prob = nullptr, *prob_t = nullptr;
  const double *shift = nullptr, *spread = nullptr;  // largest score; largest minus least, +inf if one is forbidden
  const uint8_t* dead = nullptr;     // (N) by node: its graph is known to be impossible
  double *node_out = nullptr, *edge_out = nullptr;
  double* tree_total = nullptr;      // (N) by position, filled for roots
  int32_t* best = nullptr;           // (N) by node, for max-product
};

// Trees that are swept side by side: positions [first, last), levels [level, level_last).
struct TreeSet {
  int64_t first = 0, last = 0, level = 0, level_last = 0, own = 0;
};

// Memory of one thread, large enough for its largest set. Trees are numbered within a set by their roots.
struct ForestWork {
  double *b = nullptr, *m = nullptr, *q = nullptr;  // (rows, stride)
  double* own = nullptr;                            // (own links, L, stride) exp of merged or single tables
  double* table = nullptr;                          // (L, stride)
  double *inverse = nullptr, *below = nullptr;      // (rows) 1 / scale; spread of the tables to all children
  double *product = nullptr, *high = nullptr, *low = nullptr;  // (rows) by tree: parts of log Z
  int64_t* slot = nullptr;                          // (rows) place in `own`
  int32_t *tree = nullptr, *label = nullptr;        // (rows)
  uint8_t *hub = nullptr, *checked = nullptr, *lost = nullptr;  // (rows), the last two by tree
  uint8_t* alive = nullptr;                         // (rows, L)
  double *counts = nullptr, *direct = nullptr;      // (shared, L, stride) kept over all sets of the thread
};

// Cliques in the order of elimination. Table k: axes of the scope, then k itself, the last running fastest.
struct Cliques {
  int labels = 0;
  const int64_t* node = nullptr;                         // (N) by position
  const int64_t *scope_ptr = nullptr, *scope = nullptr;  // positions, falling
  const int64_t *edge_ptr = nullptr, *edge = nullptr;    // edges by clique
  const int32_t* axis = nullptr;                         // (E listed) axis of the other end
  const uint8_t* is_tail = nullptr;                      // (E listed) k is the tail
  const int64_t *child_ptr = nullptr, *child = nullptr;  // cliques by parent
  const int64_t* table = nullptr;                        // (E)
  const int64_t *size = nullptr, *label_ptr = nullptr;   // (N) labels by position; (N + 1) by node
  const int32_t* label = nullptr;
  const int64_t *entries = nullptr;                      // (N) entries of the message
  const int64_t *table_at = nullptr, *message_at = nullptr;  // (N) within the unit
  const double *node_score = nullptr, *edge_score = nullptr;
  const int32_t* shared = nullptr;                       // (T) number among tables of several edges, or -1
  double *node_out = nullptr, *edge_out = nullptr;
  int32_t* best = nullptr;
};

struct CliqueWork {
  double *table = nullptr, *message = nullptr;  // all of a unit
  double* spare = nullptr;                      // half of the largest table for sums, all of it for maxima
  double* rows = nullptr;                       // (L, L) and two of L * 8
  int32_t* back = nullptr;                      // as message
  int64_t* place = nullptr;                     // (positions of a unit)
  double* direct = nullptr;                     // (shared, L, L)
};

struct Kernels {
  int level, lanes;
  void (*exponentiate)(int64_t n, const double* x, double shift, double* out);
  void (*sum_set)(const Forest&, const TreeSet&, const ForestWork&);
  void (*best_set)(const Forest&, const TreeSet&, const ForestWork&);
  // total of the cliques [first, last) of one component, -inf where nothing is possible
  double (*sum_cliques)(const Cliques&, int64_t first, int64_t last, const CliqueWork&);
  double (*best_cliques)(const Cliques&, int64_t first, int64_t last, const CliqueWork&);
};

CRFIELD_OPTIONAL const Kernels* kernels_level0();
CRFIELD_OPTIONAL const Kernels* kernels_level2();
CRFIELD_OPTIONAL const Kernels* kernels_level3();
CRFIELD_OPTIONAL const Kernels* kernels_level4();

}  // namespace forest
}  // namespace crfield
