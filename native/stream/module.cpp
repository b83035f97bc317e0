// Python's door to the kernels of streams; the contract is in src/crfield/kernels/stream.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "arrays.hpp"
#include "stream/recursion.hpp"

namespace crfield {
namespace stream {
namespace {

void check_scores(const double* scores, int64_t count) {
  bool good = true;
  const double never = -std::numeric_limits<double>::infinity();
  for (int64_t k = 0; k < count; k++) good &= scores[k] <= 1e300 && (scores[k] >= -1e300 || scores[k] == never);
  require(good, "scores must be numbers up to 1e300 in size, or -inf");
}

class Scores {
 public:
  Scores(Array1<const double> mean, Array1<const double> deviation, Array2<const double> weights,
         Array1<const double> bias, Array2<const double> transitions, Array1<const int32_t> linked,
         Array3<const double> link_weights)
      : columns_((int64_t)weights.shape(0)), labels_((int64_t)weights.shape(1)), links_((int64_t)linked.shape(0)) {
    require(shaped(mean, columns_) && shaped(deviation, columns_) && shaped(bias, labels_) &&
                shaped(transitions, labels_, labels_),
            "the tables do not fit each other");
    require(shaped(link_weights, links_, labels_, labels_), "the tables of linked columns do not fit");
    for (int64_t g = 0; g < links_; g++)
      require(linked((size_t)g) >= 0 && linked((size_t)g) < columns_, "a linked column does not exist");
    const int64_t square = labels_ * labels_;
    mean_.assign(mean.data(), mean.data() + columns_);
    deviation_.assign(deviation.data(), deviation.data() + columns_);
    weights_.assign(weights.data(), weights.data() + columns_ * labels_);
    bias_.assign(bias.data(), bias.data() + labels_);
    transitions_.assign(transitions.data(), transitions.data() + square);
    linked_.assign(linked.data(), linked.data() + links_);
    link_weights_.assign(link_weights.data(), link_weights.data() + links_ * square);
  }

  int64_t score(Array2<const double> x, Array2<double> node, std::optional<Array3<double>> edge) const {
    const int64_t rows = (int64_t)x.shape(0), square = labels_ * labels_;
    require(shaped(x, rows, columns_) && shaped(node, rows, labels_), "rows and scores do not fit");
    require(!edge || shaped(*edge, rows, labels_, labels_), "rows and tables do not fit");
    const double* value = x.data();
    for (int64_t k = 0; k < rows * columns_; k++)
      if (!std::isfinite(value[k])) return k;
    for (int64_t k = 0; k < rows; k++, value += columns_) {
      double* out = node.data() + k * labels_;
      std::copy(bias_.begin(), bias_.end(), out);
      for (int64_t d = 0; d < columns_; d++) {
        const double z = (value[d] - mean_[(size_t)d]) / deviation_[(size_t)d];
        const double* weight = weights_.data() + d * labels_;
        for (int64_t j = 0; j < labels_; j++) out[j] += z * weight[j];
      }
      if (!edge) continue;
      double* table = edge->data() + k * square;
      std::copy(transitions_.begin(), transitions_.end(), table);
      for (int64_t g = 0; g < links_; g++) {
        const size_t d = (size_t)linked_[(size_t)g];
        const double z = (value[d] - mean_[d]) / deviation_[d];
        const double* weight = link_weights_.data() + g * square;
        for (int64_t p = 0; p < square; p++) table[p] += z * weight[p];
      }
    }
    return -1;
  }

 private:
  int64_t columns_, labels_, links_;
  std::vector<double> mean_, deviation_, weights_, bias_, transitions_, link_weights_;
  std::vector<int32_t> linked_;
};

class Recursion {
 public:
  Recursion(Array1<const double> start, Array2<const double> transitions, Array1<int64_t> steps, Array1<double> total,
            Array3<double> alpha, Array3<double> nodes, Array4<double> edges, Array2<double> delta,
            Array3<int32_t> back, Array2<int32_t> origin, Array1<int64_t> oldest)
      : streams_((int64_t)alpha.shape(0)),
        window_((int64_t)alpha.shape(1)),
        labels_((int64_t)alpha.shape(2)),
        slots_((int64_t)back.shape(1)),
        varied_(edges.shape(1) > 0),
        start_(start),
        transitions_(transitions),
        steps_(steps),
        total_(total),
        alpha_(alpha),
        nodes_(nodes),
        edges_(edges),
        delta_(delta),
        back_(back),
        origin_(origin),
        oldest_(oldest),
        room_(labels_) {
    const int64_t B = streams_, H = window_, L = labels_;
    bool fits = H > 0 && L > 0 && shaped(start, L) && shaped(transitions, L, L);
    fits = fits && shaped(steps, B) && shaped(total, B) && shaped(oldest, B) && shaped(nodes, B, H, L);
    fits = fits && shaped(edges, B, varied_ ? H : 0, L, L) && shaped(back, B, slots_, L);
    fits = fits && shaped(delta, B, L) && shaped(origin, B, L);
    require(fits, "the arrays of the streams do not fit each other");
  }

