// Forward and backward in scaled probabilities, eight sequences side by side: one edge is a couple of vector
// operations for all of them.
//
//   α_t(s) = ψ_t(label s) Σ_{after(p, y) = s} α_{t-1}(p) E(p, y) / z_t       v_t(s) = ψ_t(label s) β_t(s) / z_t
//   β_{t-1}(p) = Σ_y E(p, y) v_t(after(p, y))                               p(p, y) = α_{t-1}(p) E(p, y) v_t(after)
//
// with ψ = exp(node - its maximum) and E = exp(score - its maximum). What falls below 1e-308 is lost, and it may be the
// only thing that can go on. So every state that can be reached must keep α above 1e-200 before it is scaled, which is
// checked with a bit for each state and sequence; a sequence that fails is done again in logarithms.
#include <cmath>
#include <limits>

#include "chain/exp.hpp"
#include "level.hpp"
#include "tuples/tuples.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {
namespace {

using tuples::SIDE;
constexpr int PARTS = SIDE / LANES;
constexpr double NEVER = -std::numeric_limits<double>::infinity();
constexpr double TINY = 1e-200;

// ψ of one step, and the largest scores into top; labels that cannot be are cleared in `may` (a bit per sequence)
void exponentiate(const tuples::Edges& e, const tuples::Group& g, int64_t t, double* psi, double* top, uint8_t* may) {
  const int64_t L = e.labels;
  for (int b = 0; b < SIDE; b++) {
    top[b] = NEVER;
    if (b >= g.width || t >= g.length[b]) continue;
    const double* row = g.node + (g.first[b] + t) * L;
    for (int64_t y = 0; y < L; y++) top[b] = row[y] > top[b] ? row[y] : top[b];
  }
  for (int64_t y = 0; y < L; y++) {
    may[y] = 0;
    for (int b = 0; b < SIDE; b++) {
      double x = NEVER;
      if (top[b] > NEVER) x = g.node[(g.first[b] + t) * L + y] - top[b];
      if (x > NEVER) may[y] = (uint8_t)(may[y] | (1u << b));
      psi[y * SIDE + b] = x;
    }
    for (int v = 0; v < PARTS; v++) store(psi + y * SIDE + v * LANES, exp_vector(load(psi + y * SIDE + v * LANES)));
  }
}

void forward(const tuples::Edges& e, tuples::Group& g) {
  const int64_t S = e.states, L = e.labels;
  double log_part[SIDE], product[SIDE], top[SIDE];
  uint8_t *before = g.alive, *now = g.alive + S, *may = g.alive + 2 * S;
  for (int b = 0; b < SIDE; b++) log_part[b] = 0, product[b] = 1, g.lost[b] = false;
  for (int64_t t = 0; t < g.steps; t++) {
    double *alpha = g.alpha + t * S * SIDE, *psi = g.psi + t * L * SIDE;
    exponentiate(e, g, t, psi, top, may);
    for (int64_t k = 0; k < S * SIDE; k++) alpha[k] = 0;
    for (int64_t s = 0; s < S; s++) now[s] = 0;
    if (t == 0) {
      for (int64_t k = 0; k < L * SIDE; k++) alpha[k] = 1;
      for (int64_t y = 0; y < L; y++) now[y] = 0xff;
    } else {
      const double* old = alpha - S * SIDE;
      for (int64_t p = 0; p < S; p++) {
        if (!before[p]) continue;
        V from[PARTS];
        for (int v = 0; v < PARTS; v++) from[v] = load(old + p * SIDE + v * LANES);
        const int32_t* after = e.after + p * L;
        const double *prob = e.prob + p * L, *log = e.log + p * L;
        for (int64_t y = 0; y < L; y++) {
          double* to = alpha + (int64_t)after[y] * SIDE;
          const V w = fill(prob[y]);
          for (int v = 0; v < PARTS; v++) store(to + v * LANES, load(to + v * LANES) + from[v] * w);
          if (log[y] > NEVER) now[after[y]] = (uint8_t)(now[after[y]] | before[p]);
        }
      }
    }
    V sum[PARTS];
    for (int v = 0; v < PARTS; v++) sum[v] = V{};
    for (int64_t s = 0; s < S; s++) {
      const int64_t y = e.label[s];
      now[s] = (uint8_t)(now[s] & may[y]);
      for (int v = 0; v < PARTS; v++) {
        const V x = load(alpha + s * SIDE + v * LANES) * load(psi + y * SIDE + v * LANES);
        store(alpha + s * SIDE + v * LANES, x);
        sum[v] += x;
      }
      for (int b = 0; now[s] && b < g.width; b++)
        if ((now[s] >> b & 1) && !(alpha[s * SIDE + b] > TINY)) g.lost[b] = true;
    }
    double z[SIDE];
    for (int v = 0; v < PARTS; v++) store(z + v * LANES, sum[v]);
    for (int b = 0; b < SIDE; b++) {
      double inverse = 0;
      if (b < g.width && t < g.length[b]) {
        if (z[b] > 0) {
          inverse = 1 / z[b];
          log_part[b] += top[b] + (t ? e.shift : 0.0);
          product[b] *= z[b];
          if (!(product[b] > 1e-100 && product[b] < 1e100)) {
            log_part[b] += std::log(product[b]);
            product[b] = 1;
          }
        } else {
          g.lost[b] = true;
        }
      }
      g.inverse[t * SIDE + b] = inverse;
    }
    for (int64_t s = 0; s < S; s++)
      for (int v = 0; v < PARTS; v++)
        store(alpha + s * SIDE + v * LANES,
              load(alpha + s * SIDE + v * LANES) * load(g.inverse + t * SIDE + v * LANES));
    uint8_t* other = before;
    before = now;
    now = other;
  }
  for (int b = 0; b < g.width; b++) g.total[b] = log_part[b] + std::log(product[b]);
}

// A lost sequence takes no part in what follows: its α is nothing.
void silence(const tuples::Edges& e, tuples::Group& g) {
  for (int b = 0; b < g.width; b++)
    for (int64_t k = 0; g.lost[b] && k < g.length[b] * e.states; k++) g.alpha[k * SIDE + b] = 0;
}

void backward(const tuples::Edges& e, tuples::Group& g) {
  const int64_t S = e.states, L = e.labels;
  double *v_now = g.spare, *beta = g.spare + S * SIDE, *sums = g.spare + 2 * S * SIDE;
  V factor[PARTS];
  double own[SIDE];
  for (int b = 0; b < SIDE; b++) own[b] = b < g.width && !g.lost[b] ? g.factor[b] : 0.0;
  for (int v = 0; v < PARTS; v++) factor[v] = load(own + v * LANES);
  for (int64_t k = 0; k < S * SIDE; k++) beta[k] = 0;
  for (int64_t t = g.steps - 1; t >= 0; t--) {
    const double *alpha = g.alpha + t * S * SIDE, *psi = g.psi + t * L * SIDE;
    for (int b = 0; b < g.width; b++)
      for (int64_t s = 0; t == g.length[b] - 1 && s < S; s++) beta[s * SIDE + b] = 1;
    for (int64_t k = 0; k < L * SIDE; k++) sums[k] = 0;
    V by[PARTS];
    for (int v = 0; v < PARTS; v++) by[v] = load(g.inverse + t * SIDE + v * LANES);
    for (int64_t s = 0; s < S; s++) {
      const int64_t y = e.label[s];
      for (int v = 0; v < PARTS; v++) {
        const int64_t at = s * SIDE + v * LANES;
        const V weight = load(alpha + at);
        // β of a state that cannot be reached may overflow; it must not meet a zero
        const V x = weight > V{} ? load(beta + at) : V{};
        store(v_now + at, load(psi + y * SIDE + v * LANES) * x * by[v]);
        double* sum = sums + y * SIDE + v * LANES;
        store(sum, load(sum) + weight * x);
      }
    }
    for (int b = 0; b < g.width; b++)
      for (int64_t y = 0; t < g.length[b] && !g.lost[b] && y < L; y++)
        g.belief[(g.first[b] + t) * L + y] = sums[y * SIDE + b];
    if (t == 0) break;
    const double* old = alpha - S * SIDE;
    for (int64_t p = 0; p < S; p++) {
      V sum[PARTS], from[PARTS];
      for (int v = 0; v < PARTS; v++) sum[v] = V{}, from[v] = load(old + p * SIDE + v * LANES) * factor[v];
      const int32_t* after = e.after + p * L;
      const double* prob = e.prob + p * L;
      double* uses = g.uses + p * L * SIDE;
      for (int64_t y = 0; y < L; y++) {
        const double* ahead = v_now + (int64_t)after[y] * SIDE;
        const V w = fill(prob[y]);
        for (int v = 0; v < PARTS; v++) {
          const V x = load(ahead + v * LANES);
          sum[v] += w * x;
          double* use = uses + y * SIDE + v * LANES;
          store(use, load(use) + from[v] * x);
        }
      }
      for (int v = 0; v < PARTS; v++) store(beta + p * SIDE + v * LANES, sum[v]);
    }
  }
}

}  // namespace

void sweep(const tuples::Edges& e, tuples::Group& g) {
  forward(e, g);
  silence(e, g);
  backward(e, g);
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
