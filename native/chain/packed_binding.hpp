// Packed problems as Python sees them.
#pragma once
#include "arrays.hpp"
#include "chain/problem.hpp"

namespace crfield {
void bind_packed(nb::module_& module, nb::class_<Problem>& problem);
}  // namespace crfield
