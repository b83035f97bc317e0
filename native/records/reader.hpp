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

#include "python_objects.hpp"
#include "records/table.hpp"
#include "records/waiting.hpp"

namespace crfield {
namespace records {

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

// A list of the strings of a set, in order: that of a set changes from run to run, and column numbers must not.
nb::object sorted_strings(PyObject* set);

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
  // The keys and values of a dict, or the entries of a list, as they lay there; all borrowed.
  struct Ahead {
    struct Entry {
      PyObject *key, *value;
      Py_ssize_t at;  // where PyDict_Next() finds it
    };
    PyObject* of = nullptr;
    std::vector<Entry> entries;
  };
  struct Vector {
    int64_t row;
    int32_t slot;
    int64_t begin;  // in numbers_
  };

  void read_sequence(PyObject* sequence);
  void gather(PyObject* item, Ahead& into);
  // What was gathered ahead is borrowed, and forgotten before any Python code may run.
  void forget_ahead() { now_.of = ahead_.of = nullptr; }
  void read_item(PyObject* item);
  size_t take_plain();
  template <class At>
  bool take_strings(size_t n, At at);
  void read_rest(PyObject* dict, size_t before, Py_ssize_t at);
  void read_joined(PyObject* item);
  nb::object joined(PyObject* item);
  bool join_dict(PyObject* dict, int depth, Py_ssize_t at);
  bool repeats(size_t first);
  void read_strings(PyObject* list_or_tuple);
  void read_dict(PyObject* dict, int depth, Py_ssize_t at = 0);
  void read_feature(PyObject* value, int depth);
  void read_list(PyObject* value);
  void read_array(PyObject* value);
  void keep_vector(size_t begin);
  double number(PyObject* value, Kind kind);
  Kind kind_of(PyObject* value);
  nb::object rules(const char* name);

  Part whole_name() const { return {name_, name_.size() >= 16}; }
  void add_named(double value) { waiting_.add_plain(whole_name(), value); }
  void add_indicator(std::string_view value);
  void drop_waiting();
  // Rows of dicts wait until their keys are worth a lookup together; flush() looks up and ends all that wait.
  void end_row();
  void flush();
  void check_joined(PyObject* item, size_t first);
  void find(const std::string_view* keys, const uint64_t* hashes, int n, int32_t* columns);  // n ≤ Interner::MANY
  void put_ones(const std::string_view* keys, const uint64_t* hashes, int n);
  void put(int32_t column, double value);
  void put_known(const int32_t* columns, size_t n);

  RecordTable& table_;
  const bool grow_, joined_;
  Encoded out_;
  int64_t row_ = 0, sequence_ = -1, step_ = -1;

  std::string name_;  // of the feature being read, with the prefixes of the dicts around it
  Ahead now_, ahead_;
  bool short_ = false;  // a sequence alone that needs nobody to look ahead
  std::string_view views_[Interner::MANY];
  uint64_t hashes_[Interner::MANY];
  WaitingKeys waiting_;
  std::vector<size_t> row_ends_;   // of the rows that wait, in keys
  std::vector<nb::object> items_;  // the dicts of these rows, where they are joined; null where Python joined them

  std::vector<Vector> vectors_;
  std::vector<double> numbers_;
  std::unordered_map<PyTypeObject*, Kind> kinds_;
  std::vector<nb::object> types_;  // keeps the keys of kinds_ alive
  nb::object rules_, join_;
  static constexpr int MET = 64;
  uint64_t met_[MET] = {};
  std::vector<int32_t> sorted_, found_;
};

}  // namespace records
}  // namespace crfield
