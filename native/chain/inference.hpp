#pragma once
#include "chain/checks.hpp"

namespace crfield {

// See crfield/kernels/chain.py for the contracts; results go to the writable arrays.
void sum_product(Array1<const int64_t> offsets, Array2<const double> node, Array3<const double> edge,
                 Array1<double> total, Array2<double> node_out, Array3<double> edge_out, bool each, int n_jobs,
                 Maybe1<double> weight);
void max_product(Array1<const int64_t> offsets, Array2<const double> node, Array3<const double> edge,
                 Array1<double> total, Array1<int32_t> path, int n_jobs);
nb::tuple observed(Array1<const int64_t> indptr, Array1<const int32_t> indices, Array1<const int64_t> rows,
                   Array1<const int32_t> items, int64_t columns, int64_t n_items);

}  // namespace crfield
