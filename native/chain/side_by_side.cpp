// The scaled recursion of sweep.cpp for few labels, sequences side by side.
//
// A row of nine labels fills two vectors of eight to little more than half, its sum and its maximum go across the
// vector, and its division serves one sequence. Here a vector holds one label of several sequences instead:
//
//   α_t(j) = ψ_t(j) Σ_i α_{t-1}(i) E_ij / z_t        E_ij is one number for all sequences, read as it is needed
//
// so nothing is padded, sums over labels are plain additions, and an exponential, a division or a logarithm serves
// all lanes at once. Rows are turned (transpose.hpp) where they come in and where beliefs go out. WIDE vectors
// stand beside each other where the sequences of a group do not fit one.
//
// Sequences that have ended stay as lanes of zeros: with ψ / z = 0 their α and v are zero, so they count for nothing
// and β of a last step is 0 + 1. That is for tables that are `safe` (sweep.cpp): a step without any label that is
// possible makes the total -inf and all beliefs from there on zero.
//
// Written once for both precisions (T): in single, two groups share the lanes, logarithms and expected pairs are summed in
// double. What is lost in single? Numbers below e^-87. With edge scores spread over R nats, s_t lies between e^-R and L,
// α_{t-1} E above e^-2R, and both α_t and β_t differ by at most e^R from label to label for equal ψ; so what falls below
// e^-87 weighs at most L e^(2R - 87) of its step, and nothing exceeds e^2R. With R <= SINGLE_SPREAD = 30 that is less than
// rounding, however far node scores spread.
#include <cmath>

#include "chain/single.hpp"
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

template <class T>
constexpr int WHOLE = LANES * Of<T>::BLOCKS;  // lanes of a whole vector
template <class T>
using Whole = typename Of<T>::Whole;
template <class T>
using Block = typename Of<T>::Block;

// The tables in either precision
template <class T>
struct Tables;
template <>
struct Tables<double> {
  const double *prob, *prob_t, *later_extra, *earlier_extra;
  explicit Tables(const EdgeTable& t)
      : prob(t.prob), prob_t(t.prob_t), later_extra(t.by_later_extra), earlier_extra(t.by_earlier_extra) {}
  static constexpr double LOW = 1e-3;  // of the ground: what comes out below is doubtful
};
template <>
struct Tables<float> {
  const float *prob, *prob_t, *later_extra, *earlier_extra;
  explicit Tables(const EdgeTable& t)
      : prob(t.single_prob),
        prob_t(t.single_prob_t),
        later_extra(t.single_later_extra),
        earlier_extra(t.single_earlier_extra) {}
  static constexpr float LOW = 1.0f / 32;
};

// y_j = Σ_i x_i M[i, j] for J labels j; x and y (labels, WIDE vectors)
template <class T, int WIDE, int J>
inline void product_tile(int labels, const T* x, const T* M, int stride, T* y) {
  constexpr int SIDE = WIDE * WHOLE<T>;
  Whole<T> sum[J][WIDE];
  for (int j = 0; j < J; j++)
    for (int h = 0; h < WIDE; h++) sum[j][h] = Whole<T>{};
  for (int i = 0; i < labels; i++, x += SIDE, M += stride) {
    Whole<T> from[WIDE];
    for (int h = 0; h < WIDE; h++) from[h] = whole_at(x + h * WHOLE<T>);
    for (int j = 0; j < J; j++) {
      const Whole<T> by = whole_of(M[j]);
      for (int h = 0; h < WIDE; h++) sum[j][h] += by * from[h];
    }
  }
  for (int j = 0; j < J; j++)
    for (int h = 0; h < WIDE; h++) put(y + j * SIDE + h * WHOLE<T>, sum[j][h]);
}

// The same for n <= MOST labels
template <class T, int WIDE, int MOST>
inline void product_upto(int n, int labels, const T* x, const T* M, int stride, T* y) {
  if constexpr (MOST > 0) {
    if (n == MOST)
      product_tile<T, WIDE, MOST>(labels, x, M, stride, y);
    else
      product_upto<T, WIDE, MOST - 1>(n, labels, x, M, stride, y);
  }
}

