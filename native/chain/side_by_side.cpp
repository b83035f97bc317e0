// The scaled recursion of sweep.cpp for few labels, sequences side by side.
//
// A row of nine labels fills two vectors of eight to little more than half, its sum and its maximum go across the
// vector, and its division serves one sequence. Here a vector holds one label of LANES sequences instead:
//
//   α_t(j) = ψ_t(j) Σ_i α_{t-1}(i) E_ij / z_t        E_ij is one number for all sequences, read as it is needed
//
// so nothing is padded, sums over labels are plain additions, and an exponential, a division or a logarithm serves
// LANES sequences at once. Rows are turned (transpose.hpp) where they come in and where beliefs go out. WIDE vectors
// stand beside each other where the sequences of a group do not fit one.
//
// Sequences that have ended stay as lanes of zeros: with ψ / z = 0 their α and v are zero, so they count for nothing
// and β of a last step is 0 + 1. That is for tables that are `safe` (sweep.cpp): a step without any label that is
// possible makes the total -inf and all beliefs from there on zero.
#include <cmath>

#include "chain/sweep.hpp"
#include "chain/transpose.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {
namespace {

// Labels of a tile of the product: as many sums as registers hold beside what they are made of.
constexpr int REGISTERS = CRFIELD_LEVEL == 4 ? 24 : 12;
// and of the tile of expected pairs, earlier x later labels
template <int N>
struct Steps {
  static constexpr int COUNT = N;
};
constexpr int PAIR_ROWS = CRFIELD_LEVEL == 4 ? 4 : 3, PAIR_COLUMNS = CRFIELD_LEVEL == 4 ? 6 : 4;

// y_j = Σ_i x_i M[i, j] for J labels j; x and y (labels, WIDE vectors)
template <int WIDE, int J>
inline void product_tile(int labels, const double* x, const double* M, int stride, double* y) {
  constexpr int SIDE = WIDE * LANES;
  V sum[J][WIDE];
  for (int j = 0; j < J; j++)
    for (int h = 0; h < WIDE; h++) sum[j][h] = V{};
  for (int i = 0; i < labels; i++, x += SIDE, M += stride) {
    V from[WIDE];
    for (int h = 0; h < WIDE; h++) from[h] = load(x + h * LANES);
    for (int j = 0; j < J; j++) {
      const V by = fill(M[j]);
      for (int h = 0; h < WIDE; h++) sum[j][h] += by * from[h];
    }
  }
  for (int j = 0; j < J; j++)
    for (int h = 0; h < WIDE; h++) store(y + j * SIDE + h * LANES, sum[j][h]);
}

// The same for n <= MOST labels
template <int WIDE, int MOST>
inline void product_upto(int n, int labels, const double* x, const double* M, int stride, double* y) {
  if constexpr (MOST > 0) {
    if (n == MOST)
      product_tile<WIDE, MOST>(labels, x, M, stride, y);
    else
      product_upto<WIDE, MOST - 1>(n, labels, x, M, stride, y);
  }
}

template <int WIDE>
inline void product_side(int labels, const double* x, const double* M, int stride, double* y) {
  constexpr int MOST = REGISTERS / WIDE < 12 ? REGISTERS / WIDE : 12;
  const int tiles = (labels + MOST - 1) / MOST;
  for (int k = 0; k < tiles; k++) {
    const int from = labels * k / tiles, to = labels * (k + 1) / tiles;
    product_upto<WIDE, MOST>(to - from, labels, x, M + from, stride, y + (int64_t)from * WIDE * LANES);
  }
}

// y = x M where few pairs carry a weight: M = g 1 1ᵀ + D (sparse_edges.cpp, which also tells the trap). `sum` is Σ_i x_i.
template <int WIDE>
void product_sparse(const EdgeTable& t, bool transposed, const double* x, const V* sum, double* y) {
  constexpr int SIDE = WIDE * LANES;
  const int32_t* ptr = transposed ? t.by_earlier_ptr : t.by_later_ptr;
  const int32_t* other = transposed ? t.by_earlier : t.by_later;
  const double* extra = transposed ? t.by_earlier_extra : t.by_later_extra;
  V ground[WIDE], low[WIDE];
  VI doubtful = VI{};
  for (int h = 0; h < WIDE; h++) ground[h] = sum[h] * t.ground, low[h] = ground[h] * 1e-3;
  for (int j = 0; j < t.labels; j++) {
    V acc[WIDE];
    for (int h = 0; h < WIDE; h++) acc[h] = ground[h];
    for (int32_t p = ptr[j]; p < ptr[j + 1]; p++) {
      const double* from = x + (int64_t)other[p] * SIDE;
      const V d = fill(extra[p]);
      for (int h = 0; h < WIDE; h++) acc[h] += d * load(from + h * LANES);
    }
    for (int h = 0; h < WIDE; h++) {
      doubtful |= (acc[h] <= low[h]) & (low[h] > V{});
      store(y + (int64_t)j * SIDE + h * LANES, acc[h]);
    }
  }
  bool any = false;
  for (int b = 0; b < LANES; b++) any |= doubtful[b] != 0;
  if (!any) return;
  // row j of the other table holds the weights into label j
  const double* column = transposed ? t.prob : t.prob_t;
  for (int j = 0; j < t.labels; j++)
    for (int b = 0; b < SIDE; b++) {
      double& at = y[(int64_t)j * SIDE + b];
      if (at > low[b / LANES][b % LANES] || !(low[b / LANES][b % LANES] > 0)) continue;
      at = 0;
      for (int i = 0; i < t.labels; i++) at += x[(int64_t)i * SIDE + b] * column[(int64_t)j * t.stride + i];
    }
}

// counts += Σ_t Σ_lanes factor α_t(i) v_{t+1}(j) for the pairs (i, j) that carry a weight, a few steps at a time
// so that a sum across lanes serves them all
template <int WIDE>
void count_pairs_sparse(const EdgeTable& t, int64_t steps, const double* alpha, const double* v, const V* factor,
                        Sweep& s) {
  constexpr int SIDE = WIDE * LANES, BLOCK = WIDE > 4 ? 1 : CRFIELD_LEVEL == 4 ? 12 / WIDE : 4 / WIDE;
  const int64_t cells = (int64_t)t.labels * SIDE;
  auto some = [&](auto block, int64_t first) {
    constexpr int B = decltype(block)::COUNT;
    const double *a = alpha + first * cells, *b = v + first * cells;
    for (int i = 0; i < t.labels; i++) {
      V from[B][WIDE];
      for (int k = 0; k < B; k++)
        for (int h = 0; h < WIDE; h++) from[k][h] = factor[h] * load(a + k * cells + i * SIDE + h * LANES);
      for (int32_t p = t.by_earlier_ptr[i]; p < t.by_earlier_ptr[i + 1]; p++) {
        const double* to = b + (int64_t)t.by_earlier[p] * SIDE;
        V sum[2] = {V{}, V{}};
        for (int k = 0; k < B; k++)
          for (int h = 0; h < WIDE; h++) sum[(k * WIDE + h) % 2] += from[k][h] * load(to + k * cells + h * LANES);
        (t.sparse ? s.pair_counts[p] : s.counts[(int64_t)i * s.stride + t.by_earlier[p]]) += sum_across(sum[0] + sum[1]);
      }
    }
  };
  int64_t k = 0;
  for (; k + BLOCK <= steps; k += BLOCK) some(Steps<BLOCK>(), k);
  for (; k < steps; k++) some(Steps<1>(), k);
}

// counts[i, j] += Σ_t Σ_lanes factor α_t(i) v_{t+1}(j) for I x J pairs of labels
template <int WIDE, int I, int J>
void pair_tile(int64_t steps, int labels, const double* alpha, const double* v, const V* factor, int stride,
               double* counts) {
  constexpr int SIDE = WIDE * LANES;
  V sum[I][J];
  for (int i = 0; i < I; i++)
    for (int j = 0; j < J; j++) sum[i][j] = V{};
  for (int h = 0; h < WIDE; h++) {
    V part[I][J];
    for (int i = 0; i < I; i++)
      for (int j = 0; j < J; j++) part[i][j] = V{};
    const double *a = alpha + h * LANES, *b = v + h * LANES;
    for (int64_t t = 0; t < steps; t++, a += labels * SIDE, b += labels * SIDE) {
      V from[I];
      for (int i = 0; i < I; i++) from[i] = load(a + i * SIDE);
      for (int j = 0; j < J; j++) {
        const V to = load(b + j * SIDE);
        for (int i = 0; i < I; i++) part[i][j] += from[i] * to;
      }
    }
    for (int i = 0; i < I; i++)
      for (int j = 0; j < J; j++) sum[i][j] += factor[h] * part[i][j];
  }
  for (int i = 0; i < I; i++)
    for (int j = 0; j < J; j++) counts[(int64_t)i * stride + j] += sum_across(sum[i][j]);
}

template <int WIDE, int I, int MOST>
inline void pair_upto(int n, int64_t steps, int labels, const double* alpha, const double* v, const V* factor,
                      int stride, double* counts) {
  if constexpr (MOST > 0) {
    if (n == MOST)
      pair_tile<WIDE, I, MOST>(steps, labels, alpha, v, factor, stride, counts);
    else
      pair_upto<WIDE, I, MOST - 1>(n, steps, labels, alpha, v, factor, stride, counts);
  }
}

template <int WIDE, int I>
inline void pair_panel(int64_t steps, int labels, const double* alpha, const double* v, const V* factor, int stride,
                       double* counts) {
  const int tiles = (labels + PAIR_COLUMNS - 1) / PAIR_COLUMNS;
  for (int k = 0; k < tiles; k++) {
    const int from = labels * k / tiles, to = labels * (k + 1) / tiles;
    pair_upto<WIDE, I, PAIR_COLUMNS>(to - from, steps, labels, alpha, v + (int64_t)from * WIDE * LANES, factor, stride,
                                     counts + from);
  }
}

template <int WIDE, int MOST>
inline void pair_rows(int n, int64_t steps, int labels, const double* alpha, const double* v, const V* factor,
                      int stride, double* counts) {
  if constexpr (MOST > 0) {
    if (n == MOST)
      pair_panel<WIDE, MOST>(steps, labels, alpha, v, factor, stride, counts);
    else
      pair_rows<WIDE, MOST - 1>(n, steps, labels, alpha, v, factor, stride, counts);
  }
}

// Rows of one step to vectors, and the largest of each row. Lanes from `active` on read `zeros`.
template <int WIDE>
inline void turn_in(int labels, int stride, int active, const double* rows, const double* zeros, double* out,
                    V* top) {
  constexpr int SIDE = WIDE * LANES;
  for (int h = 0; h < WIDE; h++, rows += LANES * stride, active -= LANES) {
    V most = fill(-INF);
    for (int j = 0; j < labels; j += LANES) {
      double* to = out + (int64_t)j * SIDE + h * LANES;
      V m[LANES];
      if (active >= LANES)
        for (int b = 0; b < LANES; b++) m[b] = load(rows + b * stride + j);
      else
        for (int b = 0; b < LANES; b++) m[b] = load(b < active ? rows + b * stride + j : zeros);
      transpose(m);
      for (int k = 0; k < LANES; k++) most = m[k] > most ? m[k] : most;  // padding is -inf, or zero where all is
      if (j + LANES <= labels)
        for (int k = 0; k < LANES; k++) store(to + k * SIDE, m[k]);
      else
        for (int k = 0; k < LANES; k++)
          if (j + k < labels) store(to + k * SIDE, m[k]);
    }
    top[h] = most;
  }
}

// And back: rows of whole vectors, their padding zero.
template <int WIDE>
inline void turn_out(int labels, int stride, int active, const double* in, double* rows) {
  constexpr int SIDE = WIDE * LANES;
  for (int h = 0; h < WIDE; h++, rows += LANES * stride, active -= LANES)
    for (int j = 0; j < stride; j += LANES) {
      const double* from = in + (int64_t)j * SIDE + h * LANES;
      V m[LANES];
      if (j + LANES <= labels)
        for (int k = 0; k < LANES; k++) m[k] = load(from + k * SIDE);
      else
        for (int k = 0; k < LANES; k++) m[k] = j + k < labels ? load(from + k * SIDE) : V{};
      transpose(m);
      if (active >= LANES)
        for (int b = 0; b < LANES; b++) store(rows + b * stride + j, m[b]);
      else
        for (int b = 0; b < LANES; b++)
          if (b < active) store(rows + b * stride + j, m[b]);
    }
}

// One where the sequence is running, zero where it has ended: the lanes before and after `active`.
inline V running(int active, int h) {
  static const double ones[16] = {1, 1, 1, 1, 1, 1, 1, 1};
  int n = active - h * LANES;
  n = n < 0 ? 0 : n > LANES ? LANES : n;
  return load(ones + 8 - n);
}

template <int WIDE, bool SPARSE>
void sweep_side(const EdgeTable& t, Sweep& s) {
  constexpr int SIDE = WIDE * LANES;
  const int L = s.labels;
  const int64_t cells = (int64_t)L * SIDE;
  double *q_all = s.side, *alpha_all = q_all + s.steps * cells, *beta = alpha_all + s.steps * cells;
  double *scale = beta + cells, *zeros = scale + s.steps * SIDE;
  store(zeros, V{});

  // z lies between e^-spread and L, so that many steps may pass between two logarithms of their product.
  const int often = t.spread < 196 ? (int)(200 / (t.spread + 4)) : 1;
  double log_part[SIDE];
  V shifts[WIDE], product[WIDE], sum[WIDE];
  for (int h = 0; h < WIDE; h++) shifts[h] = V{}, product[h] = fill(1);
  for (int b = 0; b < SIDE; b++) log_part[b] = 0;
  auto take_logs = [&] {
    for (int h = 0; h < WIDE; h++) {
      for (int b = 0; b < LANES; b++) log_part[h * LANES + b] += std::log(product[h][b]);
      product[h] = fill(1);
    }
  };
  for (int step = 0; step < s.steps; step++) {
    const int active = s.active[step];
    double *q = q_all + step * cells, *alpha = alpha_all + step * cells;
    V tops[WIDE];
    turn_in<WIDE>(L, s.stride, active, s.score + s.start[step] * s.stride, zeros, q, tops);
    for (int h = 0; h < WIDE; h++) {
      const V top = tops[h] == fill(-INF) ? V{} : tops[h];
      shifts[h] += top;
      for (int j = 0; j < L; j++) {
        const int64_t at = j * SIDE + h * LANES;
        store(q + at, exp_vector(load(q + at) - top));
      }
    }
    if (step && SPARSE)
      product_sparse<WIDE>(t, false, alpha - cells, sum, alpha);
    else if (step)
      product_side<WIDE>(L, alpha - cells, t.prob, t.stride, alpha);
    for (int h = 0; h < WIDE; h++) {
      const V on = running(active, h), by = step ? on * load(scale + (step - 1) * SIDE + h * LANES) : on;
      V even = V{}, odd = V{};
      auto meet = [&](int j, V& sum) {
        const int64_t at = j * SIDE + h * LANES;
        const V x = load(q + at) * by;
        const V a = step ? load(alpha + at) * x : x;
        store(q + at, x);
        store(alpha + at, a);
        sum += a;
      };
      int j = 0;
      for (; j + 1 < L; j += 2) {
        meet(j, even);
        meet(j + 1, odd);
      }
      if (j < L) meet(j, even);
      const V z = sum[h] = even + odd;
      store(scale + step * SIDE + h * LANES, z > V{} ? 1 / z : V{});
      product[h] *= on > V{} ? z : fill(1);
    }
    if (step % often == often - 1) take_logs();
  }
  take_logs();
  for (int b = 0; b < s.width; b++) {
    int length = s.steps;
    while (s.active[length - 1] <= b) length--;
    s.total[b] = log_part[b] + shifts[b / LANES][b % LANES] + (length - 1) * t.shift;
    s.lost[b] = s.total[b] == -INF;
  }

  for (int step = s.steps - 1; step >= 0; step--) {
    const int active = s.active[step], later = step + 1 < s.steps ? s.active[step + 1] : 0;
    double *u = q_all + step * cells, *alpha = alpha_all + step * cells;
    if (later && SPARSE)
      product_sparse<WIDE>(t, true, u + cells, sum, beta);
    else if (later)
      product_side<WIDE>(L, u + cells, t.prob_t, t.stride, beta);
    for (int h = 0; h < WIDE; h++) {
      const V last = load(scale + step * SIDE + h * LANES) * (1 - running(later, h));
      sum[h] = V{};
      for (int j = 0; j < L; j++) {
        const int64_t at = j * SIDE + h * LANES;
        const V x = later ? load(beta + at) + last : last, y = load(u + at) * x;
        store(u + at, y);
        if (SPARSE) sum[h] += y;
        store(beta + at, x * load(alpha + at));
      }
    }
    turn_out<WIDE>(L, s.stride, active, beta, s.belief + s.start[step] * s.stride);
  }

  if (!(SPARSE ? s.pair_counts : s.counts) || s.steps < 2) return;
  V factor[WIDE];
  for (int h = 0; h < WIDE; h++)
    for (int b = 0; b < LANES; b++) factor[h][b] = h * LANES + b < s.width ? s.factor[h * LANES + b] : 0;
  if (t.by_earlier) return count_pairs_sparse<WIDE>(t, s.steps - 1, alpha_all, q_all + cells, factor, s);
  const int tiles = (L + PAIR_ROWS - 1) / PAIR_ROWS;
  for (int k = 0; k < tiles; k++) {
    const int from = L * k / tiles, to = L * (k + 1) / tiles;
    pair_rows<WIDE, PAIR_ROWS>(to - from, s.steps - 1, L, alpha_all + (int64_t)from * SIDE, q_all + cells, factor,
                               s.stride, s.counts + (int64_t)from * s.stride);
  }
}

template <bool SPARSE, int MOST>
void by_width(int wide, const EdgeTable& t, Sweep& s) {
  if constexpr (MOST > 0) {
    if (wide == MOST)
      sweep_side<MOST, SPARSE>(t, s);
    else
      by_width<SPARSE, MOST - 1>(wide, t, s);
  }
}

}  // namespace

// Whether the group is better swept side by side: with few labels where products are fewer than by rows, which pay for
// more besides; with few weighted pairs where most lanes are at work.
bool fits_side(const EdgeTable& t, const Sweep& s) {
  if (!s.side || !t.safe) return false;
  if (t.sparse) return s.width <= SIDE_MOST && 3 * s.start[s.steps] >= 2 * (int64_t)s.steps * s.width;
  if (s.width > SIDE_MOST / 2 || s.labels > SIDE_LABELS) return false;
  const int64_t wide = (s.width + LANES - 1) / LANES;
  return 4 * s.labels * wide * s.steps <= 5 * s.start[s.steps] * (s.stride / LANES);
}

void sweep_side_by_side(const EdgeTable& t, Sweep& s) {
  const int wide = (s.width + LANES - 1) / LANES;
  if (t.sparse)
    by_width<true, SIDE_MOST / LANES>(wide, t, s);
  else
    by_width<false, SIDE_MOST / 2 / LANES>(wide, t, s);
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
