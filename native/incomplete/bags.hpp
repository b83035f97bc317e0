// Sums over the foregrounds of bags of points; the contract is in src/crfield/kernels/incomplete.py.
#pragma once
#include <cstdint>

namespace crfield {
namespace incomplete {

// N bags of K words, CSR; every index has been checked.
struct Bags {
  int64_t bags, words, labels;
  const int64_t *indptr, *indices;
  const double *counts, *per_point;
  const int64_t* label;  // below 0: none
};

void bag_sums(const Bags& b, const double* shares, const double* log_on, const double* log_off, const uint8_t* hidden,
              const double* table, double* logs, double* tilted);
void bag_expected(const Bags& b, const double* tilted, const double* weight, double* out);

}  // namespace incomplete
}  // namespace crfield