template <class T, int WIDE>
inline void product_side(int labels, const T* x, const T* M, int stride, T* y) {
  constexpr int MOST = REGISTERS / WIDE < 12 ? REGISTERS / WIDE : 12;
  const int tiles = (labels + MOST - 1) / MOST;
  for (int k = 0; k < tiles; k++) {
    const int from = labels * k / tiles, to = labels * (k + 1) / tiles;
    product_upto<T, WIDE, MOST>(to - from, labels, x, M + from, stride, y + (int64_t)from * WIDE * WHOLE<T>);
  }
}

// y = x M where few pairs carry a weight: M = g 1 1ᵀ + D (sparse_edges.cpp, which also tells the trap). `sum` is Σ_i x_i.
template <class T, int WIDE>
void product_sparse(const EdgeTable& t, bool transposed, const T* x, const Whole<T>* sum, T* y) {
  constexpr int SIDE = WIDE * WHOLE<T>;
  const Tables<T> tables(t);
  const int32_t* ptr = transposed ? t.by_earlier_ptr : t.by_later_ptr;
  const int32_t* other = transposed ? t.by_earlier : t.by_later;
  const T* extra = transposed ? tables.earlier_extra : tables.later_extra;
  Whole<T> ground[WIDE], low[WIDE];
  typename Of<T>::Mask doubtful = {};
  for (int h = 0; h < WIDE; h++) ground[h] = sum[h] * (T)t.ground, low[h] = ground[h] * Tables<T>::LOW;
  for (int j = 0; j < t.labels; j++) {
    Whole<T> acc[WIDE];
    for (int h = 0; h < WIDE; h++) acc[h] = ground[h];
    for (int32_t p = ptr[j]; p < ptr[j + 1]; p++) {
      const T* from = x + (int64_t)other[p] * SIDE;
      const Whole<T> d = whole_of(extra[p]);
      for (int h = 0; h < WIDE; h++) acc[h] += d * whole_at(from + h * WHOLE<T>);
    }
    for (int h = 0; h < WIDE; h++) {
      doubtful |= (acc[h] <= low[h]) & (low[h] > Whole<T>{});
      put(y + (int64_t)j * SIDE + h * WHOLE<T>, acc[h]);
    }
  }
  bool any = false;
  for (int b = 0; b < WHOLE<T>; b++) any |= doubtful[b] != 0;
  if (!any) return;
  // row j of the other table holds the weights into label j
  const T* column = transposed ? tables.prob : tables.prob_t;
  for (int j = 0; j < t.labels; j++)
    for (int b = 0; b < SIDE; b++) {
      T& at = y[(int64_t)j * SIDE + b];
      const T least = low[b / WHOLE<T>][b % WHOLE<T>];
      if (at > least || !(least > 0)) continue;
      at = 0;
      for (int i = 0; i < t.labels; i++) at += x[(int64_t)i * SIDE + b] * column[(int64_t)j * t.stride + i];
    }
}

