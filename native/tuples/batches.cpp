// Sequences in groups of similar length, groups dealt to threads, lost sequences done again.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "at_level.hpp"
#include "memory.hpp"
#include "threads.hpp"
#include "tuples/tuples.hpp"

namespace crfield {
namespace tuples {
namespace {

constexpr int64_t SCRATCH = int64_t(1) << 25;  // doubles of one group; above, sequences go one by one in logarithms

auto* sweep_in_use() {
#if defined(CRFIELD_X86)
  return at_level(level2::sweep, level3::sweep, level4::sweep);
#else
  return level0::sweep;
#endif
}

}  // namespace

void sum_product(const Edges& given, const int64_t* offsets, int64_t sequences, const double* node,
                 const double* factor, double* total, double* belief, double* uses, int n_jobs) {
  Edges e = given;
  const int64_t S = e.states, L = e.labels, cells = S * L;
  double top = -INFINITY;
  for (int64_t k = 0; k < cells; k++) top = std::max(top, e.log[k]);
  e.shift = top > -INFINITY ? top : 0.0;
  std::vector<double> prob((size_t)cells);
  for (int64_t k = 0; k < cells; k++) prob[k] = std::exp(e.log[k] - e.shift);
  e.prob = prob.data();

  std::vector<int64_t> order;
  for (int64_t s = 0; s < sequences; s++) {
    total[s] = 0;
    if (offsets[s + 1] > offsets[s]) order.push_back(s);
  }
  auto length = [&](int64_t s) { return offsets[s + 1] - offsets[s]; };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return length(a) > length(b); });
  const int64_t groups = ((int64_t)order.size() + SIDE - 1) / SIDE;
  const int parts = (int)std::max<int64_t>(1, std::min<int64_t>(n_jobs, groups));
  const auto sweep = sweep_in_use();
  std::vector<std::vector<double>> wide((size_t)parts), exact((size_t)parts);
  run_parts(parts, [&](int part) {
    std::vector<double>&sums = wide[part], &direct = exact[part];
    sums.assign((size_t)(cells * SIDE), 0.0);
    direct.assign((size_t)cells, 0.0);
    Buffer<double> alpha, psi, inverse, spare;
    std::vector<uint8_t> alive((size_t)(2 * S + L));
    spare.resize((2 * S + L) * SIDE);
    for (int64_t q = part; q < groups; q += parts) {
      Group g;
      const int64_t begin = q * SIDE, stop = std::min<int64_t>(begin + SIDE, (int64_t)order.size());
      g.width = (int)(stop - begin);
      g.steps = length(order[begin]);
      const bool large = g.steps * (S + L) * SIDE > SCRATCH;
      for (int b = 0; b < g.width; b++) {
        const int64_t s = order[begin + b];
        g.first[b] = offsets[s];
        g.length[b] = length(s);
        g.factor[b] = factor[s];
        g.lost[b] = large;
      }
      if (!large) {
        alpha.resize(g.steps * S * SIDE);
        psi.resize(g.steps * L * SIDE);
        inverse.resize(g.steps * SIDE);
        g.node = node;
        g.belief = belief;
        g.uses = sums.data();
        g.alpha = alpha.data();
        g.psi = psi.data();
        g.inverse = inverse.data();
        g.spare = spare.data();
        g.alive = alive.data();
        sweep(e, g);
      }
      for (int b = 0; b < g.width; b++) {
        if (g.lost[b])
          g.total[b] = sum_in_logs(e, node + g.first[b] * L, g.length[b], g.factor[b], belief + g.first[b] * L,
                                   direct.data());
        total[order[begin + b]] = g.total[b];
      }
    }
  });
  for (int64_t k = 0; k < cells; k++) {
    uses[k] = 0;
    for (int part = 0; part < parts; part++) {
      double sum = 0;
      for (int b = 0; b < SIDE; b++) sum += wide[part][k * SIDE + b];
      uses[k] += sum * prob[k] + exact[part][k];
    }
  }
}

void max_product(const Edges& e, const int64_t* offsets, int64_t sequences, const double* node, double* total,
                 int32_t* path, int n_jobs) {
  const int parts = (int)std::max<int64_t>(1, std::min<int64_t>(n_jobs, sequences));
  run_parts(parts, [&](int part) {
    for (int64_t s = part; s < sequences; s += parts) {
      const int64_t first = offsets[s], steps = offsets[s + 1] - first;
      total[s] = steps ? best_in_logs(e, node + first * e.labels, steps, path + first) : 0.0;
    }
  });
}

}  // namespace tuples
}  // namespace crfield
