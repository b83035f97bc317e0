// Strings to numbers and back: an open-addressing table over one pool of bytes.
//
// Numbers are given in order of first appearance, 0, 1, 2 …; find() gives -1 for a string never added. The pool
// and its offsets are exactly what a model file stores, so an alphabet is saved and restored without a loop
// over Python strings.
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
  uint64_t h = 0x9E3779B97F4A7C15ull ^ (n * 0xD6E8FEB86659FD93ull), word;
  for (; n >= 8; p += 8, n -= 8) {
    std::memcpy(&word, p, 8);
    h = mix(h ^ word, 0xA0761D6478BD642Full);
  }
  word = 0;
  std::memcpy(&word, p, n);
  return mix(h ^ word, 0xE7037ED1A0B428DBull);
}

class Interner {
 public:
  Interner() : table_(1 << 12, -1), mask_((1 << 12) - 1), offsets_{0} {}

  int64_t size() const { return (int64_t)hashes_.size(); }
  std::string_view at(int64_t id) const {
    return {pool_.data() + offsets_[id], (size_t)(offsets_[id + 1] - offsets_[id])};
  }
  const std::vector<char>& pool() const { return pool_; }
  const std::vector<int64_t>& offsets() const { return offsets_; }

  int32_t find(std::string_view s) const {
    const uint64_t h = hash_bytes(s.data(), s.size());
    const size_t k = slot(h, s);
    return table_[k];
  }

  int32_t add(std::string_view s) {
    const uint64_t h = hash_bytes(s.data(), s.size());
    const size_t k = slot(h, s);
    if (table_[k] >= 0) return table_[k];
    if (hashes_.size() >= 0x7FFFFFFEu) throw std::length_error("more than 2^31 different strings");
    const int32_t id = (int32_t)hashes_.size();
    table_[k] = id;
    hashes_.push_back(h);
    pool_.insert(pool_.end(), s.begin(), s.end());
    offsets_.push_back((int64_t)pool_.size());
    if (hashes_.size() * 2 > table_.size()) grow();
    return id;
  }

 private:
  size_t slot(uint64_t h, std::string_view s) const {
    size_t k = h & mask_;
    while (table_[k] >= 0) {
      const int32_t id = table_[k];
      if (hashes_[id] == h && at(id) == s) break;
      k = (k + 1) & mask_;
    }
    return k;
  }
  void grow() {
    const size_t n = table_.size() * 2;
    table_.assign(n, -1);
    mask_ = n - 1;
    for (size_t id = 0; id < hashes_.size(); id++) {
      size_t k = hashes_[id] & mask_;
      while (table_[k] >= 0) k = (k + 1) & mask_;
      table_[k] = (int32_t)id;
    }
  }

  std::vector<int32_t> table_;
  size_t mask_;
  std::vector<int64_t> offsets_;
  std::vector<char> pool_;
  std::vector<uint64_t> hashes_;
};

}  // namespace crfield
