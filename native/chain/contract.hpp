// What the levelled sources offer to the binding: plain structures and one table of functions per level.
//
// Sequences are handled in groups of similar length. The rows of a group lie time-major: first the first steps
// of all its sequences (longest first), then the second steps, and so on, so that one step of the recursion is
// one small matrix product over `active[t]` rows. A row holds `stride` doubles, L labels padded to whole vectors.
//
// Levelled sources call no function template of the standard library: the linker keeps one copy of each, and it
// might keep the one compiled for a processor that this is not.
#pragma once
#include <cstdint>
#include <vector>

#include "level.hpp"

namespace crfield {

// Edge scores spread over less than this (in nats) need no care in the scaled recursion: see sweep.cpp.
constexpr double SAFE_SPREAD = 300.0;
// The same for a sequence swept from both ends, which is worth it from so many steps on and for at most so many
// vectors of labels: see both_ends.cpp.
constexpr double BOTH_ENDS_SPREAD = 100.0;
constexpr int64_t BOTH_ENDS_STEPS = 64;
constexpr int BOTH_ENDS_VECTORS = 6;
// Groups of at most so many sequences are swept side by side if few pairs carry a weight; of half as many, and so many
// labels, if any may: see side_by_side.cpp. Of the latter GROUPS_BESIDE stand beside each other, in single precision twice
// as many.
constexpr int SIDE_MOST = 16, SIDE_LABELS = 32, GROUPS_BESIDE = 2;
// Labels of the largest set of `LabelSets`.
constexpr int SET_MOST = 8;
// For single precision: edge scores spread over at most so many nats (see side_by_side.cpp), and weights are no larger than
// that.
constexpr double SINGLE_SPREAD = 30.0, LARGEST_SINGLE = 1e30;

struct Group {
  int64_t row = 0;                 // first packed row
  int64_t rows = 0;                // number of rows
  int32_t steps = 0;               // longest sequence
  int32_t width = 0;               // number of sequences
  bool partial = false;            // some step allows several labels
  std::vector<int32_t> active;     // (steps) sequences still running; empty for one that stands alone
  std::vector<int64_t> start;      // (steps + 1) first row of each step, relative to `row`
  std::vector<int64_t> sequence;   // (width) original sequence numbers
};

// Shared edge scores with all that the scaled recursion needs of them.
struct EdgeTable {
  int labels = 0, stride = 0;
  double shift = 0;                // largest score
  const double* log = nullptr;     // (L, stride) scores, padding -inf
  const double* prob = nullptr;    // (L, stride) exp(score - shift), padding 0
  const double* prob_t = nullptr;  // its transpose
  double spread = 0;               // largest less smallest score, infinite with forbidden pairs
  bool safe = true;                // spread over less than SAFE_SPREAD: see sweep.cpp
  int words = 0;                   // 64-bit words of a label set
  const uint64_t* into = nullptr;  // (L, words) for each label the labels that may come before it
  // Pairs that carry a weight, sorted by later and by earlier label; null where that is most of them. When they are
  // very few (`sparse`), prob = ground + what they add.
  bool sparse = false;
  double ground = 0;               // exp(0 - shift)
  const int32_t *by_later_ptr = nullptr, *by_later = nullptr;      // (L + 1), (P) earlier labels
  const double* by_later_extra = nullptr;                          // (P) prob - ground
  const int32_t *by_earlier_ptr = nullptr, *by_earlier = nullptr;  // (L + 1), (P) later labels
  const double* by_earlier_extra = nullptr;
  // the same numbers in single precision, where they were asked for
  const float *single_prob = nullptr, *single_prob_t = nullptr;
  const float *single_later_extra = nullptr, *single_earlier_extra = nullptr;
};

// Edge scores that differ from position to position: filled in when needed, expectations handed back.
struct EdgeSource {
  virtual ~EdgeSource() = default;
  virtual void fill(int64_t edge, double* table) const = 0;                         // (L, stride), padding -inf
  virtual void take(int64_t edge, const double* expected, double factor) const = 0;  // (L, stride)
};

// One group on its way through the sum-product recursion.
struct Sweep {
  int labels = 0, stride = 0, steps = 0, width = 0;
  const int32_t* active = nullptr;
  const int64_t* start = nullptr;
  double* score = nullptr;         // (rows, stride) scores, padding -inf; overwritten
  double* alpha = nullptr;         // (rows, stride) scratch
  double* belief = nullptr;        // (rows, stride) out: node marginals, padding 0
  double* inverse = nullptr;       // (rows) scratch
  double* backup = nullptr;        // (rows, stride) scratch, used when the table is not safe
  double* spare = nullptr;         // scratch: two tables of L * stride, and at least 2 * 16 * stride
  double* product = nullptr;       // (width) scratch
  double* side = nullptr;          // scratch of side_by_side.cpp: ((2 steps + 1) * L + steps) * SIDE_MOST and a row; or null
  uint8_t* lost = nullptr;         // (width) out: sequences that took the log recursion
  uint64_t* alive = nullptr;       // (2 * words) scratch when the table is not safe
  double* total = nullptr;         // (width) out: log Z
  const double* factor = nullptr;  // (width) how much each sequence's edge expectations count
  double* counts = nullptr;        // (L, stride) += Σ factor α_i v_j: times prob_ij it is the expected count
  double* pair_counts = nullptr;   // (P) the same for a sparse table, pairs in by_earlier order
  double* direct = nullptr;        // (L, stride) += expected counts of sequences that took the log recursion
};

// What the labels leave of a group, where every row may have one of a few sets of labels: see label_sets.cpp.
struct LabelSets {
  int count = 0, size = 0;         // sets, and labels of the largest
  const int32_t* label = nullptr;  // (sets, size) the labels of each, and -1 behind them
  const int32_t* of = nullptr;     // (rows) the set of each row
  double* tables = nullptr;        // scratch: 2 * sets² * (size², in whole vectors)
  double* side = nullptr;          // scratch: (2 * size + 1) * steps vectors
  double* belief = nullptr;        // (rows, size) out: node marginals
};

// Groups that are swept side by side, in double or in single precision: the lanes of vectors are dealt to them, `per`
// to each, the longest first.
template <class T>
struct Beside {
  int labels = 0, stride = 0, n = 0, per = 0;
  struct Lanes {
    int steps = 0, width = 0;
    const int32_t* active = nullptr;
    const int64_t* start = nullptr;
    const T* score = nullptr;       // (rows, stride) padding -inf
    T* belief = nullptr;            // (rows, stride) out: node marginals, padding 0
    double* total = nullptr;        // (width) out: log Z
    const double* factor = nullptr; // (width)
    double* size = nullptr;         // (width) out if given: Σ_t |largest score of the step|
  } of[2 * GROUPS_BESIDE];
  // scratch: ((2 steps + 1) * L + steps + 1) * `lanes` of these; in single precision SIDE_MOST for each pair besides
  T* side = nullptr;
  double* counts = nullptr;         // as in Sweep
  double* pair_counts = nullptr;
};

// One sequence that is swept from both ends at once: see both_ends.cpp.
struct BothEnds {
  int64_t steps = 0;               // at least 2
  const double* node = nullptr;    // (steps, L) scores
  double* belief = nullptr;        // (steps, L) out: node marginals
  double* psi = nullptr;           // (steps, stride) scratch
  double* spare = nullptr;         // scratch of both_ends_spare(stride)
  double* counts = nullptr;        // (L, stride) += as in Sweep
  double total = 0;                // out: log Z
};

// Weights of node columns as the gather reads them.
struct NodeWeights {
  int labels = 0, stride = 0;      // stride of score rows
  const double* rows = nullptr;    // dense rows
  int64_t row_stride = 0;          // their distance, in doubles
  int64_t n_rows = 0;              // rows from this number on are merged ones and lie in
  const double* merged = nullptr;  // (…, stride); null where they follow the others
  const double* single = nullptr;  // weights of (column, label) features
  // Both in single precision, where they were asked for; rows lie `stride` apart, merged ones behind the others
  const float *float_rows = nullptr, *float_single = nullptr;
  const int64_t* feature_ptr = nullptr;    // (A + 1) features of each column
  const int32_t* feature_label = nullptr;  // (F)
  const double* dense = nullptr;   // (D, stride) weights of the dense block
  int64_t n_dense = 0;
};

// Prefetches run so far ahead of the lists; row_item, item and list_begin go on for as long behind their ends.
constexpr int AHEAD_ROWS = 48, AHEAD_SINGLES = 32, AHEAD_LISTS = 6;

// Columns with K single features each, f … f + K - 1, in groups of rows. A cell says where in the scores of the group a
// feature's is, row * stride + label, in two bytes if they suffice for every group.
constexpr int SINGLES = 3;
struct SingleLists {
  const int64_t* ptr = nullptr;       // (rows + 1)
  const int32_t* item = nullptr;      // first feature
  const uint16_t* short_cell = nullptr;  // (items, K), or
  const uint32_t* long_cell = nullptr;
  const double* value = nullptr;
};

// Encoded rows, three kinds of lists: columns with a dense row of weights; columns with one to three single features;
// runs of more of them. Each with values when the features are numeric; and a dense block.
struct NodeRows {
  const int64_t* row_ptr = nullptr;
  const uint32_t* row_order = nullptr;  // which row of its group the k-th of the first lists is of
  const int32_t* row_item = nullptr;
  SingleLists single[SINGLES];          // of K = 1, 2, 3
  const int64_t* list_ptr = nullptr;    // null where no row has a list
  const int32_t *list_begin = nullptr, *list_end = nullptr;  // single features from … to
  bool values = false;                  // numeric features; otherwise every value is one
  const double *row_value = nullptr, *list_value = nullptr;
  const double* dense = nullptr;        // (rows, D)
};

// Rows as they were handed in (for prediction, where nothing is packed).
struct CsrRows {
  const int64_t* indptr = nullptr;
  const int32_t* indices = nullptr;
  const double* values = nullptr;         // null: all one
  const double* dense = nullptr;          // (rows, D)
  const int32_t* row_of_column = nullptr;  // dense row of weights or -1; null: the column itself
};

// Where the gradient goes; same shapes as NodeWeights.
struct NodeGradient {
  double* rows = nullptr;
  double* merged = nullptr;
  double* single = nullptr;
  double* dense = nullptr;
};

struct Kernels {
  int level, lanes;
  void (*exponentiate)(int64_t n, const double* x, double shift, double* out);
  void (*sweep)(const EdgeTable&, Sweep&);
  // the same over what labels leave, for tables that are safe; scores are left as they are, and beliefs
  void (*sweep_sets)(const EdgeTable&, const LabelSets&, Sweep&);
  // false where every path is forbidden: then only `belief` has been written to
  bool (*both_ends)(const EdgeTable&, BothEnds&);
  int64_t (*both_ends_spare)(int stride);
  void (*sweep_each)(const EdgeSource&, const int64_t* first_edge, Sweep&);
  void (*gather)(const NodeWeights&, const NodeRows&, int64_t row, int64_t n, const double* base, double* score);
  void (*gather_csr)(const NodeWeights&, const CsrRows&, int64_t row, int64_t n, const double* base, double* score);
  // gradient += belief, on dense rows only where `mask` (same shape as the rows) is one if a mask is given
  void (*scatter)(const NodeWeights&, const NodeRows&, int64_t row, int64_t n, const double* belief,
                  const double* mask, const NodeGradient&);
  // The same in single precision for columns of value one, sums of the gradient in double. Weights are read in the
  // precision in which they are there.
  void (*gather_single)(const NodeWeights&, const NodeRows&, int64_t row, int64_t n, const double* base, float* score);
  void (*scatter_single)(const NodeWeights&, const NodeRows&, int64_t row, int64_t n, const float* belief,
                         const NodeGradient&);
  // Groups side by side: whether that is better than one by one, and then beliefs, totals and counts
  bool (*fits_beside)(const EdgeTable&, const Beside<double>&);
  void (*sweep_beside)(const EdgeTable&, const Beside<double>&);
  bool (*fits_single)(const EdgeTable&, const Beside<float>&);
  void (*sweep_single)(const EdgeTable&, const Beside<float>&);
  // best path of one sequence; score (T, stride) is overwritten; returns its score or -inf
  double (*best_path)(int labels, int stride, int64_t steps, double* score, const double* log,
                      const double* log_t, int32_t* path);
  double (*best_path_each)(const EdgeSource&, int64_t first_edge, int labels, int stride, int64_t steps,
                           double* score, double* table, int32_t* path);
  // best paths of two sequences side by side, the longer first
  void (*best_two)(int labels, int stride, const int64_t* steps, double* const* score, const double* log,
                   const double* log_t, int32_t* const* path, double* total);
};

CRFIELD_OPTIONAL const Kernels* kernels_level0();
CRFIELD_OPTIONAL const Kernels* kernels_level2();
CRFIELD_OPTIONAL const Kernels* kernels_level3();
CRFIELD_OPTIONAL const Kernels* kernels_level4();

}  // namespace crfield
