// Points to nodes and back, and the blur on the nodes. Rows are `width` floats; the width and the number of nodes of
// a point are template arguments where they are usual, so that a row stays in registers.
#include "dense/levels.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {

using dense::Compatibility;
using dense::Kernel;
using dense::Pass;

// N vectors of a kind; 0: as many as the width says, in runs of four
template <class K, int N>
struct Row {
  typedef typename K::V V;
  typedef typename K::Memory M;
  static constexpr int64_t WIDTH = N * K::lanes;

  // nodes[at[t]] += share[t] x, x one row in registers. A share is read once: for the compiler it might lie in nodes.
  template <int TAPS>
  static inline void add(const V* x, const int32_t* at, const float* share, int64_t taps, float* nodes) {
    for (int64_t t = 0; t < (TAPS ? TAPS : taps); t++) {
      M* to = (M*)(nodes + (int64_t)at[t] * WIDTH);
      const float s = share[t];
      for (int a = 0; a < N; a++) to[a] = to[a] + x[a] * s;
    }
  }

  // x += scale · Σ_t share[t] nodes[at[t]]
  template <int TAPS>
  static inline void read(V* x, const int32_t* at, const float* share, int64_t taps, const float* nodes, float scale) {
    V sum[N ? N : 1];
    for (int a = 0; a < N; a++) sum[a] = V{};
    for (int64_t t = 0; t < (TAPS ? TAPS : taps); t++) {
      const M* own = (const M*)(nodes + (int64_t)at[t] * WIDTH);
      for (int a = 0; a < N; a++) sum[a] += own[a] * share[t];
    }
    for (int a = 0; a < N; a++) x[a] += sum[a] * scale;
  }

  template <int TAPS>
  static void spread(const Kernel& k, int64_t from, int64_t count, const float* values, float* nodes, int64_t width) {
    const int64_t taps = TAPS ? TAPS : k.taps;
    const int32_t* at = k.at + from * taps;
    const float* share = k.share + from * taps;
    for (int64_t i = 0; i < count; i++, values += width, at += taps, share += taps) {
      const M* row = (const M*)values;
      if constexpr (N > 0) {
        V x[N];
        for (int a = 0; a < N; a++) x[a] = row[a];
        add<TAPS>(x, at, share, taps, nodes);
      } else {
        const int64_t vectors = width / K::lanes;
        for (int64_t t = 0; t < taps; t++) {
          M* to = (M*)(nodes + (int64_t)at[t] * width);
          const float s = share[t];
          for (int64_t a = 0; a < vectors; a++) to[a] = to[a] + row[a] * s;
        }
      }
    }
  }

  template <int TAPS>
  static void gather(const Kernel& k, int64_t from, int64_t count, const float* nodes, float scale,
                     const float* base, float* out, int64_t width) {
    const int64_t taps = TAPS ? TAPS : k.taps;
    const int32_t* at = k.at + from * taps;
    const float *share = k.share + from * taps, *after = k.after ? k.after + from : nullptr;
    scale *= k.gain;
    for (int64_t i = 0; i < count; i++, out += width, base += width, at += taps, share += taps) {
      const float factor = after ? scale * after[i] : scale;
      const M* before = (const M*)base;
      M* row = (M*)out;
      if constexpr (N > 0) {
        V x[N];
        for (int a = 0; a < N; a++) x[a] = before[a];
        read<TAPS>(x, at, share, taps, nodes, factor);
        for (int a = 0; a < N; a++) row[a] = x[a];
      } else {
        const int64_t vectors = width / K::lanes;
        int64_t a = 0;
        for (; a + 4 <= vectors; a += 4) {
          V x[4] = {};
          for (int64_t t = 0; t < taps; t++) {
            const M* own = (const M*)(nodes + (int64_t)at[t] * width) + a;
            for (int c = 0; c < 4; c++) x[c] += own[c] * share[t];
          }
          for (int c = 0; c < 4; c++) row[a + c] = before[a + c] + x[c] * factor;
        }
        for (; a < vectors; a++) {
          V x = V{};
          for (int64_t t = 0; t < taps; t++) x += ((const M*)(nodes + (int64_t)at[t] * width))[a] * share[t];
          row[a] = before[a] + x * factor;
        }
      }
    }
  }

