// The pass over points: scores + messages → beliefs → nodes, in blocks of 64 that stay in the nearest cache. Beliefs
// themselves never go to memory but in the last pass.
#include "dense/levels.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {

using dense::BLOCK;
using dense::Kernel;
using dense::LOG2E;
using dense::Pass;

// Rows of logs to probabilities, one after another, each shifted by its maximum.
template <class K>
static void softmax_rows(float* rows, int64_t count, int64_t width) {
  typedef typename K::V V;
  typedef typename K::Memory M;
  const int64_t vectors = width / K::lanes;
  for (int64_t i = 0; i < count; i++) {
    M* p = (M*)(rows + i * width);
    V top = p[0];
    for (int64_t a = 1; a < vectors; a++) {
      const V x = p[a];
      top = x > top ? x : top;
    }
    const float most = largest_of(top);
    V total = V{};
    for (int64_t a = 0; a < vectors; a++) {
      V x = p[a] - most;
      exp2_of<K>(x);
      p[a] = x;
      total += x;
    }
    const float inverse = 1.f / sum_of(total);
    for (int64_t a = 0; a < vectors; a++) p[a] = p[a] * inverse;
  }
}

#if CRFIELD_LEVEL >= 3
// a … d: the columns of four 4 × 4 tables, two in each vector, turned
static inline void turn(F8& a, F8& b, F8& c, F8& d) {
  const F8 x = __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13);
  const F8 y = __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
  const F8 z = __builtin_shufflevector(c, d, 0, 8, 1, 9, 4, 12, 5, 13);
  const F8 w = __builtin_shufflevector(c, d, 2, 10, 3, 11, 6, 14, 7, 15);
  a = __builtin_shufflevector(x, z, 0, 1, 8, 9, 4, 5, 12, 13);
  b = __builtin_shufflevector(x, z, 2, 3, 10, 11, 6, 7, 14, 15);
  c = __builtin_shufflevector(y, w, 0, 1, 8, 9, 4, 5, 12, 13);
  d = __builtin_shufflevector(y, w, 2, 3, 10, 11, 6, 7, 14, 15);
}

// Up to four labels: eight points at once, labels in vectors of their own. Room for a multiple of eight points.
static void softmax_four(float* rows, int64_t count) {
  for (int64_t i = 0; i < count; i += 8) {
    F8mem* p = (F8mem*)(rows + i * 4);
    F8 a = p[0], b = p[1], c = p[2], d = p[3];
    turn(a, b, c, d);
    F8 top = a > b ? a : b;
    top = c > top ? c : top;
    top = d > top ? d : top;
    a -= top, b -= top, c -= top, d -= top;
    exp2_of<Eight>(a), exp2_of<Eight>(b), exp2_of<Eight>(c), exp2_of<Eight>(d);
    const F8 inverse = 1.f / (a + b + c + d);
    a *= inverse, b *= inverse, c *= inverse, d *= inverse;
    turn(a, b, c, d);
    p[0] = a, p[1] = b, p[2] = c, p[3] = d;
  }
}

// Rows of N eights whose sums of 2^x are at least one, so that no maximum is needed; false where a sum is too large for
// that, and then rows are no longer what they were. N = 0: any width. Room for a multiple of four rows.
template <int N>
static bool softmax_plain(float* rows, int64_t count, int64_t width) {
  const int64_t vectors = N ? N : width / 8, padded = (count + 3) / 4 * 4;
  Widest::Memory* all = (Widest::Memory*)rows;  // four rows of eights are sixteens too
  for (int64_t j = 0; j < padded * vectors * 8 / Widest::lanes; j++) {
    Widest::V x = all[j];
    x = x < 120.f ? x : Widest::V{} + 120.f;
    exp2_of<Widest>(x);
    all[j] = x;
  }
  F4 most = {};
  for (int64_t i = 0; i < count; i += 4) {
    F8mem* q = (F8mem*)rows + i * vectors;
    F4 half[4];
    for (int r = 0; r < 4; r++) {
      F8 s = q[r * vectors];
      for (int64_t a = 1; a < vectors; a++) s += q[r * vectors + a];
      half[r] = __builtin_shufflevector(s, s, 0, 1, 2, 3) + __builtin_shufflevector(s, s, 4, 5, 6, 7);
    }
    const F4 ab = __builtin_shufflevector(half[0], half[1], 0, 4, 1, 5) +
                  __builtin_shufflevector(half[0], half[1], 2, 6, 3, 7);
    const F4 cd = __builtin_shufflevector(half[2], half[3], 0, 4, 1, 5) +
                  __builtin_shufflevector(half[2], half[3], 2, 6, 3, 7);
    const F4 total = __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    const F4 inverse = 1.f / total;
    most = total > most ? total : most;
    for (int r = 0; r < 4; r++)
      for (int64_t a = 0; a < vectors; a++) q[r * vectors + a] = q[r * vectors + a] * inverse[r];
  }
  return largest_of(most) < 4e34f;  // 2^115
}

