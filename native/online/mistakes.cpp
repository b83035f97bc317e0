// Trainers that move when the best path is wrong: averaged perceptron (Collins 2002), passive-aggressive in three
// variants (Crammer et al. 2006) and AROW with a diagonal (Crammer, Kulesza & Dredze 2009).
//
// With d = features of the gold path − features of the best one, ρ the cost of the best one and
// l = score(best) − score(gold):
//
//   perceptron   w += weight d
//   PA           w += τ d,   τ = (l + √ρ) / |d|²; PA-I: at most C; PA-II: / (|d|² + 1 / 2C)
//   AROW         w += α Σ d,  α = (l + ρ) / (dᵀΣd + r),  Σ = 1 / (1/Σ + d² / r)
#include <algorithm>
#include <cmath>

#include "online/trainer.hpp"

namespace crfield {

template <class Update>
Met Trainer::mistakes(const int64_t* order, int64_t n, Update update) {
  check_order(order, n);
  if (late_.size() == 0) {
    late_.resize(slots_.size());
    late_.zero();
  }
  Met met;
  for (int64_t k = 0; k < n; k++) {
    const int64_t s = order[k];
    if (!steps_of(s) || !(weight_of(s) > 0)) continue;
    const Choice c = choose(s, false);
    if (c.wrong) {
      met.loss += weight_of(s) * c.loss;
      met.mistakes++;
      begin_step();
      add_difference(s, c.gold, c.best, 1.0);
      update(s, c);
    }
    visits_ += 1;
  }
  return met;
}

Met Trainer::perceptron(const int64_t* order, int64_t n) {
  return mistakes(order, n, [&](int64_t s, const Choice&) { move(weight_of(s)); });
}

Met Trainer::passive_aggressive(const int64_t* order, int64_t n, int variant, double aggressiveness) {
  return mistakes(order, n, [&](int64_t s, const Choice& c) {
    const double norm = squared_norm(), C = aggressiveness * weight_of(s);
    const double loss = c.loss + std::sqrt(distance(s, c.best));
    double step = norm > 0 ? loss / norm : 0.0;
    if (variant == 0) step *= weight_of(s);
    if (variant == 1) step = std::min(step, C);
    if (variant == 2) step = loss / (norm + 0.5 / C);
    move(norm > 0 ? step : 0.0);
  });
}

Met Trainer::arow(const int64_t* order, int64_t n, double regularity) {
  if (variance_.size() == 0) {
    variance_.resize(slots_.size());
    for (int64_t k = 0; k < slots_.size(); k++) variance_[k] = 1.0;
  }
  return mistakes(order, n, [&](int64_t s, const Choice& c) {
    const double r = regularity / weight_of(s), loss = c.loss + distance(s, c.best);
    double spread = 0;
    for (const Range& at : touched_)
      for (int64_t k = at.first; k < at.last; k++) spread += variance_[k] * change_[k] * change_[k];
    const double step = loss / (spread + r);
    for (const Range& at : touched_)
      for (int64_t k = at.first; k < at.last; k++) {
        const double square = change_[k] * change_[k], before = variance_[k];
        change_[k] *= before;
        variance_[k] = before * r / (r + before * square);
      }
    move(step);
  });
}

}  // namespace crfield
