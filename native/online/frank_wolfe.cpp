// Pairwise block-coordinate Frank–Wolfe on the dual of the hinge with a ridge (Lacoste-Julien et al. 2013; Osokin et
// al. 2016).
//
//   F(w) = Σ_i weight_i max_y [cost_i(y) + g_i(y)·w] + ½ l2 |w|²,      g_i(y) = features of y − features of gold
//   w = −(1/l2) Σ_i Σ_y α_i(y) g_i(y),   Σ_y α_i(y) = weight_i
//
// Each sequence keeps the labellings that have a share α in its mixture: as labels, not as features, since the
// difference of two of them is read off the few steps where they differ. A visit finds the labelling that violates the
// margin most and gives it share from the one that violates least; the best amount is a formula.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "online/trainer.hpp"

namespace crfield {
namespace {

constexpr double ENOUGH = 0.1;  // of what a mixture fell short at the first step of a visit: less ends the visit

}  // namespace

Met Trainer::frank_wolfe(const int64_t* order, int64_t n, double l2, int steps) {
  check_order(order, n);
  if (planes_.empty()) {
    std::vector<std::vector<Plane>> made(x_.sequences);
    for (int64_t s = 0; s < x_.sequences; s++) {
      for (int64_t t = x_.offsets[s]; t < x_.offsets[s + 1]; t++)
        if (gold_.labels[t] < 0) throw std::invalid_argument("the dual of the hinge needs complete labels");
      Plane gold;
      gold.path.assign(gold_.labels + x_.offsets[s], gold_.labels + x_.offsets[s + 1]);
      gold.share = weight_of(s);
      gold.cost = distance(s, gold.path.data());
      made[s].push_back(std::move(gold));
    }
    planes_ = std::move(made);
  }
  Met met;
  std::vector<double> value;
  for (int64_t o = 0; o < n; o++) {
    const int64_t s = order[o], T = steps_of(s);
    std::vector<Plane>& planes = planes_[s];
    if (!T || !(weight_of(s) > 0)) continue;
    double first = 0;
    for (int visit = 0; visit < steps; visit++) {
      double* score = score_sequence(s);
      const double gold = path_score(s, score, gold_.labels + x_.offsets[s]);
      check_total(gold);
      value.clear();
      double mixed = 0;
      for (const Plane& p : planes) {
        value.push_back(p.cost + path_score(s, score, p.path.data()));
        mixed += p.share * value.back();
      }
      raise(s, score);
      best_.resize(T);
      const double top = decode(s, score, best_.data()), missing = std::max(0.0, weight_of(s) * top - mixed);
      if (visit == 0) {
        first = missing;
        met.loss += weight_of(s) * std::max(0.0, top - gold);
        met.missing += missing;
      }
      const size_t down = std::min_element(value.begin(), value.end()) - value.begin();
      const double gain = top - value[down];
      if (missing < ENOUGH * first || !(gain > 1e-12 * (1.0 + std::fabs(top)))) break;
      begin_step();
      add_difference(s, best_.data(), planes[down].path.data(), 1.0);
      const double bend = squared_norm() / l2;
      const double step = gain >= bend * planes[down].share ? planes[down].share : gain / bend;
      move(-step / l2);
      met.mistakes++;
      size_t up = 0;
      while (up < planes.size() && !std::equal(best_.begin(), best_.end(), planes[up].path.begin())) up++;
      if (up == planes.size()) {
        planes.emplace_back();
        planes[up].path.assign(best_.begin(), best_.end());
        planes[up].cost = distance(s, best_.data());
      }
      planes[up].share += step;
      planes[down].share -= step;
      if (!(planes[down].share > 0)) planes.erase(planes.begin() + (std::ptrdiff_t)down);
    }
  }
  return met;
}

double Trainer::mixture_cost() const {
  double sum = 0;
  for (const std::vector<Plane>& planes : planes_)
    for (const Plane& p : planes) sum += p.share * p.cost;
  return sum;
}

}  // namespace crfield
