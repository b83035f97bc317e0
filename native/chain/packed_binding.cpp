// Python's view of packed problems: a dict of arrays out, a dict of arrays in, no copy either way.
#include "chain/packed_binding.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <string>

#include "chain/packed.hpp"
#include "chain/problem_sums.hpp"

namespace crfield {
namespace {

template <class T>
nb::object as_numpy(const PackedArray& a, nb::handle owner) {
  static const T nothing{};
  const T* data = a.size ? static_cast<const T*>(a.data) : &nothing;
  return nb::cast(nb::ndarray<nb::numpy, const T, nb::ndim<1>>(data, {(size_t)a.size}, owner));
}

nb::object as_numpy(const PackedArray& a, nb::handle owner) {
  switch (a.type) {
    case Type::U8: return as_numpy<uint8_t>(a, owner);
    case Type::U16: return as_numpy<uint16_t>(a, owner);
    case Type::U32: return as_numpy<uint32_t>(a, owner);
    case Type::I32: return as_numpy<int32_t>(a, owner);
    case Type::I64: return as_numpy<int64_t>(a, owner);
    default: return as_numpy<double>(a, owner);
  }
}

// The arrays of a dict; they hold what they point to.
PackedArrays from_dict(nb::dict given) {
  struct Held {
    std::vector<nb::object> arrays;
    ~Held() {
      nb::gil_scoped_acquire locked;
      arrays.clear();
    }
  };
  auto held = std::make_shared<Held>();
  PackedArrays out;
  for (const auto& pair : given) {
    const nb::handle key = pair.first, value = pair.second;
    std::string name;
    require(nb::try_cast(key, name, false), "packed arrays are named by strings");
    auto taken = [&](auto zero) {
      using T = decltype(zero);
      Array1<const T> array;
      if (!nb::try_cast(value, array, false)) return false;
      out.add(name.c_str(), array.data(), (int64_t)array.shape(0));
      return true;
    };
    const bool known = taken(uint8_t()) || taken(uint16_t()) || taken(uint32_t()) || taken(int32_t()) || taken(int64_t()) || taken(double());
    require(known, "packed arrays must be flat, of unsigned or signed integers or doubles");
    held->arrays.push_back(nb::borrow(value));
  }
  out.owner = std::move(held);
  return out;
}

}  // namespace

void bind_packed(nb::module_& module, nb::class_<Problem>& problem) {
  nb::class_<Problem::Workspace>(module, "Workspace")
      .def("__init__", [](Problem::Workspace* self, std::shared_ptr<Model> model) {
        new (self) Problem::Workspace(std::move(model));
      })
      // Who packs, in which form, and for vectors of how many labels, since rows are padded to them.
      .def_prop_ro("packing", [](const Problem::Workspace& self) {
        return "compiled " + std::to_string(PACKED_VERSION) + ", lanes " + std::to_string(self.model->k->lanes);
      });
  // An evaluation that is begun keeps its vectors; it is for one thread of Python at a time.
  struct Evaluation {
    Evaluation(std::shared_ptr<Problem::Workspace> w, int n_jobs)
        : n_weights(w->model->n_weights), sums(std::move(w), n_jobs) {}
    int64_t n_weights;
    Problem::Sums sums;
    std::optional<Array1<const double>> w;
    std::optional<Array1<double>> gradient;
  };
  nb::class_<Evaluation>(module, "Sums")
      .def("__init__", [](Evaluation* self, std::shared_ptr<Problem::Workspace> workspace,
                          int n_jobs) { new (self) Evaluation(std::move(workspace), n_jobs); })
      .def("begin",
           [](Evaluation& self, Array1<const double> w, Array1<double> gradient) {
             require((int64_t)w.shape(0) == self.n_weights && gradient.shape(0) == w.shape(0),
                     "weights or gradient do not fit the model");
             self.w = w;
             self.gradient = gradient;
             self.sums.begin(w.data(), gradient.data());
           })
      .def("add",
           [](Evaluation& self, const Problem& p) {
             require(self.w.has_value(), "the sums have not begun");
             nb::gil_scoped_release unlocked;
             self.sums.add(p);
           })
      .def("end", [](Evaluation& self) {
        require(self.w.has_value(), "the sums have not begun");
        const double value = self.sums.end();
        self.w.reset();
        self.gradient.reset();
        return value;
      });
  problem
      .def("packed",
           [](nb::handle_t<Problem> self) {
             auto* arrays = new PackedArrays(nb::cast<const Problem&>(self).packed());
             nb::capsule kept(arrays, [](void* p) noexcept { delete static_cast<PackedArrays*>(p); });
             nb::object owner = nb::make_tuple(self, kept);  // the problem has the long arrays, the capsule the rest
             nb::dict out;
             for (const PackedArray& a : arrays->arrays) out[a.name.c_str()] = as_numpy(a, owner);
             return out;
           })
      .def_static(
          "restore",
          [](std::shared_ptr<Problem::Workspace> workspace, nb::dict arrays, bool check) {
            return Problem::restore(std::move(workspace), from_dict(arrays), check);
          },
          nb::arg("workspace"), nb::arg("arrays"), nb::arg("check"));
}

}  // namespace crfield
