// Sums and maxima over the segmentations of one sequence; the recursions are in kernels/reference/segments.py.
//
// Forwards everything is a logarithm relative to a running offset, backwards a conditional probability, so no score
// can overflow and no length wears digits down. The scores of the segments are overwritten by their conditional
// probabilities on the way forwards and by their probabilities on the way back: exp is taken once for each.
//
// A shared table of finite scores that do not spread too far is used as probabilities (`safe`): then a step costs L exp
// and L log beside the D L of its segments; else L² exp.
#include <cmath>
#include <limits>

#include "accumulator.hpp"
#include "chain/exp.hpp"
#include "segments/contract.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {
namespace {

constexpr double INF = std::numeric_limits<double>::infinity();

inline V larger(V a, V b) { return a > b ? a : b; }
inline V finite_or_zero(V x) { return x > fill(-INF) ? x : V{}; }

inline double row_top(int labels, const double* x) {
  double top = -INF;
  for (int j = 0; j < labels; j++) top = x[j] > top ? x[j] : top;
  return top;
}

// The table of the edge after step n, padded.
inline const double* table_after(const segments::Edges& e, const segments::Sweep& s, int64_t n) {
  if (e.log) return e.log;
  const double* from = e.each + n * s.labels * s.labels;
  for (int i = 0; i < s.labels; i++)
    for (int j = 0; j < s.stride; j++)
      s.table[i * s.stride + j] = j < s.labels ? from[e.order[i] * s.labels + e.order[j]] : -INF;
  return s.table;
}

// x(d, j) = score + onwards before it, relative to the offset at n - 1; the largest of each label to top
inline void meet(const segments::Sweep& s, int64_t n, int64_t reach, double* top) {
  const int vectors = s.stride / LANES;
  double* row = s.score + n * s.most * s.stride;
  for (int v = 0; v < vectors; v++) store(top + v * LANES, fill(-INF));
  double back = 0;
  for (int64_t d = 1; d <= reach; d++, row += s.stride) {
    if (d > 1) back += s.rise[n - d + 1];
    const double* g = s.onwards + (n - d + 1) * s.stride;
    const V by = fill(back);
    for (int v = 0; v < s.wide[d - 1]; v++) {
      const V x = load(row + v * LANES) + (load(g + v * LANES) - by);
      store(row + v * LANES, x);
      store(top + v * LANES, larger(load(top + v * LANES), x));
    }
  }
}

inline void clear(int64_t n, double* x) {
  for (int64_t k = 0; k < n; k++) x[k] = 0;
}

}  // namespace

