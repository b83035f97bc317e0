// Python's door to the steps of boosting with incomplete information; src/crfield/kernels/incomplete.py is the contract.
#include <nanobind/nanobind.h>

#include <cmath>

#include "arrays.hpp"
#include "incomplete/bags.hpp"
#include "incomplete/steps.hpp"

namespace crfield {
namespace incomplete {
namespace {

using Index = Array1<const int64_t>;
using Numbers = Array1<const double>;

Rule rule_of(double l2, double smoothing, double longest) {
  require(l2 >= 0 && smoothing >= 0 && longest > 0, "l2 and smoothing must be at least 0, longest above 0");
  return {l2, smoothing, longest};
}

void map_step_door(Numbers plus, Numbers minus, Numbers weights, double scale, double l2, double smoothing,
                   double longest, Array1<double> out) {
  const size_t n = out.shape(0);
  require(plus.shape(0) == n && minus.shape(0) == n && weights.shape(0) == n, "counts and weights must be alike");
  require(scale > 0 && std::isfinite(scale), "scale must be above 0");
  const Rule rule = rule_of(l2, smoothing, longest);
  const double *p = plus.data(), *m = minus.data(), *w = weights.data();
  double* d = out.data();
  nb::gil_scoped_release release;
  for (size_t k = 0; k < n; k++) d[k] = step(p[k], m[k], w[k], scale, rule);
}

// Runs that rise from 0 to the number of cells.
void check_runs(const Index& runs, int64_t cells) {
  const int64_t n = (int64_t)runs.shape(0) - 1;
  require(n >= 0 && runs(0) == 0 && runs(n) == cells, "runs of cells must go from 0 to their number");
  for (int64_t k = 0; k < n; k++) require(runs(k) <= runs(k + 1), "runs of cells must not fall");
}

void sweep_door(Index indptr, Index indices, Numbers values, Index spans, Index offsets, Index owner, Index labels,
                Numbers prior, Numbers weight, Array2<double> scores, Array2<double> heavy, Array2<double> table,
                int loss, double l2, double smoothing, double longest, bool tight) {
  Sweep s{};
  s.cells = (int64_t)scores.shape(0), s.labels = (int64_t)scores.shape(1), s.columns = (int64_t)table.shape(0);
  const int64_t data = (int64_t)offsets.shape(0) - 1, rows = (int64_t)spans.shape(0) - 1;
  require(s.labels >= 1 && (int64_t)table.shape(1) == s.labels, "weights and scores must be of the same labels");
  require((int64_t)heavy.shape(0) == s.cells && (int64_t)heavy.shape(1) == s.labels, "one weight for each score");
  check_runs(offsets, s.cells);
  check_runs(spans, s.cells);
  require((int64_t)owner.shape(0) == s.cells && (int64_t)prior.shape(0) == s.cells, "one owner, one prior for a cell");
  require((int64_t)labels.shape(0) == data && (int64_t)weight.shape(0) == data, "one label, one weight for a datum");
  for (int64_t i = 0; i < data; i++) require(labels(i) >= 0 && labels(i) < s.labels, "a label is out of range");
  for (int64_t m = 0; m < s.cells; m++)
    require(owner(m) >= 0 && owner(m) < data && offsets(owner(m)) <= m && m < offsets(owner(m) + 1),
            "a cell does not lie in the run of its owner");
  const int64_t entries = (int64_t)indices.shape(0);
  require((int64_t)indptr.shape(0) == s.columns + 1 && indptr(0) == 0 && indptr(s.columns) == entries &&
              (int64_t)values.shape(0) == entries,
          "the columns do not fit the weights");
  for (int64_t a = 0; a < s.columns; a++) require(indptr(a) <= indptr(a + 1), "indptr must not fall");
  for (int64_t t = 0; t < entries; t++) require(indices(t) >= 0 && indices(t) < rows, "a row is out of range");
  require(loss >= 0 && loss <= 3, "there are four losses, 0 to 3");
  s.indptr = indptr.data(), s.indices = indices.data(), s.values = values.data();
  s.spans = spans.data(), s.offsets = offsets.data(), s.owner = owner.data(), s.label = labels.data();
  s.prior = prior.data(), s.weight = weight.data();
  s.scores = scores.data(), s.heavy = heavy.data(), s.table = table.data();
  s.loss = loss, s.tight = tight, s.rule = rule_of(l2, smoothing, longest);
  nb::gil_scoped_release release;
  sweep(s);
}

Bags bags_of(const Index& indptr, const Index& indices, const Numbers& counts, const Numbers& per_point,
             const Index& labels, int64_t words, int64_t n_labels) {
  Bags b{};
  b.bags = (int64_t)indptr.shape(0) - 1, b.words = words, b.labels = n_labels;
  const int64_t entries = (int64_t)indices.shape(0);
  require(b.bags >= 0 && indptr(0) == 0 && indptr(b.bags) == entries, "indptr must run from 0 to the entries");
  for (int64_t i = 0; i < b.bags; i++) require(indptr(i) <= indptr(i + 1), "indptr must not fall");
  for (int64_t e = 0; e < entries; e++) require(indices(e) >= 0 && indices(e) < words, "a word is out of range");
  require((int64_t)counts.shape(0) == entries && (int64_t)per_point.shape(0) == entries, "one count for each entry");
  require((int64_t)labels.shape(0) == b.bags, "one label for each bag");
  for (int64_t i = 0; i < b.bags; i++) require(labels(i) >= -1 && labels(i) < n_labels, "a label is out of range");
  b.indptr = indptr.data(), b.indices = indices.data(), b.counts = counts.data(), b.per_point = per_point.data();
  b.label = labels.data();
  return b;
}

void bag_sums_door(Index indptr, Index indices, Numbers counts, Numbers per_point, Numbers shares, Numbers log_on,
                   Numbers log_off, Array1<const uint8_t> hidden, Array2<const double> table, Index labels,
                   Array2<double> logs, Array2<double> tilted) {
  require(table.shape(0) % 2 == 0, "every word has two rows of weights");
  const Bags b = bags_of(indptr, indices, counts, per_point, labels, (int64_t)table.shape(0) / 2,
                         (int64_t)table.shape(1));
  const size_t entries = indices.shape(0);
  require(shares.shape(0) == entries && log_on.shape(0) == entries && log_off.shape(0) == entries &&
              hidden.shape(0) == entries,
          "one share and one prior for each entry");
  require((int64_t)logs.shape(0) == b.bags && logs.shape(1) == table.shape(1) && tilted.shape(0) == entries &&
              tilted.shape(1) == table.shape(1),
          "an array for results has the wrong shape");
  const double *r = shares.data(), *up = log_on.data(), *down = log_off.data(), *w = table.data();
  const uint8_t* unknown = hidden.data();
  double *out = logs.data(), *share = tilted.data();
  nb::gil_scoped_release release;
  bag_sums(b, r, up, down, unknown, w, out, share);
}

void bag_expected_door(Index indptr, Index indices, Numbers counts, Numbers per_point, Array2<const double> tilted,
                       Array2<const double> weight, Index labels, Array2<double> out) {
  require(out.shape(0) % 2 == 0, "every word has two rows");
  const Bags b =
      bags_of(indptr, indices, counts, per_point, labels, (int64_t)out.shape(0) / 2, (int64_t)out.shape(1));
  require(tilted.shape(0) == indices.shape(0) && tilted.shape(1) == out.shape(1), "one share for each entry");
  require((int64_t)weight.shape(0) == b.bags && weight.shape(1) == out.shape(1), "one weight for each bag and label");
  const double *share = tilted.data(), *w = weight.data();
  double* sums = out.data();
  nb::gil_scoped_release release;
  bag_expected(b, share, w, sums);
}

}  // namespace
}  // namespace incomplete
}  // namespace crfield

