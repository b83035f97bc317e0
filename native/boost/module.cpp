// Python's door to the boosting kernels; the contract is in src/crfield/kernels/boost.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <optional>

#include "arrays.hpp"
#include "boost/columns.hpp"
#include "boost/logits.hpp"
#include "threads.hpp"

namespace crfield {
namespace boost {
namespace {

using Release = nb::gil_scoped_release;

void check_offsets(const Array1<const int64_t>& offsets) {
  require(offsets.shape(0) >= 1 && offsets(0) == 0, "offsets must start at 0");
  for (size_t f = 1; f < offsets.shape(0); f++)
    require(offsets(f) > offsets(f - 1) && offsets(f) - offsets(f - 1) <= 1024, "every column has 1 to 1024 bins");
}

template <class Real>
void bin_codes_door(Array2<const Real> table, Array1<const int64_t> begin, Array1<const double> cuts,
                    Array2<uint8_t> codes, Array1<uint8_t> seen, int n_jobs) {
  const int64_t rows = (int64_t)table.shape(0), columns = (int64_t)table.shape(1), n_cuts = (int64_t)cuts.shape(0);
  require(shaped(begin, columns + 1) && shaped(codes, columns, rows) && shaped(seen, columns) && begin(0) == 0 &&
              begin(columns) == n_cuts,
          "table, thresholds and codes do not fit");
  for (int64_t f = 0; f < columns; f++)
    require(begin(f) <= begin(f + 1) && begin(f + 1) <= n_cuts && begin(f + 1) - begin(f) <= 254,
            "a column has at most 254 thresholds");
  const Real* from = table.data();
  const int64_t* starts = begin.data();
  const double* at = cuts.data();
  uint8_t *to = codes.data(), *flags = seen.data();
  Release release;
  bin_codes(rows, columns, from, starts, at, to, flags, n_jobs);
}

void code_words(Array2<const uint8_t> codes, Array1<const int32_t> strides, Array1<const int32_t> words,
                Array2<uint16_t> joint, int n_jobs) {
  const int64_t columns = (int64_t)codes.shape(0), rows = (int64_t)codes.shape(1);
  const int64_t n_words = (int64_t)joint.shape(0);
  require(shaped(strides, columns) && shaped(words, columns) && shaped(joint, n_words, rows),
          "codes, strides, words and joint codes do not fit");
  for (int64_t f = 0; f < columns; f++) require(words(f) >= 0 && words(f) < n_words, "a word is out of range");
  const uint8_t* from = codes.data();
  uint16_t* to = joint.data();
  const int32_t *stride = strides.data(), *word = words.data();
  Release release;
  const int parts = n_jobs < 1 ? 1 : n_jobs;
  run_parts(parts, [&](int part) {  // each thread has some of the rows
    const int64_t begin = rows * part / parts, end = rows * (part + 1) / parts;
    for (int64_t f = 0; f < columns; f++) {
      const uint8_t* code = from + f * rows;
      uint16_t* out = to + word[f] * rows;
      const uint16_t by = (uint16_t)stride[f];
      for (int64_t i = begin; i < end; i++) out[i] = (uint16_t)(out[i] + by * code[i]);
    }
  });
}

void histograms_door(Array2<const uint16_t> joint, Array1<const int64_t> sizes, Array1<const int32_t> word,
                     Array1<const int32_t> stride, Array1<const int64_t> offsets, Array1<const int64_t> indptr,
                     Array1<const int32_t> entries, Array1<const uint8_t> codes, Array1<const int64_t> sparse,
                     Array1<const int64_t> zero, Array3<const double> pairs,
                     std::optional<Array1<const int32_t>> rows, Array3<double> out, int n_jobs) {
  Columns x;
  const int64_t classes = (int64_t)pairs.shape(0), n_entries = (int64_t)entries.shape(0);
  x.rows = (int64_t)pairs.shape(1), x.columns = (int64_t)offsets.shape(0) - 1, x.words = (int64_t)joint.shape(0);
  x.sparse = (int64_t)sparse.shape(0);
  check_offsets(offsets);
  require(shaped(pairs, classes, x.rows, 2) && shaped(joint, x.words, x.rows) && shaped(sizes, x.words) &&
              shaped(word, x.columns) && shaped(stride, x.columns),
          "pairs, joint codes, words and strides do not fit");
  require(shaped(out, classes, offsets(x.columns), 2), "the array for sums has the wrong shape");
  for (int64_t g = 0; g < x.words; g++)
    require(sizes(g) >= 1 && sizes(g) <= WORD_VALUES, "a word has 1 to 65536 joint bins");
  for (int64_t f = 0; f < x.columns; f++) {
    require(word(f) >= -1 && word(f) < x.words, "a word is out of range");
    const int64_t bins = offsets(f + 1) - offsets(f);
    require(word(f) < 0 || (stride(f) >= 1 && sizes(word(f)) % (stride(f) * bins) == 0),
            "a column's bins do not divide its word");
  }
  require(shaped(indptr, x.sparse + 1) && shaped(codes, n_entries) && shaped(zero, x.sparse) && indptr(0) == 0 &&
              indptr(x.sparse) == n_entries,
          "the sparse columns do not fit");
  for (int64_t s = 0; s < x.sparse; s++)
    require(indptr(s) <= indptr(s + 1) && indptr(s + 1) <= n_entries && sparse(s) >= 0 && sparse(s) < x.columns &&
                (s == 0 || sparse(s) > sparse(s - 1)) && zero(s) >= 0 &&
                zero(s) < offsets(sparse(s) + 1) - offsets(sparse(s)),
            "a sparse column is out of range");
  if (rows)
    for (size_t k = 0; k < rows->shape(0); k++)
      require((*rows)(k) >= 0 && (*rows)(k) < x.rows, "a row is out of range");
  x.joint = joint.data(), x.sizes = sizes.data(), x.word = word.data(), x.stride = stride.data();
  x.offsets = offsets.data(), x.indptr = indptr.data(), x.entries = entries.data(), x.codes = codes.data();
  x.column = sparse.data(), x.zero = zero.data();
  const int32_t* chosen = rows ? rows->data() : nullptr;
  const int64_t n_chosen = rows ? (int64_t)rows->shape(0) : 0;
  const double* from = pairs.data();
  double* to = out.data();
  static const int32_t no_row = 0;
  Release release;
  histograms(x, classes, from, rows && !chosen ? &no_row : chosen, n_chosen, to, n_jobs);
}

void best_cuts_door(Array3<const double> sums, Array1<const int64_t> offsets, Array1<const uint8_t> nominal,
                    Array1<const uint8_t> missing, double ridge, Array1<const double> counts, double least,
                    Array1<double> gain, Array1<int32_t> cut, Array1<int32_t> side, int) {
  Search s;
  check_offsets(offsets);
  s.classes = (int64_t)sums.shape(0), s.columns = (int64_t)offsets.shape(0) - 1;
  const int64_t bins = offsets(s.columns);
  require(shaped(sums, s.classes, bins, 2) && shaped(nominal, s.columns) && shaped(missing, s.columns) &&
              (counts.shape(0) == 0 || shaped(counts, bins)) && shaped(gain, s.columns) && shaped(cut, s.columns) &&
              shaped(side, s.columns),
          "sums, flags and results do not fit the columns");
  require(s.classes >= 1, "sums of at least one class are needed");
  s.sums = sums.data(), s.offsets = offsets.data(), s.nominal = nominal.data(), s.missing = missing.data();
  s.counts = counts.shape(0) ? counts.data() : nullptr;
  s.ridge = ridge, s.least = least, s.gain = gain.data(), s.cut = cut.data(), s.side = side.data();
  Release release;
  best_cuts(s);
}

double logit_pairs_door(Array2<const double> scores, Array1<const int32_t> labels,
                        std::optional<Array1<const double>> weight, double limit, double least, Array3<double> pairs,
                        int n_jobs) {
  Logits x;
  x.rows = (int64_t)scores.shape(0), x.classes = (int64_t)scores.shape(1), x.limit = limit, x.least = least;
  require(x.classes >= 1 && x.classes < (1 << 30) && shaped(labels, x.rows) && (!weight || shaped(*weight, x.rows)) &&
              shaped(pairs, x.classes == 2 ? 1 : x.classes, x.rows, 2),
          "scores, labels, weights and pairs do not fit");
  for (int64_t i = 0; i < x.rows; i++)
    require(labels(i) >= -1 && labels(i) < x.classes, "a label is out of range");
  x.scores = scores.data(), x.labels = labels.data(), x.weight = weight ? weight->data() : nullptr;
  x.pairs = pairs.data();
  Release release;
  return logit_pairs(x, n_jobs);
}

void add_by_code_door(Array2<double> scores, Array1<const uint16_t> codes, Array2<const double> values, int n_jobs) {
  const int64_t rows = (int64_t)scores.shape(0), classes = (int64_t)scores.shape(1);
  const uint16_t* code = codes.data();
  require(shaped(codes, rows) && shaped(values, values.shape(0), classes), "scores, codes and values do not fit");
  uint16_t most = 0;
  for (int64_t i = 0; i < rows; i++) most = code[i] > most ? code[i] : most;
  require(rows == 0 || most < values.shape(0), "a code is out of range");
  const double* from = values.data();
  double* to = scores.data();
  Release release;
  add_by_code(rows, classes, code, from, to, n_jobs);
}

}  // namespace
}  // namespace boost
}  // namespace crfield

