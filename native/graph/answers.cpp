// Totals and beliefs. Edges that share a table are summed in blocks of a fixed size, and the blocks in their order, so
// the number of threads does not show in the result.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "graph/schedule.hpp"
#include "threads.hpp"

namespace crfield {
namespace graph {
namespace {

constexpr int64_t BLOCK = 1024;

struct Block {
  int64_t table, first, last;  // edges in the order of tables
  int64_t partial;             // where its sum goes, -1: it has the table to itself
};

constexpr int64_t AHEAD = 8;  // edges by which memory is asked for in advance

}  // namespace

void answers(Wiring& wiring, const std::vector<int64_t>& first_edge, int n_jobs, double* total, double* node,
             double* edge) {
  const Input& in = wiring.input();
  const View v = wiring.view();
  const Kernels& k = *wiring.kernels();
  const int64_t L = in.labels, size = v.table_size();
  std::vector<double> of_node(in.nodes), of_edge(in.edges);
  const int node_parts = std::max(1, (int)std::min<int64_t>(n_jobs, in.nodes / BLOCK));
  run_parts(node_parts, [&](int part) {
    Buffer<double> spare(SPARE_ROWS * v.stride);
    const int64_t first = in.nodes * part / node_parts, last = in.nodes * (part + 1) / node_parts;
    k.sums(v, first, last);
    for (int64_t n = first; n < last; n++) of_node[n] = k.finish_node(v, n, node + n * L, spare.data());
  });

  // Edges by table (a counting sort keeps their order), and blocks of them.
  std::vector<int64_t> start(in.tables + 1, 0), sorted(in.edges);
  for (int64_t e = 0; e < in.edges; e++) start[in.table[e] + 1]++;
  for (int64_t t = 0; t < in.tables; t++) start[t + 1] += start[t];
  {
    std::vector<int64_t> next(start.begin(), start.end() - 1);
    for (int64_t e = 0; e < in.edges; e++) sorted[next[in.table[e]]++] = e;
  }
  std::vector<Block> blocks;
  int64_t partials = 0;
  for (int64_t t = 0; t < in.tables; t++) {
    const bool several = start[t + 1] - start[t] > BLOCK;
    for (int64_t at = start[t]; at < start[t + 1]; at += BLOCK)
      blocks.push_back({t, at, std::min(at + BLOCK, start[t + 1]), several ? partials++ : -1});
  }
  Buffer<double> partial(partials * size);

  std::vector<uint8_t> impossible(in.graphs, 0), dead(in.nodes, 0);
  auto bury = [&](int64_t b) {
    impossible[b] = 1;
    std::fill(dead.begin() + in.offsets[b], dead.begin() + in.offsets[b + 1], uint8_t(1));
  };
  for (int64_t b = 0; b < in.graphs; b++)
    for (int64_t n = in.offsets[b]; n < in.offsets[b + 1]; n++)
      if (of_node[n] == -INFINITY) {
        bury(b);
        break;
      }
  for (bool again = true; again;) {
    std::memset(edge, 0, sizeof(double) * in.tables * L * L);
    partial.zero();
    const int parts = std::max(1, (int)std::min<int64_t>(n_jobs, (int64_t)blocks.size()));
    std::atomic<int64_t> next{0};
    run_parts(parts, [&](int) {
      Buffer<double> spare(SPARE_ROWS * v.stride), own(size);
      for (int64_t at = next++; at < (int64_t)blocks.size(); at = next++) {
        const Block& block = blocks[at];
        double* sum = block.partial < 0 ? own.data() : partial.data() + block.partial * size;
        if (block.partial < 0) own.zero();
        for (int64_t q = block.first; q < block.last; q++) {
          const int64_t e = sorted[q];
          if (q + AHEAD < block.last) {
            __builtin_prefetch(v.belief + (int64_t)v.tail[sorted[q + AHEAD]] * v.stride);
            __builtin_prefetch(v.belief + (int64_t)v.head[sorted[q + AHEAD]] * v.stride);
          }
          if (!dead[v.tail[e]]) of_edge[e] = k.finish_edge(v, e, sum, spare.data());
        }
        if (block.partial < 0)
          for (int64_t i = 0; i < L; i++)
            std::memcpy(edge + (block.table * L + i) * L, sum + i * v.stride, sizeof(double) * L);
      }
    });
    for (const Block& block : blocks)
      if (block.partial >= 0)
        for (int64_t i = 0; i < L; i++)
          for (int64_t j = 0; j < L; j++)
            edge[(block.table * L + i) * L + j] += partial[block.partial * size + i * v.stride + j];
    // A graph that only an edge finds impossible must not count: without it, once more.
    again = false;
    for (int64_t b = 0; b < in.graphs; b++)
      for (int64_t e = first_edge[b]; e < first_edge[b + 1] && !impossible[b]; e++)
        if (of_edge[e] == -INFINITY) bury(b), again = true;
  }
  for (int64_t b = 0; b < in.graphs; b++) {
    if (impossible[b]) {
      total[b] = -INFINITY;
      std::fill(node + in.offsets[b] * L, node + in.offsets[b + 1] * L, 0.0);
      continue;
    }
    double sum = 0, joint = 0;
    for (int64_t n = in.offsets[b]; n < in.offsets[b + 1]; n++) sum += of_node[n];
    for (int64_t e = first_edge[b]; e < first_edge[b + 1]; e++)
      joint += (in.rho ? in.rho[e] : 1.0) * (of_edge[e] - of_node[v.tail[e]] - of_node[v.head[e]]);
    total[b] = sum + joint;
  }
}

}  // namespace graph
}  // namespace crfield
