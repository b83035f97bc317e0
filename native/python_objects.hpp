// Python's strings, lists and tuples by functions of the limited API, so that one compiled module serves every Python.
//
// Everything here holds the GIL. Items and keys are borrowed: whoever runs Python code in between holds them himself.
#pragma once
#include <nanobind/nanobind.h>

#include <cstring>
#include <string_view>

namespace crfield {
namespace nb = nanobind;

inline nb::object owned(PyObject* made) {
  if (!made) throw nb::python_error();
  return nb::steal(made);
}

inline nb::object called(PyObject* function, PyObject* argument) {
  return owned(PyObject_CallFunctionObjArgs(function, argument, nullptr));
}

// The exact type is a comparison of pointers; only what derives from it asks for flags, by a call.
inline bool is_text(PyObject* value) { return PyUnicode_CheckExact(value) || PyUnicode_Check(value); }
inline bool is_list(PyObject* value) {
  return PyList_CheckExact(value) || PyTuple_CheckExact(value) || PyList_Check(value) || PyTuple_Check(value);
}

// Of what is_list().
inline Py_ssize_t length(PyObject* list) {
  return PyList_CheckExact(list) || PyList_Check(list) ? PyList_Size(list) : PyTuple_Size(list);
}
inline PyObject* item(PyObject* list, Py_ssize_t i) {
  PyObject* found = PyList_CheckExact(list) || PyList_Check(list) ? PyList_GetItem(list, i) : PyTuple_GetItem(list, i);
  if (!found) throw nb::python_error();
  return found;
}

// The UTF-8 of a string, which lives as long as the string. False where it has none, for its lone surrogates; asking
// has then made an exception, and the garbage collector may have run: nothing borrowed before is to be used after it.
inline bool utf8(PyObject* text, std::string_view& bytes) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text, &size);
  if (!data) {
    if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) throw nb::python_error();
    PyErr_Clear();
    return false;
  }
  bytes = {data, (size_t)size};
  return true;
}

// The same for any string, which the caller holds; `keep` owns the bytes where the string has none.
inline std::string_view utf8_of(PyObject* text, nb::object& keep) {
  std::string_view bytes;
  if (utf8(text, bytes)) return bytes;
  keep = owned(PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass"));
  return {PyBytes_AsString(keep.ptr()), (size_t)PyBytes_Size(keep.ptr())};
}

// Whether the 16 bytes that end with the last one of a string's can be read: they lie behind the header of its object.
inline bool blocky(PyObject* text, std::string_view bytes) {
  const size_t behind = (size_t)(bytes.data() - reinterpret_cast<const char*>(text));
  return bytes.size() >= 16 || (behind >= 16 && behind <= 64);
}

// Room for N strings that are not, as those that are not ASCII, so that an Interner can read them all alike.
template <int N>
class Blocks {
 public:
  // Make strings[i], the bytes of `text`, such a one.
  void hold(PyObject* text, std::string_view* strings, int i) {
    if (blocky(text, strings[i])) return;
    std::memcpy(room_[i] + 16, strings[i].data(), strings[i].size());
    strings[i] = {room_[i] + 16, strings[i].size()};
  }

 private:
  char room_[N][32];
};

// A word of an object as an address to prefetch. It is a hint: on a Python whose objects lie otherwise the wrong line
// is fetched, and nothing is read from there.
inline const char* hinted(PyObject* object, int word) { return reinterpret_cast<const char* const*>(object)[word]; }

}  // namespace crfield