  void push(Array1<const int64_t> which, Array2<const double> node, std::optional<Array3<const double>> edge,
            Array2<double> probabilities, Array2<double> smoothed, Array2<int32_t> committed, Array2<int64_t> counts) {
    const int64_t rows = (int64_t)which.shape(0), L = labels_, square = L * L;
    require(shaped(node, rows, L) && shaped(probabilities, rows, L) && shaped(smoothed, rows, L),
            "scores and answers must have a row for each stream");
    require(shaped(counts, rows, 2) && shaped(committed, rows, slots_), "committed labels need a row for each stream");
    require(edge.has_value() == varied_ && (!edge || shaped(*edge, rows, L, L)),
            "edges must be given where each step has a table of its own, and only there");
    check_scores(node.data(), rows * L);
    if (edge) check_scores(edge->data(), rows * square);
    for (int64_t k = 0; k < rows; k++) {
      const int64_t b = which((size_t)k);
      require(b >= 0 && b < streams_ && (k == 0 || which((size_t)k - 1) < b),
              "streams must be named once each, in rising order");
      check_state(b);
    }
    for (int64_t k = 0; k < rows; k++) {
      const int64_t b = which((size_t)k);
      Memory m{L,
               window_,
               slots_,
               start_.data(),
               transitions_.data(),
               alpha_.data() + b * window_ * L,
               nodes_.data() + b * window_ * L,
               varied_ ? edges_.data() + b * window_ * square : nullptr,
               delta_.data() + b * L,
               back_.data() + b * slots_ * L,
               origin_.data() + b * L,
               steps_((size_t)b),
               oldest_((size_t)b)};
      const double* scores = node.data() + k * L;
      const double* table = edge ? edge->data() + k * square : transitions_.data();
      double *now = probabilities.data() + k * L, *then = smoothed.data() + k * L;
      total_((size_t)b) += filter(m, scores, table, now, room_);
      if (window_ == 1)
        std::copy(now, now + L, then);
      else
        smooth(m, then, room_);
      Commit commit{0, 0};
      if (slots_) commit = survive(m, scores, table, committed.data() + k * slots_, room_);
      counts((size_t)k, 0) = commit.count;
      counts((size_t)k, 1) = commit.forced;
      oldest_((size_t)b) = m.oldest;
      steps_((size_t)b) = m.steps + 1;
    }
  }

 private:
  // The arrays are the caller's, who may have written anything to them.
  void check_state(int64_t b) const {
    const int64_t steps = steps_((size_t)b), oldest = oldest_((size_t)b);
    bool good = steps >= 0 && steps < std::numeric_limits<int64_t>::max();
    if (slots_) {
      good = good && oldest >= 0 && oldest <= steps && steps - oldest < slots_;
      // Only what lies between the oldest step without a label and now is ever followed.
      for (int64_t s = good ? std::max(oldest, steps - slots_) : steps; s < steps; s++) {
        const int32_t* came = back_.data() + (b * slots_ + s % slots_) * labels_;
        for (int64_t j = 0; j < labels_; j++) good &= came[j] >= 0 && came[j] < labels_;
      }
      for (int64_t j = 0; j < labels_; j++) {
        const int32_t label = origin_((size_t)b, (size_t)j);
        good &= label >= 0 && label < labels_;
      }
    }
    require(good, "the state of a stream is damaged");
  }

  int64_t streams_, window_, labels_, slots_;
  bool varied_;
  Array1<const double> start_;
  Array2<const double> transitions_;
  Array1<int64_t> steps_;
  Array1<double> total_;
  Array3<double> alpha_, nodes_;
  Array4<double> edges_;
  Array2<double> delta_;
  Array3<int32_t> back_;
  Array2<int32_t> origin_;
  Array1<int64_t> oldest_;
  Room room_;
};

}  // namespace
}  // namespace stream
}  // namespace crfield

NB_MODULE(_stream, m) {
  namespace nb = nanobind;
  using namespace crfield;
  nb::set_leak_warnings(false);  // an array still alive when Python ends is no fault
  nb::class_<stream::Scores>(m, "Scores")
      .def(nb::init<Array1<const double>, Array1<const double>, Array2<const double>, Array1<const double>,
                    Array2<const double>, Array1<const int32_t>, Array3<const double>>())
      .def("score", &stream::Scores::score, nb::arg(), nb::arg(), nb::arg().none());
  nb::class_<stream::Recursion>(m, "Recursion")
      .def(nb::init<Array1<const double>, Array2<const double>, Array1<int64_t>, Array1<double>, Array3<double>,
                    Array3<double>, Array4<double>, Array2<double>, Array3<int32_t>, Array2<int32_t>,
                    Array1<int64_t>>())
      .def("push", &stream::Recursion::push, nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg(),
           nb::arg());
}