double segment_sum(const segments::Edges& e, const segments::Sweep& s) {
  const int vectors = s.stride / LANES, L = s.labels;
  const int64_t T = s.steps, stride = s.stride;
  if (!T) return 0;
  Accumulator total;
  clear(stride, s.onwards);
  for (int64_t n = 0; n < T; n++) {
    const int64_t reach = n + 1 < s.most ? n + 1 : s.most;
    double *a = s.ending + n * stride, *into = s.into + n * stride, *g = s.onwards + (n + 1) * stride;
    meet(s, n, reach, a);
    double* row = s.score + n * s.most * stride;
    for (int v = 0; v < vectors; v++) {
      const V top = load(a + v * LANES), shift = finite_or_zero(top);
      V sum = V{};
      const int64_t deep = reach < s.deep[v] ? reach : s.deep[v];
      for (int64_t d = 0; d < deep; d++) {
        double* at = row + d * stride + v * LANES;
        const V x = exp_vector(load(at) - shift);
        store(at, x);
        sum += x;
      }
      const V inverse = sum > V{} ? fill(1.0) / sum : V{};
      for (int64_t d = 0; d < deep; d++) {
        double* at = row + d * stride + v * LANES;
        store(at, load(at) * inverse);
      }
      store(into + v * LANES, sum);
    }
    for (int j = 0; j < s.stride; j++) a[j] = j < L && into[j] > 0 ? a[j] + std::log(into[j]) : -INF;
    if (n + 1 == T) break;
    const double top = row_top(L, a);
    double rise = 0;
    if (top == -INF) {
      for (int j = 0; j < s.stride; j++) g[j] = -INF, into[j] = e.safe ? 0 : -INF, a[j] = e.safe ? 0 : -INF;
    } else if (e.safe) {
      const V by = fill(top);
      for (int v = 0; v < vectors; v++) {
        store(a + v * LANES, exp_vector(load(a + v * LANES) - by));
        V sum = V{};
        store(into + v * LANES, sum);
      }
      for (int i = 0; i < L; i++) {
        const V by_i = fill(a[i]);
        const double* prob = e.prob + i * stride;
        for (int v = 0; v < vectors; v++)
          store(into + v * LANES, load(into + v * LANES) + by_i * load(prob + v * LANES));
      }
      for (int j = 0; j < s.stride; j++) g[j] = j < L ? std::log(into[j]) + (top + e.shift) : -INF;
      rise = row_top(L, g);
      for (int j = 0; j < L; j++) g[j] -= rise;
    } else {
      const double* table = table_after(e, s, n);
      for (int v = 0; v < vectors; v++) {
        V best = fill(-INF), sum = V{};
        for (int i = 0; i < L; i++) best = larger(best, fill(a[i]) + load(table + i * stride + v * LANES));
        const V shift = finite_or_zero(best);
        for (int i = 0; i < L; i++) sum += exp_vector(fill(a[i]) + load(table + i * stride + v * LANES) - shift);
        store(into + v * LANES, best);
        store(g + v * LANES, sum);
      }
      for (int j = 0; j < s.stride; j++) g[j] = into[j] = j < L && g[j] > 0 ? into[j] + std::log(g[j]) : -INF;
      rise = row_top(L, g);
      if (rise == -INF) rise = 0;
      for (int j = 0; j < L; j++) g[j] -= rise;
    }
    s.rise[n] = rise;
    total.add(rise);
  }

  double *last = s.ending + (T - 1) * stride, *end = s.end + (T - 1) * stride;
  const double top = row_top(L, last);
  clear((T + 1) * stride, s.start);
  if (top == -INF) {
    clear(T * s.most * stride, s.score);
    clear(T * stride, s.end);
    if (s.each_out) clear((T - 1) * L * L, s.each_out);
    return -INF;
  }
  double sum = 0;
  for (int j = 0; j < s.stride; j++) sum += end[j] = j < L ? exp_one(last[j] - top) : 0;
  for (int j = 0; j < L; j++) end[j] /= sum;
  total.add(top + std::log(sum));

  for (int64_t n = T - 1; n >= 0; n--) {
    end = s.end + n * stride;
    if (n + 1 < T) {
      const double *a = s.ending + n * stride, *next = s.start + (n + 1) * stride;
      double* into = s.into + n * stride;
      if (e.safe) {
        for (int v = 0; v < vectors; v++) {
          const V x = load(into + v * LANES);
          store(into + v * LANES, x > V{} ? load(next + v * LANES) / x : V{});
        }
        for (int i = 0; i < L; i++) {
          const double *prob = e.prob + i * stride, weight = a[i] * s.factor;
          double* counts = s.counts + i * stride;
          V sum_i = V{};
          for (int v = 0; v < vectors; v++) {
            const V q = load(into + v * LANES);
            sum_i += load(prob + v * LANES) * q;
            store(counts + v * LANES, load(counts + v * LANES) + fill(weight) * q);
          }
          end[i] = a[i] * sum_lanes(sum_i);
        }
      } else {
        const double* table = table_after(e, s, n);
        for (int i = 0; i < L; i++) {
          V sum_i = V{};
          for (int v = 0; v < vectors; v++) {
            const V g = load(into + v * LANES);
            const V x = exp_vector(fill(a[i]) + load(table + i * stride + v * LANES) - finite_or_zero(g));
            const V p = g > fill(-INF) ? x * load(next + v * LANES) : V{};
            sum_i += p;
            if (s.each_out) {
              double* out = s.each_out + (n * L + e.order[i]) * L;
              for (int k = 0; k < LANES && v * LANES + k < L; k++) out[e.order[v * LANES + k]] = p[k] * s.factor;
            } else {
              double* out = s.direct + i * stride + v * LANES;
              store(out, load(out) + p * fill(s.factor));
            }
          }
          end[i] = sum_lanes(sum_i);
        }
      }
      for (int j = L; j < s.stride; j++) end[j] = 0;
    }
    const int64_t reach = n + 1 < s.most ? n + 1 : s.most;
    double* row = s.score + n * s.most * stride;
    for (int64_t d = 1; d <= reach; d++, row += stride) {
      double* start = s.start + (n - d + 1) * stride;
      for (int v = 0; v < s.wide[d - 1]; v++) {
        const V p = load(row + v * LANES) * load(end + v * LANES);
        store(row + v * LANES, p);
        store(start + v * LANES, load(start + v * LANES) + p);
      }
    }
    clear((s.most - reach) * stride, row);
  }
  return total.value();
}

