// The sum over segmentations in products: one multiplication for each (end, length, label) where sweep.cpp takes an exp.
//
// Without means the score of a segment m … n falls apart into what its two ends say and what its length says,
//
//     first_m + last_n + length_d + (c_n - c_{m-1}),       c_n = Σ_{t <= n} node_t
//
// so with e_m = exp(onwards_m + first_m - c_{m-1}), taken once for each step, everything that ends at n is
//
//     a_n(j) = exp(c_n + last_n) Σ_d exp(length_d) e_{n-d+1},
//
// a convolution. So are its gradients: with q_n = p(a segment ends at n) / Σ_d …
//
//     p(begins at m) = e_m Σ_d exp(length_d) q_{m+d-1}         p(length d) = exp(length_d) Σ_n q_n e_{n-d+1}
//
// and a label is inside a segment at t as often as it began by then and has not ended before: running sums. Steps that
// end marked segments have a row of lengths of their own.
//
// c and e would run away on long sequences. Steps are therefore taken in blocks: in each of them c starts from zero and
// what was summed so far from one, and the e that are still open are brought to the new zero by one product. A block ends
// where a sum has left HIGH or LOW, or c has gone DRIFT nats away in some label; only there logs are taken. What would be
// lost below the smallest double is not: where a label that is possible falls below LEAST, or anything else leaves the
// range, the answer is NaN, and the caller takes the way in logs, which has no such limits.
#include <cmath>
#include <limits>

#include "accumulator.hpp"
#include "chain/exp.hpp"
#include "segments/contract.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {
namespace {

constexpr double DRIFT = 150.0, MOST_EXPONENT = 600.0, LEAST = 1e-290, HIGH = 1e60, LOW = 1e-60;

// The largest lane, without going through the lanes one by one
inline double highest(V x) {
#if CRFIELD_LEVEL == 4
  typedef double Half __attribute__((vector_size(32)));
  typedef double Quarter __attribute__((vector_size(16)));
  Half h[2];
  __builtin_memcpy(h, &x, sizeof x);
  h[0] = h[0] > h[1] ? h[0] : h[1];
  Quarter q[2];
  __builtin_memcpy(q, h, sizeof q);
  q[0] = q[0] > q[1] ? q[0] : q[1];
  return q[0][0] > q[0][1] ? q[0][0] : q[0][1];
#elif CRFIELD_LEVEL == 3
  typedef double Half __attribute__((vector_size(16)));
  Half h[2];
  __builtin_memcpy(h, &x, sizeof x);
  h[0] = h[0] > h[1] ? h[0] : h[1];
  return h[0][0] > h[0][1] ? h[0][0] : h[0][1];
#else
  return x[0] > x[1] ? x[0] : x[1];
#endif
}

// Σ_k row_k · e_{k · way} for k in [from, stop), in four sums that do not wait for each other. The last term, k = from, is
// that of the step before in the recursion: whatever can be added up without it is by then.
inline V products(const double* row, const double* e, int64_t stride, int64_t way, int64_t from, int64_t stop) {
  V a = V{}, b = V{}, c = V{}, d = V{};
  int64_t k = stop;
  const double *x = row + stop * stride, *y = e + stop * way;
  for (; k - 4 >= from; k -= 4) {
    x -= 4 * stride, y -= 4 * way;
    a += load(x + 3 * stride) * load(y + 3 * way);
    b += load(x + 2 * stride) * load(y + 2 * way);
    c += load(x + stride) * load(y + way);
    d += load(x) * load(y);
  }
  for (; k > from; k--) {
    x -= stride, y -= way;
    a += load(x) * load(y);
  }
  return (b + c) + (a + d);
}

// Σ_i x_i · table_i, a row of L numbers times a table (L, stride)
inline V row_times(const double* x, const double* table, int64_t stride, int labels) {
  V a = V{}, b = V{};
  int i = 0;
  for (; i + 2 <= labels; i += 2, table += 2 * stride) {
    a += fill(x[i]) * load(table);
    b += fill(x[i + 1]) * load(table + stride);
  }
  if (i < labels) a += fill(x[i]) * load(table);
  return a + b;
}

// exp where it is in range; `wrong` gets a lane that is not zero where it is not, or where x is no number
inline V exp_within(V x, V& wrong) {
  const VI out = ~((x <= fill(MOST_EXPONENT)) & (x >= fill(-MOST_EXPONENT)));
  wrong = out ? fill(1.0) : wrong;
  return exp_vector(out ? V{} : x);
}

inline V size_of(V x) { return x < V{} ? -x : x; }

// The lengths of step n with its marks multiplied in: (D, stride)
inline bool mark(const segments::Products& p, int64_t n, double* row) {
  const int64_t size = (int64_t)p.most * p.stride;
  for (int64_t k = 0; k < size; k++) row[k] = p.length[k];
  bool good = true;
  for (int64_t m = p.ptr[n]; m < p.ptr[n + 1]; m++) {
    double* at = row + (p.mark_steps[m] - 1) * (int64_t)p.stride;
    for (int64_t k = p.item_ptr[p.item[m]]; k < p.item_ptr[p.item[m] + 1]; k++) {
      const double x = p.weight[k];
      good = good && x <= MOST_EXPONENT && x >= -MOST_EXPONENT;
      at[p.place[p.item_label[k]]] *= exp_one(x <= MOST_EXPONENT ? x : 0);
    }
  }
  return good;
}

}  // namespace

