// Gibbs sweeps: each chain on one thread, each graph through all its sweeps before the next one, so that a small
// graph stays in the cache. Random numbers are functions of (seed, chain, sweep, node).
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "sites/field.hpp"
#include "threads.hpp"

namespace crfield {
namespace sites {
namespace {

constexpr uint64_t GAMMA = 0x9E3779B97F4A7C15ull;

uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

double uniform(uint64_t key, uint64_t counter) {
  return (double)(mix(key + (counter + 1) * GAMMA) >> 11) * 0x1p-53;
}

struct Scores {
  double node, edge;
  double both() const { return node + edge; }
};

Scores score_of(const Field& f, const int32_t* y, int64_t first, int64_t last) {
  Scores out{0.0, 0.0};
  for (int64_t n = first; n < last; n++) {
    out.node += f.node[n * f.labels + y[n]];
    for (int64_t place = f.indptr[n]; place < f.indptr[n + 1]; place++)
      if (f.slot[place] & 1) {
        const Field::View e = f.view(place);
        out.edge += e.table[y[n] * e.own + y[f.other[place]] * e.far];
      }
  }
  return out;
}

// The first label at which the running sum passes the mark; never one without weight.
int32_t pick(const double* weights, int64_t labels, double mark) {
  double reached = 0.0;
  int32_t last = 0;
  for (int64_t l = 0; l < labels; l++)
    if (weights[l] > 0) {
      reached += weights[l];
      last = (int32_t)l;
      if (reached > mark) break;
    }
  return last;
}

void run_chain(const Field& f, const Walks& w, int64_t chain) {
  const int64_t labels = f.labels, kept = w.sweeps - w.burn_in, length = std::max<int64_t>(1, kept / w.batches);
  const uint64_t key = mix(mix(w.seed + GAMMA) + GAMMA * (uint64_t)(chain + 1));
  int32_t *y = w.labels + chain * f.nodes, *best = w.best + chain * f.nodes;
  double* conditional = w.conditional + (kept ? chain * 2 * f.nodes * labels : 0);
  double* batch_square = w.batch_square + (kept ? chain * f.nodes * labels : 0);
  int32_t* drawn = w.drawn + (kept ? chain * 2 * f.nodes * labels : 0);
  double* pairs = w.pairs + (kept ? chain * f.tables * labels * labels : 0);
  std::vector<double> pull(labels), p(labels), batch;
  for (int64_t b = 0; b < f.graphs; b++) {
    const int64_t first = f.offsets[b], last = f.offsets[b + 1];
    Scores score = score_of(f, y, first, last);
    double& best_score = w.best_score[chain * f.graphs + b];
    best_score = score.both();
    if (!(best_score > -std::numeric_limits<double>::infinity())) continue;
    batch.assign(kept ? (last - first) * labels : 0, 0.0);
    for (int64_t s = 0; s < w.sweeps; s++) {
      const double a = w.node_scale[s], d = w.edge_scale[s], before = score.edge;
      const bool keep = s >= w.burn_in;
      const int64_t half = keep ? (2 * (s - w.burn_in) / kept) * f.nodes * labels : 0;
      for (int64_t n = first; n < last; n++) {
        const double* own = f.node + n * labels;
        f.pull(n, y, pull.data());
        double top = -std::numeric_limits<double>::infinity(), total = 0.0;
        for (int64_t l = 0; l < labels; l++) {
          p[l] = a * own[l] + d * pull[l];
          top = p[l] > top ? p[l] : top;
        }
        for (int64_t l = 0; l < labels; l++) {
          p[l] = p[l] == top ? 1.0 : std::exp(p[l] - top);
          total += p[l];
        }
        const int32_t old = y[n], now = pick(p.data(), labels, uniform(key, (uint64_t)(s * f.nodes + n)) * total);
        if (now != old) {
          y[n] = now;
          score.node += own[now] - own[old];
          score.edge += pull[now] - pull[old];
        }
        if (!keep) continue;
        double *mine = batch.data() + (n - first) * labels, *sum = conditional + half + n * labels;
        for (int64_t l = 0; l < labels; l++) {
          p[l] /= total;
          mine[l] += p[l];
          sum[l] += p[l];
        }
        drawn[half + n * labels + now]++;
        for (int64_t place = f.indptr[n]; place < f.indptr[n + 1]; place++) {
          const Field::View e = f.view(place);
          double* row = pairs + (e.table - f.edge) + y[f.other[place]] * e.far;
          for (int64_t l = 0; l < labels; l++) row[l * e.own] += 0.5 * p[l];
        }
      }
      w.trace[chain * w.sweeps + s] += score.both();
      if (s) {
        const double step = w.edge_scale[s] - w.edge_scale[s - 1];
        double* work = w.work + (chain * f.graphs + b) * 2;
        work[0] += step * before;
        work[1] += step * score.edge;
      }
      if (score.both() > best_score) {
        best_score = score.both();
        std::copy(y + first, y + last, best + first);
      }
      if (keep && (s - w.burn_in + 1) % length == 0)
        for (int64_t k = 0; k < (last - first) * labels; k++) {
          const double mean = batch[k] / (double)length;
          batch_square[first * labels + k] += mean * mean;
          batch[k] = 0.0;
        }
    }
  }
}

}  // namespace

void gibbs(const Field& field, const Walks& walks, int n_jobs) {
  const int parts = (int)std::min<int64_t>(n_jobs, std::max<int64_t>(1, walks.chains));
  run_parts(parts, [&](int part) {
    for (int64_t c = part; c < walks.chains; c += parts) run_chain(field, walks, c);
  });
}

}  // namespace sites
}  // namespace crfield
