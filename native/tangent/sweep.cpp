#include "tangent/sweep.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "threads.hpp"

namespace crfield {
namespace tangent {
namespace {

constexpr double SMALLEST = 1e-200;  // probabilities below count for nothing, sums above have lost nothing that counts

// Take the mean under p off x.
void centre(int64_t n, const double* p, double* x) {
  double mean = 0;
  for (int64_t j = 0; j < n; j++) mean += p[j] * x[j];
  for (int64_t j = 0; j < n; j++) x[j] -= mean;
}

struct Scratch {
  std::vector<double> before, after, later, passed;
  explicit Scratch(int64_t labels) : after(labels), later(labels), passed(labels) {}
};

void one_sequence(const Chains& c, int64_t s, int64_t first_edge, Scratch& w, double* node_out, double* edge_out,
                  bool each) {
  const int64_t L = c.labels, begin = c.offsets[s], steps = c.offsets[s + 1] - begin;
  if (steps == 0) return;
  w.before.assign((size_t)(steps * L), 0.0);
  auto dot_of = [&](int64_t e) { return c.edge_dot + (c.one_dot ? 0 : e * L * L); };
  for (int64_t t = 0; t < steps; t++) {
    double* a = w.before.data() + t * L;
    const double* p = c.node + (begin + t) * L;
    const double* d = c.node_dot + (begin + t) * L;
    if (t) {
      const int64_t e = first_edge + t - 1;
      const double *q = c.edge + e * L * L, *dot = dot_of(e), *back = a - L;
      for (int64_t i = 0; i < L; i++) {
        const double from = back[i];
        for (int64_t j = 0; j < L; j++) a[j] += q[i * L + j] * (from + dot[i * L + j]);
      }
      for (int64_t j = 0; j < L; j++) a[j] = p[j] > SMALLEST ? a[j] / p[j] : 0.0;
    }
    for (int64_t j = 0; j < L; j++) a[j] += d[j];
    centre(L, p, a);
  }
  const double weight = c.weight[s];
  std::fill(w.after.begin(), w.after.end(), 0.0);
  for (int64_t t = steps - 1; t >= 0; t--) {
    const double* a = w.before.data() + t * L;
    const double* p = c.node + (begin + t) * L;
    double* out = node_out + (begin + t) * L;
    for (int64_t j = 0; j < L; j++) out[j] = a[j] + w.after[j];
    centre(L, p, out);
    for (int64_t j = 0; j < L; j++) out[j] *= weight * p[j];
    if (t == 0) break;
    const int64_t e = first_edge + t - 1;
    const double *q = c.edge + e * L * L, *dot = dot_of(e), *back = a - L, *d = c.node_dot + (begin + t) * L;
    for (int64_t j = 0; j < L; j++) w.later[j] = d[j] + w.after[j];
    double mean = 0;
    for (int64_t i = 0; i < L; i++) {
      double sum = 0, mass = 0;
      for (int64_t j = 0; j < L; j++) {
        sum += q[i * L + j] * (dot[i * L + j] + w.later[j]);
        mass += q[i * L + j];
      }
      w.passed[i] = sum;
      mean += sum + mass * back[i];
    }
    double* pairs = edge_out + (each ? e * L * L : 0);
    for (int64_t i = 0; i < L; i++) {
      const double from = back[i] - mean;
      for (int64_t j = 0; j < L; j++)
        pairs[i * L + j] += weight * q[i * L + j] * (from + dot[i * L + j] + w.later[j]);
    }
    const double* before = p - L;
    for (int64_t i = 0; i < L; i++) w.after[i] = before[i] > SMALLEST ? w.passed[i] / before[i] : 0.0;
    centre(L, before, w.after.data());
  }
}

}  // namespace

void sweep(const Chains& c, double* node_out, double* edge_out, bool each, int n_jobs) {
  std::vector<int64_t> first_edge((size_t)c.sequences + 1, 0);
  for (int64_t s = 0; s < c.sequences; s++) {
    const int64_t steps = c.offsets[s + 1] - c.offsets[s];
    first_edge[s + 1] = first_edge[s] + (steps > 1 ? steps - 1 : 0);
  }
  const int64_t nodes = c.offsets[c.sequences], square = c.labels * c.labels;
  const int parts = (int)std::max<int64_t>(1, std::min<int64_t>(n_jobs, c.sequences));
  std::vector<std::vector<double>> sums((size_t)parts);
  run_parts(parts, [&](int part) {
    // Equal shares of nodes: a sequence belongs to the part in which it begins.
    auto from = [&](int p) {
      return std::lower_bound(c.offsets, c.offsets + c.sequences, nodes * p / parts) - c.offsets;
    };
    const int64_t begin = part ? from(part) : 0, end = part + 1 == parts ? c.sequences : from(part + 1);
    Scratch scratch(c.labels);
    double* pairs = edge_out;
    if (!each) {
      sums[part].assign((size_t)square, 0.0);
      pairs = sums[part].data();
    }
    for (int64_t s = begin; s < end; s++) one_sequence(c, s, first_edge[s], scratch, node_out, pairs, each);
  });
  if (!each)
    for (const auto& sum : sums)
      for (int64_t k = 0; k < square; k++) edge_out[k] += sum[k];
}

namespace {

// e^(x - max x), and all zero where everything is forbidden
void exponentials(int64_t n, const double* x, double* out) {
  double top = -HUGE_VAL;
  for (int64_t j = 0; j < n; j++) top = std::max(top, x[j]);
  for (int64_t j = 0; j < n; j++) out[j] = top == -HUGE_VAL ? 0.0 : std::exp(x[j] - top);
}

// Gives whether all probabilities stayed in range.
bool pairs_of_sequence(int64_t L, int64_t steps, const double* score, const double* table, const double* p,
                       std::vector<double>& spare, double* q) {
  double *alpha = spare.data(), *sum = alpha + L, *psi = sum + L;
  exponentials(L, score, alpha);
  for (int64_t t = 1; t < steps; t++, q += L * L) {
    std::fill(sum, sum + L, 0.0);
    for (int64_t i = 0; i < L; i++)
      for (int64_t j = 0; j < L; j++) sum[j] += alpha[i] * table[i * L + j];
    bool fine = true;
    const double* now = p + t * L;
    exponentials(L, score + t * L, psi);
    double total = 0;
    for (int64_t j = 0; j < L; j++) {
      fine &= now[j] <= 0 || sum[j] >= SMALLEST;
      total += sum[j] * psi[j];
      psi[j] *= sum[j];
      sum[j] = now[j] > 0 ? now[j] / sum[j] : 0.0;
    }
    if (!fine || !(total >= SMALLEST)) return false;
    for (int64_t i = 0; i < L; i++)
      for (int64_t j = 0; j < L; j++) q[i * L + j] = alpha[i] * table[i * L + j] * sum[j];
    for (int64_t j = 0; j < L; j++) alpha[j] = psi[j] / total;
  }
  return true;
}

}  // namespace

void pairs(int64_t sequences, int64_t labels, const int64_t* offsets, const double* node_score, const double* table,
           const double* node, double* edge_out, uint8_t* hard, int n_jobs) {
  std::vector<double> weights((size_t)(labels * labels));
  exponentials(labels * labels, table, weights.data());
  std::vector<int64_t> first_edge((size_t)sequences + 1, 0);
  for (int64_t s = 0; s < sequences; s++) {
    const int64_t steps = offsets[s + 1] - offsets[s];
    first_edge[s + 1] = first_edge[s] + (steps > 1 ? steps - 1 : 0);
  }
  const int parts = (int)std::max<int64_t>(1, std::min<int64_t>(n_jobs, sequences));
  run_parts(parts, [&](int part) {
    std::vector<double> spare((size_t)(3 * labels));
    for (int64_t s = sequences * part / parts; s < sequences * (part + 1) / parts; s++) {
      const int64_t begin = offsets[s], steps = offsets[s + 1] - begin;
      if (steps < 2) continue;
      const double* p = node + begin * labels;
      double* q = edge_out + first_edge[s] * labels * labels;
      if (std::all_of(p, p + labels, [](double x) { return x == 0; })) {  // nothing is possible
        std::fill(q, q + (steps - 1) * labels * labels, 0.0);
        continue;
      }
      hard[s] = !pairs_of_sequence(labels, steps, node_score + begin * labels, weights.data(), p, spare, q);
    }
  });
}

}  // namespace tangent
}  // namespace crfield
