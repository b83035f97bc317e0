#include "records/reader.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace crfield {
namespace records {
namespace {

nb::object owned(PyObject* made) {
  if (!made) throw nb::python_error();
  return nb::steal(made);
}

constexpr size_t TOGETHER = 48;         // keys of dicts that are worth a lookup
constexpr double PLAIN_NUMBER = 1e300;  // two of them add up to a number

bool is_list(PyObject* value) { return PyList_Check(value) || PyTuple_Check(value); }

Py_ssize_t length(PyObject* list) { return PyList_Check(list) ? PyList_GET_SIZE(list) : PyTuple_GET_SIZE(list); }

PyObject** entries(PyObject* list) { return PySequence_Fast_ITEMS(list); }

// Sorted, for the order of a set changes from run to run and column numbers must not.
nb::object sorted_strings(PyObject* set) {
  nb::object list = owned(PySequence_List(set));
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.ptr()); i++)
    if (!PyUnicode_Check(PyList_GET_ITEM(list.ptr(), i))) throw Unusable();
  if (PyList_Sort(list.ptr())) throw nb::python_error();
  return list;
}

bool has_surrogates(PyObject* text) {
  const Py_ssize_t n = PyUnicode_GET_LENGTH(text);
  const int kind = PyUnicode_KIND(text);
  if (kind == PyUnicode_1BYTE_KIND) return false;
  for (Py_ssize_t i = 0; i < n; i++) {
    const Py_UCS4 c = PyUnicode_READ(kind, PyUnicode_DATA(text), i);
    if (c >= 0xD800 && c <= 0xDFFF) return true;
  }
  return false;
}

// UTF-8 of a Python string, which lives as long as the string; `keep` owns it where the string has lone
// surrogates and so no UTF-8 of its own. Those are looked for first, since asking and catching the error would
// make objects and could wake the garbage collector.
std::string_view text(PyObject* value, nb::object& keep) {
#if PY_VERSION_HEX < 0x030C0000
  if (PyUnicode_READY(value)) throw nb::python_error();
#endif
  if (PyUnicode_IS_COMPACT_ASCII(value))
    return {reinterpret_cast<const char*>(PyUnicode_1BYTE_DATA(value)), (size_t)PyUnicode_GET_LENGTH(value)};
  if (has_surrogates(value)) {
    keep = owned(PyUnicode_AsEncodedString(value, "utf-8", "surrogatepass"));
    return {PyBytes_AS_STRING(keep.ptr()), (size_t)PyBytes_GET_SIZE(keep.ptr())};
  }
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(value, &size);
  if (!data) throw nb::python_error();
  return {data, (size_t)size};
}

// Bring what lies ahead into the cache: the strings of the next step, the pointers of the one after it, the
// header of the third. Feature strings are small objects all over the heap, and waiting for them costs more than
// looking them up.
void look_ahead(PyObject** steps, Py_ssize_t t, Py_ssize_t n) {
  if (t + 1 < n && PyDict_CheckExact(steps[t + 1])) {
    if (t + 4 < n) __builtin_prefetch(steps[t + 4]);
#ifndef Py_LIMITED_API
    if (t + 2 < n && PyDict_CheckExact(steps[t + 2])) {
      const char* table = reinterpret_cast<const char*>(reinterpret_cast<PyDictObject*>(steps[t + 2])->ma_keys);
      for (int line = 0; line < 8; line++) __builtin_prefetch(table + 64 * line);
    }
#endif
    Py_ssize_t at = 0;
    PyObject *key, *value;
    while (PyDict_Next(steps[t + 1], &at, &key, &value)) {
      __builtin_prefetch(value);
      __builtin_prefetch(reinterpret_cast<char*>(value) + 48);
    }
    return;
  }
  if (t + 3 < n) __builtin_prefetch(steps[t + 3]);
  if (t + 2 < n && PyList_CheckExact(steps[t + 2])) __builtin_prefetch(entries(steps[t + 2]));
  if (t + 1 < n && PyList_CheckExact(steps[t + 1])) {
    PyObject** strings = entries(steps[t + 1]);
    const Py_ssize_t count = PyList_GET_SIZE(steps[t + 1]);
    for (Py_ssize_t i = 0; i < count && i < 64; i++) {
      __builtin_prefetch(strings[i]);
      __builtin_prefetch(reinterpret_cast<char*>(strings[i]) + 64);
    }
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
      const nb::object sequence = nb::borrow(entries(sequences)[s]);
      const Kind kind = kind_of(sequence.ptr());
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
    look_ahead(entries(sequence), t, length(sequence));
    const nb::object item = nb::borrow(entries(sequence)[t]);
    read_item(item.ptr());
    row_++;
    end_row();
  }
}

