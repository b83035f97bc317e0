// Batches of sequences as Python hands them in, checked, and split over threads.
#pragma once
#include <optional>

#include "arrays.hpp"

namespace crfield {
namespace segments {

using Ints = Array1<const int64_t>;
using Codes = Array1<const int32_t>;
using Part = std::optional<Array2<const double>>;
using PartOut = std::optional<Array2<double>>;

int level();

void sum_product(Ints offsets, Array3<const double> segment, Array3<const double> edge, Array1<double> total,
                 Array3<double> segment_out, Array3<double> edge_out, int n_jobs);
void max_product(Ints offsets, Array3<const double> segment, Array3<const double> edge, Array1<double> total,
                 Array1<int32_t> length, Array1<int32_t> label, int n_jobs);
void expand(Ints offsets, Codes limit, Array2<const double> node, Part first, Part last, Part mean,
            Array2<const double> length, Ints ptr, Codes steps, Codes item, Ints item_ptr, Codes item_label,
            Array1<const double> weight, Array3<double> out, int n_jobs);
void expectations(Ints offsets, Codes limit, Codes space, Array2<const double> node, Part first, Part last, Part mean,
                  Array2<const double> length, Ints ptr, Codes steps, Codes item, Ints item_ptr, Codes item_label,
                  Array1<const double> weight, Array3<const double> edge, Array1<const double> factor,
                  Array1<double> total, Array2<double> node_out, PartOut first_out, PartOut last_out, PartOut mean_out,
                  Array2<double> length_out, Array1<double> weight_out, Array3<double> edge_out, int n_jobs);

}  // namespace segments
}  // namespace crfield