// counts += Σ_t Σ_lanes factor α_t(i) v_{t+1}(j) for the pairs (i, j) that carry a weight, a few steps at a time
// so that a sum across lanes serves them all; in single precision (P vectors of `spare`) it serves all steps
template <class T, int WIDE>
void count_pairs_sparse(const EdgeTable& t, int64_t steps, const T* alpha, const T* v, const Whole<T>* factor,
                        const Beside<T>& s, T* spare) {
  constexpr bool KEPT = Of<T>::BLOCKS > 1;
  constexpr int SIDE = WIDE * WHOLE<T>, BLOCK = WIDE > 4 ? 1 : CRFIELD_LEVEL == 4 ? 12 / WIDE : 4 / WIDE;
  const int64_t cells = (int64_t)t.labels * SIDE;
  auto count = [&](int i, int32_t p) -> double& {
    return t.sparse ? s.pair_counts[p] : s.counts[(int64_t)i * s.stride + t.by_earlier[p]];
  };
  auto some = [&](auto block, int64_t first) {
    constexpr int B = decltype(block)::COUNT;
    const T *a = alpha + first * cells, *b = v + first * cells;
    for (int i = 0; i < t.labels; i++) {
      Whole<T> from[B][WIDE];
      for (int k = 0; k < B; k++)
        for (int h = 0; h < WIDE; h++) from[k][h] = factor[h] * whole_at(a + k * cells + i * SIDE + h * WHOLE<T>);
      for (int32_t p = t.by_earlier_ptr[i]; p < t.by_earlier_ptr[i + 1]; p++) {
        const T* to = b + (int64_t)t.by_earlier[p] * SIDE;
        Whole<T> sum[2] = {};
        if constexpr (KEPT) sum[0] = whole_at(spare + p * WHOLE<T>);
        for (int k = 0; k < B; k++)
          for (int h = 0; h < WIDE; h++)
            sum[(k * WIDE + h) % 2] += from[k][h] * whole_at(to + k * cells + h * WHOLE<T>);
        if constexpr (KEPT)
          put(spare + p * WHOLE<T>, sum[0] + sum[1]);
        else
          count(i, p) += sum_across(sum[0] + sum[1]);
      }
    }
  };
  if constexpr (KEPT)
    for (int32_t p = 0; p < t.by_earlier_ptr[t.labels]; p++) put(spare + p * WHOLE<T>, Whole<T>{});
  int64_t k = 0;
  for (; k + BLOCK <= steps; k += BLOCK) some(Steps<BLOCK>(), k);
  if constexpr (KEPT && BLOCK > 4)
    for (; k + 4 <= steps; k += 4) some(Steps<4>(), k);
  for (; k < steps; k++) some(Steps<1>(), k);
  if constexpr (KEPT)
    for (int i = 0; i < t.labels; i++)
      for (int32_t p = t.by_earlier_ptr[i]; p < t.by_earlier_ptr[i + 1]; p++)
        count(i, p) += sum_across(whole_at(spare + p * WHOLE<T>));
}

// counts[i, j] += Σ_t Σ_lanes factor α_t(i) v_{t+1}(j) for I x J pairs of labels
template <class T, int WIDE, int I, int J>
void pair_tile(int64_t steps, int labels, const T* alpha, const T* v, const Whole<T>* factor, int stride,
               double* counts) {
  constexpr int SIDE = WIDE * WHOLE<T>;
  Whole<T> sum[I][J];
  for (int i = 0; i < I; i++)
    for (int j = 0; j < J; j++) sum[i][j] = Whole<T>{};
  for (int h = 0; h < WIDE; h++) {
    Whole<T> part[I][J];
    for (int i = 0; i < I; i++)
      for (int j = 0; j < J; j++) part[i][j] = Whole<T>{};
    const T *a = alpha + h * WHOLE<T>, *b = v + h * WHOLE<T>;
    for (int64_t t = 0; t < steps; t++, a += labels * SIDE, b += labels * SIDE) {
      Whole<T> from[I];
      for (int i = 0; i < I; i++) from[i] = whole_at(a + i * SIDE);
      for (int j = 0; j < J; j++) {
        const Whole<T> to = whole_at(b + j * SIDE);
        for (int i = 0; i < I; i++) part[i][j] += from[i] * to;
      }
    }
    for (int i = 0; i < I; i++)
      for (int j = 0; j < J; j++) sum[i][j] += factor[h] * part[i][j];
  }
  for (int i = 0; i < I; i++)
    for (int j = 0; j < J; j++) counts[(int64_t)i * stride + j] += sum_across(sum[i][j]);
}

template <class T, int WIDE, int I, int MOST>
inline void pair_upto(int n, int64_t steps, int labels, const T* alpha, const T* v, const Whole<T>* factor,
                      int stride, double* counts) {
  if constexpr (MOST > 0) {
    if (n == MOST)
      pair_tile<T, WIDE, I, MOST>(steps, labels, alpha, v, factor, stride, counts);
    else
      pair_upto<T, WIDE, I, MOST - 1>(n, steps, labels, alpha, v, factor, stride, counts);
  }
}

template <class T, int WIDE, int I>
inline void pair_panel(int64_t steps, int labels, const T* alpha, const T* v, const Whole<T>* factor, int stride,
                       double* counts) {
  const int tiles = (labels + PAIR_COLUMNS - 1) / PAIR_COLUMNS;
  for (int k = 0; k < tiles; k++) {
    const int from = labels * k / tiles, to = labels * (k + 1) / tiles;
    pair_upto<T, WIDE, I, PAIR_COLUMNS>(to - from, steps, labels, alpha, v + (int64_t)from * WIDE * WHOLE<T>, factor,
                                        stride, counts + from);
  }
}

