// Sum-product, max-product and the list of observed features, on arrays from Python.
#include "chain/inference.hpp"

#include <cmath>
#include <cstring>

#include "chain/checks.hpp"
#include "chain/pack.hpp"
#include "threads.hpp"

namespace crfield {
namespace {

// Edge tables handed in as an array, one for every position or one for all.
class ArrayEdges : public EdgeSource {
 public:
  ArrayEdges(int labels, int stride, const double* edge, bool shared, double* out)
      : labels_(labels), stride_(stride), edge_(edge), shared_(shared), out_(out) {}
  void fill(int64_t e, double* table) const override {
    const double* from = edge_ + (shared_ ? 0 : e) * labels_ * labels_;
    for (int64_t i = 0; i < labels_; i++) {
      std::memcpy(table + i * stride_, from + i * labels_, sizeof(double) * labels_);
      for (int64_t j = labels_; j < stride_; j++) table[i * stride_ + j] = -INFINITY;
    }
  }
  void take(int64_t e, const double* expected, double factor) const override {
    if (!out_) return;
    double* to = out_ + e * labels_ * labels_;
    for (int64_t i = 0; i < labels_; i++)
      for (int64_t j = 0; j < labels_; j++) to[i * labels_ + j] = factor * expected[i * stride_ + j];
  }