static bool softmax_plain_by_width(float* rows, int64_t count, int64_t width) {
  switch (width) {
    case 8: return softmax_plain<1>(rows, count, width);
    case 16: return softmax_plain<2>(rows, count, width);
    case 24: return softmax_plain<3>(rows, count, width);
    case 32: return softmax_plain<4>(rows, count, width);
    default: return softmax_plain<0>(rows, count, width);
  }
}

#endif

// False where `gentle` was too gentle, and the rows are lost.
static bool softmax(float* rows, int64_t count, int64_t width, bool gentle) {
#if CRFIELD_LEVEL >= 3
  if (width == 4) {
    softmax_four(rows, count);
    return true;
  }
  if (gentle) return softmax_plain_by_width(rows, count, width);
#else
  (void)gentle;
#endif
  softmax_rows<Wide>(rows, count, width);
  return true;
}

// Rows of labels (count, labels) with padding, (count, width). `room` floats may be read from `packed`.
template <class K>
static void unpack(const float* packed, int64_t room, int64_t count, int64_t labels, int64_t width, float* rows) {
  typedef typename K::V V;
  typedef typename K::I I;
  const int64_t vectors = width / K::lanes;
  I real = {};  // lanes of the last vector that are labels
  for (int l = 0; l < K::lanes; l++) real[l] = (vectors - 1) * K::lanes + l < labels ? -1 : 0;
  const V padding = V{} + dense::PADDING;
  int64_t i = 0;
  for (; i < count && i * labels + width <= room; i++) {
    const typename K::Memory* from = (const typename K::Memory*)(packed + i * labels);
    typename K::Memory* to = (typename K::Memory*)(rows + i * width);
    for (int64_t a = 0; a < vectors - 1; a++) to[a] = from[a];
    const V last = from[vectors - 1];
    to[vectors - 1] = real ? last : padding;
  }
  for (; i < count; i++)
    for (int64_t l = 0; l < width; l++) rows[i * width + l] = l < labels ? packed[i * labels + l] : dense::PADDING;
}

// rows = scores + messages; points up to `to` are this thread's
static void scored(const Pass& pass, int64_t at, int64_t count, int64_t to, float* rows) {
  const bool behind = (to - at - count + 1) * pass.stride >= pass.width;  // the last row can be read as vectors
  if (pass.values && behind && dense_gather_two(pass, at, count, rows)) return;
  const float* base = pass.scores + at * pass.stride;
  if (pass.stride != pass.width) {
    const int64_t room = (to - at) * pass.stride;
    if (pass.width == 4) unpack<Four>(base, room, count, pass.labels, pass.width, rows);
    else unpack<Wide>(base, room, count, pass.labels, pass.width, rows);
    base = rows;
  }
  if (pass.values)
    for (int k = 0; k < pass.kernels; k++, base = rows)
      dense_gather(pass.kernel[k], at, count, pass.values[k], LOG2E * pass.compatibility[k].weight, base, rows,
                   pass.width);
  if (base != rows) __builtin_memcpy(rows, base, sizeof(float) * (unsigned long)(count * pass.width));
}

