// The stochastic side of the fused objective.
#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "chain/problem_memory.hpp"

namespace crfield {

// Stochastic gradient steps, one a group. Shrinking all weights by the ridge at each step is one multiplication:
// node weights are kept divided by `scale`.
double Problem::descend(double* w, const int64_t* order, int64_t n_order, const Epoch& epoch) const {
  const Model& m = *model_;
  if (m.edge_features()) throw std::invalid_argument("stochastic steps do not know edge features");
  std::unique_ptr<Call> call = borrow(1);
  Loaded& loaded = call->loaded;
  loaded.set(m, w, 1);
  Part& part = *call->parts[0];
  NodeRows plain = rows();
  std::vector<int64_t> row_ptr;
  std::vector<int32_t> row_item =
      expand_rows(merged_, row_ptr_.size() - 1, m.rows(), row_ptr_.data(), row_item_.data(), row_ptr);
  row_item.resize(row_item.size() + AHEAD_ROWS);
  plain.row_ptr = row_ptr.data();  // steps change weights, which merged rows would not see
  plain.row_item = row_item.data();
  part.gather_rows = &plain;
  const int64_t table_size = (int64_t)m.labels * m.stride;
  if (!m.direct && call->mask.size() == 0) {
    call->mask.resize(m.rows() * m.stride + 8);
    call->mask.zero();
    for (int64_t r = 0; r < m.rows(); r++) {
      const int64_t c = m.column_of_row[r];
      if (m.all_pairs)
        for (int j = 0; j < m.labels; j++) call->mask[r * m.stride + j] = 1;
      else
        for (int64_t f = m.feature_ptr[c]; f < m.feature_ptr[c + 1]; f++) call->mask[r * m.stride + m.feature_label[f]] = 1;
    }
  }
  const double* mask = m.direct ? nullptr : call->mask.data();
  NodeGradient target;
  target.rows = m.direct ? w : loaded.rows();
  target.single = w;
  target.dense = loaded.dense();
  std::vector<double> pairs(w + m.at_pairs, w + m.at_edge), base(m.stride), ends;
  std::vector<int32_t> place((size_t)m.labels * m.labels, -1);
  for (size_t p = 0; p < m.pairs.size(); p++) place[m.pairs[p]] = (int32_t)p;
  for (Buffer<double>* b : {&part.bias, &part.start, &part.end}) b->resize(m.stride);
  part.counts.resize(table_size);
  part.direct.resize(table_size);
  part.pair_counts.resize((int64_t)m.pairs.size());

  double scale = 1, loss = 0, done = epoch.done;
  const double n = (double)groups_.size();
  auto fold = [&] {
    // the stored node weights become true weights again
    if (scale != 1.0) {
      for (int64_t f = 0; f < m.at_dense; f++) w[f] *= scale;
      for (int64_t k = 0; !m.direct && k < m.rows() * m.stride; k++) loaded.rows()[k] *= scale;
      for (int64_t k = 0; k < m.n_dense * m.stride; k++) loaded.dense()[k] *= scale;
    }
    scale = 1;
  };
  for (int64_t o = 0; o < n_order; o++) {
    if (order[o] < 0 || order[o] >= (int64_t)groups_.size()) throw std::invalid_argument("group out of range");
    const Group& g = groups_[order[o]];
    const double eta = epoch.step / (1 + done / epoch.horizon), keep = 1 - std::min(0.5, eta * epoch.l2 / n);
    done += 1;
    for (int j = 0; j < m.stride; j++) base[j] = j >= m.labels ? -INFINITY : m.bias ? w[m.at_bias + j] : 0.0;
    loaded.set_edges(m, pairs.data());
    for (Buffer<double>* b : {&part.bias, &part.start, &part.end, &part.counts, &part.direct, &part.pair_counts}) b->zero();
    loss += one_group(g, loaded, base.data(), scale, m.ends(w, ends), part, Mode::GRADIENT);
    const double next = scale * keep;
    double* belief = part.scratch.belief.data();
    for (int64_t k = 0; k < g.rows * m.stride; k++) belief[k] *= -eta / next;
    m.k->scatter(loaded.node(m), plain, g.row, g.rows, belief, mask, target);
    scale = next;
    const EdgeTable& table = loaded.edges().table();
    for (size_t p = 0; p < m.pairs.size(); p++) {
      const int64_t at = m.pair_place[p];
      const double met = table.sparse ? part.pair_counts[p] : part.counts[at];
      pairs[p] = pairs[p] * keep - eta * (met * table.prob[at] + part.direct[at]);
    }
    if (!g.partial)
      for (int t = 1; t < g.steps; t++)
        for (int b = 0; b < g.active[t]; b++) {
          const int i = gold_[g.row + g.start[t - 1] + b], j = gold_[g.row + g.start[t] + b];
          const int32_t p = place[(size_t)i * m.labels + j];
          loss -= weight_[g.sequence[b]] * table.log[(int64_t)i * m.stride + j];
          if (p < 0) continue;
          pairs[p] += eta * weight_[g.sequence[b]];
        }
    for (int j = 0; j < m.labels; j++) {
      if (m.bias) w[m.at_bias + j] = w[m.at_bias + j] * keep - eta * part.bias[j];
      if (m.boundaries) {
        w[m.at_start + j] = w[m.at_start + j] * keep - eta * part.start[j];
        w[m.at_end + j] = w[m.at_end + j] * keep - eta * part.end[j];
      }
    }
    if (scale < 1e-6) fold();
  }
  fold();
  if (!m.direct)
    for (int64_t r = 0; r < m.rows(); r++) {
      const int64_t c = m.column_of_row[r];
      for (int64_t f = m.first_feature(c); f < m.first_feature(c + 1); f++)
        w[f] = loaded.rows()[r * m.stride + (m.all_pairs ? (int)(f - m.first_feature(c)) : m.feature_label[f])];
    }
  for (int64_t d = 0; d < m.n_dense; d++)
    for (int j = 0; j < m.labels; j++) w[m.at_dense + d * m.labels + j] = loaded.dense()[d * m.stride + j];
  std::copy(pairs.begin(), pairs.end(), w + m.at_pairs);
  call->mask = Buffer<double>();
  row_item = std::vector<int32_t>();
  return_freed_memory();
  give_back(std::move(call));
  return loss;
}

}  // namespace crfield