NB_MODULE(_boost, m) {
  nanobind::set_leak_warnings(false);  // an array still alive when Python ends is no fault
  namespace nb = nanobind;
  using namespace nb::literals;
  namespace b = crfield::boost;
  // noconvert: a silent copy of an output array would lose what is written to it.
  const auto array = [](const char* name) { return nb::arg(name).noconvert(); };
  const auto none = [](const char* name) { return nb::arg(name).noconvert().none(); };
  m.def("bin_codes", &b::bin_codes_door<double>, array("table"), array("begin"), array("cuts"), array("codes"),
        array("seen"), "n_jobs"_a);
  m.def("bin_codes", &b::bin_codes_door<float>, array("table"), array("begin"), array("cuts"), array("codes"),
        array("seen"), "n_jobs"_a);
  m.def("code_words", &b::code_words, array("codes"), array("strides"), array("words"), array("joint"), "n_jobs"_a);
  m.def("histograms", &b::histograms_door, array("joint"), array("sizes"), array("word"), array("stride"),
        array("offsets"), array("indptr"), array("entries"), array("codes"), array("sparse"), array("zero"),
        array("pairs"), none("rows"), array("out"), "n_jobs"_a);
  m.def("best_cuts", &b::best_cuts_door, array("sums"), array("offsets"), array("nominal"), array("missing"),
        "ridge"_a, array("counts"), "least"_a, array("gain"), array("cut"), array("side"), "n_jobs"_a);
  m.def("logit_pairs", &b::logit_pairs_door, array("scores"), array("labels"), none("weight"), "limit"_a,
        "least"_a, array("pairs"), "n_jobs"_a);
  m.def("add_by_code", &b::add_by_code_door, array("scores"), array("codes"), array("values"), "n_jobs"_a);
}
