// One sequence from both of its ends at once.
//
//   first half of the work:    α_t for t < H from the left,     v_t for t ≥ H from the right
//   second half:               α goes on to T - 1 and meets v,  v goes on to 0 and meets α
//
// With the names of sweep.cpp, a row x of either side goes to the next by the same three lines,
//
//   y = (x M) / Σ x        x' = y ∘ ψ        and, where the other side's row w is known,  p = y ∘ w / n,  n = Σ y ∘ w
//
// with M = E from the left and M = Eᵀ from the right; the pair of labels on that edge has the probability
// x_i E_ij w_j / (n Σ x) from the left, w_i E_ij x_j / (n Σ x) from the right.
//
// Why: a step of the recursion waits for the step before it, and for few labels that wait is the whole cost. Two
// recursions that know nothing of each other fill the wait, where a single sequence has no neighbours in its group to
// do so. For the same reason a row is divided by the sum of the row before it, not by its own: the division is then off
// the path. Rows stay in blocks that fit the first cache, α and v lie in the beliefs until they are replaced by them,
// and pairs are added up as one product for each block.
//
// It is exact where sweep.cpp says that no care is needed, with a margin: sums of rows vary by one step's factor, which
// is at least e^-R / L, so a table may spread over R = 100 nats here and what is lost weighs at most L² e^(3R - 708).
#include <cmath>

