// One pass over the nodes: what each hears, what it then believes, what it asks of a weak learner, and what it adds to
// the sums for couplings. Everything stays in probabilities: a message is divided out of its sender's product, and
// products are brought back to a sum of one before they could leave the range of a double.
#include "virtual/listen.hpp"

#include <algorithm>
#include <vector>

#include "at_level.hpp"
#include "threads.hpp"
#include "virtual/two_labels.hpp"

namespace crfield {
namespace virtual_evidence {
namespace {

// Rows to a sum of one; zeros to equal shares.
inline void normalise(double* row, int64_t labels) {
  double sum = 0;
  for (int64_t l = 0; l < labels; l++) sum += row[l];
  if (sum > 0 && sum < 1e300) {
    const double scale = 1.0 / sum;
    for (int64_t l = 0; l < labels; l++) row[l] *= scale;
  } else if (sum > 0) {
    for (int64_t l = 0; l < labels; l++) row[l] /= sum;
  } else {
    for (int64_t l = 0; l < labels; l++) row[l] = 1.0 / (double)labels;
  }
}

struct Range {
  int64_t first, last;
};

// Nodes of a part, by the number of messages that they hear.
Range part_of(const Round& r, int part, int parts) {
  auto cut = [&](int p) {
    if (p <= 0) return (int64_t)0;
    if (p >= parts) return r.nodes;
    const int64_t wanted = (r.nodes + r.messages) / parts * p;
    int64_t low = 0, high = r.nodes;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (middle + r.indptr[middle] < wanted) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  return {cut(part), cut(part + 1)};
}

// Sums of one part.
struct Sums {
  std::vector<double> moment, mass, square;
  double loss[2] = {0, 0};
};

// The messages that a node sends on are made by those who hear them, so parts only read what was there before.
void hear(const Round& r, int64_t n, double* product, double* evidence) {
  const int64_t labels = r.labels;
  for (int64_t c = 0; c < labels; c++) product[c] = r.local[n * labels + c];
  for (int64_t s = r.indptr[n]; s < r.indptr[n + 1]; s++) {
    double* heard = evidence + (s - r.indptr[n]) * labels;
    const double *from = r.before + (int64_t)r.other[s] * labels, *back = r.sent + (int64_t)r.mate[s] * labels;
    for (int64_t d = 0; d < labels; d++) heard[d] = from[d] / std::max(back[d], kFloor);
    normalise(heard, labels);
    const double* factor = r.factors + (int64_t)r.group[s] * labels * labels;
    double* mu = r.arriving + s * labels;
    for (int64_t c = 0; c < labels; c++) mu[c] = heard[0] * factor[c];
    for (int64_t d = 1; d < labels; d++)
      for (int64_t c = 0; c < labels; c++) {
        const double term = heard[d] * factor[d * labels + c];
        mu[c] = r.maximise ? std::max(mu[c], term) : mu[c] + term;
      }
    normalise(mu, labels);
    bool small = false;
    for (int64_t c = 0; c < labels; c++) small |= mu[c] < kFloor;
    if (small) {
      for (int64_t c = 0; c < labels; c++) mu[c] = std::max(mu[c], kFloor);
      normalise(mu, labels);
    }
    double most = 0;
    for (int64_t c = 0; c < labels; c++) most = std::max(most, product[c] *= mu[c]);
    if (most < kSmall) normalise(product, labels);
  }
  double sum = 0;
  for (int64_t c = 0; c < labels; c++) sum += product[c];
  const double scale = sum > 0 ? 1.0 / sum : 0.0;
  for (int64_t c = 0; c < labels; c++) r.beliefs[n * labels + c] = product[c] *= scale;
}

// w and w z of a label believed with probability b.
inline void respond(double b, bool truth, double weight, double limit, double& w, double& moved) {
  const double curvature = std::max(b * (1.0 - b), kLeastWeight);
  const double z = std::min(std::max(((truth ? 1.0 : 0.0) - b) / curvature, -limit), limit);
  w = weight * curvature;
  moved = w * z;
}

// Adds the neighbours of a node in one group, counted (L,) and their squares (L, L), to the sums of label c.
inline void add(double w, double moved, int64_t labels, const double* count, const double* own, double* moment,
                double* mass, double* square) {
  for (int64_t d = 0; d < labels; d++) moment[d] += moved * count[d], mass[d] += w * count[d];
  if (square)
    for (int64_t d = 0; d < labels; d++)
      for (int64_t e = 0; e < labels; e++) square[d * labels + e] += w * (count[d] * count[e] - own[d * labels + e]);
}

void listen_part(const Round& r, Range range, Sums& sums) {
  const int64_t labels = r.labels, pairs = labels * labels;
  std::vector<double> product(labels), weights(labels), moves(labels), evidence;
  std::vector<double> count(r.groups * labels), own(r.square ? r.groups * pairs : 0);
  std::vector<int64_t> met;  // groups that the node hears of
  std::vector<char> several(r.groups, 0);
  Loss loss(sums.loss);
  for (int64_t n = range.first; n < range.last; n++) {
    evidence.resize((r.indptr[n + 1] - r.indptr[n]) * labels);
    hear(r, n, product.data(), evidence.data());
    const int64_t y = r.truth[n];
    const bool held = r.held[n] != 0;
    const double weight = y >= 0 && !held ? r.weight[n] : 0.0;
    if (y >= 0) loss.add(product[y], r.weight[n], held);
    for (int64_t c = 0; c < labels; c++) {
      double* out = r.pairs + 2 * (c * r.nodes + n);
      out[0] = out[1] = 0.0;
      if (weight > 0 && r.local[n * labels + c] > 0) respond(product[c], y == c, weight, r.limit, out[0], out[1]);
      weights[c] = out[0], moves[c] = out[1];
    }
    if (weight == 0.0) continue;
    met.clear();
    for (int64_t s = r.indptr[n]; s < r.indptr[n + 1]; s++) {
      const int64_t g = r.group[s];
      const double* heard = evidence.data() + (s - r.indptr[n]) * labels;
      double* c = count.data() + g * labels;
      const bool first = std::find(met.begin(), met.end(), g) == met.end();
      if (first) {
        met.push_back(g);
        for (int64_t d = 0; d < labels; d++) c[d] = heard[d];
      } else {
        for (int64_t d = 0; d < labels; d++) c[d] += heard[d];
      }
      several[g] = !first;
      if (!r.square) continue;
      double* o = own.data() + g * pairs;
      for (int64_t d = 0; d < labels; d++)
        for (int64_t e = 0; e < labels; e++)
          o[d * labels + e] = heard[d] * heard[e] + (first ? 0.0 : o[d * labels + e]);
    }
    for (const int64_t g : met) {
      const double *c = count.data() + g * labels, *o = own.data() + (r.square ? g * pairs : 0);
      for (int64_t l = 0; l < labels; l++) {
        if (weights[l] == 0.0) continue;
        add(weights[l], moves[l], labels, c, o, sums.moment.data() + g * pairs + l * labels,
            sums.mass.data() + g * pairs + l * labels,
            r.square && several[g] ? sums.square.data() + (g * labels + l) * pairs : nullptr);
      }
    }
  }
  loss.finish();
}

TwoLabels* two_labels() {
#if defined(CRFIELD_X86)
  return at_level(two_labels_level2, two_labels_level3, two_labels_level4);
#else
  return two_labels_level0;
#endif
}

void listen_two(const Round& r, Range range, Sums& sums) {
  std::vector<TwoSums> added(r.groups);
  Loss loss(sums.loss);
  two_labels()(r, range.first, range.last, added, loss);
  loss.finish();
  for (int64_t g = 0; g < r.groups; g++) {
    const TwoSums& one = added[g];
    for (int64_t d = 0; d < 2; d++) sums.moment[4 * g + 2 + d] = one.moment[d], sums.mass[4 * g + 2 + d] = one.mass[d];
    if (!r.square) continue;
    const double rows[4] = {one.square[0], one.square[1], one.square[1], one.square[2]};
    for (int64_t k = 0; k < 4; k++) sums.square[8 * g + 4 + k] = rows[k];
  }
}

}  // namespace

void listen(const Round& r, int n_jobs) {
  const int64_t worth = (r.nodes + r.messages) / 4096 + 1;  // fewer do not pay for a thread
  const int parts = (int)std::max<int64_t>(1, std::min<int64_t>(n_jobs, worth));
  const int64_t labels = r.labels, pairs = r.groups * labels * labels, cubes = r.square ? pairs * labels : 0;
  std::vector<Sums> sums(parts);
  run_parts(parts, [&](int part) {
    sums[part].moment.assign(pairs, 0.0);
    sums[part].mass.assign(pairs, 0.0);
    sums[part].square.assign(cubes, 0.0);
    const Range range = part_of(r, part, parts);
    if (labels != 2) listen_part(r, range, sums[part]);
    else listen_two(r, range, sums[part]);
  });
  for (const Sums& own : sums) {
    for (int64_t k = 0; k < pairs; k++) r.moment[k] += own.moment[k], r.mass[k] += own.mass[k];
    for (int64_t k = 0; k < cubes; k++) r.square[k] += own.square[k];
    for (int side = 0; side < 2; side++) r.loss[side] += own.loss[side];
  }
  if (labels == 2)  // the first of two labels mirrors the second
    for (int64_t g = 0; g < r.groups; g++) {
      for (int64_t d = 0; d < 2; d++) {
        r.moment[g * 4 + d] = -r.moment[g * 4 + 2 + d];
        r.mass[g * 4 + d] = r.mass[g * 4 + 2 + d];
      }
      for (int64_t k = 0; r.square && k < 4; k++) r.square[g * 8 + k] = r.square[g * 8 + 4 + k];
    }
}

}  // namespace virtual_evidence
}  // namespace crfield
