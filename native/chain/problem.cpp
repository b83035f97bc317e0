// Score, infer and pull back, fused per group of sequences so that nothing leaves the cache in between.
//
// Each thread owns a share of the groups and a gradient of its own; the shares depend only on the number of
// threads and are added in order, so the same number of threads gives the same bits.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "chain/problem_memory.hpp"
#include "threads.hpp"

namespace crfield {

// Value and beliefs of one group, added to the part. Scores are scale · (columns · weights) + base; `boundary`
// holds start and end scores (2 L) or is null.
double Problem::one_group(const Group& g, const Loaded& loaded, const double* base, double scale,
                          const double* boundary, Part& part, Mode mode) const {
  const Model& m = *model_;
  const EdgeTable& table = loaded.edges().table();
  const int L = m.labels, stride = m.stride;
  const int64_t cells = g.rows * stride;
  const bool each = m.edge_features();
  Sweep s = part.scratch.prepare(g, L, stride, table.words, each || !table.safe);
  const NodeWeights weights = loaded.node(m);
  m.k->gather(weights, *part.gather_rows, g.row, g.rows, base, s.score);
  if (scale != 1.0)
    for (int64_t r = 0; r < g.rows; r++)
      for (int j = 0; j < L; j++) s.score[r * stride + j] = scale * (s.score[r * stride + j] - base[j]) + base[j];

  auto last_row = [&](int b) {
    int t = g.steps - 1;
    while (g.active[t] <= b) t--;
    return g.start[t] + b;
  };
  if (boundary)
    for (int b = 0; b < g.width; b++) {
      double *first = s.score + (int64_t)b * stride, *last = s.score + last_row(b) * stride;
      for (int j = 0; j < L; j++) first[j] += boundary[j];
      for (int j = 0; j < L; j++) last[j] += boundary[L + j];
    }

  const BatchView edge_batch = edge_view();
  FeatureEdges source(m, edge_batch, loaded.w, table.log, each ? part.tail.data() : nullptr);
  std::vector<int64_t> first_edge(each ? g.width : 0);
  for (int b = 0; b < (int)first_edge.size(); b++) first_edge[b] = edge_offsets_[g.sequence[b]];
  auto infer = [&](double sign) {
    for (int b = 0; b < g.width; b++) part.scratch.factor[b] = sign * weight_[g.sequence[b]];
    s.counts = table.sparse ? nullptr : part.counts.data();
    s.pair_counts = table.sparse ? part.pair_counts.data() : nullptr;
    s.direct = part.direct.data();
    if (each)
      m.k->sweep_each(source, first_edge.data(), s);
    else
      m.k->sweep(table, s);
  };

  double value = 0;
  const bool gold = mode == Mode::GRADIENT;
  if (g.partial && gold) {
    part.scratch.second.resize(cells);
    std::memcpy(part.scratch.second.data(), s.score, sizeof(double) * cells);
  }
  if (!g.partial && gold)
    for (int t = 0; t < g.steps; t++)
      for (int b = 0; b < g.active[t]; b++) {
        const int64_t r = g.start[t] + b;
        value -= weight_[g.sequence[b]] * s.score[r * stride + gold_[g.row + r]];
        if (each && t) {
          const int i = gold_[g.row + g.start[t - 1] + b], j = gold_[g.row + r];
          value -= weight_[g.sequence[b]] * source.score(first_edge[b] + t - 1, i, j);
          source.count(first_edge[b] + t - 1, i, j, -weight_[g.sequence[b]]);
        }
      }
  infer(1.0);
  for (int b = 0; b < g.width; b++) value += weight_[g.sequence[b]] * s.total[b];
  double* belief = s.belief;
  if (!gold) {
    for (int64_t k = 0; k < cells; k++) belief[k] -= belief[k] * belief[k];
  } else if (!g.partial) {
    for (int64_t r = 0; r < g.rows; r++) belief[r * stride + gold_[g.row + r]] -= 1;
  } else {
    part.third.resize(cells);
    std::memcpy(part.third.data(), belief, sizeof(double) * cells);
    const uint8_t* allowed = allowed_.data() + (g.row - first_partial_row_) * L;
    double* masked = part.scratch.second.data();
    for (int64_t r = 0; r < g.rows; r++)
      for (int j = 0; j < L; j++)
        if (!allowed[r * L + j]) masked[r * stride + j] = -INFINITY;
    std::memcpy(s.score, masked, sizeof(double) * cells);
    infer(-1.0);
    for (int b = 0; b < g.width; b++) value -= weight_[g.sequence[b]] * s.total[b];
    for (int64_t k = 0; k < cells; k++) belief[k] = part.third[k] - belief[k];
  }
  if (weighted_)
    for (int t = 0; t < g.steps; t++)
      for (int b = 0; b < g.active[t]; b++)
        for (int j = 0; j < L; j++) belief[(g.start[t] + b) * stride + j] *= weight_[g.sequence[b]];

  if (m.bias || mode == Mode::CURVATURE)
    for (int64_t r = 0; r < g.rows; r++)
      for (int j = 0; j < L; j++) part.bias[j] += belief[r * stride + j];
  if (m.boundaries)
    for (int b = 0; b < g.width; b++)
      for (int j = 0; j < L; j++) {
        part.start[j] += belief[(int64_t)b * stride + j];
        part.end[j] += belief[last_row(b) * stride + j];
      }
  return value;
}

void Problem::run(const double* w, double* out, int n_jobs, Mode mode, double& value) const {
  const Model& m = *model_;
  const int parts = std::max(1, std::min<int>(n_jobs, (int)std::max<size_t>(1, groups_.size())));
  std::unique_ptr<Call> call = borrow(parts);
  call->loaded.set(m, w, parts);
  const Loaded& loaded = call->loaded;
  const NodeRows plain = rows();
  NodeRows squared = plain;
  if (mode == Mode::CURVATURE) {
    auto square = [](Buffer<double>& to, const Buffer<double>& from) {
      to.resize(from.size());
      for (int64_t k = 0; k < from.size(); k++) to[k] = from[k] * from[k];
      return to.data();
    };
    if (values_) {
      squared.row_value = square(call->row_square, row_value_);
      squared.pair_value = square(call->pair_square, pair_value_);
      squared.list_value = square(call->list_square, list_value_);
    }
    squared.dense = square(call->dense_square, dense_);
  }
  const int64_t table_size = (int64_t)m.labels * m.stride, n_features = m.at_dense;
  const std::vector<int64_t> cut = split_groups(groups_, parts);
  const double* boundary = m.boundaries ? w + m.at_start : nullptr;
  run_parts(parts, [&](int p) {
    Part& part = *call->parts[p];
    auto clear = [](Buffer<double>& b, int64_t n) {
      b.resize(n);
      b.zero();
    };
    part.out = NodeGradient{};
    if (p == 0) {
      std::memset(out, 0, sizeof(double) * m.n_weights);
      part.out.single = out;
    } else if (!m.direct) {
      clear(part.single, n_features);
      part.out.single = part.single.data();
    }
    if (m.direct && p == 0) {
      part.out.rows = out;
    } else {
      clear(part.rows, m.rows() * m.row_stride() + 8);
      part.out.rows = part.rows.data();
    }
    clear(part.dense, m.n_dense * m.stride);
    part.out.dense = part.dense.data();
    for (Buffer<double>* b : {&part.bias, &part.start, &part.end}) clear(*b, m.stride);
    clear(part.counts, table_size);
    clear(part.direct, table_size);
    clear(part.pair_counts, (int64_t)m.pairs.size());
    if (m.edge_features()) clear(part.tail, m.n_weights - m.at_pairs);
    part.gather_rows = &plain;
    part.value = 0;
    const NodeWeights weights = loaded.node(m);
    for (int64_t k = cut[p]; k < cut[p + 1]; k++) {
      const Group& g = groups_[k];
      part.value += one_group(g, loaded, loaded.base(), 1.0, boundary, part, mode);
      m.k->scatter(weights, squared, g.row, g.rows, part.scratch.belief.data(), nullptr, part.out);
    }
  });
  value = 0;
  for (int p = 0; p < parts; p++) value += call->parts[p]->value;

  run_parts(parts, [&](int p) {
    if (m.direct) {
      const int64_t from = n_features * p / parts, to = n_features * (p + 1) / parts;
      for (int q = 1; q < parts; q++) {
        const double* add = call->parts[q]->rows.data();
        for (int64_t f = from; f < to; f++) out[f] += add[f];
      }
      return;
    }
    const int64_t from = m.columns * p / parts, to = m.columns * (p + 1) / parts;
    for (int64_t c = from; c < to; c++) {
      const int64_t row = m.row_of_column[c], first = m.first_feature(c), stop = m.first_feature(c + 1);
      for (int64_t f = first; f < stop; f++) {
        double sum = 0;
        if (row >= 0) {
          const int j = m.all_pairs ? (int)(f - first) : m.feature_label[f];
          for (int q = 0; q < parts; q++) sum += call->parts[q]->rows[row * m.stride + j];
        } else {
          sum = out[f];
          for (int q = 1; q < parts; q++) sum += call->parts[q]->single[f];
        }
        out[f] = sum;
      }
    }
  });
  const EdgeTable& table = loaded.edges().table();
  std::vector<double> variance(m.labels, 0.0), into(m.labels, 0.0);
  for (int q = 0; q < parts; q++) {
    const Part& part = *call->parts[q];
    for (int64_t d = 0; d < m.n_dense; d++)
      for (int j = 0; j < m.labels; j++) out[m.at_dense + d * m.labels + j] += part.dense[d * m.stride + j];
    for (int j = 0; j < m.labels; j++) {
      variance[j] += part.bias[j];
      if (m.bias) out[m.at_bias + j] += part.bias[j];
      if (m.boundaries) {
        out[m.at_start + j] += part.start[j];
        out[m.at_end + j] += part.end[j];
      }
    }
    for (size_t p = 0; p < m.pairs.size(); p++) {
      const int64_t at = m.pairs[p] / m.labels * (int64_t)m.stride + m.pairs[p] % m.labels;
      const double met = table.sparse ? part.pair_counts[p] : part.counts[at];
      out[m.at_pairs + p] += met * table.prob[at] + part.direct[at];
    }
    for (int64_t f = m.at_pairs; m.edge_features() && f < m.n_weights; f++) out[f] += part.tail[f - m.at_pairs];
  }
  if (mode == Mode::CURVATURE) {
    // expected transitions into a label share the label's variance in proportion
    for (size_t p = 0; p < m.pairs.size(); p++) into[m.pairs[p] % m.labels] += out[m.at_pairs + p];
    for (size_t p = 0; p < m.pairs.size(); p++) {
      const int j = m.pairs[p] % m.labels;
      out[m.at_pairs + p] = into[j] > 0 ? out[m.at_pairs + p] / into[j] * variance[j] : variance[j] / m.labels;
    }
    double mean = 0;
    for (int j = 0; j < m.labels; j++) mean += variance[j] / m.labels;
    for (int64_t f = m.at_edge; f < m.n_weights; f++) out[f] = mean;
  } else if (!m.edge_features()) {
    for (size_t p = 0; p < m.pairs.size(); p++) {
      out[m.at_pairs + p] -= gold_pairs_[p];
      value -= gold_pairs_[p] * w[m.at_pairs + p];
    }
  }
  give_back(std::move(call));
}

double Problem::evaluate(const double* w, double* gradient, int n_jobs) const {
  double value = 0;
  run(w, gradient, n_jobs, Mode::GRADIENT, value);
  return value;
}

void Problem::curvature(const double* w, double* out, int n_jobs) const {
  double value = 0;
  run(w, out, n_jobs, Mode::CURVATURE, value);
}

}  // namespace crfield