#include "chain/sweep.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {
namespace {

constexpr int BLOCK = 64;

// Rows of L numbers to rows of VECS vectors, and back. The last vector overlaps the one before it.
template <int VECS>
inline void pad_rows(int64_t rows, int labels, const double* from, double pad, double* to) {
  constexpr int stride = VECS * LANES;
  for (int64_t r = 0; r < rows; r++, from += labels, to += stride) {
    if (VECS == 1) {
      store(to, fill(pad));
      for (int j = 0; j < labels; j++) to[j] = from[j];
    } else {
      const V last = load(from + labels - LANES);
      for (int v = 0; v + 1 < VECS; v++) store(to + v * LANES, load(from + v * LANES));
      store(to + (VECS - 1) * LANES, fill(pad));
      store(to + labels - LANES, last);
    }
  }
}

template <int VECS>
inline void narrow(int64_t rows, int labels, const double* from, double* to) {
  constexpr int stride = VECS * LANES;
  for (int64_t r = 0; r < rows; r++, from += stride, to += labels) {
    if (VECS == 1) {
      for (int j = 0; j < labels; j++) to[j] = from[j];
    } else {
      for (int v = 0; v + 1 < VECS; v++) store(to + v * LANES, load(from + v * LANES));
      store(to + labels - LANES, load(from + labels - LANES));
    }
  }
}

// y = x M, in two sums of every other label, so that additions wait less for each other
template <int VECS>
inline void times(int labels, const double* x, const double* M, V (&y)[VECS]) {
  constexpr int stride = VECS * LANES;
  V odd[VECS];
  for (int v = 0; v < VECS; v++) y[v] = odd[v] = V{};
  int i = 0;
  for (; i + 1 < labels; i += 2, M += 2 * stride) {
    const V a = fill(x[i]), b = fill(x[i + 1]);
    for (int v = 0; v < VECS; v++) {
      y[v] += a * load(M + v * LANES);
      odd[v] += b * load(M + stride + v * LANES);
    }
  }
  if (i < labels) {
    const V a = fill(x[i]);
    for (int v = 0; v < VECS; v++) y[v] += a * load(M + v * LANES);
  }
  for (int v = 0; v < VECS; v++) y[v] += odd[v];
}

// One end on its way. Blocks lie in memory in the order of the sequence, whichever way they are walked: an end that
// walks down fills them from their last row.
struct End {
  const double* table = nullptr;
  double* row = nullptr;   // (BLOCK + 1, stride) the rows x of this block and the one before it
  double* met = nullptr;   // (BLOCK, stride) rows w of the other end; then w / (n Σ x)
  double* belief = nullptr;  // (BLOCK, stride)
  double inverse = 0;      // 1 / Σ x of the last row
  double product = 1, log_part = 0;
};

// One row further: `x` to `next`, `psi` being that of the next.
template <int VECS, bool MEET>
__attribute__((always_inline)) inline void advance(End& e, int labels, const double* x, const double* psi, double* next, double* met, double* belief) {
  V y[VECS];
  times<VECS>(labels, x, e.table, y);
  const V by = fill(e.inverse);
  V sum = V{};
  for (int v = 0; v < VECS; v++) {
    y[v] *= by;
    const V z = y[v] * load(psi + v * LANES);
    store(next + v * LANES, z);
    sum += z;
  }
  if (MEET) {
    V all = V{}, w[VECS];
    for (int v = 0; v < VECS; v++) {
      w[v] = load(met + v * LANES);
      y[v] *= w[v];
      all += y[v];
    }
    const double n = 1 / sum_lanes(all);
    const V share = fill(n), pair = fill(n * e.inverse);
    for (int v = 0; v < VECS; v++) {
      store(belief + v * LANES, y[v] * share);
      store(met + v * LANES, w[v] * pair);
    }
  }
  const double z = sum_lanes(sum);
  e.inverse = 1 / z;
  multiply(z, e.product, e.log_part);
}

template <int VECS>
bool both_ends_of(const EdgeTable& t, BothEnds& s) {
  constexpr int stride = VECS * LANES;
  const int L = t.labels;
  const int64_t T = s.steps, half = T / 2;
  End left, right;
  double* at = s.spare;
  for (int k = 0; k < 2; k++) {
    End& e = k ? right : left;
    e.row = at;
    e.met = e.row + (BLOCK + 1) * stride;
    e.belief = e.met + BLOCK * stride;
    at = e.belief + BLOCK * stride;
  }
  left.table = t.prob;
  right.table = t.prob_t;
  bool possible = true;
  double shifts = (double)(T - 1) * t.shift;
  auto exponentiated = [&](int64_t from, int64_t rows) {
    double top[BLOCK];
    double* psi = s.psi + from * stride;
    pad_rows<VECS>(rows, L, s.node + from * L, -INF, psi);
    for (int64_t r = 0; r < rows; r++) {
      top[r] = top_of_row(VECS, psi + r * stride);
      possible &= top[r] != -INF;
      shifts += top[r];
    }
    for (int64_t r = 0; r < rows; r++) exponentiate_below(VECS, psi + r * stride, top[r]);
  };
  auto begin = [&](End& e, const double* psi, double* x) {
    V sum = V{};
    for (int v = 0; v < VECS; v++) {
      store(x + v * LANES, load(psi + v * LANES));
      sum += load(psi + v * LANES);
    }
    const double z = sum_lanes(sum);
    e.inverse = 1 / z;
    multiply(z, e.product, e.log_part);
  };
  auto copy_row = [&](const double* from, double* to) {
    for (int v = 0; v < VECS; v++) store(to + v * LANES, load(from + v * LANES));
  };

  // Towards the middle: rows 0 … half - 1 and T - 1 … half. Only then is anything divided by a sum of nothing.
  exponentiated(0, 1);
  exponentiated(T - 1, 1);
  if (!possible) return false;
  begin(left, s.psi, left.row);
  begin(right, s.psi + (T - 1) * stride, right.row + BLOCK * stride);
  narrow<VECS>(1, L, left.row, s.belief);
  narrow<VECS>(1, L, right.row + BLOCK * stride, s.belief + (T - 1) * L);
  for (int64_t done = 1; done < T - half;) {
    const int64_t here = T - half - done < BLOCK ? T - half - done : BLOCK;
    const int64_t ours = done + here <= half ? here : half - done;  // the right half may have a row more
    const int64_t low = T - done - here;
    exponentiated(done, ours);
    exponentiated(low, here);
    if (!possible) return false;
    End a = left, b = right;
    const double *up = s.psi + done * stride, *down = s.psi + (T - 1 - done) * stride;
    double *x = a.row, *v = b.row + BLOCK * stride;
    for (int64_t k = 0; k < ours; k++, up += stride, down -= stride, x += stride, v -= stride) {
      advance<VECS, false>(a, L, x, up, x + stride, nullptr, nullptr);
      advance<VECS, false>(b, L, v, down, v - stride, nullptr, nullptr);
    }
    if (ours < here) {
      advance<VECS, false>(b, L, v, down, v - stride, nullptr, nullptr);
      v -= stride;
    }
    left = a;
    right = b;
    narrow<VECS>(ours, L, left.row + stride, s.belief + done * L);
    narrow<VECS>(here, L, v, s.belief + low * L);
    copy_row(x, left.row);
    copy_row(v, right.row + BLOCK * stride);
    done += here;
  }

  // Apart again: rows half … T - 1 and half - 1 … 0, each meeting what the other end has left there.
  for (int64_t done = 0; done < T - half;) {
    const int64_t here = T - half - done < BLOCK ? T - half - done : BLOCK;
    const int64_t theirs = done + here <= half ? here : half - done;
    const int64_t low = half - done - theirs;
    pad_rows<VECS>(here, L, s.belief + (half + done) * L, 0, left.met);
    pad_rows<VECS>(theirs, L, s.belief + low * L, 0, right.met + (BLOCK - theirs) * stride);
    End a = left, b = right;
    const double *up = s.psi + (half + done) * stride, *down = s.psi + (half - 1 - done) * stride;
    double *x = a.row, *v = b.row + BLOCK * stride;
    int64_t k = 0, m = BLOCK - 1;
    for (; k < theirs; k++, m--, up += stride, down -= stride, x += stride, v -= stride) {
      advance<VECS, true>(a, L, x, up, x + stride, a.met + k * stride, a.belief + k * stride);
      advance<VECS, true>(b, L, v, down, v - stride, b.met + m * stride, b.belief + m * stride);
    }
    if (k < here) {
      advance<VECS, true>(a, L, x, up, x + stride, a.met + k * stride, a.belief + k * stride);
      x += stride;
    }
    left = a;
    right = b;
    narrow<VECS>(here, L, left.belief, s.belief + (half + done) * L);
    narrow<VECS>(theirs, L, right.belief + (BLOCK - theirs) * stride, s.belief + low * L);
    // The edge in the middle is met from both ends and counted once, by the right one.
    const int64_t skip = done ? 0 : 1;
    add_outer(here - skip, L, stride, left.row + skip * stride, left.met + skip * stride, s.counts);
    add_outer(theirs, L, stride, right.met + (BLOCK - theirs) * stride, right.row + (BLOCK + 1 - theirs) * stride, s.counts);
    copy_row(x, left.row);
    copy_row(v, right.row + BLOCK * stride);
    done += here;
  }
  s.total = left.log_part + std::log(left.product) + shifts;
  return true;
}

}  // namespace

int64_t both_ends_spare(int stride) { return 2 * (3 * BLOCK + 1) * (int64_t)stride; }

bool both_ends(const EdgeTable& t, BothEnds& s) {
  switch (t.stride / LANES) {
    case 1: return both_ends_of<1>(t, s);
    case 2: return both_ends_of<2>(t, s);
    case 3: return both_ends_of<3>(t, s);
    case 4: return both_ends_of<4>(t, s);
    case 5: return both_ends_of<5>(t, s);
    default: return both_ends_of<6>(t, s);
  }
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
