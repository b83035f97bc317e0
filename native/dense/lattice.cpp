// Vertices get numbers in the order in which points meet them, which keeps neighbours in an image near in memory.
//
// A vertex has D + 1 integer coordinates of sum zero. Its key is a linear function of the first D, so the key of a
// neighbour is the key and a constant. Mixed-radix strides make it exact wherever the box of all coordinates has
// fewer than 2^63 places, which images have by far; otherwise strides are odd random numbers, and two of M vertices
// share a key with a probability of about M² / 2^65.
//
// Threads take stretches of the points, each with a table of its own; the tables are then merged in order, so the
// numbers are those of one thread.
#include "dense/lattice.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "dense/dense.hpp"
#include "threads.hpp"

namespace crfield {
namespace dense {
namespace {

constexpr float FLOOR = 1e-20f;  // of what is divided by
constexpr int64_t MOST_NODES = (int64_t(1) << 31) - 2;

// Keys to numbers in order of arrival: open addressing, at most half full. A slot holds half of the mixed key, so
// that twice as many are near; a number whose half agrees is looked up in the list of keys.
class Table {
 public:
  Table() { grow(13); }

  int32_t add(uint64_t key) {
    const uint64_t mixed = mix(key);
    size_t at = (size_t)(mixed >> (64 - bits_));
    while (slots_[at].number >= 0) {
      if (slots_[at].half == (uint32_t)mixed && keys[(size_t)slots_[at].number] == key) return slots_[at].number;
      at = (at + 1) & mask_;
    }
    if ((int64_t)keys.size() >= MOST_NODES) throw std::length_error("the lattice has too many vertices");
    const int32_t number = (int32_t)keys.size();
    slots_[at] = {(uint32_t)mixed, number};
    keys.push_back(key);
    if (keys.size() * 2 > slots_.size()) grow(bits_ + 1);
    return number;
  }

  int32_t find(uint64_t key) const {
    const uint64_t mixed = mix(key);
    for (size_t at = (size_t)(mixed >> (64 - bits_)); slots_[at].number >= 0; at = (at + 1) & mask_)
      if (slots_[at].half == (uint32_t)mixed && keys[(size_t)slots_[at].number] == key) return slots_[at].number;
    return -1;
  }

  std::vector<uint64_t> keys;

 private:
  struct Slot {
    uint32_t half;
    int32_t number;
  };

  // the product has its best bits on top; its lowest are those of the key
  static uint64_t mix(uint64_t key) { return key * 0x9E3779B97F4A7C15ull; }

  void grow(int bits) {
    bits_ = bits;
    slots_.assign(size_t(1) << bits, Slot{0, -1});
    mask_ = slots_.size() - 1;
    for (size_t number = 0; number < keys.size(); number++) {
      const uint64_t mixed = mix(keys[number]);
      size_t at = (size_t)(mixed >> (64 - bits_));
      while (slots_[at].number >= 0) at = (at + 1) & mask_;
      slots_[at] = {(uint32_t)mixed, (int32_t)number};
    }
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
  int bits_ = 13;
};

// The simplices met last: pixels side by side often share one, and then no table is asked.
class Recent {
 public:
  struct Simplex {
    uint64_t key, order;
    int32_t at[MOST_DIMENSIONS + 1];
  };

  explicit Recent(int) : known_(SIZE, Simplex{0, ~uint64_t(0), {}}) {}
  Simplex& of(uint64_t key, uint64_t order) {
    return known_[(size_t)(((key ^ (order * 0xD6E8FEB86659FD93ull)) * 0x9E3779B97F4A7C15ull) >> (64 - BITS))];
  }

