// Messages of virtual evidence boosting; the contract is in src/crfield/kernels/virtual.py.
#pragma once
#include <cstdint>

namespace crfield {
namespace virtual_evidence {

struct Wiring {
  int64_t nodes, messages, labels, groups;
  const int64_t *indptr, *other, *mate, *group;
};

struct SweepArrays {
  const double *local, *total, *messages, *factors;
  double *evidence, *arriving, *total_out, *beliefs;
};

struct SumArrays {
  const double *evidence, *weight, *response;
  double *moment, *mass, *square;  // square may be null
};

void advance(const Wiring& wiring, const SweepArrays& arrays, bool maximise, int n_jobs);
void couple(const Wiring& wiring, const SumArrays& arrays, int n_jobs);

}  // namespace virtual_evidence
}  // namespace crfield
