#pragma once
#include "arrays.hpp"

namespace crfield {

// Sums and best paths of padded rows, (B, T, L) floats or doubles; see crfield/kernels/padded.py for the contracts.
void bind_padded(nb::module_& module);

}  // namespace crfield