  // Both kernels of a pass at once, point by point: a row stays in registers, and while the additions to the nodes of
  // one kernel wait for those of the point before, those of the other go on.
  template <int ONE, int TWO>
  static void gather_two(const Pass& pass, int64_t from, int64_t count, float* out) {
    const Kernel &k = pass.kernel[0], &other = pass.kernel[1];
    const int64_t one = ONE ? ONE : k.taps, two = TWO ? TWO : other.taps, stride = pass.stride;
    const int32_t *at = k.at + from * one, *there = other.at + from * two;
    const float *share = k.share + from * one, *shares = other.share + from * two;
    const float *after = k.after ? k.after + from : nullptr, *later = other.after ? other.after + from : nullptr;
    const float *nodes = pass.values[0], *more = pass.values[1], *base = pass.scores + from * stride;
    const float scale = dense::LOG2E * pass.compatibility[0].weight * k.gain;
    const float scales = dense::LOG2E * pass.compatibility[1].weight * other.gain;
    typename K::I real = {};  // lanes of the last vector that are labels
    for (int l = 0; l < K::lanes; l++) real[l] = WIDTH - K::lanes + l < pass.labels ? -1 : 0;
    const V padding = V{} + dense::PADDING;
    for (int64_t i = 0; i < count; i++, base += stride, out += WIDTH) {
      V x[N];
      for (int a = 0; a < N; a++) x[a] = ((const M*)base)[a];
      x[N - 1] = real ? x[N - 1] : padding;
      read<ONE>(x, at + i * one, share + i * one, one, nodes, after ? scale * after[i] : scale);
      read<TWO>(x, there + i * two, shares + i * two, two, more, later ? scales * later[i] : scales);
      for (int a = 0; a < N; a++) ((M*)out)[a] = x[a];
    }
  }

  template <int ONE, int TWO>
  static void spread_two(const Pass& pass, int64_t from, int64_t count, const float* values) {
    const Kernel &k = pass.kernel[0], &other = pass.kernel[1];
    const int64_t one = ONE ? ONE : k.taps, two = TWO ? TWO : other.taps;
    const int32_t *at = k.at + from * one, *there = other.at + from * two;
    const float *share = k.share + from * one, *shares = other.share + from * two;
    float *nodes = pass.spread[0], *more = pass.spread[1];
    for (int64_t i = 0; i < count; i++, values += WIDTH) {
      V x[N];
      for (int a = 0; a < N; a++) x[a] = ((const M*)values)[a];
      add<ONE>(x, at + i * one, share + i * one, one, nodes);
      add<TWO>(x, there + i * two, shares + i * two, two, more);
    }
  }

  static void blur(const Kernel& k, int64_t direction, int64_t from, int64_t to, const float* in, float* out,
                   int64_t width) {
    const int32_t* pair = k.neighbours + direction * k.nodes * 2;
    const int64_t vectors = N ? N : width / K::lanes;
    for (int64_t m = from; m < to; m++) {
      const M *here = (const M*)(in + m * width), *one = (const M*)(in + pair[2 * m] * width),
              *other = (const M*)(in + pair[2 * m + 1] * width);
      M* row = (M*)(out + m * width);
      for (int64_t a = 0; a < vectors; a++) row[a] = here[a] + 0.5f * (one[a] + other[a]);
    }
  }
};

// CALL with a Row of the width
#define CRFIELD_BY_WIDTH(CALL)                                          \
  if (width == 4) { typedef Row<Four, 1> R; CALL; }                     \
  else if (width == 8) { typedef Row<Wide, 8 / Wide::lanes> R; CALL; }   \
  else if (width == 16) { typedef Row<Wide, 16 / Wide::lanes> R; CALL; } \
  else if (width == 24) { typedef Row<Wide, 24 / Wide::lanes> R; CALL; } \
  else if (width == 32) { typedef Row<Wide, 32 / Wide::lanes> R; CALL; } \
  else { typedef Row<Wide, 0> R; CALL; }

template <class R>
static void spread_by_taps(const Kernel& k, int64_t from, int64_t count, const float* values, float* nodes,
                           int64_t width) {
  switch (k.taps) {
    case 3: return R::template spread<3>(k, from, count, values, nodes, width);
    case 4: return R::template spread<4>(k, from, count, values, nodes, width);
    case 5: return R::template spread<5>(k, from, count, values, nodes, width);
    case 6: return R::template spread<6>(k, from, count, values, nodes, width);
    case 9: return R::template spread<9>(k, from, count, values, nodes, width);
    default: return R::template spread<0>(k, from, count, values, nodes, width);
  }
}

template <class R>
static void gather_by_taps(const Kernel& k, int64_t from, int64_t count, const float* nodes, float scale,
                           const float* base, float* out, int64_t width) {
  switch (k.taps) {
    case 3: return R::template gather<3>(k, from, count, nodes, scale, base, out, width);
    case 4: return R::template gather<4>(k, from, count, nodes, scale, base, out, width);
    case 5: return R::template gather<5>(k, from, count, nodes, scale, base, out, width);
    case 6: return R::template gather<6>(k, from, count, nodes, scale, base, out, width);
    case 9: return R::template gather<9>(k, from, count, nodes, scale, base, out, width);
    default: return R::template gather<0>(k, from, count, nodes, scale, base, out, width);
  }
}

template <class R>
static bool gather_two_by_taps(const Pass& pass, int64_t from, int64_t count, float* out) {
  if constexpr (R::WIDTH == 0) return false;
  else if (pass.kernel[0].taps == 3 && pass.kernel[1].taps == 6) R::template gather_two<3, 6>(pass, from, count, out);
  else R::template gather_two<0, 0>(pass, from, count, out);
  return true;
}

