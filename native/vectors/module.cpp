// Python's door to the vector kernels; the contract is in src/crfield/kernels/vectors.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>

#include "arrays.hpp"
#include "vectors/blocks.hpp"
#include "vectors/history.hpp"

namespace crfield {
namespace vectors {
namespace {

using In = Array1<const double>;
using Out = Array1<double>;
using Mask = std::optional<Array1<const uint8_t>>;
using Release = nb::gil_scoped_release;

template <class A>
auto fitting(const A& array, size_t n, const char* name) {
  if (array.shape(0) != n)
    throw std::invalid_argument(std::string(name) + " must have " + std::to_string(n) + " entries, got " +
                                std::to_string(array.shape(0)));
  return array.data();
}

const uint8_t* mask_of(const Mask& penalised, size_t n) {
  return penalised ? fitting(*penalised, n, "penalised") : nullptr;
}

// A mask or an optional vector at an offset: nothing stays nothing.
template <class T>
const T* shifted(const T* p, size_t at) {
  return p ? p + at : nullptr;
}

double dot(In a, In b, int n_jobs) {
  const size_t n = a.shape(0);
  const double *p = a.data(), *q = fitting(b, n, "b");
  Release release;
  return over_blocks(n, 1, n_jobs, [&](size_t at, size_t m, double* s) { passes().dot(m, p + at, q + at, s); })[0];
}

void step(In weights, In direction, double size, Out out, int n_jobs) {
  const size_t n = weights.shape(0);
  const double *w = weights.data(), *d = fitting(direction, n, "direction");
  double* o = fitting(out, n, "out");
  Release release;
  over_blocks(n, 0, n_jobs,
              [&](size_t at, size_t m, double*) { passes().step(m, w + at, d + at, size, o + at); });
}

double l1_norm(In weights, Mask penalised, int n_jobs) {
  const size_t n = weights.shape(0);
  const double* w = weights.data();
  const uint8_t* mask = mask_of(penalised, n);
  Release release;
  return over_blocks(n, 1, n_jobs, [&](size_t at, size_t m, double* s) {
    passes().l1_norm(m, w + at, shifted(mask, at), s);
  })[0];
}

std::tuple<double, double, double> add_ridge(In weights, Out gradient, std::optional<In> direction, double l2,
                                             Mask penalised, int n_jobs) {
  const size_t n = weights.shape(0);
  const double* w = weights.data();
  double* g = fitting(gradient, n, "gradient");
  const double* d = direction ? fitting(*direction, n, "direction") : nullptr;
  const uint8_t* mask = mask_of(penalised, n);
  Release release;
  const auto sums = over_blocks(n, 3, n_jobs, [&](size_t at, size_t m, double* s) {
    passes().ridge(m, w + at, g + at, shifted(d, at), l2, shifted(mask, at), s);
  });
  return {0.5 * l2 * sums[0], sums[1], sums[2]};
}

double pseudo_gradient(In weights, In gradient, double l1, Mask penalised, Out out, int n_jobs) {
  const size_t n = weights.shape(0);
  const double *w = weights.data(), *g = fitting(gradient, n, "gradient");
  double* o = fitting(out, n, "out");
  const uint8_t* mask = mask_of(penalised, n);
  Release release;
  return over_blocks(n, 1, n_jobs, [&](size_t at, size_t m, double* s) {
    passes().pseudo(m, w + at, g + at, l1, shifted(mask, at), o + at, s);
  })[0];
}

std::tuple<double, double, int64_t> orthant_step(In weights, In gradient, In direction, double size, double l1,
                                                 Mask penalised, Out out, int n_jobs) {
  const size_t n = weights.shape(0);
  const double *w = weights.data(), *g = fitting(gradient, n, "gradient");
  const double* d = fitting(direction, n, "direction");
  double* o = fitting(out, n, "out");
  const uint8_t* mask = mask_of(penalised, n);
  Release release;
  const auto sums = over_blocks(n, 3, n_jobs, [&](size_t at, size_t m, double* s) {
    passes().orthant(m, w + at, g + at, d + at, size, l1, shifted(mask, at), o + at, s);
  });
  return {sums[0], sums[1], (int64_t)sums[2]};
}

// Holds the diagonal alive and checks lengths; the work is in history.cpp.
class BoundHistory {
 public:
  BoundHistory(int64_t n, int memory, bool single, std::optional<In> diagonal, int n_jobs, bool trusted)
      : n_(n < 0 ? throw std::invalid_argument("n must not be negative") : (size_t)n), diagonal_(diagonal) {
    if (memory < 1 || memory > 1000) throw std::invalid_argument("memory must be 1 to 1000 pairs");
    const double* d = diagonal_ ? fitting(*diagonal_, n_, "diagonal") : nullptr;
    memory_ = (size_t)memory;
    history_ = make_history(n_, memory, single, d, n_jobs, trusted);
  }

  size_t size() const { return history_->size(); }
  void clear() { history_->clear(); }

