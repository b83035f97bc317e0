// Score, infer and pull back, fused per group of sequences so that nothing leaves the cache in between.
//
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

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
  Sweep s = part.scratch.prepare(g, L, stride, table.words, each || !table.safe, table.sparse);
  const NodeWeights weights = loaded.node(m);
  if (weights.float_rows)
    gather_rounded(g, weights, base, part, s.score);
  else
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
  // What the labels leave comes first where it leaves the scores alone
  const Sets& own = sets_[&g - groups_.data()];
  LabelSets sets;
  if (own.size && gold && table.safe && !table.sparse && !each) {
    const int lanes = m.k->lanes, count = (int)own.label.size() / own.size;
    const int64_t pair = (own.size * own.size + lanes - 1) / lanes * lanes;
    part.scratch.second.resize(2 * count * count * pair + (2 * own.size + 1) * (int64_t)g.steps * lanes);
    part.third.resize(g.rows * own.size);
    double* tables = part.scratch.second.data();
    sets = {count, own.size, own.label.data(), own.of.data(), tables, tables + 2 * count * count * pair,
            part.third.data()};
    for (int b = 0; b < g.width; b++) part.scratch.factor[b] = -weight_[g.sequence[b]];
    s.counts = part.counts.data();
    m.k->sweep_sets(table, sets, s);
    for (int b = 0; b < g.width; b++) value -= weight_[g.sequence[b]] * s.total[b];
  } else if (g.partial && gold) {
    part.scratch.second.resize(cells);
    std::memcpy(part.scratch.second.data(), s.score, sizeof(double) * cells);
  }
  const uint32_t* cell = gold_cell_.data() + g.row;
  if (!g.partial && gold && !weighted_ && !each) {
    double sum[4] = {0, 0, 0, 0};
    int64_t r = 0;
    for (; r + 4 <= g.rows; r += 4)
      for (int k = 0; k < 4; k++) sum[k] += s.score[cell[r + k]];
    for (; r < g.rows; r++) sum[0] += s.score[cell[r]];
    value -= (sum[0] + sum[1]) + (sum[2] + sum[3]);
  } else if (!g.partial && gold) {
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
  }
  infer(1.0);
  for (int b = 0; b < g.width; b++) value += weight_[g.sequence[b]] * s.total[b];
  double* belief = s.belief;
  if (!gold) {
    for (int64_t k = 0; k < cells; k++) belief[k] -= belief[k] * belief[k];
  } else if (!g.partial) {
    for (int64_t r = 0; r < g.rows; r++) belief[cell[r]] -= 1;
  } else if (sets.count) {
    for (int64_t r = 0; r < g.rows; r++) {
      const int32_t* label = sets.label + (int64_t)sets.of[r] * sets.size;
      const double* left = sets.belief + r * sets.size;
      for (int i = 0; i < sets.size && label[i] >= 0; i++) belief[r * stride + label[i]] -= left[i];
    }
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

// Zeroed sums of a share, with room for the gradients of `merged` rows.
void Problem::clear_part(const Model& m, int share, int64_t merged, Part& part) {
  auto clear = [](Buffer<double>& b, int64_t n) {
    b.resize(n);
    b.zero();
  };
  const int64_t table_size = (int64_t)m.labels * m.stride;
  if (m.direct) {
    if (share) clear(part.rows, m.at_dense + 8);
    clear(part.merged, merged * m.stride);
  } else {
    clear(part.rows, (m.rows() + merged) * m.stride + 8);
    if (share) clear(part.single, m.at_dense);
  }
  clear(part.dense, m.n_dense * m.stride);
  for (Buffer<double>* b : {&part.bias, &part.start, &part.end}) clear(*b, m.stride);
  clear(part.counts, table_size);
  clear(part.direct, table_size);
  clear(part.pair_counts, (int64_t)m.pairs.size());
  if (m.edge_features()) clear(part.tail, m.n_weights - m.at_pairs);
}

// One share of the groups, from zeroed sums: every `shares`-th group, so that long and short ones are dealt evenly.
void Problem::one_share(int share, int shares, const Call& call, const Shared& shared, Part& part) const {
  const Model& m = *model_;
  if (!part.running) {
    // The first share's features go straight to where the result will be.
    if (share == 0) std::memset(shared.out, 0, sizeof(double) * m.at_dense);
    clear_part(m, share, merged_.size(), part);
  }
  NodeGradient out;
  out.rows = m.direct && share == 0 ? shared.out : part.rows.data();
  out.merged = m.direct ? part.merged.data() : out.rows + m.rows() * m.stride;
  out.single = share == 0 ? shared.out : part.single.data();
  out.dense = part.dense.data();
  part.gather_rows = &shared.plain;
  part.value = part.error = 0;
  const NodeWeights weights = call.loaded.node(m);
  for (size_t k = share; k < groups_.size(); k += shares) {
    const Group& g = groups_[k];
    if (const int n = most_beside(k, shares, call, shared, part, out)) {
      k += (n - 1) * (size_t)shares;
      continue;
    }
    part.value += one_group(g, call.loaded, call.loaded.base(), 1.0, shared.boundary, part, shared.mode);
    m.k->scatter(weights, shared.scattered, g.row, g.rows, part.scratch.belief.data(), nullptr, out);
  }
  spread_merged(out);
}

// Weights of merged rows: the sums of their members', which are columns or merged rows before them.
void Problem::sum_merged(Loaded& loaded) const {
  const Model& m = *model_;
  const int64_t n = m.rows();
  auto add_up = [&](auto* rows, auto* sums, int64_t step) {  // rows of the model, and of the sums
    using T = std::remove_reference_t<decltype(*sums)>;
    for (int64_t v = 0; v < merged_.size(); v++) {
      T* sum = sums + v * m.stride;
      std::memset(sum, 0, sizeof(T) * m.stride);
      for (int64_t q = merged_.ptr[v]; q < merged_.ptr[v + 1]; q++) {
        const int64_t k = merged_.member[q];
        const T* row = k >= n ? sums + (k - n) * m.stride : rows + k * step;
        for (int j = 0; j < m.labels; j++) sum[j] += row[j];
      }
    }
  };
  if (m.direct)
    add_up(loaded.w, loaded.rows(), m.labels);
  else if (loaded.single())
    add_up(loaded.float_rows(), loaded.float_rows() + n * m.stride, m.stride);
  else
    add_up(loaded.rows(), loaded.rows() + n * m.stride, m.stride);
}

// Gradients of merged rows, added to each member's: the last ones first, as members may be merged rows themselves.
void Problem::spread_merged(const NodeGradient& g) const {
  const Model& m = *model_;
  const int64_t n = m.rows();
  double* sums = g.merged;
  for (int64_t v = merged_.size() - 1; v >= 0; v--) {
    const double* from = sums + v * m.stride;
    for (int64_t q = merged_.ptr[v]; q < merged_.ptr[v + 1]; q++) {
      const int64_t k = merged_.member[q];
      double* to = k >= n ? sums + (k - n) * m.stride : g.rows + k * m.row_stride();
      for (int j = 0; j < m.labels; j++) to[j] += from[j];
    }
  }
}

// A share's sums of the node features of some columns, added to the result; those of the first that are not in dense
// rows are there already.
void Problem::fold_columns(const Part& part, int64_t from, int64_t to, bool first, double* out) const {
  const Model& m = *model_;
  const double* sums = m.direct ? part.rows.data() : part.single.data();
  const int64_t begin = m.first_feature(from), end = m.first_feature(to);
  for (int64_t f = begin; !first && f < end; f++) out[f] += sums[f];
  if (m.direct) return;
  auto row_from = [&](int64_t column) {
    return std::lower_bound(m.column_of_row.begin(), m.column_of_row.end(), column) - m.column_of_row.begin();
  };
  for (int64_t row = row_from(from), stop = row_from(to); row < stop; row++) {
    const double* of_row = part.rows.data() + row * m.stride;
    const int64_t c = m.column_of_row[row], at = m.first_feature(c);
    for (int64_t f = at; f < m.first_feature(c + 1); f++) out[f] += of_row[m.all_pairs ? f - at : m.feature_label[f]];
  }
}

// Everything else of a share: dense block, intercepts, transitions, edge features.
void Problem::fold_rest(const Part& part, const EdgeTable& table, double* variance, double* out) const {
  const Model& m = *model_;
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
    const int64_t at = m.pair_place[p];
    const double met = table.sparse ? part.pair_counts[p] : part.counts[at];
    out[m.at_pairs + p] += met * table.prob[at] + part.direct[at];
  }
  for (int64_t f = m.at_pairs; m.edge_features() && f < m.n_weights; f++) out[f] += part.tail[f - m.at_pairs];
}

