// Labels from max messages, each node given the labels of those before it.
#include <algorithm>
#include <atomic>

#include "graph/schedule.hpp"
#include "threads.hpp"

namespace crfield {
namespace graph {

void decode(const Input& in, const double* messages, int32_t* labels, int n_jobs) {
  const Neighbours near(in);
  const int64_t L = in.labels;
  std::fill(labels, labels + in.nodes, -1);
  std::vector<uint8_t> met(in.nodes, 0);
  std::atomic<int64_t> next{0};
  const int parts = std::max(1, (int)std::min<int64_t>(n_jobs, in.graphs));
  run_parts(parts, [&](int) {
    std::vector<int32_t> order;
    std::vector<double> score(L);
    for (int64_t b = next++; b < in.graphs; b = next++) {
      order.resize(in.offsets[b + 1] - in.offsets[b]);
      breadth_first(near, in.offsets[b], in.offsets[b + 1], order.data(), met.data());
      for (const int32_t n : order) {
        std::copy(in.node + n * L, in.node + (n + 1) * L, score.begin());
        for (int64_t k = near.indptr[n]; k < near.indptr[n + 1]; k++) {
          const int64_t m = near.into[k], e = m >> 1;
          const int32_t other = labels[near.source((int32_t)m)];
          if (other < 0) {
            const double rho = in.rho ? in.rho[e] : 1.0;
            for (int64_t j = 0; j < L; j++) score[j] += rho * messages[m * L + j];
          } else {
            const double* table = in.edge + in.table[e] * L * L;
            const bool is_tail = m & 1;
            for (int64_t j = 0; j < L; j++) score[j] += is_tail ? table[j * L + other] : table[other * L + j];
          }
        }
        labels[n] = (int32_t)(std::max_element(score.begin(), score.end()) - score.begin());
      }
    }
  });
}

}  // namespace graph
}  // namespace crfield
