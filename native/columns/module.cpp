// Bindings of the group "columns"; the contract is written in src/crfield/kernels/columns.py.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include "arrays.hpp"
#include "strings.hpp"
#include "tagger.hpp"
#include "templates.hpp"
#include "text.hpp"

using namespace crfield;

namespace {

// parse(text) of the bytes with the GIL released; the bytes belong to the caller for that long.
template <class Parse>
auto parsed(const nb::bytes& data, Parse parse) {
  const std::string_view text(data.c_str(), data.size());
  try {
    nb::gil_scoped_release free;
    return parse(text);
  } catch (const TextProblem& problem) {
    refuse(problem.kind, problem.line, problem.got);
  }
}

nb::tuple columns_of(nb::bytes data, std::string comment) {
  ColumnText out = parsed(data, [&](std::string_view text) { return parse_columns(text, comment); });
  return nb::make_tuple(nb::cast(std::move(out.strings)), to_numpy(std::move(out.offsets)),
                        to_numpy(std::move(out.codes)), out.width);
}

nb::tuple attributes_of(nb::bytes data) {
  AttributeText out = parsed(data, [](std::string_view text) { return parse_crfsuite(text); });
  return nb::make_tuple(nb::cast(std::move(out.attributes)), nb::cast(std::move(out.labels)),
                        to_numpy(std::move(out.offsets)), to_numpy(std::move(out.gold)),
                        to_numpy(std::move(out.indptr)), to_numpy(std::move(out.indices)),
                        to_numpy(std::move(out.values)), to_numpy(std::move(out.weights)));
}

void make_templates(Templates* self, int64_t radix, Array1<const int32_t> skeleton, Array1<const int64_t> holes,
                    Array2<const int32_t> macros, Array2<const int32_t> marks) {
  const int64_t patterns = (int64_t)skeleton.shape(0), total = (int64_t)macros.shape(0);
  const int64_t reach = (int64_t)marks.shape(1);
  bool good = radix > 0 && radix < (int64_t)ID_LIMIT && patterns < 65536 && (int64_t)holes.shape(0) == patterns + 1 &&
              holes(0) == 0 && holes(patterns) == total && macros.shape(1) == 2 && marks.shape(0) == 2;
  for (int64_t p = 0; good && p < patterns; p++)
    good = holes(p) <= holes(p + 1) && skeleton(p) >= 0 && skeleton(p) < patterns;
  for (int64_t i = 0; good && i < total; i++)
    good = macros(i, 0) >= -reach && macros(i, 0) <= reach && macros(i, 1) >= 0;
  for (int64_t i = 0; good && i < 2 * reach; i++) good = marks.data()[i] >= 0 && marks.data()[i] < radix;
  if (!good) throw std::invalid_argument("patterns, marks and radix do not fit together");
  std::vector<Templates::Macro> all;
  for (int64_t i = 0; i < total; i++) all.push_back({macros(i, 0), macros(i, 1)});
  new (self) Templates((uint64_t)radix, {skeleton.data(), skeleton.data() + patterns},
                       {holes.data(), holes.data() + patterns + 1}, all, {marks.data(), marks.data() + reach},
                       {marks.data() + reach, marks.data() + 2 * reach});
}

nb::tuple apply(Templates& self, Array2<const int32_t> codes, Array1<const int64_t> offsets, bool edges, bool grow,
                int n_jobs) {
  const int64_t nodes = (int64_t)codes.shape(0), width = (int64_t)codes.shape(1);
  const int64_t sequences = (int64_t)offsets.shape(0) - 1;
  bool rising = sequences >= 0 && offsets(0) == 0 && offsets(sequences) == nodes;
  for (int64_t s = 0; rising && s < sequences; s++) rising = offsets(s) <= offsets(s + 1);
  if (!rising) throw std::invalid_argument("offsets must rise from 0 to the number of nodes");
  if (nodes && width < self.width()) refuse("width", self.width());
  int32_t largest = -1;
  for (int64_t i = 0; i < nodes * width; i++) largest = std::max(largest, codes.data()[i]);
  if (largest >= (int64_t)self.radix()) refuse("code", (int64_t)self.radix());
  Csr out;
  {
    nb::gil_scoped_release free;
    out = self.apply(codes.data(), width, offsets.data(), sequences, edges, grow, n_jobs);
  }
  int32_t* data = out.indices.release();
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<int32_t*>(p); });
  nb::object indices =
      nb::cast(nb::ndarray<nb::numpy, int32_t, nb::ndim<1>>(data, {(size_t)out.count}, owner));
  return nb::make_tuple(to_numpy(std::move(out.indptr)), indices);
}

nb::tuple tuples(const Templates& self) {
  std::vector<int32_t> skeleton, codes;
  {
    nb::gil_scoped_release free;
    self.tuples(skeleton, codes);
  }
  return nb::make_tuple(to_numpy(std::move(skeleton)), to_numpy(std::move(codes)));
}

void extend(Templates& self, Array1<const int32_t> skeleton, Array1<const int32_t> codes) {
  const char* wrong = nullptr;
  {
    nb::gil_scoped_release free;
    wrong = self.extend(skeleton.data(), (int64_t)skeleton.shape(0), codes.data(), (int64_t)codes.shape(0));
  }
  if (wrong) refuse(wrong);
}

}  // namespace

NB_MODULE(_columns, m) {
  nanobind::set_leak_warnings(false);  // a model still alive when Python ends is no fault
  nb::class_<Interner>(m, "Interner")
      .def(nb::init<>())
      .def("__len__", &Interner::size)
      .def("codes", &codes_of_strings)
      .def("pool_codes", &codes_of_pool)
      .def("rows", &codes_of_rows)
      .def("texts", &texts_of_codes)
      .def("to_arrays", &interner_to_arrays)
      .def_static("from_arrays", &interner_from_arrays);
  nb::class_<Templates>(m, "Templates")
      .def("__init__", &make_templates)
      .def("size", &Templates::size, nb::call_guard<nb::gil_scoped_release>())
      .def("apply", &apply)
      .def("tuples", &tuples)
      .def("extend", &extend);
  nb::class_<ColumnsTagger>(m, "SequenceTagger")
      .def(nb::init<nb::object, nb::object, nb::object, nb::object, nb::tuple, int64_t, Array1<const bool>, int64_t>(),
           nb::arg("alphabet"), nb::arg("node"), nb::arg("edge").none(), nb::arg("tagger"), nb::arg("labels"),
           nb::arg("width"), nb::arg("telling"), nb::arg("many"))
      .def("tag", &ColumnsTagger::tag, nb::arg("steps").none());
  m.def("parse_columns", &columns_of);
  m.def("parse_crfsuite", &attributes_of);
}
