// Buffers, threads and the order of passes. A team of threads goes through all steps together: each takes a stretch
// of the points, spreads them over nodes of its own, and the nodes are added up; then each takes a stretch of the
// nodes.
#include "dense/mean_field.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "dense/dense.hpp"
#include "graph/team.hpp"
#include "memory.hpp"

namespace crfield {
namespace dense {
namespace {

constexpr int64_t CACHED = 16;  // blocks whose scores are still near when they are used

using graph::Barrier;
using graph::run_team;

// Tiny beliefs are zero while this lives: arithmetic on denormal numbers takes a hundred times as long.
class FlushTiny {
 public:
#if defined(__SSE__)
  FlushTiny() : before_(__builtin_ia32_stmxcsr()) { __builtin_ia32_ldmxcsr(before_ | 0x8040); }
  ~FlushTiny() { __builtin_ia32_ldmxcsr(before_); }

 private:
  unsigned before_;
#else
  FlushTiny() {}
  ~FlushTiny() {}
#endif
};

int team_of(int64_t points, int threads) {
  return (int)std::max<int64_t>(1, std::min<int64_t>(threads, points / (BLOCK * 16)));
}

int64_t share(int64_t count, int member, int size) { return count * member / size; }

// The blur of a kernel by all members: `from` holds the nodes, and the result is in the buffer returned, `from` or
// `other`; with `keep` the input stays, and the result is in `other` or `keep`.
float* blurred(const Kernel& k, const Loops& loops, float* from, float* other, float* keep, bool reverse,
               int64_t width, int member, int size, Barrier& barrier) {
  const int64_t first = share(k.nodes, member, size), last = share(k.nodes, member + 1, size);
  const int64_t rounds = k.directions ? k.directions : k.axes;
  for (int64_t round = 0; round < rounds; round++) {
    const int64_t which = reverse ? rounds - 1 - round : round;
    if (k.directions) loops.blur(k, which, first, last, from, other, width);
    else loops.filter(k, (int)which, first, last, from, other, width);
    barrier.wait();
    float* free = round == 0 && keep ? keep : from;
    from = other, other = free;
  }
  return from;
}

void load_start(const Field& f, int64_t from, int64_t to, int64_t width, float* logs) {
  for (int64_t i = from; i < to; i++)
    for (int64_t l = 0; l < width; l++)
      logs[i * width + l] = l < f.labels ? std::log2(std::max(f.start[i * f.labels + l], 1e-37f)) : PADDING;
}

// The buffers of a kernel's nodes, all rows of node M zero.
struct Nodes {
  Buffer<float> buffers[4];
  std::vector<Buffer<float>> own;  // of members but the first
};

void allocate(Nodes& nodes, int64_t rows, int64_t width, int count, int members) {
  for (int b = 0; b < count; b++) {
    nodes.buffers[b].resize(rows * width);
    std::memset(nodes.buffers[b].data() + (rows - 1) * width, 0, sizeof(float) * (size_t)width);
  }
  for (int m = 1; m < members; m++) nodes.own.emplace_back(rows * width);
}

// to += what the other members have spread
void add_up(const Nodes& nodes, float* to, int64_t rows, int64_t width, int member, int size) {
  const int64_t from = share(rows, member, size) * width, end = share(rows, member + 1, size) * width;
  for (int other = 1; other < size; other++) {
    const float* own = nodes.own[(size_t)other - 1].data();
    for (int64_t j = from; j < end; j++) to[j] += own[j];
  }
}

void clear(float* nodes, int64_t rows, int64_t width) {
  std::memset(nodes, 0, sizeof(float) * (size_t)(rows * width));
}

}  // namespace

int64_t mean_field(const Field& f, const Update& u) {
  const Loops& loops = loops_in_use();
  const int64_t width = width_of(f.labels), count = (int64_t)f.kernels.size();
  const int members = team_of(f.points, u.threads);
  const bool watched = u.trace != nullptr;
  // Where nobody watches, the array of results holds the scores until the last pass turns them into beliefs.
  const bool in_place = !watched && u.damping == 0 && !f.start;
  const int64_t stride = in_place ? f.labels : width;
  Buffer<float> own_scores(in_place ? 0 : f.points * width), logs, start;
  float* scores = in_place ? u.out : own_scores.data();
  if (watched || u.damping > 0) logs.resize(f.points * width);
  if (f.start) start.resize(f.points * width);
  std::vector<Nodes> nodes((size_t)count);
  std::vector<Compatibility> related((size_t)count);
  std::vector<std::vector<float>> padded((size_t)count);
  bool gentle = true;
  for (int64_t k = 0; k < count; k++) {
    allocate(nodes[(size_t)k], f.kernels[(size_t)k].nodes + 1, width, u.symmetric ? 4 : 2, members);
    const float *diagonal = f.diagonals[(size_t)k], *table = f.tables[(size_t)k];
    std::vector<float>& row = padded[(size_t)k];
    if (diagonal) {
      row.assign((size_t)width, 0.f);
      std::copy(diagonal, diagonal + f.labels, row.begin());
      for (float x : row) gentle = gentle && x >= 0;
    } else if (table) {
      row.assign((size_t)(f.labels * width), 0.f);
      for (int64_t j = 0; j < f.labels; j++)
        for (int64_t l = 0; l < f.labels; l++) row[(size_t)(j * width + l)] = table[l * f.labels + j];
      gentle = false;
    }
    gentle = gentle && f.weights[(size_t)k] >= 0;
    related[(size_t)k] = {f.weights[(size_t)k], diagonal ? row.data() : nullptr,
                          !diagonal && table ? row.data() : nullptr};
  }
  std::vector<Buffer<float>> scratch;
  for (int m = 0; m < members; m++) scratch.emplace_back(scratch_of(width));
  std::vector<double> watch((size_t)members * 2), shifts((size_t)members, 0.0);
  std::vector<std::vector<float*>> pointers((size_t)members, std::vector<float*>((size_t)count * 5));
  int64_t made = 0;
  std::atomic<bool> refused{false};

  run_team(members, [&](int member, int size, Barrier& barrier) {
    FlushTiny flush;
    const int64_t blocks = (f.points + BLOCK - 1) / BLOCK;
    const int64_t from = share(blocks, member, size) * BLOCK;
    const int64_t to = std::min(share(blocks, member + 1, size) * BLOCK, f.points);
    if (f.start) load_start(f, from, to, width, start.data());
    float** current = pointers[(size_t)member].data();  // blurred, read by points
    float **next = current + count, **spare = next + count, **more = spare + count, **target = more + count;
    for (int64_t k = 0; k < count; k++) {
      Buffer<float>* b = nodes[(size_t)k].buffers;
      current[k] = b[0].data(), next[k] = b[1].data(), spare[k] = b[2].data(), more[k] = b[3].data();
    }
    double* own = watch.data() + 2 * member;
    int64_t last_made = 0;
    for (int64_t step = 0;; step++) {
      // with a trace, one more pass finds the bound of the last beliefs
      const bool beyond = step > u.steps, last = step == u.steps;
      const bool onwards = beyond ? false : !last || watched;
      for (int64_t k = 0; k < count && onwards; k++) {
        target[k] = member ? nodes[(size_t)k].own[(size_t)member - 1].data() : next[k];
        clear(target[k], f.kernels[(size_t)k].nodes + 1, width);
      }
      own[0] = own[1] = 0;
      Pass pass{};
      pass.points = f.points, pass.labels = f.labels, pass.width = width;
      pass.scores = step == 0 && f.start ? start.data() : scores, pass.stride = stride;
      pass.kernels = (int)count, pass.kernel = f.kernels.data(), pass.compatibility = related.data();
      pass.values = step ? current : nullptr;
      pass.spread = onwards ? target : nullptr;
      pass.damping = u.damping, pass.logs = logs.data(), pass.gentle = gentle;
      pass.fresh = step == 0, pass.only_watch = beyond;
      pass.out = !beyond && (last || watched) ? u.out : nullptr;
      pass.watch = watched ? own : nullptr;
      const int64_t stretch = step ? to - from : CACHED * BLOCK;  // read and used at once
      for (int64_t at = from; at < to; at += stretch) {
        const int64_t end = std::min(at + stretch, to);
        if (!step && !loops.load(f, at, end, stride, scores, &shifts[(size_t)member])) refused.store(true);
        loops.points(pass, at, end, scratch[(size_t)member].data());
      }
      barrier.wait();
      if (refused.load()) break;
      bool settled = false;
      if (watched && step) {
        double bound = 0, change = 0;
        for (int m = 0; m < size; m++) {
          bound += watch[(size_t)m * 2] + shifts[(size_t)m];
          change = std::max(change, watch[(size_t)m * 2 + 1]);
        }
        settled = !beyond && change <= u.tol;
        if (!member) {
          u.trace[2 * last_made] = bound;
          if (!beyond) u.trace[2 * step + 1] = change;
        }
      }
      if (!beyond) last_made = step;
      if (!member) made = last_made;
      if (!onwards) break;
      for (int64_t k = 0; k < count; k++) {
        const Kernel& kernel = f.kernels[(size_t)k];
        add_up(nodes[(size_t)k], next[k], kernel.nodes, width, member, size);
      }
      barrier.wait();
      for (int64_t k = 0; k < count; k++) {
        const Kernel& kernel = f.kernels[(size_t)k];
        const int64_t first = share(kernel.nodes, member, size), end = share(kernel.nodes, member + 1, size);
        float *result = nullptr, *other = nullptr;
        if (u.symmetric && kernel.directions) {
          // forwards from `next` by way of `spare` and `more`, then backwards by way of the one that is free
          result = blurred(kernel, loops, next[k], spare[k], more[k], false, width, member, size, barrier);
          other = result == spare[k] ? more[k] : spare[k];
          float* back = blurred(kernel, loops, next[k], other, nullptr, true, width, member, size, barrier);
          for (int64_t j = first * width; j < end * width; j++) result[j] = 0.5f * (result[j] + back[j]);
          spare[k] = next[k], more[k] = other, other = current[k];
        } else {  // what points have read is free by now
          result = blurred(kernel, loops, next[k], current[k], nullptr, false, width, member, size, barrier);
          other = result == next[k] ? current[k] : next[k];
        }
        loops.relate(related[(size_t)k], f.labels, width, first, end, result, scratch[(size_t)member].data());
        current[k] = result, next[k] = other;
      }
      barrier.wait();
      if (settled) step = u.steps;  // the next pass is beyond the last
    }
  });
  return refused.load() ? -1 : made;
}

void filter(const Kernel& given, const float* values, int64_t channels, bool reverse, float* out, int threads) {
  const Loops& loops = loops_in_use();
  Kernel k = given;
  if (reverse) std::swap(k.before, k.after);
  const int64_t width = width_of(channels);
  const int members = team_of(k.points, threads);
  Nodes nodes;
  allocate(nodes, k.nodes + 1, width, 2, members);
  std::vector<Buffer<float>> rows;
  for (int m = 0; m < members; m++) rows.emplace_back(BLOCK * width);
  run_team(members, [&](int member, int size, Barrier& barrier) {
    FlushTiny flush;
    const int64_t from = share(k.points, member, size), to = share(k.points, member + 1, size);
    float *own = member ? nodes.own[(size_t)member - 1].data() : nodes.buffers[0].data();
    float* block = rows[(size_t)member].data();
    clear(own, k.nodes + 1, width);
    std::fill(block, block + BLOCK * width, 0.f);
    for (int64_t at = from; at < to; at += BLOCK) {
      const int64_t count = std::min<int64_t>(BLOCK, to - at);
      for (int64_t i = 0; i < count; i++) {
        const float factor = k.before ? k.before[at + i] : 1.f;
        for (int64_t c = 0; c < channels; c++) block[i * width + c] = factor * values[(at + i) * channels + c];
      }
      loops.spread(k, at, count, block, own, width);
    }
    barrier.wait();
    add_up(nodes, nodes.buffers[0].data(), k.nodes, width, member, size);
    barrier.wait();
    const float* result = blurred(k, loops, nodes.buffers[0].data(), nodes.buffers[1].data(), nullptr, reverse, width,
                                  member, size, barrier);
    for (int64_t at = from; at < to; at += BLOCK) {
      const int64_t count = std::min<int64_t>(BLOCK, to - at);
      std::fill(block, block + BLOCK * width, 0.f);
      loops.gather(k, at, count, result, 1.f, block, block, width);
      for (int64_t i = 0; i < count; i++)
        std::copy(block + i * width, block + i * width + channels, out + (at + i) * channels);
    }
  });
}

void feature_gradient(const Kernel& k, const float* features, const float* left, const float* right, int64_t channels,
                      float* out, int threads) {
  const Loops& loops = loops_in_use();
  const int64_t width = width_of(channels), d = k.directions - 1;
  Nodes there, back;  // blurred right, and left blurred backwards
  const int members = team_of(k.points, threads);
  allocate(there, k.nodes + 1, width, 2, 1);
  allocate(back, k.nodes + 1, width, 2, 1);
  Buffer<float> block(BLOCK * width);
  const float* values[2] = {right, left};
  float* spread[2] = {there.buffers[0].data(), back.buffers[0].data()};
  for (int side = 0; side < 2; side++) {
    clear(spread[side], k.nodes + 1, width);
    std::fill(block.data(), block.data() + BLOCK * width, 0.f);
    for (int64_t at = 0; at < k.points; at += BLOCK) {
      const int64_t count = std::min<int64_t>(BLOCK, k.points - at);
      for (int64_t i = 0; i < count; i++)
        std::copy(values[side] + (at + i) * channels, values[side] + (at + i + 1) * channels,
                  block.data() + i * width);
      loops.spread(k, at, count, block.data(), spread[side], width);
    }
  }
  run_team(members, [&](int member, int size, Barrier& barrier) {
    FlushTiny flush;
    const float* one = blurred(k, loops, spread[0], there.buffers[1].data(), nullptr, false, width, member, size,
                               barrier);
    const float* other = blurred(k, loops, spread[1], back.buffers[1].data(), nullptr, true, width, member, size,
                                 barrier);
    const int64_t blocks = (k.points + BLOCK - 1) / BLOCK;
    Embedded e;
    float pull[MOST_DIMENSIONS + 1], slope[MOST_DIMENSIONS + 1];
    for (int64_t b = share(blocks, member, size); b < share(blocks, member + 1, size); b++) {
      const int64_t from = b * BLOCK;
      const int count = (int)std::min<int64_t>(BLOCK, k.points - from);
      loops.embed(features, k.points, (int)d, from, count, nullptr, e);
      for (int i = 0; i < count; i++) {
        const float *x = left + (from + i) * channels, *y = right + (from + i) * channels;
        for (int64_t t = 0; t <= d; t++) {  // the slope in a share
          const int64_t node = k.at[(from + i) * (d + 1) + t] * width;
          float sum = 0;
          for (int64_t c = 0; c < channels; c++) sum += x[c] * one[node + c] + y[c] * other[node + c];
          pull[t] = sum * k.gain;
        }
        for (int64_t q = 0; q <= d; q++) {  // in an elevated coordinate, by its rank
          const int who = std::min(std::max((int)e.with_rank[q][i], 0), (int)d);
          slope[who] = (pull[d - q] - pull[q == 0 ? 0 : d - q + 1]) / (float)(d + 1);
        }
        float sum = 0;
        for (int64_t j = 0; j < d; j++) {
          sum += slope[j];
          const float scale = std::sqrt(2.f / 3.f) * (float)(d + 1) / std::sqrt((float)((j + 1) * (j + 2)));
          out[j * k.points + from + i] = scale * (sum - (float)(j + 1) * slope[j + 1]);
        }
      }
    }
  });
}

}  // namespace dense
}  // namespace crfield
