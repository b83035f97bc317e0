// The table of functions of this level.
#include "forest/parts.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {

void exponentiate(int64_t, const double*, double, double*);
void sum_set(const forest::Forest&, const forest::TreeSet&, const forest::ForestWork&);
void best_set(const forest::Forest&, const forest::TreeSet&, const forest::ForestWork&);
double sum_cliques(const forest::Cliques&, int64_t, int64_t, const forest::CliqueWork&);
double best_cliques(const forest::Cliques&, int64_t, int64_t, const forest::CliqueWork&);

}  // namespace CRFIELD_LEVEL_NAME

namespace forest {

const Kernels* CRFIELD_JOIN(kernels_level, CRFIELD_LEVEL)() {
  using namespace CRFIELD_LEVEL_NAME;
  static const Kernels table{CRFIELD_LEVEL, LANES, exponentiate, sum_set, best_set, sum_cliques, best_cliques};
  return &table;
}

}  // namespace forest
}  // namespace crfield