// Sums are made in shares of the groups and the shares added in order. There are at least SHARES of them however few
// the threads, so one and two threads give the same bits; a single thread needs memory for one share only. More
// shares would extend that to more threads, at the price of clearing and adding them up on every machine.
void Problem::run(const double* w, double* out, int n_jobs, Mode mode, double& value, double* error) const {
  const Model& m = *model_;
  const int most = (int)std::max<size_t>(1, groups_.size());
  const int shares = std::min(std::max(SHARES, n_jobs), most);
  const int threads = std::min(n_jobs, shares);
  std::unique_ptr<Call> call = borrow(threads == 1 ? 1 : shares);
  call->loaded.set(m, w, threads, merged_.size(), error && !values_ && !m.n_dense && !m.edge_features());
  sum_merged(call->loaded);
  const EdgeTable& table = call->loaded.edges().table();
  std::vector<double> ends;
  Shared shared{rows(), rows(), m.ends(w, ends), mode, out, call->loaded.single()};
  if (mode == Mode::CURVATURE) square_values(*call, shared.scattered);
  std::memset(out + m.at_dense, 0, sizeof(double) * (m.n_weights - m.at_dense));
  std::vector<double> variance(m.labels, 0.0);
  value = 0;
  if (threads == 1) {
    Part& part = *call->parts[0];
    for (int q = 0; q < shares; q++) {
      one_share(q, shares, *call, shared, part);
      fold_columns(part, 0, m.columns, q == 0, out);
      fold_rest(part, table, variance.data(), out);
      value += part.value;
      if (error) *error += part.error;
    }
  } else {
    run_parts(threads, [&](int t) {
      for (int q = shares * t / threads; q < shares * (t + 1) / threads; q++)
        one_share(q, shares, *call, shared, *call->parts[q]);
    });
    run_parts(threads, [&](int t) {
      for (int q = 0; q < shares; q++)
        fold_columns(*call->parts[q], m.columns * t / threads, m.columns * (t + 1) / threads, q == 0, out);
    });
    for (int q = 0; q < shares; q++) {
      fold_rest(*call->parts[q], table, variance.data(), out);
      value += call->parts[q]->value;
      if (error) *error += call->parts[q]->error;
    }
  }
  if (mode == Mode::CURVATURE)
    share_variance(variance, out);
  else if (!m.edge_features()) {
    for (size_t p = 0; p < m.pairs.size(); p++) {
      out[m.at_pairs + p] -= gold_pairs_[p];
      value -= gold_pairs_[p] * w[m.at_pairs + p];
    }
    value -= gold_fixed_;
  }
  give_back(std::move(call));
}

