// Sums by bin. Words are taken two at a time: their tables fit the nearest cache together, and two independent
// additions hide that each waits for the last one to the same bin.
#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

#include "boost/columns.hpp"
#include "threads.hpp"

namespace crfield {
namespace boost {
namespace {

typedef double Pair __attribute__((vector_size(16)));
typedef double PairMem __attribute__((vector_size(16), aligned(8), may_alias));

inline Pair load(const double* at) { return *(const PairMem*)at; }

constexpr int TOGETHER = 2;
constexpr int64_t ADDITIONS_WORTH_A_THREAD = 100000;

struct Tables {
  std::unique_ptr<double[]> memory;
  double* table[TOGETHER];
  Tables() : memory(new double[2 * WORD_VALUES * TOGETHER + 8]) {
    auto at = ((uintptr_t)memory.get() + 63) / 64 * 64;
    for (int k = 0; k < TOGETHER; k++) table[k] = (double*)at + 2 * WORD_VALUES * k;
  }
};

inline void add(double* table, uint16_t code, Pair pair) {
  Pair* at = (Pair*)table + code;
  *at += pair;
}

template <int WORDS>
void add_rows(int64_t n, const int32_t* chosen, const double* pairs, const uint16_t* const* words, double* const* table) {
  const uint16_t *a = words[0], *b = words[WORDS - 1];
  double *s = table[0], *t = table[WORDS - 1];
  if (chosen) {
    for (int64_t k = 0; k < n; k++) {
      const int64_t i = chosen[k];
      const Pair pair = load(pairs + 2 * i);
      add(s, a[i], pair);
      if (WORDS > 1) add(t, b[i], pair);
    }
    return;
  }
  for (int64_t i = 0; i < n; i++) {
    const Pair pair = load(pairs + 2 * i);
    add(s, a[i], pair);
    if (WORDS > 1) add(t, b[i], pair);
  }
}

// The sums of one column from the joint table: code = joint / stride % bins.
void margin(const double* table, int64_t size, int64_t stride, int64_t bins, double* out) {
  for (int64_t high = 0; high < size; high += stride * bins)
    for (int64_t code = 0; code < bins; code++) {
      const double* at = table + 2 * (high + code * stride);
      double weight = 0.0, product = 0.0;
      for (int64_t low = 0; low < stride; low++) weight += at[2 * low], product += at[2 * low + 1];
      out[2 * code] += weight, out[2 * code + 1] += product;
    }
}

void sparse_column(const Columns& x, int64_t s, const double* pairs, const uint8_t* inside, int64_t n,
                   const double* total, double* out) {
  const int64_t f = x.column[s], bins = x.bins_of(f);
  double* own = out + 2 * x.offsets[f];
  int64_t met = 0;
  for (int64_t e = x.indptr[s]; e < x.indptr[s + 1]; e++) {
    const int64_t i = x.entries[e], code = x.codes[e];
    if (i < 0 || i >= x.rows || code >= bins) throw std::invalid_argument("a sparse entry is out of range");
    if (inside && !inside[i]) continue;
    own[2 * code] += pairs[2 * i], own[2 * code + 1] += pairs[2 * i + 1];
    met++;
  }
  if (met == n) return;
  double weight = 0.0, product = 0.0;
  for (int64_t b = 0; b < bins; b++) weight += own[2 * b], product += own[2 * b + 1];
  own[2 * x.zero[s]] += total[0] - weight, own[2 * x.zero[s] + 1] += total[1] - product;
}

}  // namespace

void histograms(const Columns& x, int64_t classes, const double* pairs, const int32_t* chosen, int64_t n_chosen,
                double* out, int threads) {
  const int64_t n = chosen ? n_chosen : x.rows, bins = x.bins();
  std::vector<std::vector<int32_t>> members(x.words);
  for (int64_t f = 0; f < x.columns; f++)
    if (x.word[f] >= 0) members[x.word[f]].push_back((int32_t)f);
  std::vector<uint8_t> inside;
  std::vector<double> total;
  if (x.sparse) {
    if (chosen) {
      inside.assign(x.rows, 0);
      for (int64_t k = 0; k < n; k++) inside[chosen[k]] = 1;
    }
    total.assign(2 * classes, 0.0);
    for (int64_t c = 0; c < classes; c++)
      for (int64_t k = 0; k < n; k++) {
        const double* pair = pairs + 2 * (c * x.rows + (chosen ? chosen[k] : k));
        total[2 * c] += pair[0], total[2 * c + 1] += pair[1];
      }
  }
  const int64_t steps = (x.words + TOGETHER - 1) / TOGETHER, tasks = steps * classes;
  const int64_t additions = classes * (n * x.words + (x.sparse ? x.indptr[x.sparse] : 0));
  const int64_t most = std::min<int64_t>(tasks + x.sparse, additions / ADDITIONS_WORTH_A_THREAD);
  const int parts = (int)std::max<int64_t>(1, std::min<int64_t>(threads, most));
  run_parts(parts, [&](int part) {
    Tables tables;
    for (int64_t task = tasks * part / parts; task < tasks * (part + 1) / parts; task++) {
      const int64_t c = task / steps, first = task % steps * TOGETHER;
      const int count = (int)std::min<int64_t>(TOGETHER, x.words - first);
      const uint16_t* words[TOGETHER] = {};
      for (int k = 0; k < count; k++) {
        words[k] = x.joint + (first + k) * x.rows;
        std::fill(tables.table[k], tables.table[k] + 2 * x.sizes[first + k], 0.0);
      }
      const double* own = pairs + 2 * c * x.rows;
      if (count == 2)
        add_rows<2>(n, chosen, own, words, tables.table);
      else
        add_rows<1>(n, chosen, own, words, tables.table);
      for (int k = 0; k < count; k++)
        for (int32_t f : members[first + k])
          margin(tables.table[k], x.sizes[first + k], x.stride[f], x.bins_of(f), out + 2 * (c * bins + x.offsets[f]));
    }
    const int64_t every = x.sparse * classes;
    for (int64_t task = every * part / parts; task < every * (part + 1) / parts; task++) {
      const int64_t c = task / x.sparse, s = task % x.sparse;
      sparse_column(x, s, pairs + 2 * c * x.rows, chosen ? inside.data() : nullptr, n, total.data() + 2 * c,
                    out + 2 * c * bins);
    }
  });
}

}  // namespace boost
}  // namespace crfield
