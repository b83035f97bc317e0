// Walks a list of sequences of feature dicts or feature strings and looks their features up.
//
// Two rules keep this safe with arbitrary Python objects. Strings are looked up where they lie only while no
// Python code can run (a list of str); everything else is copied first. And whatever is handed to Python code is
// held by a reference of our own, since that code may change the list or dict it came from.
#pragma once
#include <nanobind/nanobind.h>

#include <cstdint>
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
  struct Vector {
    int64_t row;
    int32_t slot;
    int64_t begin;  // in numbers_
  };

  void read_sequence(PyObject* sequence);
  void read_item(PyObject* item);
  void read_joined(PyObject* item);
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

  void add_named(double value);
  void add_indicator(PyObject* value);
  void drop_waiting();
  void flush();
  // Columns of n ≤ Interner::MANY keys, with their values or, without any, with ones.
  void look_up(const std::string_view* keys, int n, const double* values);
  void put(int32_t column, double value);

  RecordTable& table_;
  const bool grow_, joined_;
  Encoded out_;
  int64_t row_ = 0, sequence_ = -1, step_ = -1;

  std::string name_;  // of the feature being read, with the prefixes of the dicts around it
  std::string arena_;  // keys waiting for their lookup
  std::vector<size_t> ends_;
  std::vector<double> waiting_;

  std::vector<Vector> vectors_;
  std::vector<double> numbers_;
  std::unordered_map<PyTypeObject*, Kind> kinds_;
  std::vector<nb::object> types_;  // keeps the keys of kinds_ alive
  nb::object rules_, join_;
  std::vector<int32_t> sorted_;
};

}  // namespace records
}  // namespace crfield
