// The loops of threshold families; the contract is in src/crfield/kernels/families.py. Callers have checked all sizes.
#pragma once
#include <cstdint>

namespace crfield {
namespace families {

// kind 0 max, 1 min, 2 mean of the last `width` steps of each sequence
void slide(const double* values, const int64_t* offsets, int64_t sequences, int64_t width, int kind, double* out);

// #{k < v} + #{k <= v} for every value
void codes(const double* values, int64_t count, const double* thresholds, int64_t n_thresholds, uint16_t* out);

// out (series, lists, bins, columns) of the gradient (rows, columns) summed by code
void histograms(const uint16_t* codes, int64_t series, int64_t nodes, const int64_t* lists, int64_t n_lists,
                int64_t rows, const double* gradient, int64_t columns, int64_t bins, double* out, int threads);

}  // namespace families
}  // namespace crfield