 private:
  int64_t labels_, stride_;
  const double* edge_;
  bool shared_;
  double* out_;
};

}  // namespace

void sum_product(Array1<const int64_t> offsets, Array2<const double> node, Array3<const double> edge,
                 Array1<double> total, Array2<double> node_out, Array3<double> edge_out, bool each, int n_jobs,
                 Maybe1<double> weight) {
  const int64_t nodes = check_offsets(offsets), B = (int64_t)offsets.shape(0) - 1;
  const int64_t L = (int64_t)node.shape(1);
  require(L >= 1 && L <= 65535 && (int64_t)node.shape(0) == nodes, "node scores do not fit");
  require((int64_t)edge.shape(1) == L && (int64_t)edge.shape(2) == L, "edge scores do not fit the labels");
  const std::vector<int64_t> edge_offsets = edge_offsets_of(offsets.data(), B);
  const bool shared = edge.shape(0) == 1;
  require(shared || (int64_t)edge.shape(0) == edge_offsets.back(), "edge scores do not fit the edges");
  require((int64_t)total.shape(0) == B && (int64_t)node_out.shape(0) == nodes && (int64_t)node_out.shape(1) == L,
          "outputs do not fit");
  require((int64_t)edge_out.shape(0) == (each ? edge_offsets.back() : 1) && (int64_t)edge_out.shape(1) == L &&
              (int64_t)edge_out.shape(2) == L,
          "edge output does not fit");
  require(each || shared, "expectations of unshared edges must be asked for one by one");
  require(!weight || (int64_t)weight->shape(0) == B, "weight does not fit the sequences");
  const double* const factor = weight ? weight->data() : nullptr;
  nb::gil_scoped_release unlocked;
  const Kernels* k = best_kernels();
  const int stride = padded((int)L, k);
  OwnedTable owned;
  if (!each) owned.set(k, (int)L, edge.data(), nullptr, 0);
  const EdgeTable& table = owned.table();
  const bool both_ends = !each && table.spread <= BOTH_ENDS_SPREAD && stride / k->lanes <= BOTH_ENDS_VECTORS;
  std::vector<int64_t> node_of_row;
  const std::vector<Group> groups =
      make_groups(offsets.data(), B, each ? 1 : 8, nullptr, node_of_row, both_ends ? BOTH_ENDS_STEPS : INT64_MAX);
  const int parts = std::max(1, std::min<int>(n_jobs, (int)groups.size()));
  const std::vector<int64_t> cut = split_groups(groups, parts);
  std::fill(total.data(), total.data() + B, 0.0);
  std::vector<Buffer<double>> counts(parts), direct(parts);
  const ArrayEdges source((int)L, stride, edge.data(), shared, each ? edge_out.data() : nullptr);
  run_parts(parts, [&](int p) {
    Scratch scratch;
    Buffer<double> psi, spare, own;  // own: counts of one sequence, where it has a weight
    for (auto* b : {&counts[p], &direct[p]}) {
      b->resize(L * stride);
      b->zero();
    }
    for (int64_t q = cut[p]; q < cut[p + 1]; q++) {
      const Group& g = groups[q];
      if (g.active.empty()) {
        const int64_t first = offsets(g.sequence[0]) * L;
        psi.resize(g.rows * stride);
        spare.resize(k->both_ends_spare(stride));
        BothEnds one;
        one.steps = g.rows;
        one.node = node.data() + first;
        one.belief = node_out.data() + first;
        one.psi = psi.data();
        one.spare = spare.data();
        const double by = factor ? factor[g.sequence[0]] : 1.0;
        if (by != 1.0) {
          own.resize(L * stride);
          own.zero();
        }
        one.counts = by != 1.0 ? own.data() : counts[p].data();
        const bool possible = k->both_ends(table, one);
        if (!possible) std::fill(one.belief, one.belief + one.steps * L, 0.0);
        total(g.sequence[0]) = possible ? one.total : -INFINITY;
        if (by == 1.0) continue;
        for (int64_t c = 0; c < one.steps * L; c++) one.belief[c] *= by;
        for (int64_t c = 0; possible && c < L * stride; c++) counts[p][c] += by * own[c];
        continue;
      }
      Sweep s = scratch.prepare(g, (int)L, stride, (int)(L + 63) / 64, each || !table.safe);
      s.side = nullptr;  // answers to a sequence do not depend on its company, to the last bit
      for (int64_t r = 0; r < g.rows; r++) {
        std::memcpy(s.score + r * stride, node.data() + node_of_row[g.row + r] * L, sizeof(double) * L);
        for (int64_t j = L; j < stride; j++) s.score[r * stride + j] = -INFINITY;
      }
      for (int b = 0; b < g.width; b++) scratch.factor[b] = factor ? factor[g.sequence[b]] : 1.0;
      s.counts = counts[p].data();
      s.direct = direct[p].data();
      if (each) {
        const int64_t first = edge_offsets[g.sequence[0]];
        k->sweep_each(source, &first, s);
      } else {
        k->sweep(table, s);
      }
      for (int b = 0; b < g.width; b++) total(g.sequence[b]) = s.total[b];
      if (factor)
        for (int32_t t = 0; t < g.steps; t++)
          for (int b = 0; b < g.active[t]; b++)
            for (int64_t j = 0; j < L; j++) s.belief[(g.start[t] + b) * stride + j] *= scratch.factor[b];
      for (int64_t r = 0; r < g.rows; r++)
        std::memcpy(node_out.data() + node_of_row[g.row + r] * L, s.belief + r * stride, sizeof(double) * L);
    }
  });
  if (each) return;
  for (int64_t i = 0; i < L; i++)
    for (int64_t j = 0; j < L; j++) {
      double sum = 0;
      for (int p = 0; p < parts; p++) sum += counts[p][i * stride + j] * table.prob[i * stride + j] + direct[p][i * stride + j];
      edge_out(0, i, j) = sum;
    }
}

void max_product(Array1<const int64_t> offsets, Array2<const double> node, Array3<const double> edge,
                 Array1<double> total, Array1<int32_t> path, int n_jobs) {
  const int64_t nodes = check_offsets(offsets), B = (int64_t)offsets.shape(0) - 1, L = (int64_t)node.shape(1);
  require(L >= 1 && L <= 65535 && (int64_t)node.shape(0) == nodes, "node scores do not fit");
  require((int64_t)edge.shape(1) == L && (int64_t)edge.shape(2) == L, "edge scores do not fit the labels");
  const std::vector<int64_t> edge_offsets = edge_offsets_of(offsets.data(), B);
  const bool shared = edge.shape(0) == 1;
  require(shared || (int64_t)edge.shape(0) == edge_offsets.back(), "edge scores do not fit the edges");
  require((int64_t)total.shape(0) == B && (int64_t)path.shape(0) == nodes, "outputs do not fit");
  nb::gil_scoped_release unlocked;
  const Kernels* k = best_kernels();
  const int stride = padded((int)L, k);
  OwnedTable owned;
  if (shared) owned.set(k, (int)L, edge.data(), nullptr, 0);
  const ArrayEdges source((int)L, stride, edge.data(), false, nullptr);
  const int parts = std::max(1, std::min<int>(n_jobs, (int)std::max<int64_t>(1, B)));
  const std::vector<int64_t> cut = split_sequences(offsets.data(), B, parts);
  run_parts(parts, [&](int p) {
    Buffer<double> score, spare;
    spare.resize(L * stride);
    for (int64_t s = cut[p]; s < cut[p + 1]; s++) {
      const int64_t first = offsets(s), T = offsets(s + 1) - first;
      total(s) = 0;
      if (!T) continue;
      score.resize(T * stride);
      for (int64_t t = 0; t < T; t++) {
        std::memcpy(score.data() + t * stride, node.data() + (first + t) * L, sizeof(double) * L);
        for (int64_t j = L; j < stride; j++) score[t * stride + j] = -INFINITY;
      }
      total(s) = shared ? k->best_path((int)L, stride, T, score.data(), owned.table().log, owned.log_t(), path.data() + first)
                        : k->best_path_each(source, edge_offsets[s], (int)L, stride, T, score.data(), spare.data(),
                                            path.data() + first);
    }
  });
}

// For each column the sorted different items it is met with: (ptr, items).
nb::tuple observed(Array1<const int64_t> indptr, Array1<const int32_t> indices, Array1<const int64_t> rows,
                   Array1<const int32_t> items, int64_t columns, int64_t n_items) {
  require(indptr.shape(0) >= 1, "indptr must have an entry");
  const int64_t n_rows = (int64_t)indptr.shape(0) - 1, met = (int64_t)rows.shape(0);
  check_csr(indptr, indices, std::nullopt, n_rows, columns);
  require((int64_t)items.shape(0) == met, "rows and items must have one length");
  for (int64_t k = 0; k < met; k++)
    require(rows(k) >= 0 && rows(k) < n_rows && items(k) >= 0 && items(k) < n_items, "a row or an item is out of range");
  std::vector<int64_t> ptr(columns + 1, 0);
  std::vector<int32_t> out;
  auto find = [&] {
    nb::gil_scoped_release unlocked;
    if (n_items <= 64) {  // sets of items as words: one pass, and nothing to sort
      std::vector<uint64_t> set(columns, 0);
      for (int64_t k = 0; k < met; k++)
        for (int64_t p = indptr(rows(k)); p < indptr(rows(k) + 1); p++) set[indices(p)] |= uint64_t(1) << items(k);
      for (int64_t c = 0; c < columns; c++) {
        for (int32_t item = 0; item < n_items && set[c] >> item; item++)
          if (set[c] >> item & 1) out.push_back(item);
        ptr[c + 1] = (int64_t)out.size();
      }
      return;
    }
    std::vector<int64_t> at(columns + 1, 0);
    for (int64_t k = 0; k < met; k++)
      for (int64_t p = indptr(rows(k)); p < indptr(rows(k) + 1); p++) at[indices(p) + 1]++;
    for (int64_t c = 0; c < columns; c++) at[c + 1] += at[c];
    std::vector<int32_t> bucket(at[columns]);
    std::vector<int64_t> next(at.begin(), at.end() - 1);
    for (int64_t k = 0; k < met; k++)
      for (int64_t p = indptr(rows(k)); p < indptr(rows(k) + 1); p++) bucket[next[indices(p)]++] = items(k);
    std::vector<uint8_t> seen(n_items, 0);
    for (int64_t c = 0; c < columns; c++) {
      int32_t *from = bucket.data() + at[c], *to = bucket.data() + at[c + 1];
      if (to - from > 32) {
        int32_t* keep = from;
        for (int32_t* q = from; q < to; q++)
          if (!seen[*q]) seen[*q] = 1, *keep++ = *q;
        to = keep;
        for (int32_t* q = from; q < to; q++) seen[*q] = 0;
      }
      std::sort(from, to);
      out.insert(out.end(), from, std::unique(from, to));
      ptr[c + 1] = (int64_t)out.size();
    }
  };
  find();
  return nb::make_tuple(to_numpy(std::move(ptr)), to_numpy(std::move(out)));
}

}  // namespace crfield
