// The arrays of a batch as Python hands them in, kept alive while views on them are used.
#pragma once
#include <nanobind/stl/optional.h>

#include "arrays.hpp"
#include "chain/checks.hpp"
#include "chain/model.hpp"

namespace crfield {

struct BatchArrays {
  Array1<const int64_t> offsets, indptr;
  Array1<const int32_t> indices;
  Maybe1<double> values;
  Maybe2<double> dense;
  Maybe1<int64_t> edge_indptr;
  Maybe1<int32_t> edge_indices;
  Maybe1<double> edge_values;
  Maybe2<double> edge_dense;

  BatchView view(const Model& m) const;  // checked
};

}  // namespace crfield
