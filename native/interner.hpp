// Strings to numbers and back: an open-addressing table over one pool of bytes.
//
// Numbers are given in order of first appearance, 0, 1, 2 …; find() gives -1 for a string never added. The pool
// and its offsets are exactly what a model file stores, so an alphabet is saved and restored without a loop
// over Python strings.
//
// A slot holds half of the hash beside the number, so that a probe that fails stays within the slot's cache line.
// A lookup in a table of many megabytes still waits for memory three times (slot, offset, bytes); find_many()
// looks a handful of strings up together, so that the waits overlap.
#pragma once
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace crfield {

inline uint64_t mix(uint64_t a, uint64_t b) {
  __uint128_t product = (__uint128_t)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

inline uint64_t hash_bytes(const char* p, size_t n) {
  auto read8 = [](const char* at) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    return word;
  };
  auto read4 = [](const char* at) {
    uint32_t word;
    std::memcpy(&word, at, 4);
    return (uint64_t)word;
  };
  uint64_t h = 0x9E3779B97F4A7C15ull ^ (n * 0xD6E8FEB86659FD93ull), last = 0;
  if (n >= 8) {
    const char* end = p + n;
    for (; end - p > 8; p += 8) h = mix(h ^ read8(p), 0xA0761D6478BD642Full);
    last = read8(end - 8);  // may overlap what was read before
  } else if (n >= 4) {
    last = read4(p) << 32 | read4(p + n - 4);
  } else if (n > 0) {
    last = (uint64_t)(uint8_t)p[0] << 16 | (uint64_t)(uint8_t)p[n >> 1] << 8 | (uint8_t)p[n - 1];
  }
  return mix(h ^ last, 0xE7037ED1A0B428DBull);
}

class Interner {
 public:
  static constexpr int MANY = 64;  // strings that find_many() takes at once

  Interner() : table_(1 << 12, Slot{0, -1}), mask_((1 << 12) - 1), offsets_{0} {}

  int64_t size() const { return (int64_t)hashes_.size(); }
  std::string_view at(int64_t id) const {
    return {pool_.data() + offsets_[id], (size_t)(offsets_[id + 1] - offsets_[id])};
  }
  const std::vector<char>& pool() const { return pool_; }
  const std::vector<int64_t>& offsets() const { return offsets_; }

  int32_t find(std::string_view s) const { return table_[slot(hash_bytes(s.data(), s.size()), s)].id; }

  // ids[i] = find(strings[i]) for i < n ≤ MANY.
  void find_many(const std::string_view* strings, int n, int32_t* ids) const {
    uint64_t hash[MANY];
    for (int i = 0; i < n; i++) {
      hash[i] = hash_bytes(strings[i].data(), strings[i].size());
      __builtin_prefetch(&table_[hash[i] & mask_]);
    }
    for (int i = 0; i < n; i++) {
      const Slot first = table_[hash[i] & mask_];
      ids[i] = first.tag == tag(hash[i]) ? first.id : -1;
      if (ids[i] >= 0) __builtin_prefetch(&offsets_[ids[i]]);
    }
    for (int i = 0; i < n; i++)
      if (ids[i] >= 0) __builtin_prefetch(pool_.data() + offsets_[ids[i]]);
    for (int i = 0; i < n; i++)
      if (ids[i] < 0 || at(ids[i]) != strings[i]) ids[i] = table_[slot(hash[i], strings[i])].id;
  }

  int32_t add(std::string_view s) {
    const uint64_t h = hash_bytes(s.data(), s.size());
    const size_t k = slot(h, s);
    if (table_[k].id >= 0) return table_[k].id;
    if (hashes_.size() >= 0x7FFFFFFEu) throw std::length_error("more than 2^31 different strings");
    const int32_t id = (int32_t)hashes_.size();
    pool_.insert(pool_.end(), s.begin(), s.end());
    offsets_.push_back((int64_t)pool_.size());
    hashes_.push_back(h);
    table_[k] = Slot{tag(h), id};
    if (hashes_.size() * 2 > table_.size()) grow();
    return id;
  }

 private:
  struct Slot {
    uint32_t tag;
    int32_t id;  // -1: empty
  };
  static uint32_t tag(uint64_t h) { return (uint32_t)(h >> 32); }

  size_t slot(uint64_t h, std::string_view s) const {
    size_t k = h & mask_;
    while (table_[k].id >= 0) {
      if (table_[k].tag == tag(h) && at(table_[k].id) == s) break;
      k = (k + 1) & mask_;
    }
    return k;
  }
  void grow() {
    std::vector<Slot> wider(table_.size() * 2, Slot{0, -1});
    const size_t mask = wider.size() - 1;
    for (size_t id = 0; id < hashes_.size(); id++) {
      size_t k = hashes_[id] & mask;
      while (wider[k].id >= 0) k = (k + 1) & mask;
      wider[k] = Slot{tag(hashes_[id]), (int32_t)id};
    }
    table_.swap(wider);
    mask_ = mask;
  }

  std::vector<Slot> table_;
  size_t mask_;
  std::vector<int64_t> offsets_;
  std::vector<char> pool_;
  std::vector<uint64_t> hashes_;
};

}  // namespace crfield
