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

// The last 16 bytes of a string, zeros before a shorter one, as two words.
//
// Lengths of feature strings follow no rule that a branch predictor could learn, so the usual ones are read without a
// branch, as the 16 bytes that end where the string ends, of which a mask leaves its own. `blocky` says that these may be
// read: a string that lies behind a header, or behind other strings.
struct Ending {
  uint64_t head, tail;
};

// Which bits of the last 16 bytes belong to a string of n.
inline Ending ending_mask(size_t n) {
  static constexpr uint64_t ALL = ~0ull;
  static constexpr uint64_t MASK[25] = {  // of the head from 0 on, of the tail from 8 on
      0,         0,         0,        0,   0,   0,   0,   0,   0,   ALL << 56, ALL << 48, ALL << 40, ALL << 32,
      ALL << 24, ALL << 16, ALL << 8, ALL, ALL, ALL, ALL, ALL, ALL, ALL,       ALL,       ALL};
  const size_t k = n < 16 ? n : 16;
  return {MASK[k], MASK[k + 8]};
}

inline Ending ending(const char* p, size_t n, bool blocky) {
  char buffer[16];
  const char* end = p + n;
  if (!blocky && n < 16) {
    std::memset(buffer, 0, 16);
    std::memcpy(buffer + 16 - n, p, n);
    end = buffer + 16;
  }
  Ending words, mask = ending_mask(n);
  std::memcpy(&words.head, end - 16, 8);
  std::memcpy(&words.tail, end - 8, 8);
  return {words.head & mask.head, words.tail & mask.tail};
}

inline uint64_t hash_bytes(const char* p, size_t n, bool blocky) {
  auto read8 = [](const char* at) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    return word;
  };
  uint64_t h = 0x9E3779B97F4A7C15ull ^ (n * 0xD6E8FEB86659FD93ull);
  const Ending last = ending(p, n, blocky);
  for (; n > 16; n -= 16, p += 16) h = mix(h ^ read8(p), 0xA0761D6478BD642Full ^ read8(p + 8)) + read8(p + 8);
  // The sum, for a product of zero forgets a factor.
  return mix(h ^ last.head, 0xE7037ED1A0B428DBull ^ last.tail) + last.tail;
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

  int32_t find(std::string_view s) const { return table_[slot(hash_bytes(s.data(), s.size(), false), s)].id; }

  // Bring the slot of a hash on its way to the cache.
  void prefetch(uint64_t hash) const { __builtin_prefetch(&table_[hash & mask_]); }

  // ids[i] = find(strings[i]) for i < n ≤ MANY, all blocky.
  void find_many(const std::string_view* strings, int n, int32_t* ids) const {
    uint64_t hashes[MANY];
    for (int i = 0; i < n; i++) prefetch(hashes[i] = hash_bytes(strings[i].data(), strings[i].size(), true));
    find_hashed(strings, hashes, n, ids);
  }
  // The same where the hashes are known, and prefetched.
  void find_hashed(const std::string_view* strings, const uint64_t* hashes, int n, int32_t* ids) const {
    for (int i = 0; i < n; i++) {
      const Slot first = table_[hashes[i] & mask_];
      ids[i] = first.tag == tag(hashes[i]) ? first.id : -1;
      if (ids[i] >= 0) __builtin_prefetch(&offsets_[ids[i]]);
    }
    for (int i = 0; i < n; i++)
      if (ids[i] >= 0) __builtin_prefetch(pool_.data() + offsets_[ids[i]]);
    for (int i = 0; i < n; i++)
      if (ids[i] < 0 || !is(ids[i], strings[i], true)) ids[i] = table_[slot(hashes[i], strings[i])].id;
  }

  int32_t add(std::string_view s) { return add(s, hash_bytes(s.data(), s.size(), false)); }
  int32_t add(std::string_view s, uint64_t h) {
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
  // at(id) == s
  bool is(int32_t id, std::string_view s, bool blocky) const {
    const int64_t from = offsets_[id], end = offsets_[id + 1];
    const size_t n = s.size();
    if ((size_t)(end - from) != n) return false;
    if (!blocky || end < 16) return !n || !std::memcmp(pool_.data() + from, s.data(), n);  // of nothing: perhaps no address
    uint64_t a[2], b[2];
    std::memcpy(a, pool_.data() + end - 16, 16);
    std::memcpy(b, s.data() + n - 16, 16);
    const Ending mask = ending_mask(n);
    if (((a[0] ^ b[0]) & mask.head) | ((a[1] ^ b[1]) & mask.tail)) return false;
    return n <= 16 || !std::memcmp(pool_.data() + from, s.data(), n - 16);
  }
  static uint32_t tag(uint64_t h) { return (uint32_t)(h >> 32); }

  size_t slot(uint64_t h, std::string_view s) const {
    size_t k = h & mask_;
    while (table_[k].id >= 0) {
      if (table_[k].tag == tag(h) && is(table_[k].id, s, false)) break;
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
