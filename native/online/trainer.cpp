#include "online/trainer.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace crfield {

Trainer::Trainer(std::unique_ptr<const Model> model, BatchView batch, const Gold& gold, const double* weights,
                 bool penalise_intercepts)
    : m_(std::move(model)), x_(std::move(batch)), gold_(gold), slots_(*m_, penalise_intercepts) {
  const Model& m = *m_;
  for (int64_t n = 0; n < x_.nodes; n++) {
    if (gold_.labels[n] < -1 || gold_.labels[n] >= m.labels) throw std::invalid_argument("label code out of range");
    if (gold_.labels[n] >= 0) continue;
    if (!gold_.allowed) throw std::invalid_argument("an unknown label needs the table of allowed labels");
    bool any = false;
    for (int j = 0; j < m.labels; j++) any |= gold_.allowed[n * m.labels + j] != 0;
    if (!any) throw std::invalid_argument("a step allows no label at all");
  }
  for (int64_t s = 0; gold_.weight && s < x_.sequences; s++)
    if (!(gold_.weight[s] >= 0 && gold_.weight[s] < INFINITY)) throw std::invalid_argument("weights must be finite and at least 0");
  w_.resize(slots_.size());
  change_.resize(slots_.size());
  change_.zero();
  stamp_.assign(slots_.units(), 0);
  place_.assign((size_t)m.labels * m.labels, -1);
  for (size_t p = 0; p < m.pairs.size(); p++) place_[m.pairs[p]] = (int32_t)p;
  base_.resize(m.stride);
  table_.resize((int64_t)m.labels * m.stride);
  for (Buffer<double>* b : {&log_, &log_t_}) {
    b->resize((int64_t)m.labels * m.stride);
    for (int64_t i = 0; i < m.labels; i++)
      for (int64_t j = 0; j < m.stride; j++)
        (*b)[i * m.stride + j] =
            j >= m.labels ? -INFINITY : !m.fixed() ? 0.0 : m.fixed_edge[b == &log_ ? i * m.labels + j : j * m.labels + i];
  }
  set_weights(weights);
}

void Trainer::set_weights(const double* flat) {
  slots_.spread(flat, w_.data());
  change_.zero();
  for (Buffer<double>* b : {&late_, &variance_, &squares_, &received_}) *b = Buffer<double>();
  visits_ = 1;
  shrink_clock_ = push_clock_ = 0;
  seen_.clear();
  planes_.clear();
  refresh();
}

void Trainer::average(double* flat) const {
  if (late_.size() == 0) return weights(flat);
  std::vector<double> mean(slots_.size());
  for (int64_t k = 0; k < slots_.size(); k++) mean[k] = w_[k] - late_[k] / visits_;
  slots_.collect(mean.data(), flat);
}

double Trainer::evaluate(const double* flat, Loss loss) {
  struct Restore {  // whatever happens, the trainer's own weights come back
    Trainer& t;
    Buffer<double> kept;
    ~Restore() {
      t.w_ = std::move(kept);
      t.refresh();
    }
  };
  Buffer<double> given(slots_.size());
  slots_.spread(flat, given.data());
  const Restore restore{*this, std::move(w_)};
  w_ = std::move(given);
  refresh();
  const bool margin = loss == Loss::HINGE || loss == Loss::SOFTMAX_MARGIN;
  double value = 0;
  for (int64_t s = 0; s < x_.sequences; s++) {
    if (!steps_of(s)) continue;
    if (loss == Loss::PERCEPTRON || loss == Loss::HINGE)
      value += weight_of(s) * choose(s, margin).loss;
    else
      value += sum_gradient(&s, 1, margin, false);
  }
  return value;
}

void Trainer::check_order(const int64_t* order, int64_t n) const {
  for (int64_t k = 0; k < n; k++)
    if (order[k] < 0 || order[k] >= x_.sequences) throw std::invalid_argument("sequence out of range");
}

bool Trainer::allows(int64_t node, int label) const {
  return gold_.labels[node] >= 0 ? gold_.labels[node] == label : gold_.allowed[node * m_->labels + label] != 0;
}