  bool push(In weights, In old_weights, In gradient, In old_gradient) {
    const Move move = moved(weights, old_weights, gradient, old_gradient);
    Release release;
    return history_->push(move);
  }

  double direction(In steepest, Out out, std::optional<In> orthant, Mask penalised) {
    const Course course = towards(steepest, out, orthant, penalised);
    Release release;
    return history_->direction(course);
  }

  std::pair<bool, double> advance(In weights, In old_weights, In gradient, In old_gradient, In steepest, Out out,
                                  std::optional<In> orthant, Mask penalised) {
    const Move move = moved(weights, old_weights, gradient, old_gradient);
    const Course course = towards(steepest, out, orthant, penalised);
    Release release;
    return history_->advance(move, course);
  }

  void write(Array1<uint8_t> s, Array1<uint8_t> y, Array2<double> s_y, Array2<double> y_dy) const {
    const size_t count = history_->size(), bytes = count * n_ * history_->width();
    require(shaped(s_y, count, count) && shaped(y_dy, count, count), "tables must be (pairs, pairs)");
    uint8_t *to_s = fitting(s, bytes, "s"), *to_y = fitting(y, bytes, "y");
    history_->write(to_s, to_y, s_y.data(), y_dy.data());
  }

  void read(Array1<const uint8_t> s, Array1<const uint8_t> y, Array2<const double> s_y, Array2<const double> y_dy) {
    const size_t count = s_y.shape(0);
    require(count <= memory_, "more pairs than the history has room for");
    require(shaped(s_y, count, count) && shaped(y_dy, count, count), "tables must be (pairs, pairs)");
    const size_t bytes = count * n_ * history_->width();
    const uint8_t *from_s = fitting(s, bytes, "s"), *from_y = fitting(y, bytes, "y");
    history_->read(count, from_s, from_y, s_y.data(), y_dy.data());
  }

 private:
  Move moved(const In& weights, const In& old_weights, const In& gradient, const In& old_gradient) const {
    return {fitting(weights, n_, "weights"), fitting(old_weights, n_, "old_weights"),
            fitting(gradient, n_, "gradient"), fitting(old_gradient, n_, "old_gradient")};
  }
  Course towards(const In& steepest, const Out& out, const std::optional<In>& orthant, const Mask& penalised) const {
    return {fitting(steepest, n_, "steepest"), fitting(out, n_, "out"),
            orthant ? fitting(*orthant, n_, "orthant") : nullptr, mask_of(penalised, n_)};
  }

  size_t n_, memory_ = 0;
  std::optional<In> diagonal_;
  std::unique_ptr<History> history_;
};

}  // namespace
}  // namespace vectors
}  // namespace crfield

NB_MODULE(_vectors, m) {
  nanobind::set_leak_warnings(false);  // a model still alive when Python ends is no fault
  namespace nb = nanobind;
  using namespace nb::literals;
  namespace v = crfield::vectors;
  // noconvert: a silent copy of an output array would lose what is written to it.
  const auto none = [](const char* name) { return nb::arg(name).noconvert().none(); };
  const auto array = [](const char* name) { return nb::arg(name).noconvert(); };
  m.def("dot", &v::dot, array("a"), array("b"), "n_jobs"_a);
  m.def("step", &v::step, array("weights"), array("direction"), "size"_a, array("out"), "n_jobs"_a);
  m.def("l1_norm", &v::l1_norm, array("weights"), none("penalised"), "n_jobs"_a);
  m.def("add_ridge", &v::add_ridge, array("weights"), array("gradient"), none("direction"), "l2"_a,
        none("penalised"), "n_jobs"_a);
  m.def("pseudo_gradient", &v::pseudo_gradient, array("weights"), array("gradient"), "l1"_a, none("penalised"),
        array("out"), "n_jobs"_a);
  m.def("orthant_step", &v::orthant_step, array("weights"), array("gradient"), array("direction"), "size"_a,
        "l1"_a, none("penalised"), array("out"), "n_jobs"_a);
  nb::class_<v::BoundHistory>(m, "History")
      .def(nb::init<int64_t, int, bool, std::optional<v::In>, int, bool>(), "n"_a, "memory"_a, "single"_a,
           none("diagonal"), "n_jobs"_a, "trusted"_a = false)
      .def("__len__", &v::BoundHistory::size)
      .def("clear", &v::BoundHistory::clear)
      .def("push", &v::BoundHistory::push, array("weights"), array("old_weights"), array("gradient"),
           array("old_gradient"))
      .def("direction", &v::BoundHistory::direction, array("steepest"), array("out"), none("orthant"), none("penalised"))
      .def("advance", &v::BoundHistory::advance, array("weights"), array("old_weights"), array("gradient"),
           array("old_gradient"), array("steepest"), array("out"), none("orthant"), none("penalised"))
      .def("write", &v::BoundHistory::write, array("s"), array("y"), array("s_y"), array("y_dy"))
      .def("read", &v::BoundHistory::read, array("s"), array("y"), array("s_y"), array("y_dy"));
}