template <class R>
static bool spread_two_by_taps(const Pass& pass, int64_t from, int64_t count, const float* values) {
  if constexpr (R::WIDTH == 0) return false;
  else if (pass.kernel[0].taps == 3 && pass.kernel[1].taps == 6) R::template spread_two<3, 6>(pass, from, count, values);
  else R::template spread_two<0, 0>(pass, from, count, values);
  return true;
}

// out (count, width) = scores and the messages of both kernels of a pass, where it has two and rows are short. A row
// is read as whole vectors: the floats behind the last must be there, whatever they are. False: nothing was done.
bool dense_gather_two(const Pass& pass, int64_t from, int64_t count, float* out) {
  const int64_t width = pass.width;
  if (pass.kernels != 2) return false;
  CRFIELD_BY_WIDTH(return gather_two_by_taps<R>(pass, from, count, out))
}

// The nodes of both kernels of a pass += Sᵀ values, where it has two without factors and rows are short.
bool dense_spread_two(const Pass& pass, int64_t from, int64_t count, const float* values) {
  const int64_t width = pass.width;
  if (pass.kernels != 2 || pass.kernel[0].before || pass.kernel[1].before) return false;
  CRFIELD_BY_WIDTH(return spread_two_by_taps<R>(pass, from, count, values))
}

// nodes += Sᵀ values, for points from … from + count - 1, whose values are (count, width)
void dense_spread(const Kernel& k, int64_t from, int64_t count, const float* values, float* nodes, int64_t width) {
  CRFIELD_BY_WIDTH(spread_by_taps<R>(k, from, count, values, nodes, width))
}

// out (count, width) = base + scale · gain · after · S nodes
void dense_gather(const Kernel& k, int64_t from, int64_t count, const float* nodes, float scale, const float* base,
                  float* out, int64_t width) {
  CRFIELD_BY_WIDTH(gather_by_taps<R>(k, from, count, nodes, scale, base, out, width))
}

// out = in + ½ (its two neighbours in a direction of the lattice), nodes from … to - 1
void dense_blur(const Kernel& k, int64_t direction, int64_t from, int64_t to, const float* in, float* out,
                int64_t width) {
  CRFIELD_BY_WIDTH(R::blur(k, direction, from, to, in, out, width))
}

// out = Σ_s filter[|s|] in, s steps along an axis of the grid; nodes from … to - 1
void dense_filter(const Kernel& k, int axis, int64_t from, int64_t to, const float* in, float* out, int64_t width) {
  int64_t stride = 1;
  for (int a = k.axes - 1; a > axis; a--) stride *= k.sizes[a];
  const int64_t size = k.sizes[axis], reach = k.reach[axis];
  const float* f = k.filter[axis];
  for (int64_t m = from; m < to;) {
    // a run of nodes with the same place along the axis lies in one piece, and so do its neighbours
    const int64_t place = m / stride % size, end = (m / stride + 1) * stride;
    const int64_t run = (end < to ? end : to) - m, floats = run * width;
    const int64_t least = -(place < reach ? place : reach);
    const int64_t most = size - 1 - place < reach ? size - 1 - place : reach;
    const float* at = in + m * width;
    float* row = out + m * width;
    int64_t j = 0;
    for (; j + 2 * Wide::lanes <= floats; j += 2 * Wide::lanes) {
      Wide::V x = {}, y = {};
      for (int64_t s = least; s <= most; s++) {
        const Wide::Memory* own = (const Wide::Memory*)(at + s * stride * width + j);
        const float c = f[s < 0 ? -s : s];
        x += own[0] * c, y += own[1] * c;
      }
      ((Wide::Memory*)(row + j))[0] = x, ((Wide::Memory*)(row + j))[1] = y;
    }
    for (; j + 4 <= floats; j += 4) {
      F4 x = {};
      for (int64_t s = least; s <= most; s++) x += *(const F4mem*)(at + s * stride * width + j) * f[s < 0 ? -s : s];
      *(F4mem*)(row + j) = x;
    }
    m += run;
  }
}

// Rows of nodes by the compatibility: each label's, or a table of all pairs. `row` is scratch of a row.
void dense_relate(const Compatibility& c, int64_t labels, int64_t width, int64_t from, int64_t to, float* nodes,
                  float* row) {
  if (c.diagonal)
    for (int64_t m = from; m < to; m++)
      for (int64_t l = 0; l < width; l++) nodes[m * width + l] *= c.diagonal[l];
  if (!c.table) return;
  for (int64_t m = from; m < to; m++) {
    float* x = nodes + m * width;
    for (int64_t l = 0; l < width; l++) row[l] = 0.f;
    for (int64_t j = 0; j < labels; j++) {
      const float a = x[j], *p = c.table + j * width;
      for (int64_t l = 0; l < width; l++) row[l] += a * p[l];
    }
    for (int64_t l = 0; l < width; l++) x[l] = row[l];
  }
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
