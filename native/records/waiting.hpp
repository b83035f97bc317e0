// Keys of features on their way to the table.
//
// Rows of dicts wait until their keys are worth a lookup together. A key is a name and a value put side by side; both
// are mostly shorter than 16 bytes and of lengths that no branch predictor knows, so they are copied as blocks of 16
// that end where the part ends. What such a block has before the part is the header of the Python string on the one
// side and the margin before the key, or a part that is written later, on the other.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "interner.hpp"

namespace crfield {
namespace records {

// Bytes of a part of a key. `blocky`: the 16 bytes that end with its last one may be read.
struct Part {
  std::string_view bytes;
  bool blocky;
};

class WaitingKeys {
 public:
  size_t size() const { return texts_.size(); }
  bool all_one() const { return values_.empty(); }
  const std::string_view* texts() const { return texts_.data(); }
  const uint64_t* hashes() const { return hashes_.data(); }
  double value(size_t i) const { return values_.empty() ? 1.0 : values_[i]; }

  // name, one byte between, value: as CRFsuite joins them.
  void add_joined(const Part& name, char between, const Part& value) {
    const size_t n = name.bytes.size(), all = n + 1 + value.bytes.size();
    char* key = room(all);
    put(key + n + 1, value);
    key[n] = between;
    put(key, name);
    push(key, all, 1.0);
  }
  // FF, the length of the name, name, value: the two are kept apart.
  void add_apart(const Part& name, const Part& value) {
    const size_t n = name.bytes.size(), all = 5 + n + value.bytes.size();
    if (n > 0xFFFFFFFFu) throw std::length_error("a feature's name is longer than 4 GB");
    char* key = room(all);
    put(key + 5 + n, value);
    put(key + 5, name);
    key[0] = (char)0xFF;
    for (int i = 0; i < 4; i++) key[1 + i] = (char)(n >> (8 * i) & 0xFF);
    push(key, all, 1.0);
  }
  void add_plain(const Part& name, double value) {
    char* key = room(name.bytes.size());
    put(key, name);
    push(key, name.bytes.size(), value);
  }
  // Hashes of what has come since, and where in the table they lie on its way to the cache.
  void hash(const Interner& table) {
    size_t i = hashes_.size();
    hashes_.resize(texts_.size());
    for (; i < texts_.size(); i++) {
      hashes_[i] = hash_bytes(texts_[i].data(), texts_[i].size(), true);
      table.prefetch(hashes_[i]);
    }
  }
  void cut_back(size_t size) {
    texts_.resize(size);
    if (values_.size() > size) values_.resize(size);
    if (hashes_.size() > size) hashes_.resize(size);
  }
  void clear() {
    cut_back(0);
    if (blocks_.size() > 1) blocks_.resize(1);
    at_ = blocks_[0].get();
    left_ = BLOCK;
  }

 private:
  static constexpr size_t BLOCK = 1 << 12, MARGIN = 16;

  static void put(char* to, const Part& part) {
    const size_t n = part.bytes.size();
    if (part.blocky && n <= 16) {
      char block[16];
      std::memcpy(block, part.bytes.data() + n - 16, 16);
      std::memcpy(to + n - 16, block, 16);
    } else {
      std::memcpy(to, part.bytes.data(), n);
    }
  }
  // Blocks of bytes never move, so that views of keys stay good.
  char* room(size_t n) {
    if (left_ < n + MARGIN) {
      left_ = std::max(BLOCK, n + MARGIN);
      blocks_.emplace_back(new char[left_]);
      at_ = blocks_.back().get();
    }
    char* key = at_ + MARGIN;
    at_ += n + MARGIN;
    left_ -= n + MARGIN;
    return key;
  }
  void push(const char* key, size_t n, double value) {
    if (value != 1.0 && values_.empty()) values_.assign(texts_.size(), 1.0);
    texts_.emplace_back(key, n);
    if (value != 1.0 || !values_.empty()) values_.push_back(value);
  }

  std::vector<std::unique_ptr<char[]>> blocks_ = first();
  char* at_ = blocks_[0].get();
  size_t left_ = BLOCK;
  std::vector<std::string_view> texts_;
  std::vector<uint64_t> hashes_;
  std::vector<double> values_;  // empty while all are one

  static std::vector<std::unique_ptr<char[]>> first() {
    std::vector<std::unique_ptr<char[]>> blocks;
    blocks.emplace_back(new char[BLOCK]);
    return blocks;
  }
};

}  // namespace records
}  // namespace crfield