double Trainer::cost_of(int64_t node, int label) const {
  return gold_.cost ? gold_.cost[node * m_->labels + label] : allows(node, label) ? 0.0 : 1.0;
}

// The small tables follow the weights; rows of columns are read where they are.
void Trainer::refresh() {
  const Model& m = *m_;
  for (int j = 0; j < m.stride; j++) base_[j] = j >= m.labels ? -INFINITY : m.bias ? w_[m.at_bias + j] : 0.0;
  ends_ = m.ends(w_.data(), ends_spare_);
  for (size_t p = 0; p < m.pairs.size(); p++) {
    const int64_t i = m.pairs[p] / m.labels, j = m.pairs[p] % m.labels;
    const double score = w_[m.at_pairs + p] + (m.fixed() ? m.fixed_edge[m.pairs[p]] : 0.0);
    log_[i * m.stride + j] = log_t_[j * m.stride + i] = score;
  }
}

// (T, stride) node scores with those of the ends.
double* Trainer::score_sequence(int64_t s) {
  const Model& m = *m_;
  const int64_t first = x_.offsets[s], T = steps_of(s);
  score_.resize(T * m.stride);
  score_rows(m, slots_.node(w_.data()), base_.data(), x_, first, T, score_.data());
  if (ends_)
    for (int j = 0; j < m.labels; j++) {
      score_[j] += ends_[j];
      score_[(T - 1) * m.stride + j] += ends_[m.labels + j];
    }
  return score_.data();
}

double Trainer::path_score(int64_t s, const double* score, const int32_t* path) const {
  const Model& m = *m_;
  const int64_t T = steps_of(s);
  double sum = 0;
  for (int64_t t = 0; t < T; t++) sum += score[t * m.stride + path[t]];
  if (!m.edge_features()) {
    for (int64_t t = 1; t < T; t++) sum += log_[(int64_t)path[t - 1] * m.stride + path[t]];
    return sum;
  }
  const FeatureEdges source(m, x_, w_.data(), log_.data(), nullptr);
  for (int64_t t = 1; t < T; t++) sum += source.score(x_.edge_offsets[s] + t - 1, path[t - 1], path[t]);
  return sum;
}

double Trainer::decode(int64_t s, double* score, int32_t* path) {
  const Model& m = *m_;
  if (!m.edge_features()) return m.k->best_path(m.labels, m.stride, steps_of(s), score, log_.data(), log_t_.data(), path);
  const FeatureEdges source(m, x_, w_.data(), log_.data(), nullptr);
  return m.k->best_path_each(source, x_.edge_offsets[s], m.labels, m.stride, steps_of(s), score, table_.data(), path);
}

// Node scores plus what each label costs.
void Trainer::raise(int64_t s, double* score) const {
  for (int64_t n = x_.offsets[s], t = 0; n < x_.offsets[s + 1]; n++, t++)
    for (int j = 0; j < m_->labels; j++) score[t * m_->stride + j] += cost_of(n, j);
}

double Trainer::distance(int64_t s, const int32_t* path) const {
  double sum = 0;
  for (int64_t t = 0; t < steps_of(s); t++) sum += cost_of(x_.offsets[s] + t, path[t]);
  return sum;
}

// The best path and the gold one, which is the best of what is allowed where labels are partly known.
Trainer::Choice Trainer::choose(int64_t s, bool margin) {
  const Model& m = *m_;
  const int64_t first = x_.offsets[s], T = steps_of(s);
  best_.resize(T);
  truth_.resize(T);
  double* score = score_sequence(s);
  bool complete = true;
  for (int64_t t = 0; t < T; t++) complete &= (truth_[t] = gold_.labels[first + t]) >= 0;
  double gold;
  if (complete) {
    gold = path_score(s, score, truth_.data());
  } else {
    second_.resize(T * m.stride);
    std::memcpy(second_.data(), score, sizeof(double) * T * m.stride);
    for (int64_t t = 0; t < T; t++)
      for (int j = 0; j < m.labels; j++)
        if (!allows(first + t, j)) second_[t * m.stride + j] = -INFINITY;
    gold = decode(s, second_.data(), truth_.data());
  }
  check_total(gold);
  if (margin) {
    raise(s, score);
    gold += distance(s, truth_.data());
  }
  Choice c;
  const double best = decode(s, score, best_.data());
  for (int64_t t = 0; t < T; t++) c.wrong |= !allows(first + t, best_[t]);
  c.loss = std::max(0.0, best - gold);
  if (!c.wrong && !margin) c.loss = 0;
  c.best = best_.data();
  c.gold = truth_.data();
  return c;
}

