// The table of functions of this level.
#include "chain/sweep.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {

void sweep(const EdgeTable&, Sweep&);
void sweep_sets(const EdgeTable&, const LabelSets&, Sweep&);
bool both_ends(const EdgeTable&, BothEnds&);
int64_t both_ends_spare(int);
void sweep_each(const EdgeSource&, const int64_t*, Sweep&);
void exponentiate(int64_t, const double*, double, double*);
void gather(const NodeWeights&, const NodeRows&, int64_t, int64_t, const double*, double*);
void gather_csr(const NodeWeights&, const CsrRows&, int64_t, int64_t, const double*, double*);
void scatter(const NodeWeights&, const NodeRows&, int64_t, int64_t, const double*, const double*, const NodeGradient&);
void gather_single(const NodeWeights&, const NodeRows&, int64_t, int64_t, const double*, float*);
void scatter_single(const NodeWeights&, const NodeRows&, int64_t, int64_t, const float*, const NodeGradient&);
bool fits_beside(const EdgeTable&, const Beside<double>&);
void sweep_beside(const EdgeTable&, const Beside<double>&);
bool fits_beside(const EdgeTable&, const Beside<float>&);
void sweep_beside(const EdgeTable&, const Beside<float>&);
double best_path(int, int, int64_t, double*, const double*, const double*, int32_t*);
double best_path_each(const EdgeSource&, int64_t, int, int, int64_t, double*, double*, int32_t*);
void best_two(int, int, const int64_t*, double* const*, const double*, const double*, int32_t* const*, double*);

}  // namespace CRFIELD_LEVEL_NAME

const Kernels* CRFIELD_JOIN(kernels_level, CRFIELD_LEVEL)() {
  using namespace CRFIELD_LEVEL_NAME;
  static const Kernels table{CRFIELD_LEVEL,   LANES,           exponentiate,    sweep,
                             sweep_sets,      both_ends,       both_ends_spare, sweep_each,
                             gather,          gather_csr,      scatter,         gather_single,
                             scatter_single,  fits_beside,     sweep_beside,    fits_beside,
                             sweep_beside,    best_path,       best_path_each,  best_two};
  return &table;
}

}  // namespace crfield
