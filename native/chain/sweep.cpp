// Forward and backward in probabilities, each step scaled to sum one.
//
//   α_0 = ψ_0 / z_0         α_t = (α_{t-1} E) ∘ ψ_t / z_t         log Z = Σ_t (log z_t + m_t) + (T - 1) c
//   β_{T-1} = 1             v_t = ψ_t ∘ β_t / z_t                 β_{t-1} = v_t Eᵀ
//   p(y_t = j) = α_t(j) β_t(j)          p(y_{t-1} = i, y_t = j) = α_{t-1}(i) E_ij v_t(j)
//
// with ψ_t = exp(node_t - m_t), m_t = max_j node_t(j), E = exp(edge - c), c = max edge. Cost: two small matrix
// products and one outer product a step, and one exp per node score, none per edge.
//
// When is that exact? What falls below 1e-308 is lost: ψ of a label far below the best of its step, and α with it.
// If all edge scores are finite and spread over at most R nats, then α_{t-1} E differs by at most e^R from label to
// label, and so does β_t: what is lost weighs at most L e^(2R - 708) of the whole. With R <= 300 that is nothing,
// however far the node scores spread. Such a table is `safe`. Otherwise (forbidden pairs, or a wider spread) a lost
// label may be the only one that can go on. Then every label that can be reached at all must keep α above 1e-200
// before it is scaled, which is checked step by step (what a product lost to the smallest numbers is then no part of
// it), and a sequence that fails is done again in logs.
#include "chain/sweep.hpp"

#include <cmath>
#include <cstring>

