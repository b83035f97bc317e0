// The alphabet of features: keys to sparse columns, names of vectors to slots of the dense block.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "interner.hpp"

namespace crfield {
namespace records {

struct RecordTable {
  Interner keys;
  Interner slot_names;
  std::vector<int64_t> slot_starts, slot_widths;
  int64_t dense_width = 0;

  int32_t add_slot(std::string_view name, int64_t width) {
    const int64_t before = slot_names.size();
    const int32_t slot = slot_names.add(name);
    if (slot_names.size() > before) {
      slot_starts.push_back(dense_width);
      slot_widths.push_back(width);
      dense_width += width;
    }
    return slot;
  }
};

}  // namespace records
}  // namespace crfield
