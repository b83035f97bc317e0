// Templates on codes: patterns (row, column) … -> exact 63-bit keys -> column numbers.
//
// The key of a pattern's filling (v1 … vk) over A codes is the mixed-radix number (v1, …, vk, skeleton), and tables
// compare whole keys: two features never share a column. Where the number would not fit, the part before (or
// after) filling a hole is replaced by its number in a table of its own, which is below 2^31.
//
// Each node is done in two passes: all keys first, with a prefetch of the slot each will need, then the
// look-ups; the tables are far larger than the cache and the misses overlap.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <vector>

#include "interner.hpp"
#include "threads.hpp"

namespace crfield {

constexpr uint64_t KEY_LIMIT = 0x7FFFFFFFFFFFFFFFull;
constexpr uint64_t ID_LIMIT = 1ull << 31;

// Keys <-> ids in order of first appearance.
class KeyTable {
 public:
  KeyTable() : slots_(1 << 10), mask_((1 << 10) - 1) {}

  int64_t size() const { return (int64_t)keys_.size(); }
  uint64_t key(int64_t id) const { return keys_[(size_t)id]; }
  void prefetch(uint64_t key) const { __builtin_prefetch(&slots_[start(key)]); }

  int32_t find(uint64_t key) const { return slots_[slot(key)].id; }
  int32_t add(uint64_t key) {
    Slot& found = slots_[slot(key)];
    if (found.id >= 0) return found.id;
    if (keys_.size() >= ID_LIMIT - 1) throw std::length_error("more than 2^31 template columns");
    const int32_t id = (int32_t)keys_.size();
    found = {key, id};
    keys_.push_back(key);
    if (keys_.size() * 4 > slots_.size() * 3) grow();
    return id;
  }

 private:
  struct Slot {
    uint64_t key = 0;
    int32_t id = -1;
  };
  size_t start(uint64_t key) const { return mix(key ^ 0x9E3779B97F4A7C15ull, 0xA0761D6478BD642Full) & mask_; }
  size_t slot(uint64_t key) const {
    size_t k = start(key);
    while (slots_[k].id >= 0 && slots_[k].key != key) k = (k + 1) & mask_;
    return k;
  }
  void grow() {
    slots_.assign(slots_.size() * 2, Slot{});
    mask_ = slots_.size() - 1;
    for (size_t id = 0; id < keys_.size(); id++) {
      size_t k = start(keys_[id]);
      while (slots_[k].id >= 0) k = (k + 1) & mask_;
      slots_[k] = {keys_[id], (int32_t)id};
    }
  }

  std::vector<Slot> slots_;
  std::vector<uint64_t> keys_;
  size_t mask_;
};

struct Csr {
  std::vector<int64_t> indptr;
  std::unique_ptr<int32_t[]> indices;
  int64_t count = 0;
};

class Templates {
 public:
  struct Macro {
    int32_t row, col;
  };

  Templates(uint64_t radix, std::vector<int32_t> skeleton, const std::vector<int64_t>& holes,
            const std::vector<Macro>& macros, std::vector<int32_t> left, std::vector<int32_t> right)
      : radix_(radix), left_(std::move(left)), right_(std::move(right)) {
    for (int32_t s : skeleton) skeletons_ = std::max(skeletons_, (uint64_t)s + 1);
    plans_.resize((size_t)skeletons_);
    for (size_t p = 0; p < skeleton.size(); p++) {
      Pattern pattern;
      pattern.skeleton = skeleton[p];
      for (int64_t i = holes[p]; i < holes[p + 1]; i++) pattern.windows.push_back(window(macros[(size_t)i]));
      Plan& made = plans_[(size_t)skeleton[p]];
      if (made.holes < 0) made = plan((int64_t)pattern.windows.size());
      if (made.holes != (int64_t)pattern.windows.size()) throw std::invalid_argument("skeletons differ in holes");
      patterns_.push_back(std::move(pattern));
    }
    for (const Macro& m : windows_) width_ = std::max(width_, (int64_t)m.col + 1);
  }

  int64_t size() const {
    std::shared_lock<std::shared_mutex> lock(mutex_);
    return columns_.size();
  }
  int64_t width() const { return width_; }
  uint64_t radix() const { return radix_; }

  // Offsets and codes have been checked by the caller: codes below the radix, C >= width().
  Csr apply(const int32_t* codes, int64_t width, const int64_t* offsets, int64_t sequences, bool edges, bool grow,
            int n_jobs) {
    if (grow) {
      std::unique_lock<std::shared_mutex> lock(mutex_);
      return run<true>(codes, width, offsets, sequences, edges, 1);
    }
    std::shared_lock<std::shared_mutex> lock(mutex_);
    return run<false>(codes, width, offsets, sequences, edges, n_jobs);
  }

