// Sum-product and max-product on padded rows as neural networks hand them over: (B, T, L) floats or doubles of which a
// mask chooses the steps. Rows are read where they lie and gradients are written where rows lie, so that nothing is
// packed, widened or narrowed outside the caches; sums are in doubles whatever the rows are.
//
// A gradient is that of Σ_b w_b total_b, where total is log Z of what tags and `allowed` leave, or, as a contrast, that
// of the log-likelihood: log Z of what they leave less log Z of all. Where they leave one label at each step the first
// of these is the score of a path, and no second sweep is run for it.
#include "chain/padded.hpp"

#include <cmath>
#include <cstring>

#include <nanobind/stl/optional.h>

#include "chain/checks.hpp"
#include "chain/pack.hpp"
#include "threads.hpp"

namespace crfield {
namespace {

template <class T>
using Maybe3 = std::optional<Array3<const T>>;

enum Trouble { FINE = 0, SCORE = 1, TAG = 2, IMPOSSIBLE = 3 };
constexpr int32_t SEVERAL = -1;  // labels are allowed at this step, or none

template <class X>
struct Rows {
  int64_t B, T, L;
  const X* score;                        // (B, T, L)
  const double *start, *end;             // (L)
  const uint8_t* mask = nullptr;         // (B, T)
  const int64_t* tags = nullptr;         // (B, T)
  const uint8_t* allowed = nullptr;      // (B, T, L)
  int64_t unknown = -100;                // the tag that says nothing
  std::vector<int64_t> offsets{}, place{};  // steps that the mask keeps, end to end, and where each of them lies
  std::vector<int32_t> label{};          // the one that is left at each, where tags or `allowed` say something
  std::vector<uint8_t> partial{};        // (B) whether some step has several
  int64_t wrong_tag = -1;                // place of the first tag that is no label

  bool clamps() const { return tags || allowed; }

  bool leaves(int64_t p, int64_t j) const {
    return (!tags || tags[p] == unknown || tags[p] == j) && (!allowed || allowed[p * L + j]);
  }

  void pack() {
    offsets.assign(B + 1, 0);
    place.reserve(B * T);
    partial.assign(B, 0);
    if (clamps()) label.reserve(B * T);
    for (int64_t b = 0; b < B; b++) {
      for (int64_t p = b * T; p < (b + 1) * T; p++) {
        if (mask && !mask[p]) continue;
        place.push_back(p);
        if (!clamps()) continue;
        if (tags && tags[p] != unknown && (tags[p] < 0 || tags[p] >= L)) {
          if (wrong_tag < 0) wrong_tag = p;
          label.push_back(SEVERAL);
          continue;
        }
        label.push_back(only(p));
        partial[b] |= label.back() == SEVERAL;
      }
      offsets[b + 1] = (int64_t)place.size();
    }
  }

  int32_t only(int64_t p) const {
    if (!allowed) return tags[p] == unknown ? (L == 1 ? 0 : SEVERAL) : (int32_t)tags[p];
    int32_t found = SEVERAL;
    for (int64_t j = 0; j < L; j++)
      if (leaves(p, j)) {
        if (found != SEVERAL) return SEVERAL;
        found = (int32_t)j;
      }
    return found;
  }

  // Scores of step n as doubles, padded by -inf; false where one of them is NaN or +inf.
  bool read(int64_t b, int64_t n, bool clamped, double* to, int64_t stride) const {
    const int64_t p = place[n];
    const X* from = score + p * L;
    bool good = true;
    for (int64_t j = 0; j < L; j++) {
      to[j] = from[j];
      good &= to[j] < INFINITY;
    }
    if (n == offsets[b])
      for (int64_t j = 0; j < L; j++) to[j] += start[j];
    if (n + 1 == offsets[b + 1])
      for (int64_t j = 0; j < L; j++) to[j] += end[j];
    if (clamped)
      for (int64_t j = 0; j < L; j++) to[j] = leaves(p, j) ? to[j] : -INFINITY;
    for (int64_t j = L; j < stride; j++) to[j] = -INFINITY;
    return good;
  }