template <class T, int WIDE, int MOST>
inline void pair_rows(int n, int64_t steps, int labels, const T* alpha, const T* v, const Whole<T>* factor,
                      int stride, double* counts) {
  if constexpr (MOST > 0) {
    if (n == MOST)
      pair_panel<T, WIDE, MOST>(steps, labels, alpha, v, factor, stride, counts);
    else
      pair_rows<T, WIDE, MOST - 1>(n, steps, labels, alpha, v, factor, stride, counts);
  }
}

// Rows of one step to a block of lanes, and the largest of each row. Lanes from `active` on read `zeros`.
template <class T>
inline Block<T> turn_in(int side, int labels, int stride, int active, const T* rows, const T* zeros, T* out) {
  Block<T> most = block_of((T)-INF);
  for (int j = 0; j < labels; j += LANES) {
    T* to = out + (int64_t)j * side;
    Block<T> m[LANES];
    if (active >= LANES)
      for (int b = 0; b < LANES; b++) m[b] = block_at(rows + b * stride + j);
    else
      for (int b = 0; b < LANES; b++) m[b] = block_at(b < active ? rows + b * stride + j : zeros);
    transpose(m);
    for (int k = 0; k < LANES; k++) most = m[k] > most ? m[k] : most;  // padding is -inf, or zero where all is
    if (j + LANES <= labels)
      for (int k = 0; k < LANES; k++) put(to + k * side, m[k]);
    else
      for (int k = 0; k < LANES; k++)
        if (j + k < labels) put(to + k * side, m[k]);
  }
  return most;
}

// And back: rows of whole blocks, their padding zero.
template <class T>
inline void turn_out(int side, int labels, int stride, int active, const T* in, T* rows) {
  for (int j = 0; j < stride; j += LANES) {
    const T* from = in + (int64_t)j * side;
    Block<T> m[LANES];
    if (j + LANES <= labels)
      for (int k = 0; k < LANES; k++) m[k] = block_at(from + k * side);
    else
      for (int k = 0; k < LANES; k++) m[k] = j + k < labels ? block_at(from + k * side) : Block<T>{};
    transpose(m);
    if (active >= LANES)
      for (int b = 0; b < LANES; b++) put(rows + b * stride + j, m[b]);
    else
      for (int b = 0; b < LANES; b++)
        if (b < active) put(rows + b * stride + j, m[b]);
  }
}

// The first row of a block of lanes at a step, and how many of them are running.
template <class T>
struct Place {
  const typename Beside<T>::Lanes* of;
  int first;  // lane among those of its group
  int running(int step) const {
    const int n = step < of->steps ? of->active[step] - first : 0;
    return n < 0 ? 0 : n > LANES ? LANES : n;
  }
  int64_t row(int step) const { return of->start[step] + first; }
};

// One where the sequence is running, zero where it has ended.
template <class T, int BLOCKS>
inline Whole<T> ones(const int (&running)[BLOCKS]) {
  static const T table[16] = {1, 1, 1, 1, 1, 1, 1, 1};
  Block<T> on[BLOCKS];
  for (int c = 0; c < BLOCKS; c++) on[c] = block_at(table + 8 - running[c]);
  return join(on);
}

