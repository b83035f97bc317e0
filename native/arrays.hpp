// Small bridges between std::vector and NumPy arrays.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <utility>
#include <vector>

namespace crfield {
namespace nb = nanobind;

template <class T>
using Array1 = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Array2 = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Array3 = nb::ndarray<T, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

// Hand a vector's memory to NumPy without a copy.
template <class T>
nb::object to_numpy(std::vector<T>&& data) {
  auto* owner = new std::vector<T>(std::move(data));
  nb::capsule guard(owner, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(owner->data(), {owner->size()}, guard));
}

}  // namespace crfield
