// Python's door to the kernels of dense fields; the contract is in src/crfield/kernels/dense.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <tuple>

#include "arrays.hpp"
#include "dense/dense.hpp"
#include "dense/lattice.hpp"
#include "dense/mean_field.hpp"

namespace crfield {
namespace dense {
namespace {

using Floats1 = Array1<const float>;
using Floats2 = Array2<const float>;
using Strided = nb::ndarray<const float, nb::ndim<2>, nb::device::cpu>;
using Release = nb::gil_scoped_release;

constexpr float FARTHEST = 524288.f;  // 2^19: beyond, single precision has too few digits left for the simplex

void check_features(const Floats2& features) {
  const int64_t d = (int64_t)features.shape(0);
  require(d >= 1 && d < MOST_DIMENSIONS, "features must have 1 to 15 dimensions");
  const float* x = features.data();
  int32_t most = 0, bits = 0;  // as integers, without their sign, floats have the same order, and NaN comes last
  for (size_t k = 0; k < features.size(); k++) {
    std::memcpy(&bits, x + k, sizeof bits);
    bits &= 0x7fffffff;
    most = bits > most ? bits : most;
  }
  std::memcpy(&bits, &FARTHEST, sizeof bits);
  require(most <= bits, "features must be finite and at most 2^19 in size");
}

// Whether all numbers lie from 0 to below `end`; a loop without branches.
bool within(const int32_t* numbers, int64_t count, int64_t end) {
  int bad = 0;
  const int32_t last = (int32_t)end;
  for (int64_t j = 0; j < count; j++) bad |= (numbers[j] < 0) | (numbers[j] >= last);
  return !bad;
}

// (at, share, before or None, after or None, gain, neighbours or None, sizes, filters)
Kernel kernel_of(nb::handle given) {
  const nb::tuple parts = nb::cast<nb::tuple>(given);
  require(parts.size() == 8, "a kernel has eight parts");
  const auto at = nb::cast<Array2<const int32_t>>(parts[0]);
  const auto share = nb::cast<Floats2>(parts[1]);
  const auto before = nb::cast<std::optional<Floats1>>(parts[2]), after = nb::cast<std::optional<Floats1>>(parts[3]);
  const auto neighbours = nb::cast<std::optional<Array3<const int32_t>>>(parts[5]);
  Kernel k{};
  k.points = (int64_t)at.shape(0), k.taps = (int64_t)at.shape(1);
  require(k.taps >= 1 && shaped(share, k.points, k.taps), "every tap needs a node and a share");
  require((!before || shaped(*before, k.points)) && (!after || shaped(*after, k.points)),
          "factors must have one entry for each point");
  k.at = at.data(), k.share = share.data();
  k.before = before ? before->data() : nullptr, k.after = after ? after->data() : nullptr;
  k.gain = (float)nb::cast<double>(parts[4]);
  if (neighbours) {
    k.directions = (int64_t)neighbours->shape(0), k.nodes = (int64_t)neighbours->shape(1);
    require(k.directions >= 1 && shaped(*neighbours, k.directions, k.nodes, 2), "neighbours must be pairs");
    k.neighbours = neighbours->data();
    require(k.nodes < (int64_t(1) << 31) - 1, "there are too many nodes");
    require(within(k.neighbours, (int64_t)neighbours->size(), k.nodes + 1), "a neighbour is out of range");
  } else {
    const nb::tuple sizes = nb::cast<nb::tuple>(parts[6]), filters = nb::cast<nb::tuple>(parts[7]);
    require(sizes.size() >= 1 && sizes.size() <= MOST_AXES && sizes.size() == filters.size(),
            "a grid has one to three axes, each with a filter");
    k.axes = (int)sizes.size(), k.nodes = 1;
    for (int a = 0; a < k.axes; a++) {
      k.sizes[a] = nb::cast<int64_t>(sizes[(size_t)a]);
      require(k.sizes[a] >= 1 && k.sizes[a] < (int64_t(1) << 31) / k.nodes, "a grid has too many nodes");
      k.nodes *= k.sizes[a];
      const auto filter = nb::cast<Floats1>(filters[(size_t)a]);
      require(filter.shape(0) >= 1, "a filter needs its middle");
      k.filter[a] = filter.data(), k.reach[a] = (int64_t)filter.shape(0) - 1;
    }
  }
  require(within(k.at, k.points * k.taps, k.nodes), "a node is out of range");
  return k;
}

nb::tuple lattice_door(Floats2 features, bool halo, double gain, Array1<float> sums, bool fold, Array2<int32_t> at,
                       Array2<float> share, int n_jobs) {
  check_features(features);
  const int64_t d = (int64_t)features.shape(0), points = (int64_t)features.shape(1);
  require(points < (int64_t(1) << 31) && shaped(at, points, d + 1) && shaped(share, points, d + 1) &&
              shaped(sums, points),
          "at and share must be (points, dimensions + 1)");
  Neighbours found;
  {
    Release release;
    found = build_lattice(Request{features.data(), points, (int)d, halo, (float)gain, fold, at.data(), share.data(),
                                  sums.data()},
                          n_jobs);
  }
  return nb::make_tuple(to_numpy(std::move(found.pairs)), found.nodes, found.exact);
}

void filter_door(nb::tuple kernel, Floats2 values, bool reverse, Array2<float> out, int n_jobs) {
  const Kernel k = kernel_of(kernel);
  const int64_t channels = (int64_t)values.shape(1);
  require(channels >= 1 && shaped(values, k.points) && shaped(out, k.points, channels),
          "values and out must have one row for each point");
  Release release;
  filter(k, values.data(), channels, reverse, out.data(), n_jobs);
}

void gradient_door(nb::tuple kernel, Floats2 features, Floats2 left, Floats2 right, Array2<float> out, int n_jobs) {
  const Kernel k = kernel_of(kernel);
  check_features(features);
  const int64_t d = (int64_t)features.shape(0), channels = (int64_t)left.shape(1);
  require(k.directions == d + 1 && k.taps == d + 1 && !k.before && !k.after && shaped(features, d, k.points),
          "the kernel must be the plain lattice of these features");
  require(channels >= 1 && shaped(left, k.points) && shaped(right, k.points, channels) && shaped(out, d, k.points),
          "left, right and out do not fit the points");
  Release release;
  feature_gradient(k, features.data(), left.data(), right.data(), channels, out.data(), n_jobs);
}

int64_t mean_field_door(Strided scores, bool negated, nb::list kernels, nb::list compatibilities,
                        std::optional<Floats2> start, int64_t steps, double damping, bool symmetric, double tol,
                        Array2<float> out, std::optional<Array2<double>> trace, int n_jobs) {
  Field f{};
  f.points = (int64_t)scores.shape(0), f.labels = (int64_t)scores.shape(1);
  require(f.labels >= 1 && f.labels < (1 << 20), "there must be a label, and not too many");
  f.scores = scores.data(), f.point_step = scores.stride(0), f.label_step = scores.stride(1);
  f.negated = negated;
  require(!start || shaped(*start, f.points, f.labels), "start must have the shape of the scores");
  f.start = start ? start->data() : nullptr;
  require(steps >= 0 && damping >= 0 && std::isfinite(damping), "steps and damping must not be negative");
  require(shaped(out, f.points, f.labels) && (!trace || shaped(*trace, steps + 1, 2)),
          "an array for results has the wrong shape");
  require(kernels.size() == compatibilities.size(), "every kernel needs a compatibility");
  for (size_t k = 0; k < kernels.size(); k++) {
    f.kernels.push_back(kernel_of(kernels[k]));
    require(f.kernels.back().points == f.points, "a kernel is of other points");
    const nb::object own = nb::borrow<nb::object>(compatibilities[k]);
    f.weights.push_back(1.f), f.diagonals.push_back(nullptr), f.tables.push_back(nullptr);
    if (nb::isinstance<nb::float_>(own)) {
      f.weights.back() = (float)nb::cast<double>(own);
    } else if (!nb::isinstance<nb::tuple>(own)) {
      const auto table = nb::cast<Floats2>(own);
      require(shaped(table, f.labels, f.labels), "a compatibility must be (labels, labels)");
      f.tables.back() = table.data();
    } else {
      const auto diagonal = nb::cast<Floats1>(nb::cast<nb::tuple>(own)[0]);
      require(shaped(diagonal, f.labels), "a compatibility must have one entry for each label");
      f.diagonals.back() = diagonal.data();
    }
  }
  const Update u{steps, (float)damping, symmetric, tol, out.data(), trace ? trace->data() : nullptr, n_jobs};
  Release release;
  return mean_field(f, u);
}

}  // namespace
}  // namespace dense
}  // namespace crfield

NB_MODULE(_dense, m) {
  namespace nb = nanobind;
  namespace dense = crfield::dense;
  nb::set_leak_warnings(false);  // an array still alive when Python ends is no fault
  m.def("lattice", &dense::lattice_door);
  m.def("filter", &dense::filter_door);
  m.def("feature_gradient", &dense::gradient_door);
  m.def("mean_field", &dense::mean_field_door, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(),
        nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg());
}
