// Vertices get numbers in the order in which points meet them, which keeps neighbours in an image near in memory.
//
// A vertex has D + 1 integer coordinates of sum zero. Its key is a linear function of the first D, so the key of a
// neighbour is the key and a constant. Mixed-radix strides make it exact wherever the box of all coordinates has
// fewer than 2^63 places, which images have by far; otherwise strides are odd random numbers, and two of M vertices
// share a key with a probability of about M² / 2^65.
//
// A team of threads takes stretches of the points, each with a table of its own; the tables are then merged in order, so
// the numbers are those of one thread.
#include "dense/lattice.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <stdexcept>
#include <utility>

#include "dense/dense.hpp"
#include "graph/team.hpp"

namespace crfield {
namespace dense {
namespace {

constexpr float FLOOR = 1e-20f;  // of what is divided by
constexpr int64_t MOST_NODES = (int64_t(1) << 31) - 2;

// Keys to numbers in order of arrival: open addressing, at most half full. A slot holds half of the mixed key, so
// that twice as many are near; a number whose half agrees is looked up in the list of keys.
class Table {
 public:
  // with room for about so many keys
  explicit Table(int64_t expected) {
    int bits = 13;
    while (bits < 20 && (int64_t(1) << bits) < 2 * expected) bits++;
    grow(bits);
    keys.reserve(slots_.size() / 2);
  }

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

  Recent() : known_(SIZE, Simplex{0, ~uint64_t(0), {}}) {}
  Simplex& of(uint64_t key, uint64_t order) {
    return known_[(size_t)(((key ^ (order * 0xD6E8FEB86659FD93ull)) * 0x9E3779B97F4A7C15ull) >> (64 - BITS))];
  }

