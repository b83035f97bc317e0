// What is repeated until nothing moves: iterated conditional modes and mean field. A task is one graph from one start.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "sites/field.hpp"
#include "threads.hpp"

namespace crfield {
namespace sites {
namespace {

constexpr double NEVER = -std::numeric_limits<double>::infinity();

// body(start, graph, room) for all tasks; every thread has `width` doubles of room.
template <class Body>
void over_tasks(int64_t starts, int64_t graphs, int64_t width, int n_jobs, Body body) {
  const int64_t tasks = starts * graphs;
  const int parts = (int)std::min<int64_t>(n_jobs, std::max<int64_t>(1, tasks));
  run_parts(parts, [&](int part) {
    std::vector<double> room(width);
    for (int64_t task = part; task < tasks; task += parts) body(task / graphs, task % graphs, room.data());
  });
}

// out[l] = sum over edges of the expected edge(l, y_other); a label without weight forbids nothing.
void expected(const Field& f, int64_t n, const double* q, bool tails_only, double* out) {
  for (int64_t l = 0; l < f.labels; l++) out[l] = 0.0;
  for (int64_t place = f.indptr[n]; place < f.indptr[n + 1]; place++) {
    if (tails_only && !(f.slot[place] & 1)) continue;
    const Field::View e = f.view(place);
    const double* far = q + f.other[place] * f.labels;
    for (int64_t m = 0; m < f.labels; m++) {
      if (!(far[m] > 0)) continue;
      const double *row = e.table + m * e.far, weight = far[m];
      for (int64_t l = 0; l < f.labels; l++) out[l] += weight * row[l * e.own];
    }
  }
}

// Moves q_n to its best and tells how far; stays where every label is forbidden.
double update(const Field& f, int64_t n, double* q, double* room) {
  expected(f, n, q, false, room);
  double top = NEVER, total = 0.0, moved = 0.0;
  for (int64_t l = 0; l < f.labels; l++) {
    room[l] += f.node[n * f.labels + l];
    top = room[l] > top ? room[l] : top;
  }
  if (top == NEVER) return 0.0;
  for (int64_t l = 0; l < f.labels; l++) total += room[l] = std::exp(room[l] - top);
  double* mine = q + n * f.labels;
  for (int64_t l = 0; l < f.labels; l++) {
    const double fresh = room[l] / total;
    moved = std::max(moved, std::fabs(fresh - mine[l]));
    mine[l] = fresh;
  }
  return moved;
}

double bound_of(const Field& f, int64_t first, int64_t last, const double* q, double* room) {
  double total = 0.0;
  for (int64_t n = first; n < last; n++) {
    expected(f, n, q, true, room);
    for (int64_t l = 0; l < f.labels; l++) {
      const double p = q[n * f.labels + l];
      if (p > 0) total += p * (f.node[n * f.labels + l] + room[l] - std::log(p));
    }
  }
  return total;
}

}  // namespace

void icm(const Field& f, int64_t chains, int32_t* labels, int64_t max_sweeps, int64_t* sweeps, uint8_t* settled,
         int n_jobs) {
  over_tasks(chains, f.graphs, f.labels, n_jobs, [&](int64_t c, int64_t b, double* room) {
    int32_t* y = labels + c * f.nodes;
    int64_t& count = sweeps[c * f.graphs + b];
    uint8_t& done = settled[c * f.graphs + b];
    while (count < max_sweeps && !done) {
      bool moved = false;
      for (int64_t n = f.offsets[b]; n < f.offsets[b + 1]; n++) {
        f.pull(n, y, room);
        const double* own = f.node + n * f.labels;
        int64_t best = 0;
        for (int64_t l = 1; l < f.labels; l++)
          if (own[l] + room[l] > own[best] + room[best]) best = l;
        if (own[best] + room[best] > own[y[n]] + room[y[n]]) y[n] = (int32_t)best, moved = true;
      }
      count++;
      done = !moved;
    }
  });
}

void mean_field(const Field& f, int64_t starts, double* beliefs, int64_t max_sweeps, double tol, double* bound,
                int64_t* sweeps, uint8_t* settled, int n_jobs) {
  over_tasks(starts, f.graphs, f.labels, n_jobs, [&](int64_t r, int64_t b, double* room) {
    double* q = beliefs + r * f.nodes * f.labels;
    const int64_t task = r * f.graphs + b, first = f.offsets[b], last = f.offsets[b + 1];
    while (sweeps[task] < max_sweeps && !settled[task]) {
      double moved = 0.0;
      for (int64_t n = first; n < last; n++) moved = std::max(moved, update(f, n, q, room));
      sweeps[task]++;
      settled[task] = moved <= tol;
    }
    bound[task] = bound_of(f, first, last, q, room);
  });
}

}  // namespace sites
}  // namespace crfield
