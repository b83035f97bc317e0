// Stochastic gradient steps with lazy penalties.
//
// Weights are brought up to date when a sequence reads them. SGD: the ridge multiplies by exp of what the clock of
// shrinking moved meanwhile, and the l1 penalty is cumulative (Tsuruoka, Tsujii & Ananiadou 2009): each weight is
// pulled to zero by all of the penalty so far less what it received already. AdaGrad (Duchi, Hazan & Singer 2011):
// the steps missed have one scale, that of the weight's squared gradients, and are one proximal step of their sum.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "online/trainer.hpp"

namespace crfield {

// Gradient of Σ weight (total of all − total of what is allowed) into change_, if it is to be kept; gives the value.
double Trainer::sum_gradient(const int64_t* sequences, int n, bool margin, bool keep) {
  const Model& m = *m_;
  const int L = m.labels, stride = m.stride;
  const bool each = m.edge_features();
  loaded_.set_edges(m, w_.data() + m.at_pairs);
  const EdgeTable& table = loaded_.edges().table();

  Group g;
  g.width = n;
  g.sequence.assign(sequences, sequences + n);
  std::sort(g.sequence.begin(), g.sequence.end(), [&](int64_t a, int64_t b) {
    return steps_of(a) != steps_of(b) ? steps_of(a) > steps_of(b) : a < b;
  });
  g.steps = (int32_t)steps_of(g.sequence[0]);
  g.start.assign(g.steps + 1, 0);
  g.active.assign(g.steps, 0);
  for (int b = 0; b < n; b++)
    for (int64_t t = 0; t < steps_of(g.sequence[b]); t++) g.active[t]++;
  for (int t = 0; t < g.steps; t++) g.start[t + 1] = g.start[t] + g.active[t];
  g.rows = g.start[g.steps];

  Sweep sweep = scratch_.prepare(g, L, stride, (L + 63) / 64, each || !table.safe);
  const int64_t cells = g.rows * stride;
  for (Buffer<double>* b : {&counts_, &direct_}) {
    b->resize((int64_t)L * stride);
    b->zero();
  }
  pair_counts_.resize((int64_t)m.pairs.size());
  pair_counts_.zero();
  sweep.counts = table.sparse ? nullptr : counts_.data();
  sweep.pair_counts = table.sparse ? pair_counts_.data() : nullptr;
  sweep.direct = direct_.data();
  FeatureEdges source(m, x_, w_.data(), table.log, keep && each ? change_.data() + m.at_pairs : nullptr);
  std::vector<int64_t> first_edge(n);

  double value = 0;
  bool partial = false;
  for (int b = 0; b < n; b++) {
    const int64_t s = g.sequence[b], first = x_.offsets[s];
    first_edge[b] = x_.edge_offsets[s];
    double* score = score_sequence(s);
    if (margin) raise(s, score);
    for (int64_t t = 0; t < steps_of(s); t++) {
      std::memcpy(sweep.score + (g.start[t] + b) * stride, score + t * stride, sizeof(double) * stride);
      partial |= gold_.labels[first + t] < 0;
    }
    if (partial) continue;
    const double gold = path_score(s, score, gold_.labels + first);
    check_total(gold);
    value -= weight_of(s) * gold;
  }
  second_.resize(cells);
  if (partial) {
    value = 0;
    std::memcpy(second_.data(), sweep.score, sizeof(double) * cells);
  }
  auto infer = [&](double sign) {
    for (int b = 0; b < n; b++) scratch_.factor[b] = sign * weight_of(g.sequence[b]);
    if (each)
      m.k->sweep_each(source, first_edge.data(), sweep);
    else
      m.k->sweep(table, sweep);
    for (int b = 0; b < n; b++) {
      check_total(sweep.total[b]);
      value += sign * weight_of(g.sequence[b]) * sweep.total[b];
    }
  };
  infer(1.0);
  double* belief = sweep.belief;
  if (partial) {
    free_.resize(cells);
    std::memcpy(free_.data(), belief, sizeof(double) * cells);
    for (int b = 0; b < n; b++)
      for (int64_t t = 0; t < steps_of(g.sequence[b]); t++)
        for (int j = 0; j < L; j++)
          if (!allows(x_.offsets[g.sequence[b]] + t, j)) second_[(g.start[t] + b) * stride + j] = -INFINITY;
    std::memcpy(sweep.score, second_.data(), sizeof(double) * cells);
    infer(-1.0);
    for (int64_t k = 0; k < cells; k++) belief[k] = free_[k] - belief[k];
  }
  if (!keep) return value;

  double* d = change_.data();
  for (int b = 0; b < n; b++) {
    const int64_t s = g.sequence[b], first = x_.offsets[s], T = steps_of(s);
    const double weight = weight_of(s);
    for (int64_t t = 0; t < T; t++) {
      double* row = belief + (g.start[t] + b) * stride;
      if (!partial) row[gold_.labels[first + t]] -= 1;
      for (int j = 0; weight != 1.0 && j < L; j++) row[j] *= weight;
      for (int64_t p = x_.indptr[first + t]; p < x_.indptr[first + t + 1]; p++)
        slots_.add_row(d, x_.indices[p], row, x_.values ? x_.values[p] : 1.0);
      double* dense = slots_.dense(d);
      for (int64_t k = 0; k < m.n_dense; k++)
        for (int j = 0; j < L; j++) dense[k * stride + j] += x_.dense[(first + t) * m.n_dense + k] * row[j];
      for (int j = 0; m.bias && j < L; j++) d[m.at_bias + j] += row[j];
      for (int j = 0; m.boundaries && t == 0 && j < L; j++) d[m.at_start + j] += row[j];
      for (int j = 0; m.boundaries && t == T - 1 && j < L; j++) d[m.at_end + j] += row[j];
      if (partial || t == 0) continue;
      const int i = gold_.labels[first + t - 1], j = gold_.labels[first + t];
      const int32_t p = place_[(size_t)i * L + j];
      if (each)
        source.count(first_edge[b] + t - 1, i, j, -weight);
      else if (p >= 0)
        d[m.at_pairs + p] -= weight;
    }
  }
  for (size_t p = 0; !each && p < m.pairs.size(); p++) {
    const int64_t at = m.pair_place[p];
    d[m.at_pairs + p] += (table.sparse ? pair_counts_[p] : counts_[at]) * table.prob[at] + direct_[at];
  }
  return value;
}

void Trainer::catch_up(const Range& r, Rule rule) {
  const double now = shrink_clock_;
  double& seen = seen_[r.unit];
  if (rule == Rule::SGD) {
    if (r.penalised && seen != now) {
      const double by = std::exp(now - seen);
      for (int64_t k = r.first; k < r.last; k++) w_[k] *= by;
    }
    if (r.penalised && push_clock_ > 0) {
      const double push = push_clock_;
      for (int64_t k = r.first; k < r.last; k++) {
        const double before = w_[k];
        const double after =
            before > 0 ? std::max(0.0, before - (push + received_[k])) : std::min(0.0, before + (push - received_[k]));
        received_[k] += after - before;
        w_[k] = after;
      }
    }
  } else if (r.penalised && now > seen && (lazy_l1_ > 0 || lazy_l2_ > 0)) {
    const double a = (now - seen) * lazy_rate_ * lazy_l1_, b = (now - seen) * lazy_rate_ * lazy_l2_;
    for (int64_t k = r.first; k < r.last; k++) {
      const double root = std::sqrt(squares_[k]);
      const double size = root > 0 ? std::max(0.0, std::fabs(w_[k]) * root - a) / (root + b) : std::fabs(w_[k]);
      w_[k] = w_[k] < 0 ? -size : size;
    }
  }
  seen = now;
}

void Trainer::settle(Rule rule) {
  for (int64_t c = 0; c < m_->columns; c++) catch_up(slots_.column(c), rule);
  for (int64_t c = 0; c < m_->edge_columns; c++) catch_up(slots_.edge_column(c), rule);
  for (const Range& r : slots_.common()) catch_up(r, rule);
  refresh();
}

Met Trainer::steps(const int64_t* order, int64_t n, Rule rule, const double* rates, int batch, Loss loss, double l1,
                   double l2) {
  check_order(order, n);
  seen_.resize(slots_.units(), shrink_clock_);
  Buffer<double>& beside = rule == Rule::SGD ? received_ : squares_;
  if (beside.size() == 0 && (rule == Rule::ADAGRAD || l1 > 0)) {
    beside.resize(slots_.size());
    beside.zero();
  }
  int64_t total = 0;
  for (int64_t s = 0; s < x_.sequences; s++) total += steps_of(s) > 0;
  const bool margin = loss == Loss::HINGE || loss == Loss::SOFTMAX_MARGIN;
  const bool best = loss == Loss::HINGE || loss == Loss::PERCEPTRON;
  std::vector<int64_t> some;
  Met met;
  for (int64_t from = 0, step = 0; from < n; from += batch, step++) {
    some.clear();
    for (int64_t k = from; k < std::min(n, from + batch); k++)
      if (steps_of(order[k])) some.push_back(order[k]);
    if (some.empty()) continue;
    const double share = (double)some.size() / (double)total, rate = rule == Rule::SGD ? rates[step] : rates[0];
    lazy_l1_ = l1 * share, lazy_l2_ = l2 * share, lazy_rate_ = rate;
    begin_step();
    for (int64_t s : some) touch_sequence(s);
    for (const Range& r : touched_) catch_up(r, rule);
    refresh();
    double here = 0;
    if (best) {
      for (int64_t s : some) {
        const Choice c = choose(s, margin);
        here += weight_of(s) * c.loss;
        if (c.loss > 0) add_difference(s, c.best, c.gold, weight_of(s));
      }
    } else {
      here = sum_gradient(some.data(), (int)some.size(), margin, true);
      for (const Range& r : touched_) slots_.mask(r, change_.data());
    }
    met.loss += here;
    met.mistakes += here > 0;
    for (const Range& r : touched_) {
      if (rule == Rule::SGD) {
        for (int64_t k = r.first; k < r.last; k++) w_[k] -= rate * change_[k];
      } else {
        for (int64_t k = r.first; k < r.last; k++) {
          squares_[k] += change_[k] * change_[k];
          w_[k] -= squares_[k] > 0 ? rate * change_[k] / std::sqrt(squares_[k]) : 0.0;
        }
      }
      std::memset(change_.data() + r.first, 0, sizeof(double) * (r.last - r.first));
    }
    if (rule == Rule::SGD) {
      shrink_clock_ += std::log1p(-std::min(0.5, rate * lazy_l2_));
      push_clock_ += rate * lazy_l1_;
    } else {
      shrink_clock_ += 1;
    }
  }
  settle(rule);
  return met;
}

Met Trainer::descend(const int64_t* order, int64_t n, const double* rates, int batch, Loss loss, double l1, double l2) {
  return steps(order, n, Rule::SGD, rates, batch, loss, l1, l2);
}

Met Trainer::adagrad(const int64_t* order, int64_t n, double rate, int batch, Loss loss, double l1, double l2) {
  return steps(order, n, Rule::ADAGRAD, &rate, batch, loss, l1, l2);
}

}  // namespace crfield
