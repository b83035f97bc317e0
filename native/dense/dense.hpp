// What the loops of dense fields share; the contract is in src/crfield/kernels/dense.py.
//
// N points are spread over M nodes, T nodes each; nodes are blurred; points are read off the nodes. A row of values
// has `width` floats, the labels and padding. Node M stands for neighbours that are not there: its row is zero.
#pragma once
#include <cstdint>

#include "level.hpp"

namespace crfield {
namespace dense {

constexpr int BLOCK = 64;        // points at a time
constexpr int MOST_DIMENSIONS = 16;
constexpr int MOST_AXES = 3;
constexpr float PADDING = -1e30f;  // scores of labels that are not there
constexpr float LOG2E = 1.44269504f;

// Floats of a row: 4 for up to four labels, else a multiple of eight.
inline int64_t width_of(int64_t labels) { return labels <= 4 ? 4 : (labels + 7) / 8 * 8; }

// Scores of points as a caller has them.
struct Given {
  int64_t labels;
  const float* scores;
  int64_t point_step, label_step;  // in floats
  bool negated;                    // they are energies, scores with the other sign
};

struct Kernel {
  int64_t points, taps, nodes;
  const int32_t* at;           // (N, T) nodes of a point
  const float* share;          // (N, T)
  const float* before;         // (N,) factors of what goes in, or null
  const float* after;          // (N,) factors of what comes out, or null
  float gain;                  // of all that comes out
  int64_t directions;          // of a lattice; 0: the nodes are a grid
  const int32_t* neighbours;   // (directions, M, 2)
  int axes;                    // of a grid
  int64_t sizes[MOST_AXES];
  const float* filter[MOST_AXES];  // half of a symmetric filter along an axis, from its middle
  int64_t reach[MOST_AXES];        // its length less one
};

// How labels of two points get on: message = weight · K q, or rows of nodes times a table first.
struct Compatibility {
  float weight;
  const float* diagonal;  // (width,) or null
  const float* table;     // (L, width), table[from][to], or null
};

// One pass over points: scores, messages, beliefs, and their spread over the nodes.
struct Pass {
  int64_t points, labels, width;
  const float* scores;  // (N, stride) in units of log 2, the largest of a row 0, padding PADDING
  int64_t stride;       // the width, or the labels: rows without padding, which is put in where they are read
  int kernels;
  const Kernel* kernel;
  const Compatibility* compatibility;
  const float* const* values;  // (M + 1, width) of each kernel, blurred; null in the first pass
  float* const* spread;        // (M + 1, width) of each kernel, to be added to; null in the last pass
  float damping;
  float* logs;   // (N, width) logs of the last beliefs in units of log 2, or null
  bool gentle;   // messages are not negative, so that no row need be shifted
  bool fresh;    // no beliefs yet: logs are written and not read
  bool only_watch;  // the beliefs stay as they are
  float* out;    // (N, labels) beliefs of the last pass, or null
  double* watch;  // [bound of the last beliefs, largest change], or null
};

struct Embedded {  // a block of points in the lattice
  alignas(64) float share[MOST_DIMENSIONS + 1][BLOCK];
  alignas(64) float first[MOST_DIMENSIONS + 1][BLOCK];  // coordinates of the first vertex, in units of D + 1
  alignas(64) float with_rank[MOST_DIMENSIONS + 1][BLOCK];  // the coordinate that has a rank
  alignas(64) uint64_t key[BLOCK];    // Σ_i strides[i] · (D + 1) · first[i] of the first vertex, and
  alignas(64) uint64_t order[BLOCK];  // the coordinates of ranks 1 … D, four bits each, the last lowest; if asked for
};

// The loops of one level.
struct Loops {
  // features (D, N) of points from … from + count - 1; keys if there are strides (D,)
  void (*embed)(const float* features, int64_t points, int dimensions, int64_t from, int count,
                const uint64_t* strides, Embedded& out);
  // rows of points from … to - 1; false where a score is not finite or beyond 1e30
  bool (*load)(const Given&, int64_t from, int64_t to, int64_t stride, float* scores, double* shift);
  void (*spread)(const Kernel&, int64_t from, int64_t count, const float* values, float* nodes, int64_t width);
  void (*gather)(const Kernel&, int64_t from, int64_t count, const float* nodes, float scale, const float* base,
                 float* out, int64_t width);
  void (*blur)(const Kernel&, int64_t direction, int64_t from, int64_t to, const float* in, float* out,
               int64_t width);
  void (*filter)(const Kernel&, int axis, int64_t from, int64_t to, const float* in, float* out, int64_t width);
  void (*relate)(const Compatibility&, int64_t labels, int64_t width, int64_t from, int64_t to, float* nodes,
                 float* row);
  void (*points)(const Pass&, int64_t from, int64_t to, float* scratch);
};

// Floats of scratch that `points` wants.
inline int64_t scratch_of(int64_t width) { return 3 * BLOCK * width + 64; }

const Loops& loops_in_use();

}  // namespace dense

#define CRFIELD_DENSE_LEVEL(name) \
  namespace name {                \
  extern CRFIELD_OPTIONAL const dense::Loops dense_loops; \
  }
CRFIELD_DENSE_LEVEL(level0)
CRFIELD_DENSE_LEVEL(level2)
CRFIELD_DENSE_LEVEL(level3)
CRFIELD_DENSE_LEVEL(level4)
#undef CRFIELD_DENSE_LEVEL

}  // namespace crfield
