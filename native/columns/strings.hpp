// Python strings in and out of an Interner. Everything here holds the GIL.
#pragma once
#include <string>

#include "arrays.hpp"
#include "interner.hpp"
#include "utf8.hpp"

namespace crfield {

// ValueError(kind, facts…): the wrapper in kernels/columns.py makes the sentence.
template <class... Facts>
[[noreturn]] void refuse(const char* kind, Facts... facts) {
  nb::object args = nb::make_tuple(kind, facts...);
  PyErr_SetObject(PyExc_ValueError, args.ptr());
  throw nb::python_error();
}

inline const char* type_name(PyObject* value) { return Py_TYPE(value)->tp_name; }

// UTF-8 of a Python string; `keep` owns the bytes where the string itself cannot (lone surrogates).
inline std::string_view utf8_of(PyObject* text, nb::object& keep) {
  if (PyUnicode_IS_COMPACT_ASCII(text))
    return {reinterpret_cast<const char*>(PyUnicode_1BYTE_DATA(text)), (size_t)PyUnicode_GET_LENGTH(text)};
  Py_ssize_t size = 0;
  if (const char* data = PyUnicode_AsUTF8AndSize(text, &size)) return {data, (size_t)size};
  if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) throw nb::python_error();
  PyErr_Clear();
  nb::object alive = nb::borrow(text);
  keep = nb::steal(PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass"));
  if (!keep.is_valid()) throw nb::python_error();
  return {PyBytes_AS_STRING(keep.ptr()), (size_t)PyBytes_GET_SIZE(keep.ptr())};
}

inline int32_t code_of(Interner& table, PyObject* text, bool add) {
  nb::object keep;
  const std::string_view view = utf8_of(text, keep);
  return add ? table.add(view) : table.find(view);
}

// A list or tuple of what `value` holds; strings, bytes and dicts hold nothing of use here.
inline nb::object items_of(PyObject* value, const char* kind, int64_t s, int64_t t) {
  if (PyList_Check(value) || PyTuple_Check(value)) return nb::borrow(value);
  if (PyUnicode_Check(value) || PyBytes_Check(value) || PyDict_Check(value) || !Py_TYPE(value)->tp_iter)
    refuse(kind, s, t, type_name(value));
  nb::object list = nb::steal(PySequence_List(value));
  if (!list.is_valid()) throw nb::python_error();
  return list;
}

inline nb::object codes_of_strings(Interner& table, nb::handle strings, bool add) {
  nb::object list = nb::steal(PySequence_Fast(strings.ptr(), "strings must be iterable"));
  if (!list.is_valid()) throw nb::python_error();
  std::vector<int32_t> codes;
  codes.reserve((size_t)PySequence_Fast_GET_SIZE(list.ptr()));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list.ptr()); i++) {
    PyObject* text = PySequence_Fast_GET_ITEM(list.ptr(), i);
    if (!PyUnicode_Check(text)) refuse("string", (int64_t)i, type_name(text));
    codes.push_back(code_of(table, text, add));
  }
  return to_numpy(std::move(codes));
}

