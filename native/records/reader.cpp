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
    out_.indptr.push_back((int64_t)out_.indices.size());
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
      read_dict(item, 0);
      return flush();
    case MAPPING:
      name_.clear();
      read_dict(owned(PyObject_CallOneArg((PyObject*)&PyDict_Type, item)).ptr(), 0);
      return flush();
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
  name_.clear();
  if (PyDict_CheckExact(item) && join_dict(item, 0)) {
    const size_t first = out_.indices.size();
    flush();
    if (!repeats(first)) return;
    out_.indices.resize(first);
    if (!out_.all_one) out_.values.resize(first);
  }
  drop_waiting();
  if (!join_.is_valid()) join_ = nb::module_::import_("crfield.kernels.joined_items").attr("joined");
  const nb::object plain = owned(PyObject_CallOneArg(join_.ptr(), item));
  name_.clear();
  read_dict(plain.ptr(), 0);
  flush();
}

// Names and numbers of a dict wait for their lookup; false at the first value that is not plain. Runs no Python code.
bool Reader::join_dict(PyObject* dict, int depth) {
  if (depth > DEEPEST) return false;
  const size_t prefix = name_.size();
  Py_ssize_t at = 0;
  PyObject *key, *value;
  while (PyDict_Next(dict, &at, &key, &value)) {
    if (!PyUnicode_CheckExact(key)) return false;
    name_.resize(prefix);
    nb::object keep;
    name_ += text(key, keep);
    if (PyUnicode_CheckExact(value)) {
      name_ += ':';
      name_ += text(value, keep);
      add_named(1.0);
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
      const size_t stem = name_.size();
      for (Py_ssize_t i = 0; i < length(value); i++) {
        PyObject* entry = entries(value)[i];
        if (!PyUnicode_CheckExact(entry)) return false;
        name_.resize(stem);
        name_ += text(entry, keep);
        add_named(1.0);
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
  if (n <= 64) {
    bool twice = false;
    for (size_t i = 1; i < n; i++)
      for (size_t k = 0; k < i; k++) twice |= from[k] == from[i];
    return twice;
  }
  sorted_.assign(from, from + n);
  std::sort(sorted_.begin(), sorted_.end());
  return std::adjacent_find(sorted_.begin(), sorted_.end()) != sorted_.end();
}

void Reader::read_strings(PyObject* list) {
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
      look_up(views, n, nullptr);
      n = 0;
    }
  }
  look_up(views, n, nullptr);
}

void Reader::look_up(const std::string_view* keys, int n, const double* values) {
  int32_t columns[Interner::MANY];
  table_.keys.find_many(keys, n, columns);
  for (int i = 0; i < n; i++) {
    if (grow_ && columns[i] < 0) columns[i] = table_.keys.add(keys[i]);
    put(columns[i], values ? values[i] : 1.0);
  }
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
    name_.resize(prefix);
    nb::object keep;
    name_ += text(key, keep);
    if (PyUnicode_CheckExact(value)) {
      add_indicator(value);
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
    case TEXT:
      return add_indicator(value);
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
      add_indicator(string);
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

void Reader::add_named(double value) {
  arena_ += name_;
  ends_.push_back(arena_.size());
  waiting_.push_back(value);
}

void Reader::add_indicator(PyObject* value) {
  if (name_.size() > 0xFFFFFFFFu) throw std::length_error("a feature's name is longer than 4 GB");
  const uint32_t n = (uint32_t)name_.size();
  const char head[5] = {(char)0xFF, (char)(n & 0xFF), (char)(n >> 8 & 0xFF), (char)(n >> 16 & 0xFF), (char)(n >> 24)};
  arena_.append(head, 5);
  arena_ += name_;
  nb::object keep;
  arena_ += text(value, keep);
  ends_.push_back(arena_.size());
  waiting_.push_back(1.0);
}

void Reader::flush() {
  std::string_view keys[Interner::MANY];
  size_t start = 0;
  for (size_t i = 0; i < ends_.size(); i += Interner::MANY) {
    const int n = (int)std::min<size_t>(Interner::MANY, ends_.size() - i);
    for (int k = 0; k < n; k++) {
      keys[k] = std::string_view(arena_).substr(start, ends_[i + k] - start);
      start = ends_[i + k];
    }
    look_up(keys, n, waiting_.data() + i);
  }
  drop_waiting();
}

void Reader::drop_waiting() {
  arena_.clear();
  ends_.clear();
  waiting_.clear();
}

}  // namespace records
}  // namespace crfield