  void tuples(std::vector<int32_t>& skeleton, std::vector<int32_t>& codes) const {
    std::shared_lock<std::shared_mutex> lock(mutex_);
    for (int64_t id = 0; id < columns_.size(); id++) {
      uint64_t rest = columns_.key(id) / skeletons_;
      const int32_t s = (int32_t)(columns_.key(id) % skeletons_);
      const Plan& plan = plans_[(size_t)s];
      const size_t begin = codes.size();
      codes.resize(begin + (size_t)plan.holes);
      for (int64_t hole = plan.holes - 1; hole >= 0; hole--) {
        const Step& step = plan.steps[(size_t)hole];
        if (step.after >= 0) rest = partial_[(size_t)step.after].key((int64_t)rest);
        codes[begin + (size_t)hole] = (int32_t)(rest % radix_);
        rest /= radix_;
        if (step.before >= 0) rest = partial_[(size_t)step.before].key((int64_t)rest);
      }
      skeleton.push_back(s);
    }
  }

  // nullptr, or what is wrong with the arrays.
  const char* extend(const int32_t* skeleton, int64_t columns, const int32_t* codes, int64_t count) {
    std::unique_lock<std::shared_mutex> lock(mutex_);
    for (int64_t k = 0; k < columns; k++)
      if (skeleton[k] < 0 || (uint64_t)skeleton[k] >= skeletons_ || plans_[(size_t)skeleton[k]].holes < 0)
        return "skeleton";
    for (int64_t i = 0; i < count; i++)
      if (codes[i] < 0 || (uint64_t)codes[i] >= radix_) return "code";
    int64_t needed = 0;
    for (int64_t k = 0; k < columns; k++) needed += plans_[(size_t)skeleton[k]].holes;
    if (needed != count) return "length";
    for (int64_t k = 0; k < columns; k++) {
      const Plan& plan = plans_[(size_t)skeleton[k]];
      uint64_t key = 0;
      compose<true>(plan, skeleton[k], [&](int64_t hole) { return codes[hole]; }, key);
      codes += plan.holes;
      const int64_t before = columns_.size();
      if (columns_.add(key) != before) return "twice";
    }
    return nullptr;
  }

 private:
  // Tables that replace the key by its number before and after a hole is filled; -1 for none.
  struct Step {
    int32_t before = -1, after = -1;
  };
  struct Plan {
    int64_t holes = -1;
    bool direct = true;  // no step needs a table
    std::vector<Step> steps;
  };
  struct Pattern {
    int32_t skeleton;
    std::vector<int32_t> windows;  // which of windows_ fills each hole
  };

  int32_t window(Macro macro) {
    for (size_t i = 0; i < windows_.size(); i++)
      if (windows_[i].row == macro.row && windows_[i].col == macro.col) return (int32_t)i;
    windows_.push_back(macro);
    return (int32_t)windows_.size() - 1;
  }

  Plan plan(int64_t holes) {
    Plan made;
    made.holes = holes;
    const __uint128_t limit = KEY_LIMIT / skeletons_;
    __uint128_t size = 1;
    auto table = [&] {
      partial_.emplace_back();
      made.direct = false;
      size = ID_LIMIT;
      return (int32_t)partial_.size() - 1;
    };
    for (int64_t hole = 0; hole < holes; hole++) {
      Step step;
      if (size * radix_ > limit && size > ID_LIMIT) step.before = table();
      size *= radix_;
      if (size > limit) step.after = table();
      made.steps.push_back(step);
    }
    return made;
  }

  // Replace a key by its number; false when it has none.
  template <bool GROW>
  bool number(int32_t table, uint64_t& key) {
    const int32_t id = GROW ? partial_[(size_t)table].add(key) : partial_[(size_t)table].find(key);
    key = (uint64_t)(int64_t)id;
    return id >= 0;
  }

