#include "chain/tagger.hpp"

#include <algorithm>
#include <cstring>

#include "chain/checks.hpp"
#include "level.hpp"
#include "threads.hpp"

namespace crfield {

Tagger::Tagger(std::shared_ptr<const Model> model, Array1<const double> w) : model_(std::move(model)) {
  require((int64_t)w.shape(0) == model_->n_weights, "weights do not fit the model");
  weights_.assign(w.data(), w.data() + w.shape(0));
  weights_.resize(weights_.size() + 8, 0.0);
  loaded_.set(*model_, weights_.data(), 1);
  ends_ = model_->ends(weights_.data(), fixed_ends_);
}

void Tagger::decode(const BatchArrays& arrays, Array1<int32_t> path, Array1<double> total, int n_jobs) const {
  const Model& m = *model_;
  const BatchView x = arrays.view(m);
  require((int64_t)path.shape(0) == x.nodes && (int64_t)total.shape(0) == x.sequences, "outputs do not fit");
  nb::gil_scoped_release unlocked;
  const FeatureEdges source(m, x, weights_.data(), loaded_.edges().table().log, nullptr);
  const int parts = std::max(1, std::min<int>(n_jobs, (int)std::max<int64_t>(1, x.sequences)));
  const std::vector<int64_t> cut = split_sequences(x.offsets, x.sequences, parts);
  run_parts(parts, [&](int p) {
    Buffer<double> score, spare;
    spare.resize(m.edge_features() ? (int64_t)m.labels * m.stride : 0);
    for (int64_t s = cut[p]; s < cut[p + 1]; s++) {
      const int64_t first = x.offsets[s], T = x.offsets[s + 1] - first;
      total(s) = 0;
      if (!T) continue;
      score.resize(T * m.stride);
      node_scores(x, s, score.data());
      total(s) = m.edge_features()
                     ? m.k->best_path_each(source, x.edge_offsets[s], m.labels, m.stride, T, score.data(), spare.data(),
                                           path.data() + first)
                     : m.k->best_path(m.labels, m.stride, T, score.data(), loaded_.edges().table().log,
                                      loaded_.edges().log_t(), path.data() + first);
    }
  });
}

double Tagger::decode(const SequenceRows& rows, Scratch& scratch, int32_t* path) const {
  const Model& m = *model_;
  const int64_t offsets[2] = {0, rows.steps};
  BatchView x;
  x.sequences = 1;
  x.nodes = rows.steps;
  x.edges = rows.steps - 1;
  x.offsets = offsets;
  x.indptr = rows.indptr;
  x.indices = rows.indices;
  x.values = rows.values;
  x.dense = rows.dense;
  x.edge_indptr = rows.edge_indptr;
  x.edge_indices = rows.edge_indices;
  require(m.n_edge_dense == 0 && (!m.n_dense || x.dense) && (!m.edge_columns || x.edge_indptr),
          "the rows do not fit the model");
  check_columns(x.indptr, x.indices, x.nodes, m.columns);
  if (m.edge_columns) check_columns(x.edge_indptr, x.edge_indices, x.edges, m.edge_columns);
  scratch.score.resize(rows.steps * m.stride);
  node_scores(x, 0, scratch.score.data());
  const double* log = loaded_.edges().table().log;
  if (!m.edge_features())
    return m.k->best_path(m.labels, m.stride, rows.steps, scratch.score.data(), log, loaded_.edges().log_t(), path);
  scratch.table.resize((int64_t)m.labels * m.stride);
  const FeatureEdges source(m, x, weights_.data(), log, nullptr);
  return m.k->best_path_each(source, 0, m.labels, m.stride, rows.steps, scratch.score.data(), scratch.table.data(),
                             path);
}

void Tagger::scores(const BatchArrays& arrays, Array2<double> node, Array3<double> edge, int n_jobs) const {
  const Model& m = *model_;
  const BatchView x = arrays.view(m);
  require((int64_t)node.shape(0) == x.nodes && (int)node.shape(1) == m.labels, "outputs do not fit");
  require((int64_t)edge.shape(0) == (m.edge_features() ? x.edges : 1) && (int)edge.shape(1) == m.labels &&
              (int)edge.shape(2) == m.labels,
          "outputs do not fit");
  nb::gil_scoped_release unlocked;
  const double* log = loaded_.edges().table().log;
  const FeatureEdges source(m, x, weights_.data(), log, nullptr);
  const int parts = std::max(1, std::min<int>(n_jobs, (int)std::max<int64_t>(1, x.sequences)));
  const std::vector<int64_t> cut = split_sequences(x.offsets, x.sequences, parts);
  run_parts(parts, [&](int p) {
    Buffer<double> score, table;
    table.resize((int64_t)m.labels * m.stride);
    for (int64_t s = cut[p]; s < cut[p + 1]; s++) {
      const int64_t first = x.offsets[s], T = x.offsets[s + 1] - first;
      if (!T) continue;
      score.resize(T * m.stride);
      node_scores(x, s, score.data());
      for (int64_t t = 0; t < T; t++)
        std::memcpy(node.data() + (first + t) * m.labels, score.data() + t * m.stride, sizeof(double) * m.labels);
      for (int64_t e = x.edge_offsets[s]; m.edge_features() && e < x.edge_offsets[s + 1]; e++) {
        source.fill(e, table.data());
        for (int64_t i = 0; i < m.labels; i++)
          std::memcpy(edge.data() + (e * m.labels + i) * m.labels, table.data() + i * m.stride, sizeof(double) * m.labels);
      }
    }
  });
  if (!m.edge_features())
    for (int64_t i = 0; i < m.labels; i++)
      std::memcpy(edge.data() + i * m.labels, log + i * m.stride, sizeof(double) * m.labels);
}

void Tagger::node_scores(const BatchView& x, int64_t s, double* score) const {
  const Model& m = *model_;
  const int64_t first = x.offsets[s], T = x.offsets[s + 1] - first;
  score_rows(m, loaded_.node(m), loaded_.base(), x, first, T, score);
  if (ends_)
    for (int j = 0; j < m.labels; j++) {
      score[j] += ends_[j];
      score[(T - 1) * m.stride + j] += ends_[m.labels + j];
    }
}

void pull(const Model& m, const BatchArrays& arrays, Array2<const double> node, Array3<const double> edge,
          Array1<double> out) {
  const BatchView x = arrays.view(m);
  require((int64_t)node.shape(0) == x.nodes && (int)node.shape(1) == m.labels, "node gradient does not fit");
  require((int64_t)edge.shape(0) == (m.edge_features() ? x.edges : 1) && (int)edge.shape(1) == m.labels &&
              (int)edge.shape(2) == m.labels,
          "edge gradient does not fit");
  require((int64_t)out.shape(0) == m.n_weights, "output does not fit");
  nb::gil_scoped_release unlocked;
  double* g = out.data();
  const int64_t L = m.labels;
  for (int64_t n = 0; n < x.nodes; n++) {
    const double* from = node.data() + n * L;
    for (int64_t p = x.indptr[n]; p < x.indptr[n + 1]; p++) {
      const int64_t c = x.indices[p], first = m.first_feature(c), stop = m.first_feature(c + 1);
      const double value = x.values ? x.values[p] : 1.0;
      for (int64_t f = first; f < stop; f++) g[f] += value * from[m.all_pairs ? f - first : m.feature_label[f]];
    }
    for (int64_t d = 0; d < m.n_dense; d++)
      for (int64_t j = 0; j < L; j++) g[m.at_dense + d * L + j] += x.dense[n * m.n_dense + d] * from[j];
    for (int64_t j = 0; m.bias && j < L; j++) g[m.at_bias + j] += from[j];
  }
  for (int64_t s = 0; m.boundaries && s < x.sequences; s++)
    for (int64_t j = 0; x.offsets[s] < x.offsets[s + 1] && j < L; j++) {
      g[m.at_start + j] += node.data()[x.offsets[s] * L + j];
      g[m.at_end + j] += node.data()[(x.offsets[s + 1] - 1) * L + j];
    }
  std::vector<double> table(L * m.stride);
  const FeatureEdges source(m, x, nullptr, nullptr, g + m.at_pairs);
  for (int64_t e = 0; e < (int64_t)edge.shape(0); e++) {
    if (m.edge_features()) {
      for (int64_t i = 0; i < L; i++)
        std::memcpy(table.data() + i * m.stride, edge.data() + (e * L + i) * L, sizeof(double) * L);
      source.take(e, table.data(), 1.0);
    } else {
      for (size_t p = 0; p < m.pairs.size(); p++) g[m.at_pairs + p] += edge.data()[m.pairs[p]];
    }
  }
}

}  // namespace crfield
