// Python strings in and out of an Interner. Everything here holds the GIL.
#pragma once
#include <string>

#include "arrays.hpp"
#include "interner.hpp"
#include "python_objects.hpp"
#include "utf8.hpp"

namespace crfield {

// ValueError(kind, facts…): the wrapper in kernels/columns.py makes the sentence.
template <class... Facts>
[[noreturn]] void refuse(const char* kind, Facts... facts) {
  nb::object args = nb::make_tuple(kind, facts...);
  PyErr_SetObject(PyExc_ValueError, args.ptr());
  throw nb::python_error();
}

inline nb::object type_name(PyObject* value) { return nb::handle((PyObject*)Py_TYPE(value)).attr("__name__"); }

inline int32_t code_of(Interner& table, PyObject* text, bool add) {
  const nb::object held = nb::borrow(text);
  nb::object keep;
  const std::string_view view = utf8_of(text, keep);
  return add ? table.add(view) : table.find(view);
}

// A list or tuple of what `value` holds; strings, bytes and dicts hold nothing of use here.
inline nb::object items_of(PyObject* value, const char* kind, int64_t s, int64_t t) {
  if (is_list(value)) return nb::borrow(value);
  if (is_text(value) || PyBytes_Check(value) || PyDict_Check(value) || !PyType_GetSlot(Py_TYPE(value), Py_tp_iter))
    refuse(kind, s, t, type_name(value));
  return owned(PySequence_List(value));
}

inline nb::object codes_of_strings(Interner& table, nb::handle strings, bool add) {
  const nb::object list = owned(PySequence_Fast(strings.ptr(), "strings must be iterable"));
  std::vector<int32_t> codes;
  codes.reserve((size_t)length(list.ptr()));
  for (Py_ssize_t i = 0; i < length(list.ptr()); i++) {
    const nb::object text = nb::borrow(item(list.ptr(), i));
    if (!is_text(text.ptr())) refuse("string", (int64_t)i, type_name(text.ptr()));
    codes.push_back(code_of(table, text.ptr(), add));
  }
  return to_numpy(std::move(codes));
}

// The codes of the rows of a sequence, appended: lists or tuples of str, all `width` wide, or as the first where that is 0.
// False where they are not, or where a string has no UTF-8 of its own; then nothing is appended. Runs no Python code.
inline bool plain_rows(Interner& table, PyObject* sequence, bool add, Py_ssize_t& width, std::vector<int32_t>& codes) {
  const size_t before = codes.size();
  const Py_ssize_t given = width;
  const auto leave = [&] {
    codes.resize(before);
    width = given;
    return false;
  };
  std::string_view views[Interner::MANY];
  int32_t found[Interner::MANY];
  Blocks<Interner::MANY> blocks;
  int n = 0;
  const auto look_up = [&] {
    table.find_many(views, n, found);
    for (int i = 0; add && i < n; i++)
      if (found[i] < 0) found[i] = table.add(views[i]);
    codes.insert(codes.end(), found, found + n);
    n = 0;
  };
  const bool listed = PyList_CheckExact(sequence);
  if (!listed && !PyTuple_CheckExact(sequence)) return false;
  const Py_ssize_t steps = listed ? PyList_Size(sequence) : PyTuple_Size(sequence);
  for (Py_ssize_t t = 0; t < steps; t++) {
    PyObject* row = listed ? PyList_GetItem(sequence, t) : PyTuple_GetItem(sequence, t);
    const bool list = PyList_CheckExact(row);
    if (!list && !PyTuple_CheckExact(row)) return leave();
    const Py_ssize_t fields = list ? PyList_Size(row) : PyTuple_Size(row);
    if (!width) width = fields;
    if (fields != width || !width) return leave();
    for (Py_ssize_t c = 0; c < fields; c++) {
      PyObject* field = list ? PyList_GetItem(row, c) : PyTuple_GetItem(row, c);
      if (!PyUnicode_CheckExact(field) || !utf8(field, views[n])) return leave();
      blocks.hold(field, views, n);
      if (++n == Interner::MANY) look_up();
    }
  }
  look_up();
  return true;
}

// Sizes are read anew at every step and items are held, because an iterable of the user's may run any code.
inline nb::tuple codes_of_rows(Interner& table, nb::handle sequences, bool add) {
  std::vector<int64_t> offsets{0};
  std::vector<int32_t> codes;
  Py_ssize_t width = 0;
  int64_t nodes = 0;
  nb::object all = items_of(sequences.ptr(), "sequences", 0, 0);
  offsets.reserve((size_t)length(all.ptr()) + 1);
  for (Py_ssize_t s = 0; s < length(all.ptr()); s++) {
    nb::object given = nb::borrow(item(all.ptr(), s));
    if (plain_rows(table, given.ptr(), add, width, codes)) {
      nodes += length(given.ptr());
      offsets.push_back(nodes);
      continue;
    }
    nb::object sequence = items_of(given.ptr(), "sequence", s, 0);
    for (Py_ssize_t t = 0; t < length(sequence.ptr()); t++) {
      nb::object token = nb::borrow(item(sequence.ptr(), t));
      if (is_text(token.ptr())) refuse("word", (int64_t)s, (int64_t)t, token);
      nb::object row = items_of(token.ptr(), "token", s, t);
      const Py_ssize_t fields = length(row.ptr());
      if (!width) width = fields;
      if (fields != width || !width)
        refuse("width", (int64_t)s, (int64_t)t, (int64_t)width, (int64_t)fields);
      for (Py_ssize_t c = 0; c < fields; c++) {
        PyObject* field = item(row.ptr(), c);
        if (!is_text(field)) refuse("field", (int64_t)s, (int64_t)t, (int64_t)c, type_name(field));
        codes.push_back(code_of(table, field, add));
      }
      nodes++;
    }
    offsets.push_back(nodes);
  }
  return nb::make_tuple(to_numpy(std::move(offsets)), to_numpy(std::move(codes)), (int64_t)width);
}

inline nb::object texts_of_codes(const Interner& table, Array1<const int32_t> codes) {
  const nb::object list = owned(PyList_New((Py_ssize_t)codes.shape(0)));
  for (size_t i = 0; i < codes.shape(0); i++) {
    const int32_t code = codes(i);
    if (code < 0 || code >= table.size()) throw nb::index_error("a code outside the alphabet");
    const std::string_view text = table.at(code);
    PyObject* made = PyUnicode_DecodeUTF8(text.data(), (Py_ssize_t)text.size(), "surrogatepass");
    if (!made || PyList_SetItem(list.ptr(), (Py_ssize_t)i, made)) throw nb::python_error();
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