double segment_products(const segments::Products& p) {
  const double failed = std::numeric_limits<double>::quiet_NaN();
  const int vectors = p.stride / LANES, L = p.labels;
  const int64_t T = p.steps, stride = p.stride, D = p.most;
  if (!T) return 0;
  if (!(std::fabs(p.length_top) <= MOST_EXPONENT / 4 && std::fabs(p.edge_top) <= MOST_EXPONENT / 4)) return failed;
  const V both = fill(std::exp(p.length_top + p.edge_top));  // a length and an edge, for each segment that goes on
  Accumulator total;
  V wrong = V{};
  double *c = p.spare, *next = p.spare + stride;
  int64_t base = 0, used = 1, rows = 0;
  for (int v = 0; v < vectors; v++) {
    const int64_t k = v * LANES;
    const V x = p.first ? exp_within(load(p.first + k), wrong) : fill(1.0);
    store(c + k, V{});
    store(p.window + k, x * fill(std::exp(p.length_top)));
  }
  for (int64_t n = 0; n < T; n++) {
    const int64_t reach = n + 1 < D ? n + 1 : D;
    const double *row = p.length, *e = p.window + (base + n) * stride;
    double *a = p.ending + n * stride, *into = p.into + n * stride;
    p.base[n] = base;
    if (p.ptr[n] < p.ptr[n + 1]) {
      double* own = p.marked + rows++ * D * stride;
      if (!mark(p, n, own)) return failed;
      row = own;
    }
    V best = V{}, far = V{};
    const V steps = fill((double)(n + 1));
    for (int v = 0; v < vectors; v++) {
      const int64_t k = v * LANES, stop = reach < p.deep[v] ? reach : p.deep[v];
      const V sum = products(row + k, e + k, stride, -stride, p.from[v], stop), least = load(p.least + k);
      const V here = load(c + k) + load(p.node + n * stride + k);
      store(c + k, here);
      const V x = sum * exp_within(p.last ? here + load(p.last + n * stride + k) : here, wrong);
      // A label that the steps so far are enough for must be there, in a size that its inverse has too.
      const VI lost = (steps >= least) & ~((x > fill(LEAST)) & (sum > fill(LEAST)) & (sum < fill(1 / LEAST)));
      wrong = lost ? fill(1.0) : wrong;
      store(p.inverse + n * stride + k, sum > V{} ? fill(1.0) / sum : V{});
      store(a + k, x);
      best = x > best ? x : best;
      far = size_of(here) > far ? size_of(here) : far;
    }
    if (n + 1 == T) {
      double sum = 0;
      for (int j = 0; j < L; j++) sum += a[j];
      total.add(std::log(sum));
      double* end = p.end + n * stride;
      for (int v = 0; v < vectors; v++) store(end + v * LANES, load(a + v * LANES) / fill(sum));
      break;
    }
    for (int v = 0; v < vectors; v++) store(into + v * LANES, row_times(a, p.prob + v * LANES, stride, L));
    const double top = highest(best);
    V scale = both;
    if (!(top < HIGH && top > LOW && highest(far) < DRIFT)) {
      if (!(top > 0 && top < 1 / LEAST) || highest(wrong) > 0) return failed;
      const int64_t open = n + 1 < D - 1 ? n + 1 : D - 1;  // segments that began here or before and may go on
      if (used + open + 1 > p.room) return failed;
      total.add(std::log(top));
      const V by = fill(1.0 / top);
      for (int v = 0; v < vectors; v++) {
        const int64_t k = v * LANES;
        store(next + k, exp_within(load(c + k), wrong) * by);
        store(c + k, V{});
      }
      for (int64_t m = n + 1 - open; m <= n; m++, used++)
        for (int v = 0; v < vectors; v++) {
          const int64_t k = v * LANES;
          store(p.window + used * stride + k, load(p.window + (base + m) * stride + k) * load(next + k));
        }
      base = used - (n + 1);
      scale = both * by;
    }
    if (++used > p.room) return failed;
    double* begun = p.window + (base + n + 1) * stride;
    for (int v = 0; v < vectors; v++) {
      const int64_t k = v * LANES;
      const V x = p.first ? load(p.first + (n + 1) * stride + k) - load(c + k) : -load(c + k);
      const V sum = load(into + k);
      wrong = ((sum > V{}) & (sum < fill(LEAST))) ? fill(1.0) : wrong;  // its inverse would not be a number
      store(begun + k, sum * scale * exp_within(x, wrong));
      store(into + k, sum > V{} ? fill(1.0) / sum : V{});
    }
  }
  if (highest(wrong) > 0) return failed;

  double* inside = p.spare + 2 * stride;
  const V by = fill(p.factor);
  for (int v = 0; v < vectors; v++) store(inside + v * LANES, V{});
  for (int64_t k = 0; k < T * stride; k++) p.pushed[k] = 0;
  for (int64_t n = T - 1; n >= 0; n--) {
    double* end = p.end + n * stride;
    if (n + 1 < T) {
      const double *a = p.ending + n * stride, *after = p.start + (n + 1) * stride;
      double* into = p.into + n * stride;
      for (int v = 0; v < vectors; v++)
        store(into + v * LANES, load(after + v * LANES) * load(into + v * LANES));
      for (int i = 0; i < L; i++) {
        const V weight = fill(a[i] * p.factor);
        double* counts = p.counts + i * stride;
        for (int v = 0; v < vectors; v++)
          store(counts + v * LANES, load(counts + v * LANES) + weight * load(into + v * LANES));
      }
      for (int v = 0; v < vectors; v++)
        store(end + v * LANES, row_times(into, p.prob_back + v * LANES, stride, L) * load(a + v * LANES));
    }
    const int64_t reach = n + 1 < D ? n + 1 : D;
    const bool marks = p.ptr[n] < p.ptr[n + 1];
    const double *e = p.window + (p.base[n] + n) * stride, *own = p.length;
    double* share = p.share + n * stride;
    if (marks) own = p.marked + --rows * D * stride;
    for (int v = 0; v < vectors; v++) {
      const int64_t k = v * LANES, stop = reach < p.deep[v] ? reach : p.deep[v];
      const V q = load(end + k) * load(p.inverse + n * stride + k), counted = q * by;
      if (!marks) {
        store(share + k, q);
        for (int64_t d = p.from[v]; d < stop; d++) {
          double* at = p.lengths + d * stride + k;
          store(at, load(at) + counted * load(e - d * stride + k));
        }
      } else {
        store(share + k, V{});
        for (int64_t d = p.from[v]; d < stop; d++) {
          const V x = load(own + d * stride + k) * q * load(e - d * stride + k);
          double *at = p.lengths_marked + d * stride + k, *to = p.pushed + (n - d) * stride + k;
          store(at, load(at) + x * by);
          store(to, load(to) + x);
        }
      }
    }
    for (int64_t m = p.ptr[n]; m < p.ptr[n + 1]; m++) {
      const int64_t d = p.mark_steps[m] - 1;
      for (int64_t k = p.item_ptr[p.item[m]]; k < p.item_ptr[p.item[m] + 1]; k++) {
        const int64_t j = p.place[p.item_label[k]];
        const double q = end[j] * p.inverse[n * stride + j];
        p.weight_out[k] += p.factor * own[d * stride + j] * q * e[j - d * stride];
      }
    }
    // What begins at n ends at n … n + D - 1, in one block or in several.
    const int64_t most = T - n < D ? T - n : D;
    for (int v = 0; v < vectors; v++) {
      const int64_t k = v * LANES, last = most < p.deep[v] ? most : p.deep[v];
      V sum = load(p.pushed + n * stride + k);
      for (int64_t d = 0; d < last;) {
        const int64_t block = p.base[n + d];
        int64_t stop = last;
        if (p.base[n + last - 1] != block)
          for (stop = d + 1; p.base[n + stop] == block;) stop++;
        const int64_t from = d > p.from[v] ? d : p.from[v];
        if (from < stop)
          sum += products(p.length + k, share + k, stride, stride, from, stop) *
                 load(p.window + (block + n) * stride + k);
        d = stop;
      }
      const V now = load(inside + k) + load(end + k), left = now - sum;
      store(p.inside + n * stride + k, now);
      store(inside + k, left > V{} ? left : V{});
      store(p.start + n * stride + k, sum);
    }
  }
  return total.value();
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
