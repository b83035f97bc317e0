// Scores of the segments of one sequence from parts in the shape of nodes, and back.
//
// The sum over a segment's steps is that of the segment without its first step plus that step, for each end anew: one
// addition for each (n, d, j), no differences of long sums, and -inf may stand anywhere. The way back adds up likewise:
// what all segments of at least d steps that end at n say of step n - d + 1.
#include "level.hpp"
#include "segments/contract.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {

void segment_expand(const segments::Own& o, double* score) {
  const int L = o.labels;
  const int64_t stride = o.stride;
  double *content = o.spare, *average = o.spare + stride;
  for (int64_t n = 0; n < o.steps; n++) {
    const int64_t reach = n + 1 < o.most ? n + 1 : o.most;
    double* row = score + n * o.most * stride;
    for (int j = 0; j < L; j++) content[j] = o.last ? o.last[n * L + j] : 0.0, average[j] = 0;
    for (int64_t d = 1; d <= reach; d++, row += stride) {
      const double *node = o.node + (n - d + 1) * L, *length = o.length + (d - 1) * stride;
      for (int j = 0; j < L; j++) content[j] += node[j];
      for (int j = 0; j < L; j++) row[j] = content[j] + length[j];
      for (int64_t j = L; j < stride; j++) row[j] = length[j];
      if (o.mean) {
        const double *mean = o.mean + (n - d + 1) * L, share = 1.0 / (double)d;
        for (int j = 0; j < L; j++) average[j] += mean[j], row[j] += average[j] * share;
      }
      if (o.first) {
        const double* first = o.first + (n - d + 1) * L;
        for (int j = 0; j < L; j++) row[j] += first[j];
      }
    }
    row = score + n * o.most * stride;
    for (int64_t m = o.ptr[n]; m < o.ptr[n + 1]; m++) {
      double* at = row + (o.mark_steps[m] - 1) * stride;
      for (int64_t k = o.item_ptr[o.item[m]]; k < o.item_ptr[o.item[m] + 1]; k++) at[o.item_label[k]] += o.weight[k];
    }
  }
}

void segment_collect(const segments::Own& o, const segments::Sweep& s) {
  const int L = o.labels, vectors = o.stride / LANES;
  const int64_t stride = o.stride;
  double *content = o.spare, *average = o.spare + stride;
  for (int64_t n = 0; n < o.steps; n++) {
    const int64_t reach = n + 1 < o.most ? n + 1 : o.most;
    const double* row = s.score + n * o.most * stride;
    for (int64_t d = 1; d <= reach; d++) {
      double* length = o.length_out + (d - 1) * stride;
      const double* p = row + (d - 1) * stride;
      const V by = fill(o.factor);
      for (int v = 0; v < vectors; v++)
        store(length + v * LANES, load(length + v * LANES) + by * load(p + v * LANES));
    }
    for (int v = 0; v < vectors; v++) store(content + v * LANES, V{}), store(average + v * LANES, V{});
    for (int64_t d = reach; d >= 1; d--) {
      const double* p = row + (d - 1) * stride;
      double* node = o.node_out + (n - d + 1) * L;
      for (int v = 0; v < vectors; v++) store(content + v * LANES, load(content + v * LANES) + load(p + v * LANES));
      for (int j = 0; j < L; j++) node[j] += content[j] * o.factor;
      if (o.mean_out) {
        const double share = 1.0 / (double)d;
        double* mean = o.mean_out + (n - d + 1) * L;
        for (int j = 0; j < L; j++) average[j] += p[j] * share, mean[j] += average[j] * o.factor;
      }
    }
    for (int64_t m = o.ptr[n]; m < o.ptr[n + 1]; m++) {
      const double* p = row + (o.mark_steps[m] - 1) * stride;
      for (int64_t k = o.item_ptr[o.item[m]]; k < o.item_ptr[o.item[m] + 1]; k++)
        o.weight_out[k] += p[o.item_label[k]] * o.factor;
    }
    if (o.first_out)
      for (int j = 0; j < L; j++) o.first_out[n * L + j] = s.start[n * stride + j] * o.factor;
    if (o.last_out)
      for (int j = 0; j < L; j++) o.last_out[n * L + j] = s.end[n * stride + j] * o.factor;
  }
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