void Trainer::touch_sequence(int64_t s) {
  const int64_t first = x_.offsets[s], last = x_.offsets[s + 1];
  for (int64_t p = x_.indptr[first]; p < x_.indptr[last]; p++) {
    const int64_t c = x_.indices[p];
    if (stamp_[c] != tick_) touch(slots_.column(c));
  }
  if (m_->edge_columns)
    for (int64_t p = x_.edge_indptr[x_.edge_offsets[s]]; p < x_.edge_indptr[x_.edge_offsets[s + 1]]; p++)
      touch(slots_.edge_column(x_.edge_indices[p]));
  for (const Range& r : slots_.common()) touch(r);
}

// change += amount (features of up − features of down)
void Trainer::add_difference(int64_t s, const int32_t* up, const int32_t* down, double amount) {
  const Model& m = *m_;
  const int64_t first = x_.offsets[s], T = steps_of(s);
  double* d = change_.data();
  for (const Range& r : slots_.common()) touch(r);
  for (int64_t t = 0; t < T; t++) {
    if (up[t] == down[t]) continue;
    const int64_t n = first + t;
    for (int64_t p = x_.indptr[n]; p < x_.indptr[n + 1]; p++) {
      const int64_t c = x_.indices[p];
      const double value = amount * (x_.values ? x_.values[p] : 1.0);
      if (stamp_[c] != tick_) touch(slots_.column(c));
      slots_.add(d, c, up[t], value);
      slots_.add(d, c, down[t], -value);
    }
    double* dense = slots_.dense(d);
    for (int64_t k = 0; k < m.n_dense; k++) {
      const double value = amount * x_.dense[n * m.n_dense + k];
      dense[k * m.stride + up[t]] += value;
      dense[k * m.stride + down[t]] -= value;
    }
    if (m.bias) d[m.at_bias + up[t]] += amount, d[m.at_bias + down[t]] -= amount;
    if (m.boundaries && t == 0) d[m.at_start + up[t]] += amount, d[m.at_start + down[t]] -= amount;
    if (m.boundaries && t == T - 1) d[m.at_end + up[t]] += amount, d[m.at_end + down[t]] -= amount;
  }
  const FeatureEdges source(m, x_, w_.data(), log_.data(), d + m.at_pairs);
  for (int64_t t = 1; t < T; t++) {
    if (up[t] == down[t] && up[t - 1] == down[t - 1]) continue;
    const int64_t e = x_.edge_offsets[s] + t - 1;
    if (m.edge_features()) {
      for (int64_t p = m.edge_columns ? x_.edge_indptr[e] : 0; m.edge_columns && p < x_.edge_indptr[e + 1]; p++)
        touch(slots_.edge_column(x_.edge_indices[p]));
      source.count(e, up[t - 1], up[t], amount);
      source.count(e, down[t - 1], down[t], -amount);
      continue;
    }
    const int32_t p = place_[(size_t)up[t - 1] * m.labels + up[t]], q = place_[(size_t)down[t - 1] * m.labels + down[t]];
    if (p >= 0) d[m.at_pairs + p] += amount;
    if (q >= 0) d[m.at_pairs + q] -= amount;
  }
}

double Trainer::squared_norm() {
  double sum = 0;
  for (const Range& r : touched_)
    for (int64_t k = r.first; k < r.last; k++) sum += change_[k] * change_[k];
  return sum;
}

// weights += by · change, counted for the average; the change is used up
void Trainer::move(double by) {
  const bool averaged = late_.size() > 0;
  for (const Range& r : touched_)
    for (int64_t k = r.first; k < r.last; k++) {
      const double add = by * change_[k];
      w_[k] += add;
      if (averaged) late_[k] += visits_ * add;
      change_[k] = 0;
    }
  refresh();
}

}  // namespace crfield