// The curvature of a weight takes the squares of its values.
void Problem::square_values(Call& call, NodeRows& x) const {
  auto square = [](Buffer<double>& to, const Buffer<double>& from) {
    to.resize(from.size());
    for (int64_t k = 0; k < from.size(); k++) to[k] = from[k] * from[k];
    return to.data();
  };
  if (values_) {
    x.row_value = square(call.row_square, row_value_);
    for (int k = 0; k < SINGLES; k++) x.single[k].value = square(call.single_square[k], singles_[k].value);
    x.list_value = square(call.list_square, list_value_);
  }
  x.dense = square(call.dense_square, dense_);
}

// Transitions into a label share the label's variance in proportion to how often they are expected; edge features
// get the mean.
void Problem::share_variance(const std::vector<double>& variance, double* out) const {
  const Model& m = *model_;
  std::vector<double> into(m.labels, 0.0);
  double mean = 0;
  for (int j = 0; j < m.labels; j++) mean += variance[j] / m.labels;
  for (size_t p = 0; p < m.pairs.size(); p++) into[m.pairs[p] % m.labels] += out[m.at_pairs + p];
  for (size_t p = 0; p < m.pairs.size(); p++) {
    const int j = m.pairs[p] % m.labels;
    out[m.at_pairs + p] = into[j] > 0 ? out[m.at_pairs + p] / into[j] * variance[j] : variance[j] / m.labels;
  }
  for (int64_t f = m.at_edge; f < m.n_weights; f++) out[f] = mean;
}

double Problem::evaluate(const double* w, double* gradient, int n_jobs) const {
  double value = 0;
  run(w, gradient, n_jobs, Mode::GRADIENT, value);
  return value;
}

double Problem::evaluate_single(const double* w, double* gradient, int n_jobs, double& error) const {
  double value = 0;
  error = 0;
  run(w, gradient, n_jobs, Mode::GRADIENT, value, &error);
  return value;
}

void Problem::curvature(const double* w, double* out, int n_jobs) const {
  double value = 0;
  run(w, out, n_jobs, Mode::CURVATURE, value);
}

}  // namespace crfield
