// The recursion in products for a batch: which tables it takes, and the memory of one thread.
#pragma once
#include <cmath>
#include <optional>

#include "segments/given.hpp"

namespace crfield {
namespace segments {

// Tables of lengths and edges as factors, where they do not spread too far and one table of edges serves all.
struct ProductTables {
  ProductOrder order;
  Buffer<double> length, prob, prob_back;  // (D, stride), (L, stride), its transpose
  double length_top = 0, edge_top = 0;

  static std::optional<ProductTables> fitting(const Kernels* k, const Shape& shape, int stride, const int32_t* limit,
                                              const Array2<const double>& length, const Array3<const double>& edge,
                                              bool means) {
    const double inf = std::numeric_limits<double>::infinity();
    if (means || !shape.shared) return std::nullopt;
    const int64_t L = shape.labels, D = shape.most;
    const auto possible = [&](int64_t d, int64_t j) { return d < limit[j] && length(d, j) > -inf; };
    double low[2] = {inf, inf}, top[2] = {-inf, -inf};
    const auto look = [&](int which, double x) { low[which] = std::min(low[which], x), top[which] = std::max(top[which], x); };
    for (int64_t d = 0; d < D; d++)
      for (int64_t j = 0; j < L; j++)
        if (possible(d, j)) look(0, length(d, j));
    for (int64_t q = 0; q < L * L; q++)
      if (edge.data()[q] > -inf) look(1, edge.data()[q]);
    for (int which = 0; which < 2; which++)
      if (!(low[which] < inf && top[which] < inf && top[which] - low[which] <= SAFE_SPREAD)) return std::nullopt;
    ProductTables out{ProductOrder(shape, stride, k->lanes, possible), Buffer<double>(D * stride),
                      Buffer<double>(L * stride), Buffer<double>(L * stride), top[0], top[1]};
    const std::vector<int32_t>& label = out.order.label;
    for (int64_t d = 0; d < D; d++)
      for (int64_t j = 0; j < stride; j++)
        out.length[d * stride + j] = j < L && possible(d, label[j]) ? length(d, label[j]) : -inf;
    for (int64_t i = 0; i < L; i++)
      for (int64_t j = 0; j < stride; j++) out.prob[i * stride + j] = j < L ? edge(0, label[i], label[j]) : -inf;
    k->exponentiate(D * stride, out.length.data(), out.length_top, out.length.data());
    k->exponentiate(L * stride, out.prob.data(), out.edge_top, out.prob.data());
    out.prob_back.zero();
    for (int64_t i = 0; i < L; i++)
      for (int64_t j = 0; j < L; j++) out.prob_back[j * stride + i] = out.prob[i * stride + j];
    return out;
  }
};

// The memory of one thread for one sequence after the other, and what its sequences add up to.
class ProductRows {
 public:
  ProductRows(const ProductTables& tables, const Shape& shape, const Given& given, int stride)
      : tables_(tables), shape_(shape), given_(given), columns_(given, tables.order.label), stride_(stride) {
    const int64_t D = shape.most, L = shape.labels;
    sums_.resize((2 * D + L + 3) * stride);
    sums_.zero();
    p_.labels = (int)L, p_.stride = stride, p_.most = (int)D;
    p_.from = tables.order.from.data(), p_.deep = tables.order.deep.data();
    p_.least = tables.order.least.data(), p_.place = tables.order.place.data();
    p_.length = tables.length.data(), p_.length_top = tables.length_top;
    p_.prob = tables.prob.data(), p_.prob_back = tables.prob_back.data(), p_.edge_top = tables.edge_top;
    p_.mark_steps = given.steps, p_.item = given.item, p_.item_label = given.item_label, p_.item_ptr = given.item_ptr;
    p_.weight = given.weight;
    p_.lengths = sums_.data(), p_.lengths_marked = p_.lengths + D * stride;
    p_.counts = p_.lengths_marked + D * stride, p_.spare = p_.counts + L * stride;
  }

  // False: the sequence has to be done in logs, and nothing was added anywhere.
  bool run(const Kernels* k, int64_t s, double factor, double* weight_out) {
    const int64_t T = shape_.steps(s), D = shape_.most, begin = shape_.begin(s), size = T * stride_;
    int64_t marked = 0;
    for (int64_t n = begin; n < begin + T; n++) marked += given_.ptr[n] < given_.ptr[n + 1];
    p_.room = T + 1 + (T / 8 + 2) * D;
    rows_.resize(11 * size + (p_.room + marked * D) * stride_);
    base_.resize(T);
    double* at = rows_.data();
    for (double** row : {&p_.ending, &p_.into, &p_.inverse, &p_.share, &p_.pushed, &p_.start, &p_.end, &p_.inside})
      *row = at, at += size;
    p_.steps = T, p_.base = base_.data(), p_.ptr = given_.ptr + begin;
    p_.node = columns_.take(given_.node, begin, T, stride_, at);
    p_.first = columns_.take(given_.first, begin, T, stride_, at + size);
    p_.last = columns_.take(given_.last, begin, T, stride_, at + 2 * size);
    p_.window = at + 3 * size, p_.marked = p_.window + p_.room * stride_;
    p_.factor = factor, p_.weight_out = weight_out;
    total_ = k->products(p_);
    return !std::isnan(total_);
  }
  double total() const { return total_; }

  // Probabilities of the last sequence, in the caller's shape.
  void give(int64_t s, double factor, Array2<double>& node, PartOut& first, PartOut& last) const {
    const int64_t begin = shape_.begin(s), T = shape_.steps(s);
    columns_.give(p_.inside, begin, T, stride_, factor, node.data());
    if (first) columns_.give(p_.start, begin, T, stride_, factor, first->data());
    if (last) columns_.give(p_.end, begin, T, stride_, factor, last->data());
  }

  // Lengths and pairs of all sequences so far.
  void add(Sums& out) const {
    const std::vector<int32_t>& label = tables_.order.label;
    const int64_t L = shape_.labels;
    for (int64_t d = 0; d < shape_.most; d++)
      for (int64_t k = 0; k < L; k++) {
        const int64_t at = d * stride_ + k;
        const double by = tables_.length[at];
        if (by > 0) out.lengths[d * L + label[k]] += p_.lengths[at] * by + p_.lengths_marked[at];
      }
    for (int64_t i = 0; i < L; i++)
      for (int64_t k = 0; k < L; k++)
        out.pairs[label[i] * L + label[k]] += p_.counts[i * stride_ + k] * tables_.prob[i * stride_ + k];
  }

 private:
  const ProductTables& tables_;
  const Shape& shape_;
  const Given& given_;
  Columns columns_;
  int stride_;
  Products p_;
  double total_ = 0;
  Buffer<double> sums_, rows_;
  Buffer<int64_t> base_;
};

}  // namespace segments
}  // namespace crfield
