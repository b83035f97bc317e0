// A row of the gradient is read once and added to four histograms: their additions do not wait for each other, which
// they would do row after row in one, since neighbouring steps mostly have the same code. Rows of the tables are
// padded to whole vectors and never cross a cache line, so that what was just stored can be read back at once.
#include "families/sums.hpp"

#include "level.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {
namespace {

using families::Pass;
using families::TOGETHER;

// VECTORS whole vectors of a row
template <int VECTORS>
void whole(const Pass& pass, int64_t from, int64_t to) {
  constexpr int64_t STRIDE = (int64_t)VECTORS * LANES;
  const double* gradient = pass.gradient;
  const int64_t columns = pass.columns;
  // by value: stores of vectors may alias anything, and pointers would be read again behind each
  const Pass own = pass;
  for (int64_t r = from; r < to; r++) {
    V row[VECTORS];
    for (int v = 0; v < VECTORS; v++) row[v] = load(gradient + r * columns + v * LANES);
    double* rows[TOGETHER];
    for (int j = 0; j < TOGETHER; j++)
      rows[j] = own.table[j] + (int64_t)own.codes[j][own.lists[j][r]] * STRIDE;
    for (int j = 0; j < TOGETHER; j++) {
      double* at = rows[j];
      for (int v = 0; v < VECTORS; v++) store(at + v * LANES, load(at + v * LANES) + row[v]);
    }
  }
}

void any(const Pass& pass, int64_t from, int64_t to) {
  const int64_t columns = pass.columns, stride = pass.stride;
  for (int j = 0; j < TOGETHER; j++)
    for (int64_t r = from; r < to; r++) {
      double* __restrict at = pass.table[j] + (int64_t)pass.codes[j][pass.lists[j][r]] * stride;
      const double* __restrict row = pass.gradient + r * columns;
      for (int64_t m = 0; m < columns; m++) at[m] += row[m];
    }
}

}  // namespace

void sums(const Pass& pass, int64_t from, int64_t to) {
  if (pass.stride % LANES) return any(pass, from, to);
  switch (pass.stride / LANES) {
    case 1: return whole<1>(pass, from, to);
    case 2: return whole<2>(pass, from, to);
    case 3: return whole<3>(pass, from, to);
    case 4: return whole<4>(pass, from, to);
    case 5: return whole<5>(pass, from, to);
    case 6: return whole<6>(pass, from, to);
    case 7: return whole<7>(pass, from, to);
    default: return any(pass, from, to);
  }
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
