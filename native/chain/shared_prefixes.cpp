// Prefix trees over lists of rows, as frequent sets are kept by FP-growth (Han, Pei & Yin 2000).
//
// Level by level: every list whose prefix of d items is a node asks for the child with its next item; children asked
// for often enough become nodes and their lists go on from there. So no more nodes are ever made than there are
// lists, and those of a level live in one hash table. A second tree is grown over what the first one left.
#include <algorithm>
#include <cstddef>

#include "chain/merge_rows.hpp"

namespace crfield {
namespace {

constexpr int ROUNDS = 2;
constexpr double WORTH = 0.04;  // a tree that makes the lists shorter by less than this part is the last one

// Numbers 0, 1, … for different keys, in order of first sight.
class Numbers {
 public:
  explicit Numbers(int64_t keys) {
    size_t room = 64;
    while (room < 2 * (size_t)keys) room *= 2;
    key_.assign(room, NONE);
    number_.resize(room);
  }
  int32_t of(uint64_t key) {
    size_t at = (key * 0x9E3779B97F4A7C15ull) >> 20 & (key_.size() - 1);
    while (key_[at] != key && key_[at] != NONE) at = (at + 1) & (key_.size() - 1);
    if (key_[at] == NONE) {
      key_[at] = key;
      number_[at] = (int32_t)count++;
    }
    return number_[at];
  }
  int64_t count = 0;

 private:
  static constexpr uint64_t NONE = ~uint64_t(0);
  std::vector<uint64_t> key_;
  std::vector<int32_t> number_;
};

}  // namespace

void share_prefixes(int64_t n_rows, int64_t n_dense, int64_t uses, int64_t* row_ptr, std::vector<int32_t>& items,
                    MergedRows& merged) {
  std::vector<int64_t> rest(row_ptr, row_ptr + n_rows), going, next;  // where what is left of each list begins
  std::vector<std::vector<int32_t>> nodes;                            // of each tree the node of each list, or -1
  std::vector<int32_t> child, number;
  std::vector<int64_t> asked;
  for (int round = 0; round < ROUNDS; round++) {
    std::vector<int64_t> count(n_dense + merged.size(), 0);
    int64_t total = 0, saved = 0;
    for (int64_t r = 0; r < n_rows; r++)
      for (int64_t p = rest[r]; p < row_ptr[r + 1]; p++, total++) count[items[p]]++;
    std::vector<int32_t> rank(count.size()), by_rank(count.size());
    for (size_t k = 0; k < by_rank.size(); k++) by_rank[k] = (int32_t)k;
    std::stable_sort(by_rank.begin(), by_rank.end(), [&](int32_t a, int32_t b) { return count[a] > count[b]; });
    for (size_t k = 0; k < by_rank.size(); k++) rank[by_rank[k]] = (int32_t)k;
    nodes.emplace_back(n_rows, -1);
    std::vector<int32_t>& node = nodes.back();
    going.clear();
    for (int64_t r = 0; r < n_rows; r++) {
      if (rest[r] == row_ptr[r + 1]) continue;
      for (int64_t p = rest[r]; p < row_ptr[r + 1]; p++) items[p] = rank[items[p]];
      std::sort(items.begin() + rest[r], items.begin() + row_ptr[r + 1]);
      for (int64_t p = rest[r]; p < row_ptr[r + 1]; p++) items[p] = by_rank[items[p]];
      node[r] = items[rest[r]++];
      if (count[node[r]] >= uses && rest[r] < row_ptr[r + 1]) going.push_back(r);
    }
    while (!going.empty()) {
      Numbers children((int64_t)going.size());
      child.resize(going.size());
      asked.assign(going.size(), 0);
      for (size_t k = 0; k < going.size(); k++) {
        const int64_t r = going[k];
        child[k] = children.of((uint64_t)node[r] << 32 | (uint32_t)items[rest[r]]);
        asked[child[k]]++;
      }
      number.assign(children.count, -1);
      next.clear();
      for (size_t k = 0; k < going.size(); k++) {
        if (asked[child[k]] < uses) continue;
        const int64_t r = going[k];
        if (number[child[k]] < 0) {
          number[child[k]] = (int32_t)(n_dense + merged.size());
          merged.member.push_back(node[r]);
          merged.member.push_back(items[rest[r]]);
          merged.ptr.push_back((int64_t)merged.member.size());
        }
        node[r] = number[child[k]];
        saved++;
        if (++rest[r] < row_ptr[r + 1]) next.push_back(r);
      }
      going.swap(next);
    }
    if ((double)saved < WORTH * (double)total) break;
  }
  int64_t at = 0;  // never beyond what is read: a node stands for at least one item
  for (int64_t r = 0; r < n_rows; r++) {
    const int64_t stop = row_ptr[r + 1];
    row_ptr[r] = at;
    for (const std::vector<int32_t>& node : nodes)
      if (node[r] >= 0) items[at++] = node[r];
    for (int64_t p = rest[r]; p < stop; p++) items[at++] = items[p];
  }
  row_ptr[n_rows] = at;
  items.resize(at);
}

}  // namespace crfield
