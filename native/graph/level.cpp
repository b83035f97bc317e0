// The table of functions of this level, one for each of the usual numbers of vectors in a row.
#include "graph/finish.hpp"
#include "graph/logs.hpp"
#include "graph/scaled.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {
namespace {

void to_probabilities(int64_t rows, int stride, double* row) {
  for (int64_t k = 0; k < rows * stride; k += LANES) store(row + k, exp_vector(load(row + k)));
}

void to_logs(int64_t rows, int stride, double* row) {
  for (int64_t k = 0; k < rows * stride; k += LANES) store(row + k, log_vector(load(row + k)));
}

void exponentiate(int64_t n, const double* x, double shift, double* out) {
  const V by = fill(shift);
  int64_t k = 0;
  for (; k + LANES <= n; k += LANES) store(out + k, exp_vector(load(x + k) - by));
  for (; k < n; k++) out[k] = exp_one(x[k] - shift);
}

template <int VECS>
const graph::Kernels* table() {
  static const graph::Kernels made{CRFIELD_LEVEL,     LANES,           products<VECS>, edges_scaled<VECS>,
                                   sums<VECS>,        edges_log<VECS>, renew<VECS>, to_probabilities,
                                   to_logs,           finish_node<VECS>, finish_edge<VECS>, exponentiate};
  return &made;
}

}  // namespace
}  // namespace CRFIELD_LEVEL_NAME

namespace graph {

const Kernels* CRFIELD_JOIN(kernels_level, CRFIELD_LEVEL)(int labels) {
  using namespace CRFIELD_LEVEL_NAME;
  switch ((labels + LANES - 1) / LANES) {
    case 1: return table<1>();
    case 2: return table<2>();
    case 3: return table<3>();
    case 4: return table<4>();
    default: return table<0>();
  }
}

}  // namespace graph
}  // namespace crfield
