// Grouping sequences, splitting groups over threads, shared edge tables, scratch of one thread.
#pragma once
#include <vector>

#include "chain/contract.hpp"
#include "memory.hpp"

namespace crfield {

const Kernels* best_kernels();

inline int padded(int labels, const Kernels* k) { return (labels + k->lanes - 1) / k->lanes * k->lanes; }

// Groups of at most `width` sequences of similar length, complete ones first; node_of_row lists the original
// node of every packed row. A sequence of `alone` steps or more is a group by itself whose rows are where they are: it
// has none in node_of_row.
std::vector<Group> make_groups(const int64_t* offsets, int64_t sequences, int width, const uint8_t* partial,
                               std::vector<int64_t>& node_of_row, int64_t alone = INT64_MAX);

// First group of each of `parts` shares of about the same number of rows; parts + 1 entries.
std::vector<int64_t> split_groups(const std::vector<Group>& groups, int parts);

// An EdgeTable and the memory behind it.
class OwnedTable {
 public:
  // `log` is (L, L). `pairs` (flat i * L + j, sorted) are the pairs that carry a weight, all others being 0;
  // null when any pair may differ from 0.
  void set(const Kernels* k, int labels, const double* log, const int32_t* pairs, int64_t n_pairs);
  void add_single();  // the same numbers in single precision, if they do not spread too far for it
  const EdgeTable& table() const { return table_; }
  const double* log_t() const { return log_t_.data(); }

 private:
  EdgeTable table_;
  Buffer<double> log_, log_t_, prob_, prob_t_, later_extra_, earlier_extra_;
  Buffer<float> single_prob_, single_prob_t_, single_later_extra_, single_earlier_extra_;
  std::vector<uint64_t> into_;
  std::vector<int32_t> later_ptr_, later_, earlier_ptr_, earlier_;
};

// What one thread needs to sweep groups; grows to the largest.
struct Scratch {
  Buffer<double> score, second, alpha, belief, inverse, backup, spare, side, total, product, factor;
  std::vector<uint8_t> lost;
  std::vector<uint64_t> alive;
  Sweep prepare(const Group& group, int labels, int stride, int words, bool unsafe, bool sparse = false);
};

}  // namespace crfield