// Sizes are read anew at every step and items are held, because an iterable of the user's may run any code.
inline nb::tuple codes_of_rows(Interner& table, nb::handle sequences, bool add) {
  std::vector<int64_t> offsets{0};
  std::vector<int32_t> codes;
  Py_ssize_t width = 0;
  int64_t nodes = 0;
  nb::object all = items_of(sequences.ptr(), "sequences", 0, 0);
  offsets.reserve((size_t)PySequence_Fast_GET_SIZE(all.ptr()) + 1);
  for (Py_ssize_t s = 0; s < PySequence_Fast_GET_SIZE(all.ptr()); s++) {
    nb::object given = nb::borrow(PySequence_Fast_GET_ITEM(all.ptr(), s));
    nb::object sequence = items_of(given.ptr(), "sequence", s, 0);
    for (Py_ssize_t t = 0; t < PySequence_Fast_GET_SIZE(sequence.ptr()); t++) {
      nb::object token = nb::borrow(PySequence_Fast_GET_ITEM(sequence.ptr(), t));
      if (PyUnicode_Check(token.ptr())) refuse("word", (int64_t)s, (int64_t)t, token);
      nb::object row = items_of(token.ptr(), "token", s, t);
      const Py_ssize_t fields = PySequence_Fast_GET_SIZE(row.ptr());
      if (!width) width = fields;
      if (fields != width || !width)
        refuse("width", (int64_t)s, (int64_t)t, (int64_t)width, (int64_t)fields);
      for (Py_ssize_t c = 0; c < fields; c++) {
        PyObject* field = PySequence_Fast_GET_ITEM(row.ptr(), c);
        if (!PyUnicode_Check(field)) refuse("field", (int64_t)s, (int64_t)t, (int64_t)c, type_name(field));
        codes.push_back(code_of(table, field, add));
      }
      nodes++;
    }
    offsets.push_back(nodes);
  }
  return nb::make_tuple(to_numpy(std::move(offsets)), to_numpy(std::move(codes)), (int64_t)width);
}

inline nb::object texts_of_codes(const Interner& table, Array1<const int32_t> codes) {
  nb::object list = nb::steal(PyList_New((Py_ssize_t)codes.shape(0)));
  if (!list.is_valid()) throw nb::python_error();
  for (size_t i = 0; i < codes.shape(0); i++) {
    const int32_t code = codes(i);
    if (code < 0 || code >= table.size()) throw nb::index_error("a code outside the alphabet");
    const std::string_view text = table.at(code);
    PyObject* made = PyUnicode_DecodeUTF8(text.data(), (Py_ssize_t)text.size(), "surrogatepass");
    if (!made) throw nb::python_error();
    PyList_SET_ITEM(list.ptr(), (Py_ssize_t)i, made);
  }
  return list;
}

inline void check_pool(Array1<const uint8_t> pool, Array1<const int64_t> offsets) {
  const size_t n = offsets.shape(0);
  bool good = n >= 1 && offsets(0) == 0 && offsets(n - 1) == (int64_t)pool.shape(0);
  for (size_t i = 1; good && i < n; i++) good = offsets(i - 1) <= offsets(i);
  if (!good) refuse("offsets");
}

inline std::string_view pool_text(Array1<const uint8_t> pool, Array1<const int64_t> offsets, size_t i) {
  return {reinterpret_cast<const char*>(pool.data()) + offsets(i), (size_t)(offsets(i + 1) - offsets(i))};
}

inline nb::object codes_of_pool(const Interner& table, Array1<const uint8_t> pool, Array1<const int64_t> offsets) {
  check_pool(pool, offsets);
  std::vector<int32_t> codes(offsets.shape(0) - 1);
  for (size_t i = 0; i < codes.size(); i++) codes[i] = table.find(pool_text(pool, offsets, i));
  return to_numpy(std::move(codes));
}

inline Interner interner_from_arrays(Array1<const uint8_t> pool, Array1<const int64_t> offsets) {
  check_pool(pool, offsets);
  Interner table;
  for (size_t i = 0; i + 1 < offsets.shape(0); i++) {
    const std::string_view text = pool_text(pool, offsets, i);
    if (first_invalid_utf8(text, true) != VALID) refuse("utf8", (int64_t)i);
    if (table.add(text) != (int64_t)i) refuse("twice", (int64_t)i);
  }
  return table;
}

inline nb::tuple interner_to_arrays(const Interner& table) {
  std::vector<uint8_t> pool(table.pool().begin(), table.pool().end());
  std::vector<int64_t> offsets = table.offsets();
  return nb::make_tuple(to_numpy(std::move(pool)), to_numpy(std::move(offsets)));
}

}  // namespace crfield
