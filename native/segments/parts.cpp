// Scores of the segments of one sequence from parts in the shape of nodes, and back.
//
// The sum over a segment's steps is that of the segment without its first step plus that step, for each end anew: one
// addition for each (n, d, j), no differences of long sums, and -inf may stand anywhere. The way back adds up likewise:
// what all segments of at least d steps that end at n say of step n - d + 1. Labels that may last longest stand first in
// a row, so vectors of labels that cannot last d steps are left out.
#include "level.hpp"
#include "segments/contract.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {

void segment_expand(const segments::Own& o, double* score) {
  const int vectors = o.stride / LANES;
  const int64_t stride = o.stride;
  double *content = o.spare, *average = o.spare + stride;
  for (int64_t n = 0; n < o.steps; n++) {
    const int64_t reach = n + 1 < o.most ? n + 1 : o.most;
    double* row = score + n * o.most * stride;
    for (int v = 0; v < vectors; v++) {
      store(content + v * LANES, o.last ? load(o.last + n * stride + v * LANES) : V{});
      store(average + v * LANES, V{});
    }
    for (int64_t d = 1; d <= reach; d++, row += stride) {
      const int64_t at = (n - d + 1) * stride;
      const double* length = o.length + (d - 1) * stride;
      const V share = fill(1.0 / (double)d);
      for (int v = 0; v < o.wide[d - 1]; v++) {
        const int64_t k = v * LANES;
        const V sum = load(content + k) + load(o.node + at + k);
        store(content + k, sum);
        V x = sum + load(length + k);
        if (o.mean) {
          const V sum_mean = load(average + k) + load(o.mean + at + k);
          store(average + k, sum_mean);
          x += sum_mean * share;
        }
        if (o.first) x += load(o.first + at + k);
        store(row + k, x);
      }
    }
    row = score + n * o.most * stride;
    for (int64_t m = o.ptr[n]; m < o.ptr[n + 1]; m++) {
      const int64_t d = o.mark_steps[m];
      double* at = row + (d - 1) * stride;
      for (int64_t k = o.item_ptr[o.item[m]]; k < o.item_ptr[o.item[m] + 1]; k++) {
        const int32_t j = o.place[o.item_label[k]];
        if (j < o.wide[d - 1] * LANES) at[j] += o.weight[k];
      }
    }
  }
}

void segment_collect(const segments::Own& o, const segments::Sweep& s) {
  const int vectors = o.stride / LANES;
  const int64_t stride = o.stride;
  const V by = fill(o.factor);
  double *content = o.spare, *average = o.spare + stride;
  for (int64_t n = 0; n < o.steps; n++) {
    const int64_t reach = n + 1 < o.most ? n + 1 : o.most;
    const double* row = s.score + n * o.most * stride;
    for (int v = 0; v < vectors; v++) store(content + v * LANES, V{}), store(average + v * LANES, V{});
    for (int64_t d = reach; d >= 1; d--) {
      const int64_t at = (n - d + 1) * stride;
      const V share = fill(1.0 / (double)d);
      double* length = o.length_out + (d - 1) * stride;
      for (int v = 0; v < o.wide[d - 1]; v++) {
        const int64_t k = v * LANES;
        const V p = load(row + (d - 1) * stride + k), sum = load(content + k) + p;
        store(length + k, load(length + k) + by * p);
        store(content + k, sum);
        store(o.node_out + at + k, load(o.node_out + at + k) + sum * by);
        if (o.mean_out) {
          const V sum_mean = load(average + k) + p * share;
          store(average + k, sum_mean);
          store(o.mean_out + at + k, load(o.mean_out + at + k) + sum_mean * by);
        }
      }
    }
    for (int64_t m = o.ptr[n]; m < o.ptr[n + 1]; m++) {
      const int64_t d = o.mark_steps[m];
      const double* p = row + (d - 1) * stride;
      for (int64_t k = o.item_ptr[o.item[m]]; k < o.item_ptr[o.item[m] + 1]; k++) {
        const int32_t j = o.place[o.item_label[k]];
        if (j < o.wide[d - 1] * LANES) o.weight_out[k] += p[j] * o.factor;
      }
    }
  }
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