template <class T, int WIDE, bool SPARSE>
void sweep_side(const EdgeTable& t, const Beside<T>& s) {
  constexpr int SIDE = WIDE * WHOLE<T>, BLOCKS = Of<T>::BLOCKS, ALL = WIDE * BLOCKS;
  using X = Whole<T>;
  const Tables<T> tables(t);
  const int L = s.labels, steps = s.of[0].steps;
  const int64_t cells = (int64_t)L * SIDE;
  T *q_all = s.side, *alpha_all = q_all + steps * cells, *beta = alpha_all + steps * cells;
  T *scale = beta + cells, *zeros = scale + steps * SIDE;
  put(zeros, X{});
  Place<T> place[ALL];
  for (int c = 0; c < ALL; c++) {
    const int k = c * LANES / s.per;
    static const typename Beside<T>::Lanes nobody;
    place[c] = {k < s.n ? &s.of[k] : &nobody, c * LANES % s.per};
  }
  auto on_at = [&](int step, int h) {
    int running[BLOCKS];
    for (int c = 0; c < BLOCKS; c++) running[c] = place[h * BLOCKS + c].running(step);
    return ones<T>(running);
  };

  // z lies between e^-spread and L, so that many steps may pass between two logarithms of their product.
  const int often = t.spread < 196 ? (int)(200 / (t.spread + 4)) : 1;
  double log_part[SIDE];
  V shifts[ALL], product[ALL];
  X sum[WIDE], sizes[WIDE];
  for (int h = 0; h < WIDE; h++) sizes[h] = X{};
  for (int c = 0; c < ALL; c++) shifts[c] = V{}, product[c] = fill(1);
  for (int b = 0; b < SIDE; b++) log_part[b] = 0;
  auto take_logs = [&] {
    for (int c = 0; c < ALL; c++) {
      for (int b = 0; b < LANES; b++) log_part[c * LANES + b] += std::log(product[c][b]);
      product[c] = fill(1);
    }
  };
  for (int step = 0; step < steps; step++) {
    T *q = q_all + step * cells, *alpha = alpha_all + step * cells;
    X tops[WIDE];
    for (int h = 0; h < WIDE; h++) {
      Block<T> top[BLOCKS];
      for (int c = 0; c < BLOCKS; c++) {
        const Place<T>& at = place[h * BLOCKS + c];
        const int running = at.running(step);
        const T* rows = running ? at.of->score + at.row(step) * s.stride : zeros;
        top[c] = turn_in<T>(SIDE, L, s.stride, running, rows, zeros, q + h * WHOLE<T> + c * LANES);
      }
      tops[h] = join(top);
    }
    for (int h = 0; h < WIDE; h++) {
      const X top = tops[h] == whole_of((T)-INF) ? X{} : tops[h];
      V wide[BLOCKS];
      widen(top, wide);
      for (int c = 0; c < BLOCKS; c++) shifts[h * BLOCKS + c] += wide[c];
      if (BLOCKS > 1) sizes[h] += top > X{} ? top : -top;
      for (int j = 0; j < L; j++) {
        const int64_t at = j * SIDE + h * WHOLE<T>;
        put(q + at, exp_vector(whole_at(q + at) - top));
      }
    }
    if (step && SPARSE)
      product_sparse<T, WIDE>(t, false, alpha - cells, sum, alpha);
    else if (step)
      product_side<T, WIDE>(L, alpha - cells, tables.prob, t.stride, alpha);
    for (int h = 0; h < WIDE; h++) {
      const X on = on_at(step, h), by = step ? on * whole_at(scale + (step - 1) * SIDE + h * WHOLE<T>) : on;
      X even = X{}, odd = X{};
      auto meet = [&](int j, X& sum) {
        const int64_t at = j * SIDE + h * WHOLE<T>;
        const X x = whole_at(q + at) * by;
        const X a = step ? whole_at(alpha + at) * x : x;
        put(q + at, x);
        put(alpha + at, a);
        sum += a;
      };
      int j = 0;
      for (; j + 1 < L; j += 2) {
        meet(j, even);
        meet(j + 1, odd);
      }
      if (j < L) meet(j, even);
      const X z = sum[h] = even + odd;
      put(scale + step * SIDE + h * WHOLE<T>, z > X{} ? 1 / z : X{});
      V wide[BLOCKS];
      widen(on > X{} ? z : whole_of((T)1), wide);
      for (int c = 0; c < BLOCKS; c++) product[h * BLOCKS + c] *= wide[c];
    }
    if (step % often == often - 1) take_logs();
  }
  take_logs();
  for (int k = 0; k < s.n; k++)
    for (int b = 0; b < s.of[k].width; b++) {
      const int lane = k * s.per + b;
      int length = s.of[k].steps;
      while (s.of[k].active[length - 1] <= b) length--;
      s.of[k].total[b] = log_part[lane] + shifts[lane / LANES][lane % LANES] + (length - 1) * t.shift;
      if (s.of[k].size) s.of[k].size[b] = (double)sizes[lane / WHOLE<T>][lane % WHOLE<T>];
    }

  for (int step = steps - 1; step >= 0; step--) {
    const bool later = step + 1 < steps;
    T *u = q_all + step * cells, *alpha = alpha_all + step * cells;
    if (later && SPARSE)
      product_sparse<T, WIDE>(t, true, u + cells, sum, beta);
    else if (later)
      product_side<T, WIDE>(L, u + cells, tables.prob_t, t.stride, beta);
    for (int h = 0; h < WIDE; h++) {
      const X last = whole_at(scale + step * SIDE + h * WHOLE<T>) * (1 - on_at(step + 1, h));
      sum[h] = X{};
      for (int j = 0; j < L; j++) {
        const int64_t at = j * SIDE + h * WHOLE<T>;
        const X x = later ? whole_at(beta + at) + last : last, y = whole_at(u + at) * x;
        put(u + at, y);
        if (SPARSE) sum[h] += y;
        put(beta + at, x * whole_at(alpha + at));
      }
    }
    for (int c = 0; c < ALL; c++)
      if (const int running = place[c].running(step))
        turn_out<T>(SIDE, L, s.stride, running, beta + c * LANES, place[c].of->belief + place[c].row(step) * s.stride);
  }

  if (!(SPARSE ? s.pair_counts : s.counts) || steps < 2) return;
  X factor[WIDE];
  for (int h = 0; h < WIDE; h++)
    for (int b = 0; b < WHOLE<T>; b++) {
      const int lane = h * WHOLE<T> + b, k = lane / s.per;
      factor[h][b] = k < s.n && lane % s.per < s.of[k].width ? (T)s.of[k].factor[lane % s.per] : 0;
    }
  const int tiles = (L + PAIR_ROWS - 1) / PAIR_ROWS;
  const int64_t block = BLOCKS == 1 ? steps : 128;  // sums of single precision are not to grow long
  for (int64_t first = 0; first < steps - 1; first += block) {
    const int64_t n = steps - 1 - first < block ? steps - 1 - first : block;
    if (t.by_earlier) {
      const T *alpha = alpha_all + first * cells, *v = q_all + (first + 1) * cells;
      count_pairs_sparse<T, WIDE>(t, n, alpha, v, factor, s, zeros + WHOLE<T>);
      continue;
    }
    for (int k = 0; k < tiles; k++) {
      const int from = L * k / tiles, to = L * (k + 1) / tiles;
      pair_rows<T, WIDE, PAIR_ROWS>(to - from, n, L, alpha_all + first * cells + (int64_t)from * SIDE,
                                    q_all + (first + 1) * cells, factor, s.stride, s.counts + (int64_t)from * s.stride);
    }
  }
}

