// Walks a list of sequences of feature dicts or feature strings and looks their features up.
//
// Two rules keep this safe with arbitrary Python objects. Strings are looked up where they lie only while no
// Python code can run (a list of str); everything else is copied first. And whatever is handed to Python code is
// held by a reference of our own, since that code may change the list or dict it came from.
#pragma once
#include <nanobind/nanobind.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "records/table.hpp"

namespace crfield {
namespace records {
namespace nb = nanobind;

// What a value is taken for; numbered as in kernels/record_items.py, whose kind_of() decides on rare types.
enum Kind { TEXT, FLOAT, INT, BOOL, REAL, ARRAY, LIST, SET, DICT, MAPPING, SEQUENCE, OTHER };

constexpr int DEEPEST = 32;  // nested dicts, as in record_items.py

// Thrown at something that cannot be used; encode() adds the place, and Python finds the words.
struct Unusable {};

struct Encoded {
  std::vector<int64_t> offsets{0}, indptr{0};
  std::vector<int32_t> indices;
  std::vector<double> values;
  bool all_one = true;
};

// Keys on their way to the table, end to end; std::string's append is a call into a library for each part.
class Arena {
 public:
  size_t size() const { return size_; }
  void clear() { size_ = 0; }
  void cut_back(size_t size) { size_ = size; }
  std::string_view cut(size_t first, size_t last) const { return {bytes_.data() + first, last - first}; }
  // Room for a key of this many bytes, to be written by put().
  void reserve(size_t more) {
    if (bytes_.size() - size_ < more) bytes_.resize(2 * (size_ + more));
  }
  void put(std::string_view part) {
    copy(bytes_.data() + size_, part.data(), part.size());
    size_ += part.size();
  }

 private:
  // Parts are short, and a call for each would cost more than the copy.
  static void copy(char* to, const char* from, size_t n) {
    if (n > 16) {
      std::memcpy(to, from, n);
    } else if (n >= 8) {
      uint64_t head, tail;
      std::memcpy(&head, from, 8);
      std::memcpy(&tail, from + n - 8, 8);
      std::memcpy(to, &head, 8);
      std::memcpy(to + n - 8, &tail, 8);
    } else if (n >= 4) {
      uint32_t head, tail;
      std::memcpy(&head, from, 4);
      std::memcpy(&tail, from + n - 4, 4);
      std::memcpy(to, &head, 4);
      std::memcpy(to + n - 4, &tail, 4);
    } else {
      for (size_t i = 0; i < n; i++) to[i] = from[i];
    }
  }

  std::vector<char> bytes_ = std::vector<char>(4096);
  size_t size_ = 0;
};

class Reader {
 public:
  // With `joined`, dicts are read as the names that CRFsuite gives them: kernels/joined_items.py.
  Reader(RecordTable& table, bool grow, bool joined) : table_(table), grow_(grow), joined_(joined) {}

  // Throws nb::python_error with Refused(sequence, step), -1 for a whole sequence.
  void read(PyObject* sequences);
  // The steps of one list or tuple, after whatever was read before is forgotten; false where they cannot be used.
  bool read_one(PyObject* steps);

  Encoded& encoded() { return out_; }
  // (rows, dense_width) filled from the vectors seen; the caller gives zeros.
  void fill_dense(double* block) const;

 private:
  struct Waiting {
    size_t end;  // of the key in the arena
    double value;
  };
  struct Vector {
    int64_t row;
    int32_t slot;
    int64_t begin;  // in numbers_
  };

  void read_sequence(PyObject* sequence);
  void read_item(PyObject* item);
  void read_joined(PyObject* item);
  nb::object joined(PyObject* item);
  bool join_dict(PyObject* dict, int depth);
  bool repeats(size_t first);
  void read_strings(PyObject* list_or_tuple);
  void read_dict(PyObject* dict, int depth);
  void read_feature(PyObject* value, int depth);
  void read_list(PyObject* value);
  void read_array(PyObject* value);
  void keep_vector(size_t begin);
  double number(PyObject* value, Kind kind);
  Kind kind_of(PyObject* value);
  nb::object rules(const char* name);

  // A key of parts that are put one after the other.
  void add_key(std::string_view a, std::string_view b, std::string_view c, double value);
  void add_named(double value) { add_key(name_, {}, {}, value); }
  void add_indicator(std::string_view name, std::string_view value);
  void drop_waiting();
  // Rows of dicts wait until their keys are worth a lookup together; flush() looks up and ends all that wait.
  void end_row();
  void flush();
  void check_joined(PyObject* item, size_t first);
  void find(const std::string_view* keys, int n, int32_t* columns);  // n ≤ Interner::MANY
  void put_ones(const std::string_view* keys, int n);
  void put(int32_t column, double value);

  RecordTable& table_;
  const bool grow_, joined_;
  Encoded out_;
  int64_t row_ = 0, sequence_ = -1, step_ = -1;

  std::string name_;  // of the feature being read, with the prefixes of the dicts around it
  Arena arena_;       // keys waiting for their lookup
  std::vector<Waiting> waiting_;
  std::vector<size_t> row_ends_;   // of the rows that wait, in keys
  std::vector<nb::object> items_;  // the dicts of these rows, where they are joined; null where Python joined them

  std::vector<Vector> vectors_;
  std::vector<double> numbers_;
  std::unordered_map<PyTypeObject*, Kind> kinds_;
  std::vector<nb::object> types_;  // keeps the keys of kinds_ alive
  nb::object rules_, join_;
  static constexpr int MET = 64;
  uint64_t met_[MET] = {};
  std::vector<int32_t> sorted_;
};

}  // namespace records
}  // namespace crfield
