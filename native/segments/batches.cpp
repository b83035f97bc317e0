#include "segments/batches.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "at_level.hpp"
#include "memory.hpp"
#include "segments/contract.hpp"
#include "segments/given.hpp"
#include "segments/products.hpp"
#include "segments/shape.hpp"
#include "threads.hpp"

namespace crfield {
namespace segments {
namespace {

constexpr double INF = std::numeric_limits<double>::infinity();

const Kernels* best_kernels() {
#if defined(CRFIELD_X86)
  return at_level(kernels_level2, kernels_level3, kernels_level4)();
#else
  return kernels_level0();
#endif
}

int padded(int64_t labels, const Kernels* k) { return (int)((labels + k->lanes - 1) / k->lanes * k->lanes); }

// A shared table with what the recursion needs of it.
class Table {
 public:
  Table(const Kernels* k, const Shape& shape, const Order& order, const double* edge, int stride) {
    edges_.order = order.label.data();
    if (!shape.shared) return;
    const int64_t L = shape.labels;
    log_.resize(L * stride);
    double top = -INF, low = INF;
    for (int64_t i = 0; i < L; i++)
      for (int64_t j = 0; j < stride; j++) {
        const double x = j < L ? edge[order.label[i] * L + order.label[j]] : -INF;
        log_[i * stride + j] = x;
        if (j < L) top = std::max(top, x), low = std::min(low, x);
      }
    edges_.log = log_.data();
    edges_.safe = low > -INF && top - low <= SAFE_SPREAD;
    if (!edges_.safe) return;
    prob_.resize(L * stride);
    edges_.shift = top;
    k->exponentiate(L * stride, log_.data(), top, prob_.data());
    edges_.prob = prob_.data();
  }
  Edges of(const Shape& shape, const double* edge, int64_t sequence) const {
    Edges e = edges_;
    if (!shape.shared) e.each = edge + shape.first_edge[sequence] * shape.labels * shape.labels;
    return e;
  }
  const Edges& edges() const { return edges_; }

 private:
  Buffer<double> log_, prob_;
  Edges edges_;
};

// The memory of one thread for one sequence after the other.
class Scratch {
 public:
  Scratch(const Shape& shape, const Order& order, int stride) : shape_(shape), order_(order), stride_(stride) {
    table_.resize(shape.labels * stride), counts_.resize(shape.labels * stride), direct_.resize(shape.labels * stride);
    counts_.zero(), direct_.zero();
  }
  Sweep at(int64_t steps) {
    score_.resize(steps * shape_.most * stride_);
    rows_.resize((5 * steps + 2) * stride_);
    rise_.resize(steps);
    Sweep s;
    s.steps = steps, s.labels = (int)shape_.labels, s.stride = stride_, s.most = (int)shape_.most;
    s.deep = order_.deep.data(), s.wide = order_.wide.data();
    s.score = score_.data(), s.rise = rise_.data(), s.table = table_.data();
    s.onwards = rows_.data(), s.start = s.onwards + (steps + 1) * stride_, s.ending = s.start + (steps + 1) * stride_;
    s.into = s.ending + steps * stride_, s.end = s.into + steps * stride_;
    s.counts = counts_.data(), s.direct = direct_.data();
    return s;
  }
  // Expected pairs of a shared table, added to out (L, L).
  void add_pairs(const Edges& e, double* out) const {
    for (int64_t i = 0; i < shape_.labels; i++)
      for (int64_t j = 0; j < shape_.labels; j++) {
        const int64_t at = i * stride_ + j;
        double& to = out[order_.label[i] * shape_.labels + order_.label[j]];
        to += direct_[at] + (e.safe ? counts_[at] * e.prob[at] : 0.0);
      }
  }

