#include "sites/softmax.hpp"

#include "chain/exp.hpp"
#include "level.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {
namespace {

constexpr double NEVER = -__builtin_inf();

// LABELS known to the compiler unrolls the short rows; 0 reads `labels`.
template <int LABELS>
void rows_of(int64_t rows, int64_t labels, double* scores, double* tops, double* sums) {
  const int64_t width = LABELS ? LABELS : labels, size = rows * width;
  for (int64_t r = 0; r < rows; r++) {
    double* row = scores + r * width;
    double top = row[0];
    for (int64_t l = 1; l < width; l++) top = row[l] > top ? row[l] : top;
    tops[r] = top;
    const double shift = top == NEVER ? 0.0 : top;
    for (int64_t l = 0; l < width; l++) row[l] -= shift;
  }
  int64_t k = 0;
  for (; k + LANES <= size; k += LANES) store(scores + k, exp_vector(load(scores + k)));
  for (; k < size; k++) scores[k] = exp_one(scores[k]);
  for (int64_t r = 0; r < rows; r++) {
    double sum = 0.0;
    for (int64_t l = 0; l < width; l++) sum += scores[r * width + l];
    sums[r] = sum;
  }
}

}  // namespace

void exponentiate_rows(int64_t rows, int64_t labels, double* scores, double* tops, double* sums) {
  switch (labels) {
    case 2: return rows_of<2>(rows, labels, scores, tops, sums);
    case 3: return rows_of<3>(rows, labels, scores, tops, sums);
    case 4: return rows_of<4>(rows, labels, scores, tops, sums);
    default: return rows_of<0>(rows, labels, scores, tops, sums);
  }
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
