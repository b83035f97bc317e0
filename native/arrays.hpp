// What every door between Python and a kernel needs: arrays by rank, checks that throw, vectors handed over.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
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
template <class T>
using Array4 = nb::ndarray<T, nb::ndim<4>, nb::c_contig, nb::device::cpu>;

inline void require(bool good, const char* message) {
  if (!good) throw std::invalid_argument(message);
}

// Whether the first sizes of an array are these.
template <class A, class... Sizes>
bool shaped(const A& array, Sizes... sizes) {
  const int64_t wanted[] = {(int64_t)sizes...};
  for (size_t k = 0; k < sizeof...(sizes); k++)
    if ((int64_t)array.shape(k) != wanted[k]) return false;
  return true;
}

// Hand a vector's memory to NumPy without a copy.
template <class T>
nb::object to_numpy(std::vector<T>&& data) {
  auto* owner = new std::vector<T>(std::move(data));
  nb::capsule guard(owner, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(owner->data(), {owner->size()}, guard));
}

}  // namespace crfield