 private:
  static constexpr int BITS = 9;
  static constexpr size_t SIZE = size_t(1) << BITS;
  std::vector<Simplex> known_;
};

// What a thread collects. Made before it starts: memory that a thread takes for itself is new to the process each
// time, which costs more than to use it. Not side by side: two parts would write to the same lines of the cache.
struct alignas(128) Part {
  explicit Part(int64_t expected) : table(expected), mass((size_t)expected, 0.f) {}
  Table table;
  std::vector<float> mass;  // (≥ M,) sums of shares
  Recent recent;
};

struct Strides {
  uint64_t of[MOST_DIMENSIONS + 1] = {};  // of the last coordinate 0: the others tell it
  uint64_t all = 0;                       // one step along every coordinate
  bool exact = true;
};

// Of finite numbers, or zeros where there are none; sixteen at a time, which the compiler turns into vectors.
std::pair<double, double> least_and_largest(const float* x, int64_t count) {
  if (!count) return {0.0, 0.0};
  float low[16], high[16];
  for (int b = 0; b < 16; b++) low[b] = high[b] = x[0];
  int64_t i = 0;
  for (; i + 16 <= count; i += 16)
    for (int b = 0; b < 16; b++) {
      low[b] = x[i + b] < low[b] ? x[i + b] : low[b];
      high[b] = x[i + b] > high[b] ? x[i + b] : high[b];
    }
  for (; i < count; i++) low[0] = std::min(low[0], x[i]), high[0] = std::max(high[0], x[i]);
  return {*std::min_element(low, low + 16), *std::max_element(high, high + 16)};
}

Strides strides_of(const float* features, int64_t points, int d) {
  double low[MOST_DIMENSIONS + 1], high[MOST_DIMENSIONS + 1], sum_low = 0, sum_high = 0;
  for (int j = d; j >= 1; j--) {
    const double scale = std::sqrt(2.0 / 3.0) * (d + 1) / std::sqrt((double)(j * (j + 1)));
    const float* own = features + (int64_t)(j - 1) * points;
    const auto ends = least_and_largest(own, points);
    const double a = ends.first * scale, b = ends.second * scale;
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

// The steps of the work, each for one member of a team of threads.
class Builder {
 public:
  Builder(const Request& asked, int members)
      : ask_(asked), d_(asked.dimensions), corners_(d_ + 1), strides_(strides_of(asked.features, asked.points, d_)) {
    for (int j = 0; j <= d_; j++) along_[j] = strides_.all - (uint64_t)corners_ * strides_.of[j];
    made_.reserve((size_t)members);
    for (int member = 0; member < members; member++) made_.emplace_back(asked.points / members / 8);
  }

  // Vertices and shares of a stretch of the points; vertices have the numbers of this member's table.
  void embed(int member, int size) {
    const Loops& loops = loops_in_use();
    Table& table = made_[(size_t)member].table;
    std::vector<float>& mass = made_[(size_t)member].mass;
    Recent& recent = made_[(size_t)member].recent;
    Embedded e;
    const int64_t end = begins(member + 1, size);
    for (int64_t from = begins(member, size); from < end; from += BLOCK) {
      const int count = (int)std::min<int64_t>(BLOCK, end - from);
      loops.embed(ask_.features, ask_.points, d_, from, count, strides_.of, e);
      for (int b = 0; b < count; b++) {
        const uint64_t order = e.order[b];
        uint64_t key = e.key[b];
        int32_t* own = ask_.at + (from + b) * corners_;
        float* shares = ask_.share + (from + b) * corners_;
        Recent::Simplex& known = recent.of(key, order);
        if (known.key != key || known.order != order) {
          known.key = key, known.order = order;
          known.at[0] = table.add(key);
          for (int k = 1; k <= d_; k++) known.at[k] = table.add(key += along_[(order >> (4 * (k - 1))) & 15]);
          if (mass.size() < table.keys.size()) mass.resize(2 * table.keys.size(), 0.f);
        }
        for (int k = 0; k <= d_; k++) {
          own[k] = known.at[k], shares[k] = e.share[k][b];
          mass[(size_t)known.at[k]] += e.share[k][b];
        }
      }
    }
  }

  // The tables of all members in the first; room for what follows. One member's work.
  void merge(int size) {
    Table& all = made_[0].table;
    std::vector<float>& mass = made_[0].mass;
    names_.resize((size_t)size);
    for (int part = 1; part < size; part++)
      for (size_t m = 0; m < made_[(size_t)part].table.keys.size(); m++) {
        const int32_t number = all.add(made_[(size_t)part].table.keys[m]);
        names_[(size_t)part].push_back(number);
        if (mass.size() < all.keys.size()) mass.resize(2 * all.keys.size(), 0.f);
        mass[(size_t)number] += made_[(size_t)part].mass[m];
      }
    if (ask_.halo) {  // vertices that carry no point, but through which neighbours of those that do are blurred
      const size_t inside = all.keys.size();
      for (size_t m = 0; m < inside; m++)
        for (int j = 0; j <= d_; j++) {
          const uint64_t key = all.keys[m];
          all.add(key + along_[j]);
          all.add(key - along_[j]);
        }
    }
    const int64_t nodes = out.nodes = (int64_t)all.keys.size();
    out.exact = strides_.exact;
    mass.resize((size_t)nodes + 1, 0.f);
    mass[(size_t)nodes] = 0.f;
    blurred_.assign((size_t)nodes + 1, 0.f);
    out.pairs.assign((size_t)(corners_ * nodes * 2), (int32_t)nodes);
  }

  // The numbers of the first table, and the neighbours of a stretch of the vertices.
  void meet(int member, int size) {
    const std::vector<int32_t>& names = names_[(size_t)member];
    const int64_t last = begins(member + 1, size) * corners_;
    for (int64_t k = begins(member, size) * corners_; k < last && member; k++) ask_.at[k] = names[(size_t)ask_.at[k]];
    const Table& all = made_[0].table;
    const int64_t nodes = out.nodes, end = nodes * (member + 1) / size;
    for (int j = 0; j <= d_; j++) {
      int32_t* pair = out.pairs.data() + (int64_t)j * nodes * 2;
      for (int64_t m = nodes * member / size; m < end; m++) {
        const int32_t next = all.find(all.keys[(size_t)m] + along_[j]);
        if (next >= 0) pair[2 * m + 1] = next, pair[2 * (int64_t)next] = (int32_t)m;
      }
    }
  }

  // The blur of all ones, of which the vertices have their shares. One member's work.
  void blur() {
    std::vector<float>& mass = made_[0].mass;
    for (int j = 0; j <= d_; j++) {
      const int32_t* pair = out.pairs.data() + j * out.nodes * 2;
      for (int64_t m = 0; m < out.nodes; m++)
        blurred_[(size_t)m] = mass[(size_t)m] + 0.5f * (mass[(size_t)pair[2 * m]] + mass[(size_t)pair[2 * m + 1]]);
      mass.swap(blurred_);
    }
  }

  void sum(int member, int size) {
    const float* mass = made_[0].mass.data();
    const int64_t end = begins(member + 1, size);
    for (int64_t i = begins(member, size); i < end; i++) {
      float* own = ask_.share + i * corners_;
      float total = 0.f;
      for (int64_t k = 0; k < corners_; k++) total += own[k] * mass[ask_.at[i * corners_ + k]];
      const float sum = ask_.sums[i] = total * ask_.gain;
      if (!ask_.fold) continue;
      const float factor = 1.f / std::sqrt(sum + FLOOR);
      for (int64_t k = 0; k < corners_; k++) own[k] *= factor;
    }
  }

  Neighbours out;

 private:
  // The first point of a member, at the beginning of a block.
  int64_t begins(int member, int size) const {
    const int64_t blocks = (ask_.points + BLOCK - 1) / BLOCK;
    return std::min(blocks * member / size * BLOCK, ask_.points);
  }

  const Request ask_;
  const int d_;
  const int64_t corners_;
  const Strides strides_;
  uint64_t along_[MOST_DIMENSIONS + 1] = {};  // a step to the neighbour in each direction
  std::vector<Part> made_;
  std::vector<std::vector<int32_t>> names_;  // of a member's vertices in the first table
  std::vector<float> blurred_;
};

}  // namespace

Neighbours build_lattice(const Request& asked, int threads) {
  const int members = (int)std::max<int64_t>(1, std::min<int64_t>(threads, asked.points / (64 * BLOCK)));
  Builder builder(asked, members);
  std::vector<std::exception_ptr> failed((size_t)members);
  std::atomic<bool> stop{false};
  graph::run_team(members, [&](int member, int size, graph::Barrier& barrier) {
    const auto step = [&](auto work) {  // false where some member's work failed
      try {
        work();
      } catch (...) {
        failed[(size_t)member] = std::current_exception();
        stop.store(true);
      }
      barrier.wait();
      return !stop.load();
    };
    if (!step([&] { builder.embed(member, size); })) return;
    if (!step([&] { if (!member) builder.merge(size); })) return;
    if (!step([&] { builder.meet(member, size); })) return;
    if (!step([&] { if (!member) builder.blur(); })) return;
    builder.sum(member, size);
  });
  for (const auto& error : failed)
    if (error) std::rethrow_exception(error);
  return std::move(builder.out);
}

}  // namespace dense
}  // namespace crfield
