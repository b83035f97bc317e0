// Is it UTF-8? Files must be strictly so; alphabets also hold lone surrogates, which any Python string may have.
#pragma once
#include <cstdint>
#include <cstring>
#include <string_view>

namespace crfield {

constexpr size_t VALID = std::string_view::npos;

// Where the first ill-formed sequence begins, or VALID (Unicode standard, table 3-7).
inline size_t first_invalid_utf8(std::string_view text, bool surrogates) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  const size_t n = text.size();
  auto tail = [&](size_t i) { return i < n && (p[i] & 0xC0) == 0x80; };
  for (size_t i = 0; i < n;) {
    uint64_t word;
    if (i + 8 <= n) {
      std::memcpy(&word, p + i, 8);
      if (!(word & 0x8080808080808080ull)) {
        i += 8;
        continue;
      }
    }
    const unsigned char c = p[i];
    if (c < 0x80) {
      i += 1;
    } else if (c >= 0xC2 && c < 0xE0 && tail(i + 1)) {
      i += 2;
    } else if (c >= 0xE0 && c < 0xF0 && tail(i + 1) && tail(i + 2) && !(c == 0xE0 && p[i + 1] < 0xA0) &&
               (surrogates || !(c == 0xED && p[i + 1] >= 0xA0))) {
      i += 3;
    } else if (c >= 0xF0 && c < 0xF5 && tail(i + 1) && tail(i + 2) && tail(i + 3) &&
               !(c == 0xF0 && p[i + 1] < 0x90) && !(c == 0xF4 && p[i + 1] >= 0x90)) {
      i += 4;
    } else {
      return i;
    }
  }
  return VALID;
}

}  // namespace crfield