  // Score of the one path that is left, and its pairs added to `pairs` (L, L).
  double path(int64_t b, const double* edge, double weight, double* pairs) const {
    double total = 0;
    for (int64_t n = offsets[b]; n < offsets[b + 1]; n++) {
      const int64_t y = label[n];
      total += score[place[n] * L + y];
      if (n == offsets[b]) {
        total += start[y];
        continue;
      }
      const int64_t pair = label[n - 1] * L + y;
      total += edge[pair];
      pairs[pair] += weight;
    }
    return offsets[b] < offsets[b + 1] ? total + end[label[offsets[b + 1] - 1]] : 0.0;
  }

  // The first score that cannot be used; there is one if `read` said so.
  int64_t wrong_score() const {
    for (int64_t p : place)
      for (int64_t j = 0; j < L; j++)
        if (!(score[p * L + j] < INFINITY)) return p * L + j;
    return 0;
  }
};

// What one thread adds up: times prob it is the expected use of each pair, and what sequences in logs found themselves.
// A group is added up by itself first, so that a long batch loses no digits: its gold pairs are taken off the result.
struct Counts {
  Buffer<double> group, scaled, direct;
  void clear(int64_t size) {
    for (auto* b : {&group, &scaled, &direct}) {
      b->resize(size);
      b->zero();
    }
  }
  void add(double weight) {
    for (int64_t c = 0; c < group.size(); c++) scaled[c] += weight * group[c];
    group.zero();
  }
};

struct Part {
  Scratch scratch;
  Buffer<double> psi, spare, node, belief, held;
  Counts free, clamped;
  std::vector<double> start, end, pairs, total, left;
  bool good = true;
};

struct Beliefs {
  const double* at;
  int64_t stride;
};

// Totals (width) and marginals of one group; expected pairs, times the weights, are added to `counts`.
template <class X>
Beliefs sweep(const Kernels* k, const EdgeTable& table, const Rows<X>& x, const Group& g, bool clamped,
              const double* weight, Part& part, Counts& counts, std::vector<double>& total) {
  const int64_t L = x.L, stride = table.stride;
  total.assign(g.width, 0.0);
  if (g.active.empty()) {  // long, and alone: from both ends at once
    const int64_t b = g.sequence[0];
    const double by = weight ? weight[b] : 1.0;
    part.node.resize(g.rows * L);
    part.belief.resize(g.rows * L);
    part.psi.resize(g.rows * stride);
    part.spare.resize(k->both_ends_spare((int)stride));
    for (int64_t t = 0; t < g.rows; t++)
      part.good &= x.read(b, x.offsets[b] + t, clamped, part.node.data() + t * L, L);
    BothEnds one;
    one.steps = g.rows;
    one.node = part.node.data();
    one.belief = part.belief.data();
    one.psi = part.psi.data();
    one.spare = part.spare.data();
    one.counts = counts.group.data();
    const bool possible = k->both_ends(table, one);
    total[0] = possible ? one.total : -INFINITY;
    if (!possible) {
      part.belief.zero();
      counts.group.zero();
    }
    counts.add(by);
    return {part.belief.data(), L};
  }
  Sweep s = part.scratch.prepare(g, (int)L, (int)stride, table.words, !table.safe);
  for (int32_t t = 0; t < g.steps; t++)
    for (int b = 0; b < g.active[t]; b++)
      part.good &= x.read(g.sequence[b], x.offsets[g.sequence[b]] + t, clamped, s.score + (g.start[t] + b) * stride, stride);
  for (int b = 0; b < g.width; b++) part.scratch.factor[b] = weight ? weight[g.sequence[b]] : 1.0;
  s.counts = counts.group.data();
  s.direct = counts.direct.data();
  k->sweep(table, s);
  counts.add(1.0);
  for (int b = 0; b < g.width; b++) total[b] = s.total[b];
  return {s.belief, stride};
}

template <class X>
nb::tuple padded_sums(Array3<const X> score, Array1<const double> start, Array1<const double> end,
                      Array2<const double> edge, Maybe2<uint8_t> mask, Maybe2<int64_t> tags, Maybe3<uint8_t> allowed,
                      int64_t unknown, bool contrast, Maybe1<double> weight, Array1<double> total, Array3<X> node_out,
                      Array2<double> edge_out, Array1<double> start_out, Array1<double> end_out, int n_jobs) {
  const int64_t B = (int64_t)score.shape(0), T = (int64_t)score.shape(1), L = (int64_t)score.shape(2);
  require(L >= 1 && L <= 65535, "there must be 1 to 65,535 labels");
  require(shaped(start, L) && shaped(end, L) && shaped(edge, L, L), "start, end and edge do not fit the labels");
  require((!mask || shaped(*mask, B, T)) && (!tags || shaped(*tags, B, T)) && (!allowed || shaped(*allowed, B, T, L)),
          "mask, tags or allowed do not fit the scores");
  require(!weight || shaped(*weight, B), "weight does not fit the sequences");
  require(shaped(total, B) && shaped(node_out, B, T, L) && shaped(edge_out, L, L) && shaped(start_out, L) &&
              shaped(end_out, L),
          "outputs do not fit");
  require(!contrast || tags || allowed, "a contrast needs tags or allowed labels");
  Trouble trouble = FINE;
  int64_t where = 0;
  {
    nb::gil_scoped_release unlocked;
    Rows<X> x{B, T, L, score.data(), start.data(), end.data()};
    x.mask = mask ? mask->data() : nullptr;
    x.tags = tags ? tags->data() : nullptr;
    x.allowed = allowed ? allowed->data() : nullptr;
    x.unknown = unknown;
    x.pack();
    if (x.wrong_tag >= 0) trouble = TAG, where = x.wrong_tag;
    const double* const w = weight ? weight->data() : nullptr;
    const Kernels* k = best_kernels();
    OwnedTable owned;
    owned.set(k, (int)L, edge.data(), nullptr, 0);
    const EdgeTable& table = owned.table();
    const int64_t stride = table.stride;
    const bool both_ends = table.spread <= BOTH_ENDS_SPREAD && stride / k->lanes <= BOTH_ENDS_VECTORS;
    std::vector<int64_t> node_of_row;
    const std::vector<Group> groups = make_groups(x.offsets.data(), B, 8, contrast ? x.partial.data() : nullptr,
                                                  node_of_row, both_ends ? BOTH_ENDS_STEPS : INT64_MAX);
    const int parts = std::max(1, std::min<int>(n_jobs, (int)groups.size()));
    const std::vector<int64_t> cut = split_groups(groups, parts);
    std::vector<Part> part(parts);
    X* const out = node_out.data();
    std::fill(total.data(), total.data() + B, 0.0);
    if (x.mask)
      for (int64_t p = 0; p < B * T; p++)
        if (!x.mask[p]) std::fill(out + p * L, out + (p + 1) * L, X(0));
    if (trouble == FINE)
      run_parts(parts, [&](int q) {
        Part& own = part[q];
        own.free.clear(L * stride);
        own.clamped.clear(L * stride);
        own.start.assign(L, 0.0);
        own.end.assign(L, 0.0);
        own.pairs.assign(L * L, 0.0);
        for (int64_t at = cut[q]; at < cut[q + 1]; at++) {
          const Group& g = groups[at];
          const bool alone = g.active.empty();
          const int64_t steps = alone ? g.rows : g.steps;
          const bool second = contrast && g.partial;
          if (second) {  // what is left, before what is free: its beliefs are held
            const Beliefs found = sweep(k, table, x, g, true, w, own, own.clamped, own.left);
            own.held.resize(g.rows * found.stride);
            std::memcpy(own.held.data(), found.at, sizeof(double) * g.rows * found.stride);
          }
          const Beliefs found = sweep(k, table, x, g, !contrast && x.clamps(), w, own, own.free, own.total);
          for (int b = 0; b < g.width; b++) {
            const int64_t s = g.sequence[b];
            const double by = w ? w[s] : 1.0;
            total(s) = own.total[b];
            if (contrast) {
              const double left = second ? own.left[b] : x.path(s, edge.data(), by, own.pairs.data());
              total(s) = std::min(0.0, left - own.total[b]);
            }
          }
          for (int64_t t = 0; t < steps; t++)
            for (int b = 0; b < (alone ? 1 : g.active[t]); b++) {
              const int64_t s = g.sequence[b], n = x.offsets[s] + t, r = alone ? t : g.start[t] + b;
              const double* m = found.at + r * found.stride;
              const double *q_row = second ? own.held.data() + r * found.stride : nullptr, by = w ? w[s] : 1.0;
              X* to = out + x.place[n] * L;
              if (second)
                for (int64_t j = 0; j < L; j++) to[j] = (X)(by * (q_row[j] - m[j]));
              else
                for (int64_t j = 0; j < L; j++) to[j] = (X)((contrast ? -by : by) * m[j]);
              if (contrast && !second) to[x.label[n]] = (X)(by * (1.0 - m[x.label[n]]));
              for (int side = 0; side < 2; side++) {
                if (side ? t + x.offsets[s] + 1 != x.offsets[s + 1] : t != 0) continue;
                double* sum = side ? own.end.data() : own.start.data();
                for (int64_t j = 0; j < L; j++)
                  sum[j] += by * (!contrast ? m[j] : (second ? q_row[j] : double(x.label[n] == j)) - m[j]);
              }
            }
        }
      });
    for (Part& own : part) {
      if (trouble == FINE && !own.good) trouble = SCORE, where = x.wrong_score();
    }
    for (int64_t b = 0; contrast && trouble == FINE && b < B; b++)
      if (!(total(b) > -INFINITY)) trouble = IMPOSSIBLE, where = b;
    if (trouble == FINE) {
      for (int64_t j = 0; j < L; j++) {
        double first = 0, last = 0;
        for (const Part& own : part) first += own.start[j], last += own.end[j];
        start_out(j) = first;
        end_out(j) = last;
      }
      for (int64_t i = 0; i < L; i++)
        for (int64_t j = 0; j < L; j++) {
          const int64_t c = i * stride + j;
          double sum = 0;
          for (const Part& own : part) {
            const double expected = own.free.scaled[c] * table.prob[c] + own.free.direct[c];
            const double left = own.clamped.scaled[c] * table.prob[c] + own.clamped.direct[c];
            sum += contrast ? own.pairs[i * L + j] + left - expected : expected;
          }
          edge_out(i, j) = sum;
        }
    }
  }
  return nb::make_tuple((int)trouble, where);
}

template <class X>
nb::tuple padded_best(Array3<const X> score, Array1<const double> start, Array1<const double> end,
                      Array2<const double> edge, Maybe2<uint8_t> mask, Maybe2<int64_t> tags, Maybe3<uint8_t> allowed,
                      int64_t unknown, Array1<double> total, Array2<int64_t> path, int n_jobs) {
  const int64_t B = (int64_t)score.shape(0), T = (int64_t)score.shape(1), L = (int64_t)score.shape(2);
  require(L >= 1 && L <= 65535, "there must be 1 to 65,535 labels");
  require(shaped(start, L) && shaped(end, L) && shaped(edge, L, L), "start, end and edge do not fit the labels");
  require((!mask || shaped(*mask, B, T)) && (!tags || shaped(*tags, B, T)) && (!allowed || shaped(*allowed, B, T, L)),
          "mask, tags or allowed do not fit the scores");
  require(shaped(total, B) && shaped(path, B, T), "outputs do not fit");
  Trouble trouble = FINE;
  int64_t where = 0;
  {
    nb::gil_scoped_release unlocked;
    Rows<X> x{B, T, L, score.data(), start.data(), end.data()};
    x.mask = mask ? mask->data() : nullptr;
    x.tags = tags ? tags->data() : nullptr;
    x.allowed = allowed ? allowed->data() : nullptr;
    x.unknown = unknown;
    x.pack();
    if (x.wrong_tag >= 0) trouble = TAG, where = x.wrong_tag;
    const Kernels* k = best_kernels();
    const int stride = padded((int)L, k);
    OwnedTable owned;
    owned.set(k, (int)L, edge.data(), nullptr, 0);
    const int parts = std::max(1, std::min<int>(n_jobs, (int)std::max<int64_t>(1, B)));
    const std::vector<int64_t> cut = split_sequences(x.offsets.data(), B, parts);
    std::vector<uint8_t> good(parts, 1);
    if (trouble == FINE)
      run_parts(parts, [&](int q) {
        // two of about the same length side by side
        std::vector<int64_t> order;
        for (int64_t b = cut[q]; b < cut[q + 1]; b++) {
          total(b) = 0;
          if (x.offsets[b] < x.offsets[b + 1]) order.push_back(b);
        }
        auto length = [&](int64_t b) { return x.offsets[b + 1] - x.offsets[b]; };
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return length(a) > length(b); });
        Buffer<double> rows[2];
        std::vector<int32_t> found[2];
        for (size_t at = 0; at < order.size(); at += 2) {
          const int many = at + 1 < order.size() ? 2 : 1;
          int64_t steps[2] = {0, 0};
          for (int two = 0; two < many; two++) {
            const int64_t b = order[at + two];
            steps[two] = length(b);
            rows[two].resize(steps[two] * stride);
            found[two].resize(steps[two]);
            for (int64_t t = 0; t < steps[two]; t++)
              good[q] &= x.read(b, x.offsets[b] + t, x.clamps(), rows[two].data() + t * stride, stride);
          }
          double best[2], *score[2] = {rows[0].data(), rows[1].data()};
          int32_t* labels[2] = {found[0].data(), found[1].data()};
          if (many == 2)
            k->best_two((int)L, stride, steps, score, owned.table().log, owned.log_t(), labels, best);
          else
            best[0] = k->best_path((int)L, stride, steps[0], score[0], owned.table().log, owned.log_t(), labels[0]);
          for (int two = 0; two < many; two++) {
            const int64_t b = order[at + two];
            total(b) = best[two];
            for (int64_t t = 0; t < steps[two]; t++) path.data()[x.place[x.offsets[b] + t]] = labels[two][t];
          }
        }
      });
    for (uint8_t fine : good)
      if (trouble == FINE && !fine) trouble = SCORE, where = x.wrong_score();
  }
  return nb::make_tuple((int)trouble, where);
}

template <class X>
void bind(nb::module_& module) {
  module.def("padded_sums", &padded_sums<X>, nb::arg("score"), nb::arg("start"), nb::arg("end"), nb::arg("edge"),
             nb::arg("mask").none(), nb::arg("tags").none(), nb::arg("allowed").none(), nb::arg("unknown"),
             nb::arg("contrast"), nb::arg("weight").none(), nb::arg("total"), nb::arg("node_out"), nb::arg("edge_out"),
             nb::arg("start_out"), nb::arg("end_out"), nb::arg("n_jobs"));
  module.def("padded_best", &padded_best<X>, nb::arg("score"), nb::arg("start"), nb::arg("end"), nb::arg("edge"),
             nb::arg("mask").none(), nb::arg("tags").none(), nb::arg("allowed").none(), nb::arg("unknown"),
             nb::arg("total"), nb::arg("path"), nb::arg("n_jobs"));
}

}  // namespace

void bind_padded(nb::module_& module) {
  bind<float>(module);
  bind<double>(module);
}

}  // namespace crfield