template <class T, bool SPARSE, int MOST>
void by_width(int wide, const EdgeTable& t, const Beside<T>& s) {
  if constexpr (MOST > 0) {
    if (wide == MOST)
      sweep_side<T, MOST, SPARSE>(t, s);
    else
      by_width<T, SPARSE, MOST - 1>(wide, t, s);
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
  Beside<double> b;
  b.labels = s.labels, b.stride = s.stride, b.n = 1, b.per = wide * LANES;
  b.of[0] = {s.steps, s.width, s.active, s.start, s.score, s.belief, s.total, s.factor, nullptr};
  b.side = s.side, b.counts = s.counts, b.pair_counts = s.pair_counts;
  if (t.sparse)
    by_width<double, true, SIDE_MOST / LANES>(wide, t, b);
  else
    by_width<double, false, SIDE_MOST / 2 / LANES>(wide, t, b);
  for (int k = 0; k < s.width; k++) s.lost[k] = s.total[k] == -INF;
}

// Whether groups are better swept in single precision: where most lanes are at work.
bool fits_single(const EdgeTable& t, const Beside<float>& s) {
  if (!t.single_prob) return false;
  int64_t rows = 0;
  for (int k = 0; k < s.n; k++) {
    if (s.of[k].width > s.per) return false;
    rows += s.of[k].start[s.of[k].steps];
  }
  if (t.sparse) return 3 * rows >= (int64_t)s.of[0].steps * SIDE_MOST;
  return 4 * s.labels * (SIDE_MOST / LANES) * (int64_t)s.of[0].steps <= 10 * rows * (s.stride / LANES);
}

void sweep_single(const EdgeTable& t, const Beside<float>& s) {
  constexpr int WIDE = SIDE_MOST / (2 * LANES);
  if (t.sparse)
    sweep_side<float, WIDE, true>(t, s);
  else
    sweep_side<float, WIDE, false>(t, s);
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
