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
// Written once for both precisions (T): in single, logarithms and expected pairs are summed in
// double. What is lost in single? Numbers below e^-87. With edge scores spread over R nats, s_t lies between e^-R and L,
// α_{t-1} E above e^-2R, and both α_t and β_t differ by at most e^R from label to label for equal ψ; so what falls below
// e^-87 weighs at most L e^(2R - 87) of its step, and nothing exceeds e^2R. With R <= SINGLE_SPREAD = 30 that is less than
// rounding, however far node scores spread.
#include <cmath>

#include "chain/lane_products.hpp"
#include "chain/single.hpp"
#include "chain/sweep.hpp"
#include "chain/transpose.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {
namespace {

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
      auto meet = [&](int j, X& sum) __attribute__((always_inline)) {
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

// Groups beside each other fill WIDTH lanes, or as many as GROUPS_BESIDE such widths; in single precision twice as many.
constexpr int WIDTH = SIDE_MOST / 2;
template <class T>
bool in_one_width(const Beside<T>& s) {
  return s.n * s.per <= WIDTH * Of<T>::BLOCKS;
}

template <class T>
int64_t lanes_times_steps(const Beside<T>& s) {
  return (int64_t)(in_one_width(s) ? 1 : GROUPS_BESIDE) * WIDTH * Of<T>::BLOCKS * s.of[0].steps;
}

template <class T>
int64_t rows_of(const Beside<T>& s) {
  int64_t rows = 0;
  for (int k = 0; k < s.n; k++) rows += s.of[k].start[s.of[k].steps];
  return rows;
}

template <class T>
void by_lanes(const EdgeTable& t, const Beside<T>& s) {
  if (in_one_width(s))
    sweep_side<T, WIDTH / LANES, false>(t, s);
  else
    sweep_side<T, GROUPS_BESIDE * WIDTH / LANES, false>(t, s);
}

}  // namespace

// Whether the group is better swept side by side: with few labels where products are fewer than by rows, which pay for
// more besides; with few weighted pairs where most lanes are at work.
bool fits_side(const EdgeTable& t, const Sweep& s) {
  if (!s.side || !t.safe) return false;
  if (t.sparse) return s.width <= SIDE_MOST && 3 * s.start[s.steps] >= 2 * (int64_t)s.steps * s.width;
  if (s.width > WIDTH || s.labels > SIDE_LABELS) return false;
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
    by_width<double, false, WIDTH / LANES>(wide, t, b);
  for (int k = 0; k < s.width; k++) s.lost[k] = s.total[k] == -INF;
}

// Whether groups stand beside each other well: in single precision where most lanes are at work, in double as `fits_side`.
bool fits_beside(const EdgeTable& t, const Beside<double>& s) {
  if (!t.safe || t.sparse || s.labels > SIDE_LABELS) return false;
  return 4 * s.labels * lanes_times_steps(s) <= 5 * rows_of(s) * s.stride;
}

bool fits_beside(const EdgeTable& t, const Beside<float>& s) {
  if (!t.single_prob) return false;
  if (t.sparse) return 3 * rows_of(s) >= lanes_times_steps(s);
  return 4 * s.labels * lanes_times_steps(s) <= 10 * rows_of(s) * s.stride;
}

void sweep_beside(const EdgeTable& t, const Beside<double>& s) { by_lanes(t, s); }

void sweep_beside(const EdgeTable& t, const Beside<float>& s) {
  if (t.sparse)
    sweep_side<float, WIDTH / LANES, true>(t, s);
  else
    by_lanes(t, s);
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
