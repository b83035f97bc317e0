// A round of listening in virtual evidence boosting; the contract is in src/crfield/kernels/virtual.py.
#pragma once
#include <cstdint>

namespace crfield {
namespace virtual_evidence {

struct Round {
  int64_t nodes, messages, labels, groups;
  const int64_t* indptr;
  const int32_t *other, *mate, *group;
  const double *local, *before, *sent, *factors;
  const int64_t* truth;
  const double* weight;
  const uint8_t* held;
  double limit;
  bool maximise;
  double *arriving, *beliefs, *pairs, *loss;
  double *moment, *mass, *square;  // square may be null
};

void listen(const Round& round, int n_jobs);

}  // namespace virtual_evidence
}  // namespace crfield