NB_MODULE(_incomplete, m) {
  nanobind::set_leak_warnings(false);  // an array still alive when Python ends is no fault
  namespace nb = nanobind;
  using namespace nb::literals;
  namespace s = crfield::incomplete;
  // noconvert: a silent copy of an output array would lose what is written to it.
  const auto array = [](const char* name) { return nb::arg(name).noconvert(); };
  m.def("map_step", &s::map_step_door, array("plus"), array("minus"), array("weights"), "scale"_a, "l2"_a,
        "smoothing"_a, "longest"_a, array("out"));
  m.def("bag_sums", &s::bag_sums_door, array("indptr"), array("indices"), array("counts"), array("per_point"),
        array("shares"), array("log_on"), array("log_off"), array("hidden"), array("table"), array("labels"),
        array("logs"), array("tilted"));
  m.def("bag_expected", &s::bag_expected_door, array("indptr"), array("indices"), array("counts"),
        array("per_point"), array("tilted"), array("weight"), array("labels"), array("out"));
  m.def("sweep", &s::sweep_door, array("indptr"), array("indices"), array("values"), array("spans"),
        array("offsets"), array("owner"), array("labels"), array("prior"), array("weight"), array("scores"),
        array("heavy"), array("table"), "loss"_a, "l2"_a, "smoothing"_a, "longest"_a, "tight"_a);
}
