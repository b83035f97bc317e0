#include "chain/merge_rows.hpp"

#include <cstddef>

namespace crfield {
namespace {

constexpr int MOST = 16;       // implied columns kept of each column
constexpr int64_t USES = 6;       // a merged row used less often does not pay

// For each dense row the rows that occur wherever it does, found by intersecting as its occurrences go by.
struct Implied {
  std::vector<int32_t> list;   // (n_dense, MOST)
  std::vector<uint8_t> count;  // (n_dense)
  std::vector<int64_t> uses;   // (n_dense)

  Implied(int64_t n_rows, int64_t n_dense, const int64_t* ptr, const std::vector<int32_t>& items)
      : list(n_dense * MOST), count(n_dense, 0), uses(n_dense, 0) {
    std::vector<int64_t> seen(n_dense, -1);
    for (int64_t r = 0; r < n_rows; r++) {
      for (int64_t p = ptr[r]; p < ptr[r + 1]; p++) seen[items[p]] = r;
      for (int64_t p = ptr[r]; p < ptr[r + 1]; p++) {
        const int32_t a = items[p];
        int32_t* mine = list.data() + (int64_t)a * MOST;
        int kept = 0;
        if (uses[a]++ == 0) {
          for (int64_t q = ptr[r]; q < ptr[r + 1] && kept < MOST; q++) {
            bool known = items[q] == a;  // a row may name a column twice
            for (int k = 0; k < kept; k++) known |= mine[k] == items[q];
            if (!known) mine[kept++] = items[q];
          }
        } else {
          for (int k = 0; k < count[a]; k++)
            if (seen[mine[k]] == r) mine[kept++] = mine[k];
        }
        count[a] = (uint8_t)kept;
      }
    }
  }
};

// Sets (a, which of its implied rows) by number; each column has few.
struct Variants {
  std::vector<int32_t> first, next, owner;
  std::vector<uint32_t> mask;
  std::vector<int64_t> uses;
  explicit Variants(int64_t n_dense) : first(n_dense, -1) {}
  int32_t of(int32_t a, uint32_t wanted) {
    for (int32_t v = first[a]; v >= 0; v = next[v])
      if (mask[v] == wanted) return v;
    next.push_back(first[a]);
    owner.push_back(a);
    mask.push_back(wanted);
    uses.push_back(0);
    return first[a] = (int32_t)owner.size() - 1;
  }
};

}  // namespace

MergedRows merge_rows(int64_t n_rows, int64_t n_dense, int64_t* row_ptr, std::vector<int32_t>& items) {
  const Implied implied(n_rows, n_dense, row_ptr, items);
  Variants variants(n_dense);
  std::vector<int64_t> taken(n_dense, -1), seen(n_dense, -1);

  // Later columns first: templates name their longest patterns last.
  std::vector<int32_t> chosen(items.size(), -1);  // variant, or -1: the column itself; -2: covered by a variant
  for (int64_t r = 0; r < n_rows; r++) {
    bool twice = false;
    for (int64_t p = row_ptr[r]; p < row_ptr[r + 1]; p++) {
      twice |= seen[items[p]] == r;
      seen[items[p]] = r;
    }
    if (twice) continue;  // a column that counts double is covered by nothing
    for (int64_t p = row_ptr[r + 1] - 1; p >= row_ptr[r]; p--) {
      const int32_t a = items[p];
      if (taken[a] == r) {
        chosen[p] = -2;
        continue;
      }
      taken[a] = r;
      if (implied.uses[a] < USES) continue;
      uint32_t mask = 0;
      for (int k = 0; k < implied.count[a]; k++) {
        const int32_t b = implied.list[(int64_t)a * MOST + k];
        if (taken[b] != r) mask |= 1u << k;
      }
      if (!mask) continue;
      chosen[p] = variants.of(a, mask);
      variants.uses[chosen[p]]++;
      for (int k = 0; k < implied.count[a]; k++)
        if (mask >> k & 1) taken[implied.list[(int64_t)a * MOST + k]] = r;
    }
  }

  MergedRows merged;
  std::vector<int32_t> number(variants.owner.size(), -1);
  for (int64_t v = 0; v < (int64_t)number.size(); v++) {
    if (variants.uses[v] < USES) continue;
    const int32_t a = variants.owner[v];
    number[v] = (int32_t)(n_dense + merged.size());
    merged.member.push_back(a);
    for (int k = 0; k < implied.count[a]; k++)
      if (variants.mask[v] >> k & 1) merged.member.push_back(implied.list[(int64_t)a * MOST + k]);
    merged.ptr.push_back((int64_t)merged.member.size());
  }

  int64_t start = row_ptr[0];
  std::vector<int32_t> out;
  out.reserve(items.size() / 2);
  for (int64_t r = 0; r < n_rows; r++) {
    const int64_t stop = row_ptr[r + 1];
    for (int64_t p = start; p < stop; p++) {
      const int32_t v = chosen[p];
      if (v == -2) continue;
      if (v < 0) {
        out.push_back(items[p]);
      } else if (number[v] >= 0) {
        out.push_back(number[v]);
      } else {
        const int32_t a = variants.owner[v];
        out.push_back(a);
        for (int k = 0; k < implied.count[a]; k++)
          if (variants.mask[v] >> k & 1) out.push_back(implied.list[(int64_t)a * MOST + k]);
      }
    }
    start = stop;
    row_ptr[r + 1] = (int64_t)out.size();
  }
  items.swap(out);
  return merged;
}

std::vector<int32_t> expand_rows(const MergedRows& merged, int64_t n_rows, int64_t n_dense, const int64_t* row_ptr,
                                 const int32_t* items, std::vector<int64_t>& expanded_ptr) {
  std::vector<int32_t> out, open;
  expanded_ptr.assign(1, 0);
  for (int64_t r = 0; r < n_rows; r++) {
    for (int64_t p = row_ptr[r]; p < row_ptr[r + 1]; p++) {
      open.assign(1, items[p]);
      while (!open.empty()) {
        const int64_t v = open.back() - n_dense;
        open.pop_back();
        if (v < 0)
          out.push_back((int32_t)(v + n_dense));
        else
          open.insert(open.end(), merged.member.begin() + merged.ptr[v], merged.member.begin() + merged.ptr[v + 1]);
      }
    }
    expanded_ptr.push_back((int64_t)out.size());
  }
  return out;
}

}  // namespace crfield