namespace crfield {
namespace CRFIELD_LEVEL_NAME {
namespace {

constexpr double TINY = 1e-200;

// Which labels can be reached at this row, and whether all of them kept their weight.
bool keep_alive(const EdgeTable& t, bool first, const uint64_t* before, const double* psi_log, const double* alpha,
                double inverse, uint64_t* now) {
  for (int w = 0; w < t.words; w++) now[w] = 0;
  bool kept = true;
  for (int j = 0; j < t.labels; j++) {
    if (psi_log[j] == -INF) continue;
    bool reached = first;
    for (int w = 0; w < t.words && !reached; w++) reached = (before[w] & t.into[(int64_t)j * t.words + w]) != 0;
    if (!reached) continue;
    now[j >> 6] |= uint64_t(1) << (j & 63);
    kept &= alpha[j] > TINY * inverse;
  }
  return kept;
}

void forward(const EdgeTable& t, Sweep& s) {
  const int vectors = s.stride / LANES;
  for (int step = 0; step < s.steps; step++) {
    const int width = s.active[step];
    const int64_t at = s.start[step];
    double* alpha = s.alpha + at * s.stride;
    if (step) {
      const double* before = s.alpha + s.start[step - 1] * s.stride;
      if (t.sparse)
        times_sparse(t, false, width, before, alpha, s.spare);
      else
        times_table(width, s.labels, s.stride, before, t.prob, alpha);
    }
    for (int b = 0; b < width; b++) {
      double* a = alpha + (int64_t)b * s.stride;
      const double* psi = s.score + (at + b) * s.stride;
      V sum = V{};
      for (int v = 0; v < vectors; v++) {
        const V x = step ? load(a + v * LANES) * load(psi + v * LANES) : load(psi + v * LANES);
        store(a + v * LANES, x);
        sum += x;
      }
      const double z = sum_lanes(sum);
      const double inverse = z > 0 ? 1 / z : 0;
      s.inverse[at + b] = inverse;
      if (z > 0) {
        multiply(z, s.product[b], s.total[b]);
      } else {
        s.total[b] = -INF;
        s.lost[b] = 1;
      }
      const V by = fill(inverse);
      for (int v = 0; v < vectors; v++) store(a + v * LANES, load(a + v * LANES) * by);
    }
  }
}

// Walk the reachable label sets of every sequence; mark those whose α lost one of them.
void mark_lost(const EdgeTable& t, Sweep& s) {
  for (int b = 0; b < s.width; b++) {
    uint64_t *before = s.alive, *now = s.alive + t.words;
    for (int step = 0; step < s.steps && s.active[step] > b && !s.lost[b]; step++) {
      const int64_t row = s.start[step] + b;
      if (!keep_alive(t, step == 0, before, s.backup + row * s.stride, s.alpha + row * s.stride, s.inverse[row], now))
        s.lost[b] = 1;
      uint64_t* other = before;
      before = now;
      now = other;
    }
  }
}

void backward(const EdgeTable& t, Sweep& s) {
  const int vectors = s.stride / LANES;
  for (int step = s.steps - 1; step >= 0; step--) {
    const int width = s.active[step], later = step + 1 < s.steps ? s.active[step + 1] : 0;
    const int64_t at = s.start[step];
    double* beta = s.belief + at * s.stride;
    if (later) {
      const double* v = s.score + s.start[step + 1] * s.stride;
      if (t.sparse)
        times_sparse(t, true, later, v, beta, s.spare);
      else
        times_table(later, s.labels, s.stride, v, t.prob_t, beta);
    }
    for (int b = 0; b < width; b++) {
      double* psi = s.score + (at + b) * s.stride;
      double* m = beta + (int64_t)b * s.stride;
      const double* a = s.alpha + (at + b) * s.stride;
      const V by = fill(s.inverse[at + b]);
      if (b >= later) {
        for (int v = 0; v < vectors; v++) {
          store(psi + v * LANES, load(psi + v * LANES) * by);
          store(m + v * LANES, load(a + v * LANES));
        }
      } else if (t.safe) {
        for (int v = 0; v < vectors; v++) {
          const V x = load(m + v * LANES);
          store(psi + v * LANES, load(psi + v * LANES) * x * by);
          store(m + v * LANES, x * load(a + v * LANES));
        }
      } else {
        // β of a label that cannot be reached may overflow; it must not meet a zero
        for (int v = 0; v < vectors; v++) {
          const V weight = load(a + v * LANES);
          const V x = weight > V{} ? load(m + v * LANES) : V{};
          store(psi + v * LANES, load(psi + v * LANES) * x * by);
          store(m + v * LANES, x * weight);
        }
      }
    }
  }
}

// counts += Σ α_{t-1} v_tᵀ; rows of t-1 and t pair up while the number of sequences stays the same, and then
// whole runs of steps are one product.
void count_edges(const EdgeTable& t, Sweep& s) {
  if (!s.counts && !s.pair_counts) return;
  for (int step = 1; step < s.steps; step++)
    for (int b = 0; b < s.active[step]; b++) {
      double* v = s.score + (s.start[step] + b) * s.stride;
      if (s.factor[b] != 1.0)
        for (int j = 0; j < s.stride; j++) v[j] *= s.factor[b];
    }
  int step = 1;
  while (step < s.steps) {
    int last = step;
    int64_t rows = s.active[step];
    if (s.active[step] == s.active[step - 1])
      while (last + 1 < s.steps && s.active[last + 1] == s.active[step]) rows += s.active[++last];
    const double* A = s.alpha + s.start[step - 1] * s.stride;
    const double* B = s.score + s.start[step] * s.stride;
    if (t.sparse)
      count_sparse(t, rows, A, B, s.spare, s.pair_counts);
    else
      add_outer(rows, s.labels, s.stride, A, B, s.counts);
    step = last + 1;
  }
}

}  // namespace

void sweep(const EdgeTable& t, Sweep& s) {
  if (fits_side(t, s)) return sweep_side_by_side(t, s);
  const int vectors = s.stride / LANES;
  const int64_t rows = s.start[s.steps];
  if (!t.safe) std::memcpy(s.backup, s.score, sizeof(double) * rows * s.stride);
  for (int b = 0; b < s.width; b++) s.total[b] = 0, s.product[b] = 1, s.lost[b] = 0;
  for (int step = 0; step < s.steps; step++)
    for (int b = 0; b < s.active[step]; b++)
      s.total[b] += exponentiate_row(vectors, s.score + (s.start[step] + b) * s.stride) + (step ? t.shift : 0.0);
  forward(t, s);
  for (int b = 0; b < s.width; b++) s.total[b] += std::log(s.product[b]);
  bool any = false;
  if (!t.safe) {
    mark_lost(t, s);
    for (int b = 0; b < s.width; b++) any |= s.lost[b] != 0;
  }
  if (any) {
    // a lost sequence takes no part in what follows
    for (int step = 0; step < s.steps; step++)
      for (int b = 0; b < s.active[step]; b++)
        if (s.lost[b]) {
          const int64_t row = s.start[step] + b;
          std::memset(s.score + row * s.stride, 0, sizeof(double) * s.stride);
          std::memset(s.alpha + row * s.stride, 0, sizeof(double) * s.stride);
          s.inverse[row] = 0;
        }
  }
  backward(t, s);
  count_edges(t, s);
  if (any)
    for (int b = 0; b < s.width; b++)
      if (s.lost[b]) log_sequence(&t, nullptr, 0, s, b, s.backup);
}

// Edge scores of their own at every position: sequence by sequence, the table exponentiated twice rather than
// kept, because a long sequence of tables would not fit.
void sweep_each(const EdgeSource& source, const int64_t* first_edge, Sweep& s) {
  const int vectors = s.stride / LANES, L = s.labels;
  const int64_t size = (int64_t)L * s.stride, rows = s.start[s.steps];
  double *table = s.spare, *expected = s.spare + size;
  std::memcpy(s.backup, s.score, sizeof(double) * rows * s.stride);
  for (int b = 0; b < s.width; b++) {
    int length = 0;
    while (length < s.steps && s.active[length] > b) length++;
    auto row_of = [&](int step) { return s.start[step] + b; };
    auto fill_table = [&](int step, double& shift) {
      source.fill(first_edge[b] + step - 1, table);
      double top = -INF, low = INF;
      bool forbidden = false;
      for (int i = 0; i < L; i++)
        for (int j = 0; j < L; j++) {
          const double x = table[(int64_t)i * s.stride + j];
          forbidden |= x == -INF;
          top = x > top ? x : top;
          low = x < low ? x : low;
        }
      if (forbidden || top - low > SAFE_SPREAD) return false;
      shift = top;
      const V by = fill(top);
      for (int64_t k = 0; k < size; k += LANES) store(table + k, exp_vector(load(table + k) - by));
      return true;
    };
    double log_part = 0, product = 1, shift = 0;
    bool ok = true;
    for (int step = 0; step < length && ok; step++) {
      double* psi = s.score + row_of(step) * s.stride;
      double* a = s.alpha + row_of(step) * s.stride;
      log_part += exponentiate_row(vectors, psi);
      if (step) {
        ok = fill_table(step, shift);
        if (!ok) break;
        log_part += shift;
        times_table(1, L, s.stride, s.alpha + row_of(step - 1) * s.stride, table, a);
      }
      V sum = V{};
      for (int v = 0; v < vectors; v++) {
        const V x = step ? load(a + v * LANES) * load(psi + v * LANES) : load(psi + v * LANES);
        store(a + v * LANES, x);
        sum += x;
      }
      const double z = sum_lanes(sum);
      ok = z > 0;
      if (!ok) break;
      multiply(z, product, log_part);
      s.inverse[row_of(step)] = 1 / z;
      for (int v = 0; v < vectors; v++) store(a + v * LANES, load(a + v * LANES) * (1 / z));
    }
    if (!ok) {
      log_sequence(nullptr, &source, first_edge[b], s, b, s.backup);
      continue;
    }
    s.total[b] = log_part + std::log(product);
    for (int step = length - 1; step >= 0; step--) {
      const int64_t row = row_of(step);
      double* psi = s.score + row * s.stride;
      double* m = s.belief + row * s.stride;
      const double* a = s.alpha + row * s.stride;
      if (step + 1 < length) {
        fill_table(step + 1, shift);
        const double* v_next = s.score + row_of(step + 1) * s.stride;
        for (int i = 0; i < L; i++) {
          const double* e = table + (int64_t)i * s.stride;
          double* out = expected + (int64_t)i * s.stride;
          const V ai = fill(a[i]);
          V beta = V{};
          for (int v = 0; v < vectors; v++) {
            const V x = load(e + v * LANES) * load(v_next + v * LANES);
            beta += x;
            store(out + v * LANES, ai * x);
          }
          m[i] = sum_lanes(beta);
        }
        for (int i = L; i < s.stride; i++) m[i] = 0;
        source.take(first_edge[b] + step, expected, s.factor[b]);
      } else {
        for (int i = 0; i < s.stride; i++) m[i] = 1;
      }
      for (int v = 0; v < vectors; v++) {
        const V x = load(m + v * LANES);
        store(psi + v * LANES, load(psi + v * LANES) * x * s.inverse[row]);
        store(m + v * LANES, x * load(a + v * LANES));
      }
    }
  }
}

void exponentiate(int64_t n, const double* x, double shift, double* out) {
  const V by = fill(shift);
  int64_t k = 0;
  for (; k + LANES <= n; k += LANES) store(out + k, exp_vector(load(x + k) - by));
  for (; k < n; k++) out[k] = exp_one(x[k] - shift);
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