// Logs of rows that become probabilities: rows less the log of their sum, in units of log 2.
static void log_softmax(const float* rows, int64_t count, int64_t labels, int64_t width, float* logs) {
  for (int64_t i = 0; i < count; i++) {
    const float* x = rows + i * width;
    float top = x[0], total = 0.f;
    for (int64_t l = 1; l < labels; l++) top = x[l] > top ? x[l] : top;
    for (int64_t l = 0; l < labels; l++) total += __builtin_exp2f(x[l] - top);
    const float shift = top + __builtin_log2f(total);
    for (int64_t l = 0; l < width; l++) logs[i * width + l] = l < labels ? x[l] - shift : dense::PADDING;
  }
}

// Adds up the bound of the last beliefs: Σ_l q (scores + ½ messages − log q), and keeps q in `old`.
static double bound_of(const float* logs, const float* scores, const float* rows, int64_t count, int64_t labels,
                       int64_t width, float* old) {
  double total = 0;
  for (int64_t i = 0; i < count; i++)
    for (int64_t l = 0; l < labels; l++) {
      const int64_t at = i * width + l;
      const float q = __builtin_exp2f(logs[at]);
      old[at] = q;
      if (q > 0) total += (double)q * (0.5 * ((double)scores[at] + rows[at]) - logs[at]);
    }
  return total / (double)LOG2E;
}

void dense_points(const Pass& pass, int64_t from, int64_t to, float* scratch) {
  const int64_t width = pass.width, labels = pass.labels;
  float *rows = scratch, *scaled = scratch + BLOCK * width + 32, *old = scaled + BLOCK * width;
  double bound = 0;
  float change = 0;
  for (int64_t j = 0; j < BLOCK * width; j++) rows[j] = 0.f;
  for (int64_t at = from; at < to; at += BLOCK) {
    const int64_t count = to - at < BLOCK ? to - at : BLOCK;
    scored(pass, at, count, to, rows);
    float* logs = pass.logs ? pass.logs + at * width : nullptr;
    const bool watched = pass.watch && !pass.fresh;
    if (watched) bound += bound_of(logs, pass.scores + at * width, rows, count, labels, width, old);
    if (pass.only_watch) continue;
    if (logs) {
      if (!pass.fresh && pass.damping > 0) {
        const float share = 1.f / (1.f + pass.damping);
        for (int64_t j = 0; j < count * width; j++) rows[j] = (rows[j] + pass.damping * logs[j]) * share;
      }
      log_softmax(rows, count, labels, width, logs);
    }
    if (!softmax(rows, count, width, pass.gentle && !logs)) {
      scored(pass, at, count, to, rows);
      softmax(rows, count, width, false);
    }
    if (watched)
      for (int64_t i = 0; i < count; i++)
        for (int64_t l = 0; l < labels; l++) {
          const float apart = rows[i * width + l] - old[i * width + l], size = apart < 0 ? -apart : apart;
          change = size > change ? size : change;
        }
    if (pass.out)
      for (int64_t i = 0; i < count; i++)
        for (int64_t l = 0; l < labels; l++) pass.out[(at + i) * labels + l] = rows[i * width + l];
    if (!pass.spread || dense_spread_two(pass, at, count, rows)) continue;
    for (int k = 0; k < pass.kernels; k++) {
      const Kernel& kernel = pass.kernel[k];
      const float* values = rows;
      if (kernel.before) {
        for (int64_t i = 0; i < count; i++)
          for (int64_t l = 0; l < width; l++) scaled[i * width + l] = kernel.before[at + i] * rows[i * width + l];
        values = scaled;
      }
      dense_spread(kernel, at, count, values, pass.spread[k], width);
    }
  }
  if (pass.watch) {
    pass.watch[0] += bound;
    if (change > pass.watch[1]) pass.watch[1] = change;
  }
}

extern const dense::Loops dense_loops;
const dense::Loops dense_loops = {dense_embed, dense_load,   dense_spread, dense_gather,
                                  dense_blur,  dense_filter, dense_relate, dense_points};

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