 private:
  const Shape& shape_;
  const Order& order_;
  int stride_;
  Buffer<double> score_, rows_, rise_, table_, counts_, direct_;
};

void pad(const Shape& shape, int64_t steps, int stride, const double* from, double* to) {
  const int64_t L = shape.labels;
  for (int64_t r = 0; r < steps * shape.most; r++) {
    std::memcpy(to + r * stride, from + r * L, sizeof(double) * L);
    for (int64_t j = L; j < stride; j++) to[r * stride + j] = -INF;
  }
}

// Parts of one sequence after the other as rows of the sweep, and room for their gradients.
class Rows {
 public:
  Rows(const Shape& shape, const Order& order, int stride) : shape_(shape), order_(order), stride_(stride) {
    spare_.resize(2 * stride);
  }
  void load(const Given& given, int64_t s, Own& o) {
    const int64_t size = o.steps * stride_;
    rows_.resize(4 * size);
    double* to = rows_.data();
    const Columns columns(given, order_.label);
    const int64_t first = shape_.begin(s);
    o.node = columns.take(given.node, first, o.steps, stride_, to);
    o.first = columns.take(given.first, first, o.steps, stride_, to + size);
    o.last = columns.take(given.last, first, o.steps, stride_, to + 2 * size);
    o.mean = columns.take(given.mean, first, o.steps, stride_, to + 3 * size);
    o.spare = spare_.data();
  }
  void clear_outputs(Own& o) {
    out_.resize(2 * o.steps * stride_);
    out_.zero();
    o.node_out = out_.data(), o.mean_out = o.mean ? out_.data() + o.steps * stride_ : nullptr;
  }

