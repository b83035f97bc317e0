#include "records/reader.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace crfield {
namespace records {
namespace {

constexpr size_t TOGETHER = 48;         // keys of dicts that are worth a lookup
constexpr Py_ssize_t SHORT = 64;        // steps of a sequence that lies in the cache, where it was made just now
constexpr double PLAIN_NUMBER = 1e300;  // two of them add up to a number

Part within(PyObject* object, std::string_view bytes) { return {bytes, blocky(object, bytes)}; }

void prefetch_object(PyObject* object) {
  __builtin_prefetch(object);
  __builtin_prefetch(reinterpret_cast<char*>(object) + 48);
}

// Headers of what comes three and four steps later, and where the entries lie of what comes two steps later.
void look_ahead(PyObject* steps, Py_ssize_t t, Py_ssize_t n) {
  if (t + 4 < n) __builtin_prefetch(item(steps, t + 4));
  if (t + 2 >= n) return;
  PyObject* later = item(steps, t + 2);
  if (PyDict_CheckExact(later)) {
    const char* table = hinted(later, 4);
    for (int line = 0; line < 8; line++) __builtin_prefetch(table + 64 * line);
  } else if (PyList_CheckExact(later)) {
    const char* entries = hinted(later, 3);
    __builtin_prefetch(entries);
    __builtin_prefetch(entries + 64);
  }
}

}  // namespace

void Reader::read(PyObject* sequences) {
  if (!is_list(sequences)) throw nb::type_error("sequences must be a list or a tuple");
  const nb::object holder = nb::borrow(sequences);
  try {
    for (Py_ssize_t s = 0; s < length(sequences); s++) {
      sequence_ = s;
      step_ = -1;
      const nb::object sequence = nb::borrow(item(sequences, s));
      const Kind kind = is_list(sequence.ptr()) ? LIST : kind_of(sequence.ptr());
      if (kind == LIST) {
        read_sequence(sequence.ptr());
      } else if (kind == ARRAY || kind == SEQUENCE) {
        read_sequence(owned(PySequence_List(sequence.ptr())).ptr());
      } else {
        throw Unusable();
      }
      out_.offsets.push_back(row_);
    }
    flush();
  } catch (const Unusable&) {
    const nb::object place = nb::make_tuple(sequence_, step_);
    PyErr_SetObject(nb::object(nb::module_::import_("crfield.kernels._records").attr("Refused")).ptr(), place.ptr());
    throw nb::python_error();
  }
}

bool Reader::read_one(PyObject* steps) {
  if (!is_list(steps)) return false;
  out_.offsets.resize(1);
  out_.indptr.resize(1);
  out_.indices.clear();
  out_.values.clear();
  out_.all_one = true;
  row_ = 0;
  vectors_.clear();
  numbers_.clear();
  drop_waiting();
  forget_ahead();
  short_ = length(steps) <= SHORT;
  const nb::object holder = nb::borrow(steps);
  try {
    read_sequence(steps);
    flush();
  } catch (const Unusable&) {
    return false;
  }
  return true;
}

void Reader::read_sequence(PyObject* sequence) {
  // The length is asked again at every step: reading a step may run Python code that changes the list.
  for (Py_ssize_t t = 0; t < length(sequence); t++) {
    step_ = t;
    const nb::object step = nb::borrow(item(sequence, t));
    if (short_) {
      forget_ahead();
      if (PyDict_CheckExact(step.ptr())) gather(step.ptr(), now_);
    } else {
      std::swap(now_, ahead_);
      if (now_.of != step.ptr()) gather(step.ptr(), now_);
      ahead_.of = nullptr;
      const Py_ssize_t n = length(sequence);
      look_ahead(sequence, t, n);
      if (t + 1 < n) gather(item(sequence, t + 1), ahead_);
    }
    read_item(step.ptr());
    row_++;
    end_row();
  }
  forget_ahead();
}

// Feature strings are small objects all over the heap, and waiting for them costs more than looking them up: those of
// the next step are on their way to the cache while this one is read. A short sequence alone is there already.
void Reader::gather(PyObject* step, Ahead& into) {
  into.of = nullptr;
  into.entries.clear();
  if (PyDict_CheckExact(step)) {
    Py_ssize_t at = 0, from = 0;
    PyObject *key, *value;
    for (; PyDict_Next(step, &at, &key, &value); from = at) {
      prefetch_object(key);
      prefetch_object(value);
      into.entries.push_back({key, value, from});
    }
    into.of = step;
  } else if (PyList_CheckExact(step)) {
    const Py_ssize_t n = PyList_Size(step);
    into.entries.resize((size_t)n);
    for (Py_ssize_t i = 0; i < n; i++) {
      PyObject* value = PyList_GetItem(step, i);
      into.entries[(size_t)i].value = value;
      __builtin_prefetch(value);
      __builtin_prefetch(reinterpret_cast<char*>(value) + 64);
    }
    into.of = step;
  }
}

void Reader::read_item(PyObject* item) {
  const bool gathered = now_.of == item;
  if (gathered && PyDict_CheckExact(item)) {
    const size_t before = waiting_.size(), done = take_plain();
    if (done < now_.entries.size()) return read_rest(item, before, now_.entries[done].at);
    if (joined_) items_.push_back(nb::borrow(item));
    return;
  }
  if (gathered) {  // a list
    flush();
    const auto at = [this](size_t i) { return now_.entries[i].value; };
    if (now_.of == item && take_strings(now_.entries.size(), at)) return;
  } else if (short_ && PyList_CheckExact(item)) {
    flush();
    const auto at = [item](size_t i) { return PyList_GetItem(item, (Py_ssize_t)i); };
    if (take_strings((size_t)PyList_Size(item), at)) return;
  }
  forget_ahead();
  const Kind kind = kind_of(item);
  if (joined_ && (kind == DICT || kind == MAPPING)) return read_joined(item);
  switch (kind) {
    case LIST:
      return read_strings(item);
    case DICT:
      name_.clear();
      return read_dict(item, 0);
    case MAPPING:
      name_.clear();
      return read_dict(called((PyObject*)&PyDict_Type, item).ptr(), 0);
    case SET:
      return read_strings(sorted_strings(item).ptr());
    case SEQUENCE:
    case ARRAY:
      return read_strings(owned(PySequence_List(item)).ptr());
    default:
      throw Unusable();
  }
}

// The features of a gathered dict up to the first that is not text or a number; how many they are. Runs no Python code,
// and what could at most have woken the garbage collector ends it.
size_t Reader::take_plain() {
  const auto stopped = [&](size_t i) {
    forget_ahead();
    return i;
  };
  const size_t n = now_.entries.size();
  std::string_view name, text;
  for (size_t i = 0; i < n; i++) {
    PyObject *key = now_.entries[i].key, *value = now_.entries[i].value;
    if (!PyUnicode_CheckExact(key) || !utf8(key, name)) return stopped(i);
    const Part own = within(key, name);
    if (PyUnicode_CheckExact(value)) {
      if (!utf8(value, text)) return stopped(i);
      if (joined_) {
        waiting_.add_joined(own, ':', within(value, text));
      } else {
        waiting_.add_apart(own, within(value, text));
      }
    } else if (PyFloat_CheckExact(value)) {
      const double x = PyFloat_AsDouble(value);
      if (!(std::fabs(x) <= PLAIN_NUMBER)) return i;
      waiting_.add_plain(own, x);
    } else if (value == Py_True) {
      waiting_.add_plain(own, 1.0);
    } else if (PyLong_CheckExact(value)) {
      const double x = PyLong_AsDouble(value);
      if (x == -1.0 && PyErr_Occurred()) {  // beyond all doubles
        PyErr_Clear();
        return stopped(i);
      }
      if (!(std::fabs(x) <= PLAIN_NUMBER)) return i;
      waiting_.add_plain(own, x);
    } else if (value != Py_False) {
      return i;
    }
  }
  return n;
}

// The rest of a dict from the place `at` on, of which what waits from `before` on was taken.
void Reader::read_rest(PyObject* dict, size_t before, Py_ssize_t at) {
  name_.clear();
  if (joined_ && join_dict(dict, 0, at)) {
    items_.push_back(nb::borrow(dict));
    return;
  }
  forget_ahead();
  if (!joined_) return read_dict(dict, 0, at);
  waiting_.cut_back(before);
  read_joined(dict);
}

// A dict of everyday values is joined here; one that holds others, or whose joined names meet, in Python.
void Reader::read_joined(PyObject* item) {
  name_.clear();
  read_dict(joined(item).ptr(), 0);
  items_.emplace_back();
}

nb::object Reader::joined(PyObject* item) {
  if (!join_.is_valid()) join_ = nb::module_::import_("crfield.kernels.joined_items").attr("joined");
  return called(join_.ptr(), item);
}

// The columns from `first` on are those of a joined dict: if one comes twice, Python adds its values up.
void Reader::check_joined(PyObject* item, size_t first) {
  if (!item || !repeats(first)) return;
  forget_ahead();
  Reader plain(table_, grow_, false);
  plain.name_.clear();
  plain.read_dict(joined(item).ptr(), 0);
  plain.end_row();
  plain.flush();
  out_.indices.resize(first);
  if (!out_.all_one) out_.values.resize(first);
  for (size_t i = 0; i < plain.out_.indices.size(); i++)
    put(plain.out_.indices[i], plain.out_.all_one ? 1.0 : plain.out_.values[i]);
}

// Names and numbers of a dict wait for their lookup; false at the first value that is not plain. Runs no Python code.
bool Reader::join_dict(PyObject* dict, int depth, Py_ssize_t at) {
  if (depth > DEEPEST) return false;
  const size_t prefix = name_.size();
  PyObject *key, *value;
  std::string_view own, text;
  while (PyDict_Next(dict, &at, &key, &value)) {
    if (!PyUnicode_CheckExact(key) || !utf8(key, own)) return false;
    name_.resize(prefix);
    name_ += own;
    if (PyUnicode_CheckExact(value)) {
      if (!utf8(value, text)) return false;
      waiting_.add_joined(whole_name(), ':', within(value, text));
    } else if (PyFloat_CheckExact(value)) {
      const double x = PyFloat_AsDouble(value);
      if (!(std::fabs(x) <= PLAIN_NUMBER)) return false;
      add_named(x);
    } else if (value == Py_True || value == Py_False) {
      if (value == Py_True) add_named(1.0);
    } else if (PyLong_CheckExact(value)) {
      const double x = PyLong_AsDouble(value);
      if (PyErr_Occurred()) PyErr_Clear();  // beyond all doubles, as x = -1 does not tell
      else if (std::fabs(x) <= PLAIN_NUMBER) {
        add_named(x);
        continue;
      }
      return false;
    } else if (PyList_CheckExact(value) || PyTuple_CheckExact(value)) {
      for (Py_ssize_t i = 0; i < length(value); i++) {
        PyObject* entry = item(value, i);
        if (!PyUnicode_CheckExact(entry) || !utf8(entry, text)) return false;
        waiting_.add_joined(whole_name(), ':', within(entry, text));
      }
    } else if (PyDict_CheckExact(value)) {
      name_ += ':';
      if (!join_dict(value, depth + 1, 0)) return false;
    } else {
      return false;
    }
  }
  name_.resize(prefix);
  return true;
}

// Whether a column comes twice among those from `first` on.
bool Reader::repeats(size_t first) {
  const int32_t* from = out_.indices.data() + first;
  const size_t n = out_.indices.size() - first;
  // Columns that share none of their last bits differ; most rows of a few dozen are told so.
  bool apart = true;
  for (size_t i = 0; i < n; i++) {
    uint64_t& word = met_[from[i] >> 6 & (MET - 1)];
    const uint64_t bit = uint64_t(1) << (from[i] & 63);
    apart &= !(word & bit);
    word |= bit;
  }
  for (size_t i = 0; i < n; i++) met_[from[i] >> 6 & (MET - 1)] = 0;
  if (apart) return false;
  sorted_.assign(from, from + n);
  std::sort(sorted_.begin(), sorted_.end());
  return std::adjacent_find(sorted_.begin(), sorted_.end()) != sorted_.end();
}

// A list of n strings, looked up where they lie: nothing here runs Python code. False where one of them has to be held, or
// to be refused.
template <class At>
bool Reader::take_strings(size_t n, At at) {
  const size_t before = out_.indices.size();
  Blocks<Interner::MANY> blocks;
  int filled = 0;
  for (size_t i = 0; i < n; i++) {
    PyObject* string = at(i);
    if (!is_text(string) || !utf8(string, views_[filled])) {
      out_.indices.resize(before);
      if (!out_.all_one) out_.values.resize(before);
      return false;
    }
    blocks.hold(string, views_, filled);
    hashes_[filled] = hash_bytes(views_[filled].data(), views_[filled].size(), true);
    table_.keys.prefetch(hashes_[filled]);
    if (++filled == Interner::MANY) {
      put_ones(views_, hashes_, filled);
      filled = 0;
    }
  }
  put_ones(views_, hashes_, filled);
  return true;
}

void Reader::read_strings(PyObject* list) {
  flush();
  const nb::object fixed = owned(PySequence_Tuple(list));
  for (Py_ssize_t i = 0; i < length(fixed.ptr()); i++) {
    PyObject* string = item(fixed.ptr(), i);
    if (!is_text(string)) throw Unusable();
    nb::object keep;
    Blocks<1> block;
    std::string_view bytes = utf8_of(string, keep);
    block.hold(keep.is_valid() ? keep.ptr() : string, &bytes, 0);
    const uint64_t hash = hash_bytes(bytes.data(), bytes.size(), true);
    put_ones(&bytes, &hash, 1);
  }
}

void Reader::put_ones(const std::string_view* keys, const uint64_t* hashes, int n) {
  int32_t columns[Interner::MANY];
  find(keys, hashes, n, columns);
  if (out_.all_one) return put_known(columns, (size_t)n);
  for (int i = 0; i < n; i++) put(columns[i], 1.0);
}

// Columns of value one, without a branch: nobody can tell which features are known.
void Reader::put_known(const int32_t* columns, size_t n) {
  size_t known = out_.indices.size();
  out_.indices.resize(known + n);
  int32_t* to = out_.indices.data();
  for (size_t i = 0; i < n; i++) {
    to[known] = columns[i];
    known += columns[i] >= 0;
  }
  out_.indices.resize(known);
}

void Reader::find(const std::string_view* keys, const uint64_t* hashes, int n, int32_t* columns) {
  table_.keys.find_hashed(keys, hashes, n, columns);
  for (int i = 0; grow_ && i < n; i++)
    if (columns[i] < 0) columns[i] = table_.keys.add(keys[i], hashes[i]);
}

void Reader::put(int32_t column, double value) {
  if (column < 0) return;
  if (value != 1.0 && out_.all_one) {
    out_.values.assign(out_.indices.size(), 1.0);
    out_.all_one = false;
  }
  out_.indices.push_back(column);
  if (!out_.all_one) out_.values.push_back(value);
}

void Reader::end_row() {
  if (row_ends_.empty() && !waiting_.size() && items_.empty()) {
    out_.indptr.push_back((int64_t)out_.indices.size());
    return;
  }
  row_ends_.push_back(waiting_.size());
  waiting_.hash(table_.keys);
  if (waiting_.size() >= TOGETHER) flush();
}

void Reader::flush() {
  if (row_ends_.empty()) return;
  const size_t all = waiting_.size();
  found_.resize(all);
  for (size_t i = 0; i < all; i += Interner::MANY) {
    const int n = (int)std::min<size_t>(Interner::MANY, all - i);
    find(waiting_.texts() + i, waiting_.hashes() + i, n, found_.data() + i);
  }
  for (size_t row = 0, i = 0; row < row_ends_.size(); row++) {
    const size_t first = out_.indices.size(), end = row_ends_[row];
    if (waiting_.all_one() && out_.all_one) {
      put_known(found_.data() + i, end - i);
      i = end;
    }
    for (; i < end; i++) put(found_[i], waiting_.value(i));
    if (joined_) check_joined(items_[row].ptr(), first);
    out_.indptr.push_back((int64_t)out_.indices.size());
  }
  drop_waiting();
}

void Reader::drop_waiting() {
  waiting_.clear();
  row_ends_.clear();
  items_.clear();
}

}  // namespace records
}  // namespace crfield