void Reader::read_item(PyObject* item) {
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
      return read_dict(owned(PyObject_CallOneArg((PyObject*)&PyDict_Type, item)).ptr(), 0);
    case SET:
      return read_strings(sorted_strings(item).ptr());
    case SEQUENCE:
    case ARRAY:
      return read_strings(owned(PySequence_List(item)).ptr());
    default:
      throw Unusable();
  }
}

// A dict of everyday values is joined here; one that holds others, or whose joined names meet, in Python.
void Reader::read_joined(PyObject* item) {
  const size_t before = waiting_.size(), bytes = arena_.size();
  name_.clear();
  if (PyDict_CheckExact(item) && join_dict(item, 0)) {
    items_.push_back(nb::borrow(item));
    return;
  }
  waiting_.resize(before);
  arena_.cut_back(bytes);
  name_.clear();
  read_dict(joined(item).ptr(), 0);
  items_.emplace_back();
}

nb::object Reader::joined(PyObject* item) {
  if (!join_.is_valid()) join_ = nb::module_::import_("crfield.kernels.joined_items").attr("joined");
  return owned(PyObject_CallOneArg(join_.ptr(), item));
}

// The columns from `first` on are those of a joined dict: if one comes twice, Python adds its values up.
void Reader::check_joined(PyObject* item, size_t first) {
  if (!item || !repeats(first)) return;
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
bool Reader::join_dict(PyObject* dict, int depth) {
  if (depth > DEEPEST) return false;
  const size_t prefix = name_.size();
  Py_ssize_t at = 0;
  PyObject *key, *value;
  while (PyDict_Next(dict, &at, &key, &value)) {
    if (!PyUnicode_CheckExact(key)) return false;
    nb::object keep, kept;
    const std::string_view own = text(key, keep);
    if (!prefix && PyUnicode_CheckExact(value)) {
      add_key(own, ":", text(value, kept), 1.0);
      continue;
    }
    name_.resize(prefix);
    name_ += own;
    if (PyUnicode_CheckExact(value)) {
      add_key(name_, ":", text(value, kept), 1.0);
    } else if (PyFloat_CheckExact(value)) {
      const double x = PyFloat_AS_DOUBLE(value);
      if (!(std::fabs(x) <= PLAIN_NUMBER)) return false;
      add_named(x);
    } else if (PyBool_Check(value)) {
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
      name_ += ':';
      for (Py_ssize_t i = 0; i < length(value); i++) {
        PyObject* entry = entries(value)[i];
        if (!PyUnicode_CheckExact(entry)) return false;
        add_key(name_, text(entry, kept), {}, 1.0);
      }
    } else if (PyDict_CheckExact(value)) {
      name_ += ':';
      if (!join_dict(value, depth + 1)) return false;
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

void Reader::read_strings(PyObject* list) {
  flush();
  // Nothing in this loop runs Python code, not even the garbage collector, so the strings stay where they are.
  std::string_view views[Interner::MANY];
  PyObject** strings = entries(list);
  const Py_ssize_t count = length(list);
  int n = 0;
  for (Py_ssize_t i = 0; i < count; i++) {
    if (!PyUnicode_Check(strings[i])) throw Unusable();
    nb::object keep;
    views[n++] = text(strings[i], keep);
    if (n == Interner::MANY || keep.is_valid()) {
      put_ones(views, n);
      n = 0;
    }
  }
  put_ones(views, n);
}

void Reader::put_ones(const std::string_view* keys, int n) {
  int32_t columns[Interner::MANY];
  find(keys, n, columns);
  for (int i = 0; i < n; i++) put(columns[i], 1.0);
}

void Reader::find(const std::string_view* keys, int n, int32_t* columns) {
  table_.keys.find_many(keys, n, columns);
  for (int i = 0; grow_ && i < n; i++)
    if (columns[i] < 0) columns[i] = table_.keys.add(keys[i]);
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

void Reader::read_dict(PyObject* dict, int depth) {
  if (depth > DEEPEST) throw Unusable();
  const Py_ssize_t size = PyDict_GET_SIZE(dict);
  const size_t prefix = name_.size();
  Py_ssize_t at = 0;
  PyObject *key, *value;
  while (PyDict_Next(dict, &at, &key, &value)) {
    if (!PyUnicode_Check(key)) throw Unusable();
    nb::object keep, kept;
    const std::string_view own = text(key, keep);
    if (!prefix && PyUnicode_CheckExact(value)) {  // the usual case: nothing is copied but into the key
      add_indicator(own, text(value, kept));
      continue;
    }
    name_.resize(prefix);
    name_ += own;
    if (PyUnicode_CheckExact(value)) {
      add_indicator(name_, text(value, kept));
    } else if (PyFloat_CheckExact(value)) {
      add_named(number(value, FLOAT));
    } else {
      const nb::object alive = nb::borrow(value);
      read_feature(value, depth);
      if (PyDict_GET_SIZE(dict) != size) throw std::runtime_error("a feature dict changed size while it was read");
    }
  }
  name_.resize(prefix);
}

void Reader::read_feature(PyObject* value, int depth) {
  const Kind kind = kind_of(value);
  switch (kind) {
    case TEXT: {
      nb::object keep;
      return add_indicator(name_, text(value, keep));
    }
    case BOOL: {
      const int truth = PyObject_IsTrue(value);
      if (truth < 0) throw nb::python_error();
      if (truth) add_named(1.0);
      return;
    }
    case FLOAT:
    case INT:
    case REAL:
      return add_named(number(value, kind));
    case DICT:
      name_ += ':';
      return read_dict(value, depth + 1);
    case MAPPING:
      name_ += ':';
      return read_dict(owned(PyObject_CallOneArg((PyObject*)&PyDict_Type, value)).ptr(), depth + 1);
    case SET:
      return read_list(sorted_strings(value).ptr());
    case LIST:
    case SEQUENCE:
      return read_list(value);
    case ARRAY:
      return read_array(value);
    default:
      throw Unusable();
  }
}

void Reader::read_list(PyObject* value) {
  const nb::object fixed = owned(PySequence_Tuple(value));
  const Py_ssize_t count = PyTuple_GET_SIZE(fixed.ptr());
  if (!count) return;
  if (PyUnicode_Check(PyTuple_GET_ITEM(fixed.ptr(), 0))) {
    for (Py_ssize_t i = 0; i < count; i++) {
      PyObject* string = PyTuple_GET_ITEM(fixed.ptr(), i);
      if (!PyUnicode_Check(string)) throw Unusable();
      nb::object keep;
      add_indicator(name_, text(string, keep));
    }
    return;
  }
  const size_t begin = numbers_.size();
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* entry = PyTuple_GET_ITEM(fixed.ptr(), i);
    const Kind kind = kind_of(entry);
    if (kind != FLOAT && kind != INT && kind != BOOL && kind != REAL) throw Unusable();
    numbers_.push_back(number(entry, kind));
  }
  keep_vector(begin);
}

void Reader::read_array(PyObject* value) {
  nb::object array = nb::borrow(value);
  const size_t begin = numbers_.size();
  for (bool plain = false;; plain = true) {
    // Vectors of double and float are read in place; vector_of() makes other arrays such, or lists, or nothing.
    Py_buffer view;
    if (PyObject_GetBuffer(array.ptr(), &view, PyBUF_STRIDED_RO | PyBUF_FORMAT)) {
      PyErr_Clear();
    } else {
      const bool wide = view.format && !std::strcmp(view.format, "d");
      const bool narrow = view.format && !std::strcmp(view.format, "f");
      const bool readable = view.ndim == 1 && (wide || narrow);
      if (readable) {
        const char* at = static_cast<const char*>(view.buf);
        numbers_.resize(begin + view.shape[0]);
        for (Py_ssize_t i = 0; i < view.shape[0]; i++, at += view.strides[0]) {
          if (wide) {
            std::memcpy(&numbers_[begin + i], at, sizeof(double));
          } else {
            float single;
            std::memcpy(&single, at, sizeof(float));
            numbers_[begin + i] = single;
          }
        }
      }
      PyBuffer_Release(&view);
      if (readable) break;
    }
    if (plain) throw Unusable();
    array = owned(PyObject_CallOneArg(rules("vector_of").ptr(), value));
    if (array.is_none()) throw Unusable();
    if (PyList_Check(array.ptr())) return read_list(array.ptr());
  }
  if (numbers_.size() > begin) keep_vector(begin);
}

void Reader::keep_vector(size_t begin) {
  for (size_t i = begin; i < numbers_.size(); i++)
    if (!std::isfinite(numbers_[i])) throw Unusable();
  const int64_t width = (int64_t)(numbers_.size() - begin);
  const int32_t slot = grow_ ? table_.add_slot(name_, width) : table_.slot_names.find(name_);
  if (slot < 0) {
    numbers_.resize(begin);
    return;
  }
  if (table_.slot_widths[slot] != width) throw Unusable();
  vectors_.push_back({row_, slot, (int64_t)begin});
}

void Reader::fill_dense(double* block) const {
  for (const Vector& vector : vectors_) {
    double* row = block + vector.row * table_.dense_width + table_.slot_starts[vector.slot];
    const double* from = numbers_.data() + vector.begin;
    for (int64_t i = 0; i < table_.slot_widths[vector.slot]; i++) row[i] += from[i];
  }
}

double Reader::number(PyObject* value, Kind kind) {
  double result;
  if (kind == FLOAT) {
    result = PyFloat_AS_DOUBLE(value);
  } else if (kind == INT) {
    result = PyLong_AsDouble(value);
  } else {
    const nb::object converted = nb::steal(PyNumber_Float(value));
    result = converted.is_valid() ? PyFloat_AS_DOUBLE(converted.ptr()) : -1.0;
  }
  if (PyErr_Occurred()) {
    if (!PyErr_ExceptionMatches(PyExc_OverflowError)) throw nb::python_error();
    PyErr_Clear();
    throw Unusable();
  }
  if (!std::isfinite(result)) throw Unusable();
  return result;
}

Kind Reader::kind_of(PyObject* value) {
  if (PyUnicode_Check(value)) return TEXT;
  if (PyBool_Check(value)) return BOOL;
  if (PyFloat_Check(value)) return FLOAT;
  if (PyLong_Check(value)) return INT;
  if (PyDict_Check(value)) return DICT;
  if (is_list(value)) return LIST;
  if (PyAnySet_Check(value)) return SET;
  PyTypeObject* type = Py_TYPE(value);
  const auto known = kinds_.find(type);
  if (known != kinds_.end()) return known->second;
  const nb::object answer = owned(PyObject_CallOneArg(rules("kind_of").ptr(), (PyObject*)type));
  const int kind = nb::cast<int>(answer);
  if (kind < TEXT || kind > OTHER) throw std::runtime_error("kind_of gave no known kind");
  types_.push_back(nb::borrow((PyObject*)type));
  kinds_.emplace(type, (Kind)kind);
  return (Kind)kind;
}

nb::object Reader::rules(const char* name) {
  if (!rules_.is_valid()) rules_ = nb::module_::import_("crfield.kernels.record_items");
  return rules_.attr(name);
}

void Reader::add_key(std::string_view a, std::string_view b, std::string_view c, double value) {
  arena_.reserve(a.size() + b.size() + c.size());
  arena_.put(a);
  if (!b.empty()) arena_.put(b);
  if (!c.empty()) arena_.put(c);
  waiting_.push_back({arena_.size(), value});
}

void Reader::add_indicator(std::string_view name, std::string_view value) {
  if (name.size() > 0xFFFFFFFFu) throw std::length_error("a feature's name is longer than 4 GB");
  const uint32_t n = (uint32_t)name.size();
  const char head[5] = {(char)0xFF, (char)(n & 0xFF), (char)(n >> 8 & 0xFF), (char)(n >> 16 & 0xFF), (char)(n >> 24)};
  add_key({head, 5}, name, value, 1.0);
}

void Reader::end_row() {
  if (row_ends_.empty() && waiting_.empty() && items_.empty()) {
    out_.indptr.push_back((int64_t)out_.indices.size());
    return;
  }
  row_ends_.push_back(waiting_.size());
  if (waiting_.size() >= TOGETHER) flush();
}

void Reader::flush() {
  if (row_ends_.empty()) return;
  std::string_view keys[Interner::MANY];
  size_t start = 0, row = 0, first = out_.indices.size();
  auto end_rows = [&](size_t done) {
    for (; row < row_ends_.size() && row_ends_[row] == done; row++) {
      if (joined_) check_joined(items_[row].ptr(), first);
      first = out_.indices.size();
      out_.indptr.push_back((int64_t)first);
    }
  };
  int32_t columns[Interner::MANY];
  for (size_t i = 0; i < waiting_.size(); i += Interner::MANY) {
    const int n = (int)std::min<size_t>(Interner::MANY, waiting_.size() - i);
    for (int k = 0; k < n; k++) {
      keys[k] = arena_.cut(start, waiting_[i + k].end);
      start = waiting_[i + k].end;
    }
    find(keys, n, columns);
    for (int k = 0; k < n; k++) {
      end_rows(i + k);
      put(columns[k], waiting_[i + k].value);
    }
  }
  end_rows(waiting_.size());
  drop_waiting();
}

void Reader::drop_waiting() {
  arena_.clear();
  waiting_.clear();
  row_ends_.clear();
  items_.clear();
}

}  // namespace records
}  // namespace crfield
