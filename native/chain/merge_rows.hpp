// Columns that come with others: a token with a certain trigram of tags has its bigrams and unigrams too.
//
// Adding up the weights of such a set once, instead of for every token that has it, saves a good part of the gather
// and of the scatter where templates nest. A *merged* row stands for a column a and some of the columns that occur wherever a does. Its weights are the sum of theirs, made anew at each
// evaluation; its gradient is added to each of them at the end.
#pragma once
#include <cstdint>
#include <vector>

namespace crfield {

struct MergedRows {
  std::vector<int64_t> ptr{0};      // (M + 1) members of each merged row
  std::vector<int32_t> member;      // dense rows, or merged rows that come before
  int64_t size() const { return (int64_t)ptr.size() - 1; }
};

// Rewrite lists of dense rows (row_ptr, items; n_dense different ones) with merged rows, numbered from n_dense on.
MergedRows merge_rows(int64_t n_rows, int64_t n_dense, int64_t* row_ptr, std::vector<int32_t>& items);

// Then merge what many lists have in common: each list, its most frequent items first, is a path in a prefix tree, and
// its longest prefix that at least `uses` lists share becomes one merged row. A merged row is its parent's sum and one
// more item, so it costs one addition an evaluation, and two to hand its gradient down.
void share_prefixes(int64_t n_rows, int64_t n_dense, int64_t uses, int64_t* row_ptr, std::vector<int32_t>& items,
                    MergedRows& merged);

// The lists as they were before merging.
std::vector<int32_t> expand_rows(const MergedRows& merged, int64_t n_rows, int64_t n_dense, const int64_t* row_ptr,
                                 const int32_t* items, std::vector<int64_t>& expanded_ptr);

}  // namespace crfield
