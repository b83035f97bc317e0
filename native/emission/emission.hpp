// The loops of emissions; the contract is in src/crfield/kernels/emission.py. Callers have checked all sizes.
#pragma once
#include <cstdint>

namespace crfield {
namespace emission {

// out (rows, labels) = bias - ½ Σ_d ((x_d - mean) · inverse)²; mean and inverse are (labels, columns)
void normal_scores(const double* rows, int64_t count, int64_t columns, int64_t labels, const double* mean,
                   const double* inverse, const double* bias, double* out, int threads);

// mass (labels), first and second (labels, columns) about `centre` (labels, columns)
void normal_moments(const double* rows, int64_t count, int64_t columns, int64_t labels, const double* responsibility,
                    const double* centre, double* mass, double* first, double* second, int threads);

// out = bias + Σ_d (parts - ½ ((x_d - mean) · inverse)²) over cells that are not NaN; parts (labels, columns)
void observed_scores(const double* rows, int64_t count, int64_t columns, int64_t labels, const double* mean,
                     const double* inverse, const double* parts, const double* bias, double* out, int threads);

// the moments of cells that are not NaN; mass too is (labels, columns)
void observed_moments(const double* rows, int64_t count, int64_t columns, int64_t labels,
                      const double* responsibility, const double* centre, double* mass, double* first,
                      double* second, int threads);

}  // namespace emission
}  // namespace crfield
