// Column files and CRFsuite files from one run of bytes to codes. No Python object is touched, so the GIL is
// free, but for the rare number that needs Python's own correctly rounded conversion.
#pragma once
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "arrays.hpp"
#include "interner.hpp"
#include "utf8.hpp"

namespace crfield {

// What is wrong with the text, and where; kernels/columns.py makes the sentence.
struct TextProblem {
  const char* kind;
  int64_t line;
  std::string got;
};

// The lines of a text without their ends; a last line without an end counts, as does nothing after the last end.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {
    const size_t bad = first_invalid_utf8(text, false);
    if (bad != VALID) {
      int64_t line = 1;
      for (size_t i = 0; i < bad; i++) line += text[i] == '\n';
      throw TextProblem{"utf8", line, ""};
    }
    if (rest_.substr(0, 3) == "\xEF\xBB\xBF") rest_.remove_prefix(3);
  }

  bool next(std::string_view& line) {
    if (done_) return false;
    const size_t end = rest_.find('\n');
    line = rest_.substr(0, end);
    if (end == std::string_view::npos)
      done_ = true;
    else
      rest_.remove_prefix(end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    number_++;
    return true;
  }
  int64_t number() const { return number_; }

 private:
  std::string_view rest_;
  int64_t number_ = 0;
  bool done_ = false;
};

struct ColumnText {
  Interner strings;
  std::vector<int64_t> offsets{0};
  std::vector<int32_t> codes;
  int64_t width = 0;
};

inline ColumnText parse_columns(std::string_view text, std::string_view comment) {
  ColumnText out;
  Lines lines(text);
  std::string_view line;
  int64_t nodes = 0;
  auto end_sequence = [&] {
    if (nodes > out.offsets.back()) out.offsets.push_back(nodes);
  };
  while (lines.next(line)) {
    if (!comment.empty() && line.substr(0, comment.size()) == comment) continue;
    int64_t fields = 0;
    const char *p = line.data(), *end = p + line.size();
    for (;;) {
      while (p < end && (*p == ' ' || *p == '\t')) p++;
      if (p == end) break;
      const char* start = p;
      while (p < end && *p != ' ' && *p != '\t') p++;
      out.codes.push_back(out.strings.add({start, (size_t)(p - start)}));
      fields++;
    }
    if (!fields) {
      end_sequence();
      continue;
    }
    if (!out.width) out.width = fields;
    if (fields != out.width)
      throw TextProblem{"width", lines.number(), std::to_string(out.width) + " " + std::to_string(fields)};
    nodes++;
  }
  end_sequence();
  return out;
}

// A finite decimal number, [+-] digits [. digits] [e [+-] digits]; false when it is anything else.
//
// A mantissa below 2^53 and a power of ten up to 22 are both exact doubles, so one product or quotient is
// correctly rounded (Clinger 1990); the rest goes to Python.
inline bool parse_number(std::string_view text, double& value) {
  static const double power[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  const char *p = text.data(), *end = p + text.size();
  auto digit = [&] { return p < end && *p >= '0' && *p <= '9'; };
  bool negative = false, exact = true;
  if (p < end && (*p == '+' || *p == '-')) negative = *p++ == '-';
  uint64_t mantissa = 0;
  int64_t digits = 0, exponent = 0;
  auto eat = [&](bool fraction) {
    for (; digit(); p++, digits++) {
      if (mantissa >= (1ull << 53) / 10) {
        exact = false;
      } else {
        mantissa = mantissa * 10 + (uint64_t)(*p - '0');
        exponent -= fraction;
      }
    }
  };
  eat(false);
  if (p < end && *p == '.') {
    p++;
    eat(true);
  }
  if (!digits) return false;
  if (p < end && (*p == 'e' || *p == 'E')) {
    p++;
    bool down = false;
    if (p < end && (*p == '+' || *p == '-')) down = *p++ == '-';
    if (!digit()) return false;
    int64_t given = 0;
    for (; digit(); p++) given = given < 100000 ? given * 10 + (*p - '0') : given;
    exponent += down ? -given : given;
  }
  if (p != end) return false;
  if (exact && exponent >= -22 && exponent <= 22) {
    value = exponent < 0 ? (double)mantissa / power[-exponent] : (double)mantissa * power[exponent];
    if (negative) value = -value;
    return true;
  }
  const std::string copy(text);
  nb::gil_scoped_acquire held;
  value = PyOS_string_to_double(copy.c_str(), nullptr, nullptr);
  if (PyErr_Occurred()) {
    PyErr_Clear();
    return false;
  }
  return std::isfinite(value);
}

struct AttributeText {
  Interner attributes, labels;
  std::vector<int64_t> offsets{0}, indptr{0};
  std::vector<int32_t> gold, indices;
  std::vector<double> values, weights;
};

// Splits `name[:value]` at the first bare colon and undoes \: and \\ in the name; false without a colon.
inline bool split_attribute(std::string_view field, std::string& name, std::string_view& value) {
  name.clear();
  for (size_t i = 0; i < field.size(); i++) {
    if (field[i] == ':') {
      value = field.substr(i + 1);
      return true;
    }
    if (field[i] == '\\' && i + 1 < field.size() && (field[i + 1] == '\\' || field[i + 1] == ':')) i++;
    name.push_back(field[i]);
  }
  value = {};
  return false;
}

inline AttributeText parse_crfsuite(std::string_view text) {
  AttributeText out;
  Lines lines(text);
  std::string_view line, value;
  std::string name;
  double weight = 1.0;
  auto end_sequence = [&] {
    if ((int64_t)out.gold.size() > out.offsets.back()) {
      out.offsets.push_back((int64_t)out.gold.size());
      out.weights.push_back(weight);
    }
    weight = 1.0;
  };
  while (lines.next(line)) {
    if (line.empty()) {
      end_sequence();
      continue;
    }
    if (line.front() == '\t') throw TextProblem{"label", lines.number(), ""};
    bool labelled = false;
    for (size_t at = 0; at <= line.size();) {
      const size_t tab = std::min(line.find('\t', at), line.size());
      const std::string_view field = line.substr(at, tab - at);
      at = tab + 1;
      if (field.empty()) continue;
      const bool colon = split_attribute(field, name, value);
      if (labelled) {
        double number = 1.0;
        if (!value.empty() && !parse_number(value, number))
          throw TextProblem{"number", lines.number(), std::string(value)};
        out.indices.push_back(out.attributes.add(name));
        out.values.push_back(number);
      } else if (!name.empty() && name[0] == '@') {
        if (name != "@weight") throw TextProblem{"directive", lines.number(), name};
        if (!parse_number(value, weight) || weight < 0)
          throw TextProblem{"weight", lines.number(), std::string(value)};
      } else {
        if (colon) throw TextProblem{"colon", lines.number(), std::string(field)};
        out.gold.push_back(out.labels.add(name));
        labelled = true;
      }
    }
    if (labelled) out.indptr.push_back((int64_t)out.indices.size());
  }
  end_sequence();
  return out;
}

}  // namespace crfield