 private:
  static constexpr int BITS = 9;
  static constexpr size_t SIZE = size_t(1) << BITS;
  std::vector<Simplex> known_;
};

struct Strides {
  uint64_t of[MOST_DIMENSIONS + 1] = {};  // of the last coordinate 0: the others tell it
  uint64_t all = 0;                       // one step along every coordinate
  bool exact = true;
};

Strides strides_of(const float* features, int64_t points, int d) {
  double low[MOST_DIMENSIONS + 1], high[MOST_DIMENSIONS + 1], sum_low = 0, sum_high = 0;
  for (int j = d; j >= 1; j--) {
    const double scale = std::sqrt(2.0 / 3.0) * (d + 1) / std::sqrt((double)(j * (j + 1)));
    const float* own = features + (int64_t)(j - 1) * points;
    const auto ends = std::minmax_element(own, own + points);
    const double a = points ? *ends.first * scale : 0.0, b = points ? *ends.second * scale : 0.0;
    low[j] = sum_low - j * b, high[j] = sum_high - j * a;
    sum_low += a, sum_high += b;
  }
  low[0] = sum_low, high[0] = sum_high;
  Strides s;
  double bits = 0;
  uint64_t stride = 1;
  for (int i = 0; i < d; i++) {
    const double width = std::ceil(high[i]) - std::floor(low[i]) + 6.0 * (d + 1);
    s.of[i] = stride;
    bits += std::log2(width);
    if (bits < 63) stride *= (uint64_t)width;
  }
  s.exact = bits < 63;
  uint64_t x = 0x123456789abcdefull;
  for (int i = 0; i < d && !s.exact; i++) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    s.of[i] = (x * 0x2545F4914F6CDD1Dull) | 1;
  }
  for (int i = 0; i < d; i++) s.all += s.of[i];
  return s;
}

}  // namespace

Neighbours build_lattice(const float* features, int64_t points, int d, bool halo, int32_t* at, float* share,
                         int threads) {
  const Strides strides = strides_of(features, points, d);
  uint64_t along[MOST_DIMENSIONS + 1] = {};  // a step to the neighbour in each direction
  for (int j = 0; j <= d; j++) along[j] = strides.all - (uint64_t)(d + 1) * strides.of[j];
  const Loops& loops = loops_in_use();
  const int64_t corners = d + 1, blocks = (points + BLOCK - 1) / BLOCK;
  const int parts = (int)std::max<int64_t>(1, std::min<int64_t>(threads, blocks / 64));
  std::vector<Table> tables((size_t)parts);
  std::vector<std::vector<float>> masses((size_t)parts);
  run_parts(parts, [&](int part) {
    Table& table = tables[(size_t)part];
    std::vector<float>& mass = masses[(size_t)part];
    Recent recent(d);
    Embedded e;
    for (int64_t block = blocks * part / parts; block < blocks * (part + 1) / parts; block++) {
      const int64_t from = block * BLOCK;
      const int count = (int)std::min<int64_t>(BLOCK, points - from);
      loops.embed(features, points, d, from, count, e);
      for (int b = 0; b < count; b++) {
        uint64_t key = 0, order = 0;
        for (int i = 0; i < d; i++) key += strides.of[i] * (uint64_t)((int64_t)e.first[i][b] * corners);
        for (int q = 1; q <= d; q++) order = order * 16 + (uint64_t)e.with_rank[q][b];
        int32_t* own = at + (from + b) * corners;
        float* shares = share + (from + b) * corners;
        Recent::Simplex& known = recent.of(key, order);
        if (known.key != key || known.order != order) {
          known.key = key, known.order = order;
          known.at[0] = table.add(key);
          for (int k = 1; k <= d; k++) known.at[k] = table.add(key += along[(order >> (4 * (k - 1))) & 15]);
          if (mass.size() < table.keys.size()) mass.resize(2 * table.keys.size(), 0.f);
        }
        for (int k = 0; k <= d; k++) {
          own[k] = known.at[k], shares[k] = e.share[k][b];
          mass[(size_t)known.at[k]] += e.share[k][b];
        }
      }
    }
  });
  Table& all = tables[0];
  std::vector<std::vector<int32_t>> renamed((size_t)parts);
  std::vector<float>& mass = masses[0];
  for (int part = 1; part < parts; part++)
    for (size_t m = 0; m < tables[(size_t)part].keys.size(); m++) {
      const int32_t number = all.add(tables[(size_t)part].keys[m]);
      renamed[(size_t)part].push_back(number);
      if (mass.size() < all.keys.size()) mass.resize(2 * all.keys.size(), 0.f);
      mass[(size_t)number] += masses[(size_t)part][m];
    }
  run_parts(parts, [&](int part) {
    if (!part) return;
    const int64_t from = blocks * part / parts * BLOCK * corners;
    const int64_t to = std::min(blocks * (part + 1) / parts * BLOCK, points) * corners;
    const std::vector<int32_t>& names = renamed[(size_t)part];
    for (int64_t k = from; k < to; k++) at[k] = names[(size_t)at[k]];
  });
  if (halo) {  // vertices that carry no point, but through which neighbours of those that do are blurred
    const size_t inside = all.keys.size();
    for (size_t m = 0; m < inside; m++)
      for (int j = 0; j <= d; j++) {
        const uint64_t key = all.keys[m];
        all.add(key + along[j]);
        all.add(key - along[j]);
      }
  }
  Neighbours out;
  const int64_t nodes = out.nodes = (int64_t)all.keys.size();
  out.exact = strides.exact;
  mass.resize((size_t)nodes + 1, 0.f);
  mass[(size_t)nodes] = 0.f;
  out.mass.swap(mass);
  out.pairs.assign((size_t)(corners * nodes * 2), (int32_t)nodes);
  run_parts(std::min(threads, d + 1), [&](int part) {
    for (int j = part; j <= d; j += std::min(threads, d + 1)) {
      int32_t* pair = out.pairs.data() + (int64_t)j * nodes * 2;
      for (int64_t m = 0; m < nodes; m++) {
        const int32_t next = all.find(all.keys[(size_t)m] + along[j]);
        if (next >= 0) pair[2 * m + 1] = next, pair[2 * (int64_t)next] = (int32_t)m;
      }
    }
  });
  return out;
}

void sum_rows(const Neighbours& lattice, int64_t points, int d, float gain, const int32_t* at, float* share,
              float* sums, bool fold) {
  const int64_t nodes = lattice.nodes, corners = d + 1;
  std::vector<float> now(lattice.mass), next((size_t)nodes + 1, 0.f);
  for (int j = 0; j <= d; j++) {
    const int32_t* pair = lattice.pairs.data() + j * nodes * 2;
    for (int64_t m = 0; m < nodes; m++)
      next[(size_t)m] = now[(size_t)m] + 0.5f * (now[(size_t)pair[2 * m]] + now[(size_t)pair[2 * m + 1]]);
    now.swap(next);
  }
  for (int64_t i = 0; i < points; i++) {
    float* own = share + i * corners;
    float total = 0.f;
    for (int64_t k = 0; k < corners; k++) total += own[k] * now[(size_t)at[i * corners + k]];
    sums[i] = total * gain;
    if (!fold) continue;
    const float factor = 1.f / std::sqrt(sums[i] + FLOOR);
    for (int64_t k = 0; k < corners; k++) own[k] *= factor;
  }
}

}  // namespace dense
}  // namespace crfield