 private:
  const Shape& shape_;
  const Order& order_;
  int stride_;
  Buffer<double> rows_, out_, spare_;
};

}  // namespace

int level() { return best_kernels()->level; }

void sum_product(Ints offsets, Array3<const double> segment, Array3<const double> edge, Array1<double> total,
                 Array3<double> segment_out, Array3<double> edge_out, int n_jobs) {
  const int64_t N = (int64_t)segment.shape(0), D = (int64_t)segment.shape(1), L = (int64_t)segment.shape(2);
  require(offsets.shape(0) >= 1, "offsets must start at 0 and not fall");
  const Shape shape(offsets, N, D, L, &edge);
  require(shaped(total, shape.sequences) && shaped(segment_out, N, D, L) && shaped(edge_out, edge.shape(0), L, L),
          "outputs do not fit");
  nb::gil_scoped_release unlocked;
  const Kernels* k = best_kernels();
  const int stride = padded(L, k), parts = shape.parts(n_jobs);
  const Order order(shape, stride, k->lanes, nullptr);
  const Table table(k, shape, order, edge.data(), stride);
  const std::vector<int64_t> cut = shape.cut(parts);
  std::vector<std::vector<double>> pairs((size_t)parts, std::vector<double>(shape.shared ? L * L : 0, 0.0));
  run_parts(parts, [&](int p) {
    Scratch scratch(shape, order, stride);
    for (int64_t s = cut[p]; s < cut[p + 1]; s++) {
      const int64_t at = shape.begin(s) * D * L, steps = shape.steps(s);
      Sweep w = scratch.at(steps);
      pad(shape, steps, stride, segment.data() + at, w.score);
      if (!shape.shared) w.each_out = edge_out.data() + shape.first_edge[s] * L * L;
      total(s) = k->sum(table.of(shape, edge.data(), s), w);
      for (int64_t r = 0; r < steps * D; r++)
        std::memcpy(segment_out.data() + at + r * L, w.score + r * stride, sizeof(double) * L);
    }
    if (shape.shared) scratch.add_pairs(table.edges(), pairs[p].data());
  });
  if (!shape.shared) return;
  std::fill(edge_out.data(), edge_out.data() + L * L, 0.0);
  for (const auto& part : pairs)
    for (int64_t q = 0; q < L * L; q++) edge_out.data()[q] += part[q];
}

void max_product(Ints offsets, Array3<const double> segment, Array3<const double> edge, Array1<double> total,
                 Array1<int32_t> length, Array1<int32_t> label, int n_jobs) {
  const int64_t N = (int64_t)segment.shape(0), D = (int64_t)segment.shape(1), L = (int64_t)segment.shape(2);
  require(offsets.shape(0) >= 1, "offsets must start at 0 and not fall");
  const Shape shape(offsets, N, D, L, &edge);
  require(shaped(total, shape.sequences) && shaped(length, N) && shaped(label, N), "outputs do not fit");
  nb::gil_scoped_release unlocked;
  const Kernels* k = best_kernels();
  const int stride = padded(L, k), parts = shape.parts(n_jobs);
  const Order order(shape, stride, k->lanes, nullptr);
  const Table table(k, shape, order, edge.data(), stride);
  const std::vector<int64_t> cut = shape.cut(parts);
  run_parts(parts, [&](int p) {
    Scratch scratch(shape, order, stride);
    Buffer<int32_t> places;
    for (int64_t s = cut[p]; s < cut[p + 1]; s++) {
      const int64_t first = shape.begin(s), steps = shape.steps(s);
      Sweep w = scratch.at(steps);
      places.resize(2 * steps * L);
      pad(shape, steps, stride, segment.data() + first * D * L, w.score);
      total(s) = k->best(table.of(shape, edge.data(), s), w, length.data() + first, label.data() + first, places.data(),
                         places.data() + steps * L);
    }
  });
}

void expand(Ints offsets, Codes limit, Array2<const double> node, Part first, Part last, Part mean,
            Array2<const double> length, Ints ptr, Codes steps, Codes item, Ints item_ptr, Codes item_label,
            Array1<const double> weight, Array3<double> out, int n_jobs) {
  const int64_t N = (int64_t)node.shape(0), D = (int64_t)length.shape(0), L = (int64_t)node.shape(1);
  require(offsets.shape(0) >= 1 && (int64_t)length.shape(1) == L && item_ptr.shape(0) >= 1, "parts do not fit");
  const Shape shape(offsets, N, D, L, nullptr);
  const Kernels* k = best_kernels();
  const int stride = padded(L, k), parts = shape.parts(n_jobs);
  Given::checked(shape, limit);
  const Order order(shape, stride, k->lanes, nullptr);
  const Given given(shape, order, stride, limit, node, first, last, mean, length, ptr, steps, item, item_ptr, item_label,
                    weight);
  require(shaped(out, N, D, L), "out has the wrong shape");
  nb::gil_scoped_release unlocked;
  const std::vector<int64_t> cut = shape.cut(parts);
  run_parts(parts, [&](int p) {
    Scratch scratch(shape, order, stride);
    Rows rows(shape, order, stride);
    for (int64_t s = cut[p]; s < cut[p + 1]; s++) {
      const int64_t T = shape.steps(s);
      Sweep w = scratch.at(T);
      Own own = given.own(shape, order, s, stride);
      rows.load(given, s, own);
      k->expand(own, w.score);
      for (int64_t n = 0; n < T; n++)
        for (int64_t d = 0; d < D; d++) {
          double* to = out.data() + ((shape.begin(s) + n) * D + d) * L;
          if (d <= n)
            std::memcpy(to, w.score + (n * D + d) * stride, sizeof(double) * L);
          else
            std::fill(to, to + L, -INF);
        }
    }
  });
}

void expectations(Ints offsets, Codes limit, Codes space, Array2<const double> node, Part first, Part last, Part mean,
                  Array2<const double> length, Ints ptr, Codes steps, Codes item, Ints item_ptr, Codes item_label,
                  Array1<const double> weight, Array3<const double> edge, Array1<const double> factor,
                  Array1<double> total, Array2<double> node_out, PartOut first_out, PartOut last_out, PartOut mean_out,
                  Array2<double> length_out, Array1<double> weight_out, Array3<double> edge_out, int n_jobs) {
  const int64_t N = (int64_t)node.shape(0), D = (int64_t)length.shape(0), L = (int64_t)length.shape(1);
  const int64_t width = (int64_t)node.shape(1);
  require(offsets.shape(0) >= 1 && item_ptr.shape(0) >= 1, "parts do not fit");
  const bool own_columns = space.shape(0) == 0;
  require(own_columns ? width == L : shaped(space, L), "labels of states do not fit");
  for (int64_t j = 0; j < (own_columns ? 0 : L); j++)
    require(space(j) >= 0 && space(j) < width, "labels of states do not fit");
  const Shape shape(offsets, N, D, L, &edge);
  const Kernels* k = best_kernels();
  const int stride = padded(L, k), parts = shape.parts(n_jobs);
  const Order order(shape, stride, k->lanes, Given::checked(shape, limit));
  const Given given(shape, order, stride, limit, node, first, last, mean, length, ptr, steps, item, item_ptr, item_label,
                    weight, own_columns ? nullptr : space.data());
  require(shaped(factor, shape.sequences) && shaped(total, shape.sequences) && shaped(node_out, N, width) &&
              (bool)first == (bool)first_out && (bool)last == (bool)last_out && (bool)mean == (bool)mean_out &&
              (!first_out || shaped(*first_out, N, width)) && (!last_out || shaped(*last_out, N, width)) &&
              (!mean_out || shaped(*mean_out, N, width)) && shaped(length_out, D, L) &&
              shaped(weight_out, given.weights) && shaped(edge_out, edge.shape(0), L, L),
          "outputs do not fit");
  nb::gil_scoped_release unlocked;
  const Table table(k, shape, order, edge.data(), stride);
  const Columns columns(given, order.label);
  const std::optional<ProductTables> products =
      ProductTables::fitting(k, shape, stride, limit.data(), length, edge, (bool)mean);
  const std::vector<int64_t> cut = shape.cut(parts);
  std::vector<Sums> sums((size_t)parts);
  run_parts(parts, [&](int p) {
    Sums& own_sums = sums[p];
    own_sums.clear(shape, given.weights);
    Scratch scratch(shape, order, stride);
    Rows rows(shape, order, stride);
    std::vector<double> lengths(D * stride, 0.0);
    std::optional<ProductRows> quick;
    if (products) quick.emplace(*products, shape, given, stride);
    for (int64_t s = cut[p]; s < cut[p + 1]; s++) {
      const int64_t begin = shape.begin(s), T = shape.steps(s);
      if (quick && quick->run(k, s, factor(s), own_sums.weights.data())) {
        total(s) = quick->total();
        quick->give(s, factor(s), node_out, first_out, last_out);
        continue;
      }
      Sweep w = scratch.at(T);
      Own own = given.own(shape, order, s, stride);
      rows.load(given, s, own);
      k->expand(own, w.score);
      w.factor = own.factor = factor(s);
      if (!shape.shared) w.each_out = edge_out.data() + shape.first_edge[s] * L * L;
      total(s) = k->sum(table.of(shape, edge.data(), s), w);
      rows.clear_outputs(own);
      own.length_out = lengths.data(), own.weight_out = own_sums.weights.data();
      k->collect(own, w);
      columns.give(own.node_out, begin, T, stride, 1.0, node_out.data());
      if (mean_out) columns.give(own.mean_out, begin, T, stride, 1.0, mean_out->data());
      if (first_out) columns.give(w.start, begin, T, stride, factor(s), first_out->data());
      if (last_out) columns.give(w.end, begin, T, stride, factor(s), last_out->data());
    }
    for (int64_t d = 0; d < D; d++)
      for (int64_t j = 0; j < L; j++) own_sums.lengths[d * L + j] += lengths[d * stride + order.place[j]];
    if (shape.shared) scratch.add_pairs(table.edges(), own_sums.pairs.data());
    if (quick) quick->add(own_sums);
  });
  Sums all;
  all.clear(shape, given.weights);
  for (const Sums& part : sums) all.add(part);
  if (shape.shared) std::copy(all.pairs.begin(), all.pairs.end(), edge_out.data());
  std::copy(all.lengths.begin(), all.lengths.end(), length_out.data());
  std::copy(all.weights.begin(), all.weights.end(), weight_out.data());
}

}  // namespace segments
}  // namespace crfield
