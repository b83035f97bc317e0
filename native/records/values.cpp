// What the values of a feature dict may be, and numbers and vectors out of whatever a user holds them in. Everything
// here may run Python code: kernels/record_items.py decides on types that are not Python's own.
#include <cmath>
#include <cstring>

#include "records/reader.hpp"

namespace crfield {
namespace records {

nb::object sorted_strings(PyObject* set) {
  nb::object list = owned(PySequence_List(set));
  for (Py_ssize_t i = 0; i < length(list.ptr()); i++)
    if (!is_text(item(list.ptr(), i))) throw Unusable();
  if (PyList_Sort(list.ptr())) throw nb::python_error();
  return list;
}

void Reader::read_dict(PyObject* dict, int depth, Py_ssize_t at) {
  if (depth > DEEPEST) throw Unusable();
  const Py_ssize_t size = PyDict_Size(dict);
  const size_t prefix = name_.size();
  PyObject *key, *value;
  while (PyDict_Next(dict, &at, &key, &value)) {
    if (!is_text(key)) throw Unusable();
    const nb::object held = nb::borrow(key), alive = nb::borrow(value);
    nb::object keep;
    name_.resize(prefix);
    name_ += utf8_of(key, keep);
    read_feature(value, depth);
    if (PyDict_Size(dict) != size) throw std::runtime_error("a feature dict changed size while it was read");
  }
  name_.resize(prefix);
}

void Reader::read_feature(PyObject* value, int depth) {
  const Kind kind = kind_of(value);
  switch (kind) {
    case TEXT: {
      nb::object keep;
      return add_indicator(utf8_of(value, keep));
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
      return read_dict(called((PyObject*)&PyDict_Type, value).ptr(), depth + 1);
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
  const Py_ssize_t count = PyTuple_Size(fixed.ptr());
  if (!count) return;
  if (is_text(item(fixed.ptr(), 0))) {
    for (Py_ssize_t i = 0; i < count; i++) {
      PyObject* string = item(fixed.ptr(), i);
      if (!is_text(string)) throw Unusable();
      nb::object keep;
      add_indicator(utf8_of(string, keep));
    }
    return;
  }
  const size_t begin = numbers_.size();
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* entry = item(fixed.ptr(), i);
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
    array = called(rules("vector_of").ptr(), value);
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
    result = PyFloat_AsDouble(value);
  } else if (kind == INT) {
    result = PyLong_AsDouble(value);
  } else {
    const nb::object converted = nb::steal(PyNumber_Float(value));
    result = converted.is_valid() ? PyFloat_AsDouble(converted.ptr()) : -1.0;
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
  PyTypeObject* type = Py_TYPE(value);
  if (type == &PyFloat_Type) return FLOAT;
  if (type == &PyUnicode_Type) return TEXT;
  if (type == &PyList_Type || type == &PyTuple_Type) return LIST;
  if (type == &PyDict_Type) return DICT;
  if (type == &PyBool_Type) return BOOL;
  const unsigned long flags = PyType_GetFlags(type);
  if (flags & Py_TPFLAGS_UNICODE_SUBCLASS) return TEXT;
  if (flags & Py_TPFLAGS_LONG_SUBCLASS) return INT;
  if (flags & Py_TPFLAGS_DICT_SUBCLASS) return DICT;
  if (flags & (Py_TPFLAGS_LIST_SUBCLASS | Py_TPFLAGS_TUPLE_SUBCLASS)) return LIST;
  if (PyFloat_Check(value)) return FLOAT;
  if (PyAnySet_Check(value)) return SET;
  const auto known = kinds_.find(type);
  if (known != kinds_.end()) return known->second;
  const nb::object answer = called(rules("kind_of").ptr(), (PyObject*)type);
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

void Reader::add_indicator(std::string_view value) {
  waiting_.add_apart(whole_name(), {value, value.size() >= 16});
}

}  // namespace records
}  // namespace crfield
