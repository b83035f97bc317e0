// A packed problem as named arrays, so that it can be kept in a file and mapped again.
//
//   group_width (G) group_steps (G) group_partial (G)    groups of sequences; rows and first rows follow from them
//   active (Σ steps)    sequences still running at each step        sequence (Σ width)    their numbers
//   row_ptr (N + 1) row_order (N) row_item row_value
//   single1_ptr (N + 1) single1_item single1_cell single1_value, the same with 2 and 3    nothing where rows are direct
//   list_ptr (N + 1, or nothing) list_begin list_end list_value     dense (N D)
//   merged_ptr (M + 1) merged_member                                sets of columns that come together
//   gold (N) gold_cell (N) allowed (rows of partial groups, L) weight (B) gold_pairs (P) gold_fixed (1)
//   edge_indptr edge_indices edge_values edge_dense                 where edges have features
//   flags (3)    numeric values, weighted sequences, cells of two bytes (short_cell) instead of four (long_cell)
//
// row_item, single_item and list_begin go on behind their ends for as far as prefetches run ahead.
//
// PACKED_VERSION changes whenever these arrays, or what packing puts into them, change: files of another version are
// not read. tests/kernels/test_packed.py holds a digest of them for each version.
#pragma once
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace crfield {

constexpr int PACKED_VERSION = 2;

enum class Type { U8, U16, U32, I32, I64, F64 };

template <class T>
constexpr Type type_of() {
  if constexpr (std::is_same_v<T, uint8_t>) return Type::U8;
  else if constexpr (std::is_same_v<T, uint16_t>) return Type::U16;
  else if constexpr (std::is_same_v<T, uint32_t>) return Type::U32;
  else if constexpr (std::is_same_v<T, int32_t>) return Type::I32;
  else if constexpr (std::is_same_v<T, int64_t>) return Type::I64;
  else {
    static_assert(std::is_same_v<T, double>);
    return Type::F64;
  }
}

struct PackedArray {
  std::string name;
  Type type;
  const void* data;
  int64_t size;
};

struct PackedArrays {
  std::vector<PackedArray> arrays;
  std::shared_ptr<const void> owner;  // keeps the memory that they point to

  template <class T>
  void add(const char* name, const T* data, int64_t size) {
    arrays.push_back({name, type_of<T>(), data, size});
  }
  template <class T>
  const T* find(const char* name, int64_t& size) const {
    for (const PackedArray& a : arrays)
      if (a.name == name) {
        if (a.type != type_of<T>()) throw std::invalid_argument("packed array " + a.name + " is of another type");
        size = a.size;
        return static_cast<const T*>(a.data);
      }
    throw std::invalid_argument(std::string("packed array ") + name + " is missing");
  }
};

}  // namespace crfield
