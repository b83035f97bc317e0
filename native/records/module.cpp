// Python's door to the tables of records; the contract is in src/crfield/kernels/records.py.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <new>
#include <stdexcept>

#include "arrays.hpp"
#include "records/reader.hpp"
#include "sequence_tagger.hpp"

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

nb::tuple encode(RecordTable& table, nb::handle sequences, bool grow, bool joined) {
  Reader reader(table, grow, joined);
  reader.read(sequences.ptr());
  Encoded& encoded = reader.encoded();
  const int64_t rows = (int64_t)encoded.indptr.size() - 1;
  nb::object dense = nb::none(), values = nb::none();
  if (table.dense_width) dense = dense_block(reader, rows, table.dense_width);
  if (!encoded.all_one) values = to_numpy(std::move(encoded.values));
  return nb::make_tuple(to_numpy(std::move(encoded.offsets)), to_numpy(std::move(encoded.indptr)),
                        to_numpy(std::move(encoded.indices)), values, dense);
}

// Whether most rows are empty, or two in the middle have nothing but the same column: few_known() in
// kernels/tagging.py.
bool few_known(const Encoded& x) {
  const int64_t rows = (int64_t)x.indptr.size() - 1, nnz = (int64_t)x.indices.size();
  int64_t filled = 0;
  for (int64_t r = 0; r < rows; r++) filled += x.indptr[r + 1] > x.indptr[r];
  if (2 * filled < rows) return true;
  if (rows < 2 || nnz >= 2 * rows) return false;
  const int64_t at = x.indptr[rows / 2 - 1];
  return x.indptr[rows / 2] == at + 1 && x.indptr[rows / 2 + 1] == at + 2 && x.indices[at] == x.indices[at + 1];
}

bool within(const std::vector<double>& cells, double largest) {
  for (double x : cells)
    if (!(std::fabs(x) <= largest)) return false;
  return true;
}

// The contract is in src/crfield/kernels/tagging.py.
class SequenceTagger {
 public:
  SequenceTagger(nb::object table, nb::object tagger, nb::tuple labels, bool joined, double largest)
      : holder_(std::move(table)),
        table_(nb::cast<RecordTable&>(holder_)),
        labels_(std::move(tagger), std::move(labels)),
        joined_(joined),
        largest_(largest) {
    const SequenceDecoder& decoder = labels_.decoder();
    require(decoder.columns() == table_.keys.size() && decoder.n_dense() == table_.dense_width &&
                decoder.edge_columns() == 0,
            "the weights do not fit the table");
  }

  nb::object tag(nb::handle steps) {
    std::unique_ptr<Work> work = shelf_.take([&] { return std::make_unique<Work>(table_, joined_); });
    nb::object found = answer(*work, steps);
    shelf_.put(std::move(work));  // after an exception it is gone, and so is what was half read
    return found;
  }

 private:
  struct Work {
    Work(RecordTable& table, bool joined) : reader(table, false, joined) {}
    Reader reader;
    SequenceDecoder::Scratch scratch;
    std::vector<int32_t> path;
    std::vector<double> dense;
  };

  nb::object answer(Work& work, nb::handle steps) const {
    if (!work.reader.read_one(steps.ptr())) return nb::none();
    const Encoded& x = work.reader.encoded();
    SequenceRows rows;
    rows.steps = (int64_t)x.indptr.size() - 1;
    rows.indptr = x.indptr.data();
    rows.indices = x.indices.data();
    if (few_known(x) || !within(x.values, largest_)) return nb::none();
    if (!x.all_one) rows.values = x.values.data();
    if (table_.dense_width) {
      work.dense.assign((size_t)(rows.steps * table_.dense_width), 0.0);
      work.reader.fill_dense(work.dense.data());
      if (!within(work.dense, largest_)) return nb::none();
      rows.dense = work.dense.data();
    }
    return labels_.along(rows, work.scratch, work.path);
  }

  nb::object holder_;
  RecordTable& table_;
  const SequenceLabels labels_;
  const bool joined_;
  const double largest_;
  WorkShelf<Work> shelf_;
};

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
      .def("encode", &encode, nb::arg("sequences"), nb::arg("grow"), nb::arg("joined"))
      .def("columns_of", &columns_of, nb::arg("pool"), nb::arg("offsets"), nb::arg("wanted"), nb::arg("grow"));
  nb::class_<SequenceTagger>(m, "SequenceTagger")
      .def(nb::init<nb::object, nb::object, nb::tuple, bool, double>(), nb::arg("table"), nb::arg("tagger"), nb::arg("labels"),
           nb::arg("joined"), nb::arg("largest"))
      .def("tag", &SequenceTagger::tag, nb::arg("steps").none());
}
