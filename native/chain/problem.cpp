// Score, infer and pull back, fused per group of sequences so that nothing leaves the cache in between.
//
// Each thread owns a share of the groups and a gradient of its own; the shares depend only on the number of
// threads and are added in order, so the same number of threads gives the same bits.
#include "chain/problem.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "threads.hpp"

namespace crfield {

struct Problem::Part {
  Scratch scratch;
  Buffer<double> rows, single, dense, bias, start, end, counts, pair_counts, direct, tail, third;
  NodeGradient out;
  NodeRows scatter_rows;
  const NodeRows* gather_rows = nullptr;
  double value = 0;
};

struct Problem::Call {
  Loaded loaded;
  std::vector<std::unique_ptr<Part>> parts;
  Buffer<double> mask, row_square, pair_square, list_square, dense_square;
};

Problem::~Problem() = default;

std::unique_ptr<Problem::Call> Problem::borrow(int parts) const {
  std::unique_ptr<Call> call;
  {
    std::lock_guard<std::mutex> hold(lock_);
    if (!idle_.empty()) {
      call = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!call) call = std::make_unique<Call>();
  while ((int)call->parts.size() < parts) call->parts.push_back(std::make_unique<Part>());
  return call;
}

void Problem::give_back(std::unique_ptr<Call> call) const {
  std::lock_guard<std::mutex> hold(lock_);
  idle_.push_back(std::move(call));
}

Problem::Problem(std::shared_ptr<const Model> model, const BatchView& x, const int32_t* labels, const uint8_t* allowed,
                 const double* weight, int group_width)
    : model_(std::move(model)) {
  const Model& m = *model_;
  std::vector<uint8_t> partial(x.sequences, 0);
  for (int64_t s = 0; s < x.sequences; s++)
    for (int64_t n = x.offsets[s]; n < x.offsets[s + 1]; n++) {
      if (labels[n] >= m.labels || labels[n] < -1) throw std::invalid_argument("label code out of range");
      if (labels[n] < 0) {
        if (!allowed) throw std::invalid_argument("an unknown label needs the table of allowed labels");
        partial[s] = 1;
      }
    }
  weight_.assign(x.sequences, 1.0);
  weighted_ = weight != nullptr;
  if (weight) std::copy(weight, weight + x.sequences, weight_.begin());
  std::vector<int64_t> node_of_row;
  groups_ = make_groups(x.offsets, x.sequences, group_width, partial.data(), node_of_row);
  pack_rows(x, node_of_row);

  const int64_t n_rows = (int64_t)node_of_row.size();
  gold_.resize(n_rows);
  for (int64_t r = 0; r < n_rows; r++) gold_[r] = labels[node_of_row[r]];
  first_partial_row_ = n_rows;
  for (const Group& g : groups_)
    if (g.partial) first_partial_row_ = std::min(first_partial_row_, g.row);
  allowed_.assign((size_t)(n_rows - first_partial_row_) * m.labels, 0);
  for (int64_t r = first_partial_row_; r < n_rows; r++)
    for (int j = 0; j < m.labels; j++)
      allowed_[(size_t)(r - first_partial_row_) * m.labels + j] =
          gold_[r] >= 0 ? gold_[r] == j : allowed[node_of_row[r] * m.labels + j] != 0;

  edge_offsets_ = x.edge_offsets;
  gold_pairs_.assign(m.pairs.size(), 0.0);
  if (m.edge_features()) {
    auto copy = [](auto& to, const auto* from, int64_t n) {
      to.resize(from ? n : 0);
      if (from && n) std::memcpy(to.data(), from, sizeof(*from) * n);
    };
    const int64_t nnz = x.edge_indptr ? x.edge_indptr[x.edges] : 0;
    copy(edge_indptr_, x.edge_indptr, x.edges + 1);
    copy(edge_indices_, x.edge_indices, nnz);
    copy(edge_values_, x.edge_values, nnz);
    copy(edge_dense_, x.edge_dense, x.edges * m.n_edge_dense);
  } else {
    std::vector<int32_t> place((size_t)m.labels * m.labels, -1);
    for (size_t p = 0; p < m.pairs.size(); p++) place[m.pairs[p]] = (int32_t)p;
    for (const Group& g : groups_) {
      if (g.partial) continue;
      for (int t = 1; t < g.steps; t++)
        for (int b = 0; b < g.active[t]; b++) {
          const int i = gold_[g.row + g.start[t - 1] + b], j = gold_[g.row + g.start[t] + b];
          const int32_t p = place[(size_t)i * m.labels + j];
          if (p >= 0) gold_pairs_[p] += weight_[g.sequence[b]];
        }
    }
  }
}

void Problem::pack_rows(const BatchView& x, const std::vector<int64_t>& node_of_row) {
  const Model& m = *model_;
  const int64_t n_rows = (int64_t)node_of_row.size();
  values_ = x.values != nullptr;
  row_ptr_.resize(n_rows + 1);
  pair_ptr_.resize(n_rows + 1);
  list_ptr_.resize(n_rows + 1);
  auto row_of = [&](int64_t c) -> int64_t { return m.direct ? c : m.row_of_column[c]; };
  int64_t n_row = 0, n_pair = 0, n_list = 0;
  row_ptr_[0] = pair_ptr_[0] = list_ptr_[0] = 0;
  for (int64_t r = 0; r < n_rows; r++) {
    for (int64_t p = x.indptr[node_of_row[r]]; p < x.indptr[node_of_row[r] + 1]; p++) {
      const int64_t c = x.indices[p];
      if (row_of(c) >= 0) {
        n_row++;
      } else {
        const int64_t count = m.feature_ptr[c + 1] - m.feature_ptr[c];
        if (count <= 3)
          n_pair += count;
        else
          n_list++;
      }
    }
    row_ptr_[r + 1] = n_row;
    pair_ptr_[r + 1] = n_pair;
    list_ptr_[r + 1] = n_list;
  }
  row_item_.resize(n_row);
  pair_item_.resize(n_pair);
  pair_label_.resize(n_pair);
  list_item_.resize(n_list);
  row_value_.resize(values_ ? n_row : 0);
  pair_value_.resize(values_ ? n_pair : 0);
  list_value_.resize(values_ ? n_list : 0);
  n_row = n_pair = n_list = 0;
  for (int64_t r = 0; r < n_rows; r++)
    for (int64_t p = x.indptr[node_of_row[r]]; p < x.indptr[node_of_row[r] + 1]; p++) {
      const int64_t c = x.indices[p];
      const double value = values_ ? x.values[p] : 1.0;
      if (row_of(c) >= 0) {
        if (values_) row_value_[n_row] = value;
        row_item_[n_row++] = (int32_t)row_of(c);
      } else if (m.feature_ptr[c + 1] - m.feature_ptr[c] <= 3) {
        for (int64_t f = m.feature_ptr[c]; f < m.feature_ptr[c + 1]; f++) {
          if (values_) pair_value_[n_pair] = value;
          pair_label_[n_pair] = (uint16_t)m.feature_label[f];
          pair_item_[n_pair++] = (int32_t)f;
        }
      } else {
        if (values_) list_value_[n_list] = value;
        list_item_[n_list++] = (int32_t)c;
      }
    }
  dense_.resize(n_rows * m.n_dense);
  for (int64_t r = 0; r < n_rows && m.n_dense; r++)
    std::memcpy(dense_.data() + r * m.n_dense, x.dense + node_of_row[r] * m.n_dense, sizeof(double) * m.n_dense);
}

NodeRows Problem::rows() const {
  NodeRows x;
  x.row_ptr = row_ptr_.data();
  x.pair_ptr = pair_ptr_.data();
  x.list_ptr = list_ptr_.data();
  x.row_item = row_item_.data();
  x.pair_item = pair_item_.data();
  x.pair_label = pair_label_.data();
  x.list_item = list_item_.data();
  x.values = values_;
  if (values_) {
    x.row_value = row_value_.data();
    x.pair_value = pair_value_.data();
    x.list_value = list_value_.data();
  }
  x.dense = dense_.data();
  return x;
}

BatchView Problem::edge_view() const {
  BatchView x;
  x.edge_indptr = edge_indptr_.data();
  x.edge_indices = edge_indices_.data();
  x.edge_values = edge_values_.size() ? edge_values_.data() : nullptr;
  x.edge_dense = edge_dense_.data();
  return x;
}

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

// Stochastic gradient steps, one a group. Shrinking all weights by the ridge at each step is one multiplication:
// node weights are kept divided by `scale`.
double Problem::descend(double* w, const int64_t* order, int64_t n_order, const Epoch& epoch) const {
  const Model& m = *model_;
  if (m.edge_features()) throw std::invalid_argument("stochastic steps do not know edge features");
  std::unique_ptr<Call> call = borrow(1);
  Loaded& loaded = call->loaded;
  loaded.set(m, w, 1);
  Part& part = *call->parts[0];
  const NodeRows plain = rows();
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
  std::vector<double> pairs(w + m.at_pairs, w + m.at_edge), base(m.stride);
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
    loss += one_group(g, loaded, base.data(), scale, m.boundaries ? w + m.at_start : nullptr, part, Mode::GRADIENT);
    const double next = scale * keep;
    double* belief = part.scratch.belief.data();
    for (int64_t k = 0; k < g.rows * m.stride; k++) belief[k] *= -eta / next;
    m.k->scatter(loaded.node(m), plain, g.row, g.rows, belief, mask, target);
    scale = next;
    const EdgeTable& table = loaded.edges().table();
    for (size_t p = 0; p < m.pairs.size(); p++) {
      const int64_t at = m.pairs[p] / m.labels * (int64_t)m.stride + m.pairs[p] % m.labels;
      const double met = table.sparse ? part.pair_counts[p] : part.counts[at];
      pairs[p] = pairs[p] * keep - eta * (met * table.prob[at] + part.direct[at]);
    }
    if (!g.partial)
      for (int t = 1; t < g.steps; t++)
        for (int b = 0; b < g.active[t]; b++) {
          const int i = gold_[g.row + g.start[t - 1] + b], j = gold_[g.row + g.start[t] + b];
          const int32_t p = place[(size_t)i * m.labels + j];
          if (p < 0) continue;
          loss -= weight_[g.sequence[b]] * table.log[(int64_t)i * m.stride + j];
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
  give_back(std::move(call));
  return loss;
}

}  // namespace crfield
