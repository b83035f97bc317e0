// Python's door to the tables of records; the contract is in src/crfield/kernels/records.py.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <stdexcept>

#include "arrays.hpp"
#include "records/reader.hpp"

namespace crfield {
namespace records {
namespace {

using Bytes = Array1<const uint8_t>;
using Offsets = Array1<const int64_t>;

void check_offsets(const Bytes& pool, const Offsets& offsets) {
  const size_t n = offsets.shape(0);
  if (!n || offsets.data()[0] != 0 || offsets.data()[n - 1] != (int64_t)pool.shape(0))
    throw std::invalid_argument("offsets must rise from 0 to the size of the pool");
  for (size_t i = 1; i < n; i++)
    if (offsets.data()[i] < offsets.data()[i - 1]) throw std::invalid_argument("offsets must not fall");
}

std::string_view string_at(const Bytes& pool, const Offsets& offsets, size_t i) {
  const int64_t start = offsets.data()[i];
  return {reinterpret_cast<const char*>(pool.data()) + start, (size_t)(offsets.data()[i + 1] - start)};
}

void fill(Interner& table, const Bytes& pool, const Offsets& offsets) {
  check_offsets(pool, offsets);
  const size_t n = offsets.shape(0) - 1;
  for (size_t i = 0; i < n; i++)
    if ((size_t)table.add(string_at(pool, offsets, i)) != i) throw std::invalid_argument("a key comes twice");
}

RecordTable restore(Bytes pool, Offsets offsets, Bytes slot_pool, Offsets slot_offsets, Offsets slot_widths) {
  RecordTable table;
  fill(table.keys, pool, offsets);
  check_offsets(slot_pool, slot_offsets);
  if (slot_widths.shape(0) + 1 != slot_offsets.shape(0))
    throw std::invalid_argument("every slot must have a name and a width");
  for (size_t i = 0; i < slot_widths.shape(0); i++) {
    const int64_t width = slot_widths.data()[i];
    if (width < 1 || width > 0x7FFFFFFF - table.dense_width)
      throw std::invalid_argument("slots must have widths of 1 to 2^31 - 1 in all");
    if ((size_t)table.add_slot(string_at(slot_pool, slot_offsets, i), width) != i)
      throw std::invalid_argument("a name comes twice");
  }
  return table;
}

template <class T, class U>
nb::object copied(const std::vector<U>& data) {
  return to_numpy(std::vector<T>(data.begin(), data.end()));
}

nb::tuple arrays(const RecordTable& table) {
  return nb::make_tuple(copied<uint8_t>(table.keys.pool()), copied<int64_t>(table.keys.offsets()),
                        copied<uint8_t>(table.slot_names.pool()), copied<int64_t>(table.slot_names.offsets()),
                        copied<int64_t>(table.slot_widths));
}

nb::object dense_block(const Reader& reader, int64_t rows, int64_t width) {
  // calloc, so that the zeros of a large block cost nothing until they are touched.
  double* block = static_cast<double*>(std::calloc((size_t)std::max<int64_t>(rows * width, 1), sizeof(double)));
  if (!block) throw std::bad_alloc();
  nb::capsule owner(block, [](void* p) noexcept { std::free(p); });
  reader.fill_dense(block);
  return nb::cast(nb::ndarray<nb::numpy, double, nb::ndim<2>>(block, {(size_t)rows, (size_t)width}, owner));
}

nb::tuple encode(RecordTable& table, nb::handle sequences, bool grow) {
  Reader reader(table, grow);
  reader.read(sequences.ptr());
  Encoded& encoded = reader.encoded();
  const int64_t rows = (int64_t)encoded.indptr.size() - 1;
  nb::object dense = nb::none(), values = nb::none();
  if (table.dense_width) dense = dense_block(reader, rows, table.dense_width);
  if (!encoded.all_one) values = to_numpy(std::move(encoded.values));
  return nb::make_tuple(to_numpy(std::move(encoded.offsets)), to_numpy(std::move(encoded.indptr)),
                        to_numpy(std::move(encoded.indices)), values, dense);
}

// Holds the GIL: another thread might make the table grow meanwhile.
nb::object columns_of(RecordTable& table, Bytes pool, Offsets offsets, Array1<const bool> wanted, bool grow) {
  check_offsets(pool, offsets);
  const size_t n = offsets.shape(0) - 1;
  if (wanted.shape(0) != n) throw std::invalid_argument("wanted must have one entry for each string");
  std::vector<int32_t> columns(n, -1);
  for (size_t i = 0; i < n; i++) {
    if (!wanted.data()[i]) continue;
    const std::string_view key = string_at(pool, offsets, i);
    columns[i] = grow ? table.keys.add(key) : table.keys.find(key);
  }
  return to_numpy(std::move(columns));
}

nb::bytes key(const RecordTable& table, int64_t column) {
  if (column < 0 || column >= table.keys.size()) throw nb::index_error("no such column");
  const std::string_view bytes = table.keys.at(column);
  return nb::bytes(bytes.data(), bytes.size());
}

}  // namespace
}  // namespace records
}  // namespace crfield

NB_MODULE(_records, m) {
  nanobind::set_leak_warnings(false);  // a model still alive when Python ends is no fault
  using namespace crfield::records;
  namespace nb = nanobind;
  m.attr("Refused") = nb::steal(PyErr_NewException("crfield.kernels._records.Refused", PyExc_ValueError, nullptr));
  nb::class_<RecordTable>(m, "RecordTable")
      .def(nb::init<>())
      .def_static("restore", &restore, nb::arg("pool"), nb::arg("offsets"), nb::arg("slot_pool"),
                  nb::arg("slot_offsets"), nb::arg("slot_widths"))
      .def("arrays", &arrays)
      .def_prop_ro("n_columns", [](const RecordTable& table) { return table.keys.size(); })
      .def_prop_ro("n_dense", [](const RecordTable& table) { return table.dense_width; })
      .def("key", &key, nb::arg("column"))
      .def("encode", &encode, nb::arg("sequences"), nb::arg("grow"))
      .def("columns_of", &columns_of, nb::arg("pool"), nb::arg("offsets"), nb::arg("wanted"), nb::arg("grow"));
}