double segment_best(const segments::Edges& e, const segments::Sweep& s, int32_t* length, int32_t* label,
                    int32_t* longest, int32_t* before) {
  const int L = s.labels;
  const int64_t T = s.steps, stride = s.stride;
  if (!T) return 0;
  Accumulator total;
  clear(stride, s.onwards);
  double* best = s.ending;
  for (int64_t n = 0; n < T; n++) {
    const int64_t reach = n + 1 < s.most ? n + 1 : s.most;
    meet(s, n, reach, best);
    const double* row = s.score + n * s.most * stride;
    for (int j = 0; j < L; j++) {
      int64_t d = 0;
      while (d + 1 < reach && !(row[d * stride + j] >= best[j])) d++;
      longest[n * L + j] = (int32_t)(d + 1);
    }
    if (n + 1 == T) break;
    const double* table = table_after(e, s, n);
    double* g = s.onwards + (n + 1) * stride;
    double rise = -INF;
    for (int j = 0; j < s.stride; j++) g[j] = -INF;
    for (int j = 0; j < L; j++) {
      int at = 0;
      for (int i = 0; i < L; i++) {
        const double x = best[i] + table[i * stride + j];
        if (x > g[j]) g[j] = x, at = i;
      }
      before[n * L + j] = at;
      rise = g[j] > rise ? g[j] : rise;
    }
    if (rise == -INF) rise = 0;
    for (int j = 0; j < L; j++) g[j] -= rise;
    s.rise[n] = rise;
    total.add(rise);
  }
  int j = 0;
  for (int k = 1; k < L; k++)
    if (best[k] > best[j]) j = k;
  const double top = best[j];
  for (int64_t n = T - 1; n >= 0;) {
    const int32_t d = longest[n * L + j];
    length[n] = d;
    for (int64_t m = n - d + 1; m <= n; m++) {
      label[m] = j;
      if (m < n) length[m] = 0;
    }
    n -= d;
    if (n >= 0) j = before[n * L + j];
  }
  if (top == -INF) return -INF;
  total.add(top);
  return total.value();
}

void segment_exponentiate(int64_t n, const double* x, double shift, double* out) {
  for (int64_t k = 0; k < n; k++) out[k] = exp_one(x[k] - shift);
}

void segment_expand(const segments::Own&, double*);
void segment_collect(const segments::Own&, const segments::Sweep&);
double segment_products(const segments::Products&);

}  // namespace CRFIELD_LEVEL_NAME

namespace segments {

const Kernels* CRFIELD_JOIN(kernels_level, CRFIELD_LEVEL)() {
  using namespace CRFIELD_LEVEL_NAME;
  static const Kernels table{CRFIELD_LEVEL,   LANES,           segment_sum, segment_best, segment_expand,
                             segment_collect, segment_exponentiate, segment_products};
  return &table;
}

}  // namespace segments
}  // namespace crfield