  // The key of a filling; false when a value is unknown or (locked) a part was never met.
  template <bool GROW, class Value>
  bool compose(const Plan& plan, int32_t skeleton, Value value, uint64_t& key) {
    uint64_t x = 0;
    if (plan.direct) {
      int32_t all = 0;  // its sign bit tells whether any value was -1
      for (int64_t hole = 0; hole < plan.holes; hole++) {
        const int32_t v = value(hole);
        all |= v;
        x = x * radix_ + (uint64_t)(int64_t)v;
      }
      key = x * skeletons_ + (uint64_t)skeleton;
      return all >= 0;
    }
    for (int64_t hole = 0; hole < plan.holes; hole++) {
      const int32_t v = value(hole);
      const Step& step = plan.steps[(size_t)hole];
      if (v < 0) return false;
      if (step.before >= 0 && !number<GROW>(step.before, x)) return false;
      x = x * radix_ + (uint64_t)v;
      if (step.after >= 0 && !number<GROW>(step.after, x)) return false;
    }
    key = x * skeletons_ + (uint64_t)skeleton;
    return true;
  }

  // Part i of the work fills the indices from row first[i] * P on; the gaps are closed afterwards.
  template <bool GROW>
  Csr run(const int32_t* codes, int64_t width, const int64_t* offsets, int64_t sequences, bool edges, int n_jobs) {
    const int parts = (int)std::max<int64_t>(1, std::min<int64_t>({n_jobs, sequences, 256, offsets[sequences] / 512}));
    std::vector<int64_t> split(parts + 1, sequences), first(parts + 1, 0);
    for (int i = 0; i < parts; i++)
      split[i] = std::lower_bound(offsets, offsets + sequences, offsets[sequences] * i / parts) - offsets;
    for (int i = 0; i < parts; i++) {
      first[i + 1] = first[i];
      for (int64_t s = split[i]; s < split[i + 1]; s++)
        first[i + 1] += std::max<int64_t>(offsets[s + 1] - offsets[s] - edges, 0);
    }
    const int64_t per_row = (int64_t)patterns_.size();
    Csr out;
    out.indptr.resize((size_t)first[parts] + 1);
    out.indices.reset(new int32_t[(size_t)(first[parts] * per_row)]);
    std::vector<int64_t> found(parts, 0);
    run_parts(parts, [&](int i) {
      int32_t* const begin = out.indices.get() + first[i] * per_row;
      int32_t* end = begin;
      int64_t row = first[i];
      Scratch scratch{std::vector<int32_t>(windows_.size()), std::vector<uint64_t>(patterns_.size())};
      for (int64_t s = split[i]; s < split[i + 1]; s++)
        for (int64_t t = offsets[s] + edges; t < offsets[s + 1]; t++) {
          end = node<GROW>(codes, width, offsets[s], offsets[s + 1], t, scratch, end);
          out.indptr[(size_t)++row] = end - begin;
        }
      found[i] = end - begin;
    });
    for (int i = 0; i < parts; i++) {
      std::copy(out.indices.get() + first[i] * per_row, out.indices.get() + first[i] * per_row + found[i],
                out.indices.get() + out.count);
      for (int64_t row = first[i]; row < first[i + 1]; row++) out.indptr[(size_t)row + 1] += out.count;
      out.count += found[i];
    }
    return out;
  }

  struct Scratch {
    std::vector<int32_t> values;
    std::vector<uint64_t> keys;
  };

  template <bool GROW>
  int32_t* node(const int32_t* codes, int64_t width, int64_t first, int64_t last, int64_t t, Scratch& scratch,
                int32_t* out) {
    int32_t* values = scratch.values.data();
    uint64_t* keys = scratch.keys.data();
    for (size_t w = 0; w < windows_.size(); w++) {
      const int64_t at = t + windows_[w].row;
      values[w] = at < first   ? left_[(size_t)(first - at - 1)]
                  : at >= last ? right_[(size_t)(at - last)]
                               : codes[at * width + windows_[w].col];
    }
    size_t count = 0;
    for (const Pattern& pattern : patterns_) {
      const int32_t* windows = pattern.windows.data();
      auto value = [&](int64_t hole) { return values[windows[hole]]; };
      if (compose<GROW>(plans_[(size_t)pattern.skeleton], pattern.skeleton, value, keys[count]))
        columns_.prefetch(keys[count++]);
    }
    for (size_t k = 0; k < count; k++) {
      const int32_t id = GROW ? columns_.add(keys[k]) : columns_.find(keys[k]);
      if (id >= 0) *out++ = id;
    }
    return out;
  }

  uint64_t radix_, skeletons_ = 1;
  std::vector<int32_t> left_, right_;
  std::vector<Pattern> patterns_;
  std::vector<Macro> windows_;  // every different macro, read once for a node
  std::vector<Plan> plans_;     // by skeleton
  std::vector<KeyTable> partial_;
  KeyTable columns_;
  int64_t width_ = 0;
  mutable std::shared_mutex mutex_;
};

}  // namespace crfield
