// Parts of the scores of segments as Python hands them in, checked, and sums over sequences in the same shapes.
#pragma once
#include <algorithm>
#include <limits>
#include <vector>

#include "memory.hpp"
#include "segments/batches.hpp"
#include "segments/contract.hpp"
#include "segments/shape.hpp"

namespace crfield {
namespace segments {

// Parts of scores, checked against each other.
struct Given {
  const int32_t *limit, *steps, *item, *item_label;
  const int64_t *ptr, *item_ptr;
  const double *node, *first, *last, *mean, *weight;
  const int32_t* space;  // (L) the column of the parts behind each label; null: its own
  int64_t width, weights;
  Buffer<double> length;  // (D, stride), -inf beyond the limits

  // Limits are looked at before anything is put in their order.
  static const int32_t* checked(const Shape& shape, const Codes& limit) {
    require(shaped(limit, shape.labels), "limits do not fit the lengths");
    for (int64_t j = 0; j < shape.labels; j++)
      require(limit(j) >= 1 && limit(j) <= shape.most, "limits do not fit the lengths");
    return limit.data();
  }

  Given(const Shape& shape, const Order& order, int stride, const Codes& limit_, const Array2<const double>& node_,
        const Part& first_, const Part& last_, const Part& mean_, const Array2<const double>& length_, const Ints& ptr_,
        const Codes& steps_, const Codes& item_, const Ints& item_ptr_, const Codes& item_label_,
        const Array1<const double>& weight_, const int32_t* space_ = nullptr)
      : limit(limit_.data()),
        steps(steps_.data()),
        item(item_.data()),
        item_label(item_label_.data()),
        ptr(ptr_.data()),
        item_ptr(item_ptr_.data()),
        node(node_.data()),
        first(first_ ? first_->data() : nullptr),
        last(last_ ? last_->data() : nullptr),
        mean(mean_ ? mean_->data() : nullptr),
        weight(weight_.data()),
        space(space_),
        width((int64_t)node_.shape(1)),
        weights((int64_t)weight_.shape(0)) {
    const int64_t N = shape.nodes, L = shape.labels, D = shape.most;
    for (const Part* part : {&first_, &last_, &mean_})
      require(!*part || shaped(**part, N, width), "a part does not fit the steps");
    const int64_t marks = (int64_t)item_.shape(0), items = (int64_t)item_ptr_.shape(0) - 1;
    require(shaped(ptr_, N + 1) && ptr[0] == 0 && ptr[N] == marks && items >= 0 && shaped(steps_, marks) &&
                item_ptr[0] == 0 && item_ptr[items] == (int64_t)item_label_.shape(0) && shaped(item_label_, weights),
            "marks do not fit");
    for (int64_t k = 0; k < items; k++) require(item_ptr[k] <= item_ptr[k + 1], "item_ptr must not fall");
    for (int64_t k = 0; k < weights; k++) require(item_label[k] >= 0 && item_label[k] < L, "a label is out of range");
    for (int64_t s = 0; s < shape.sequences; s++)
      for (int64_t n = shape.begin(s); n < shape.offsets[s + 1]; n++) {
        require(ptr[n] >= 0 && ptr[n] <= ptr[n + 1] && ptr[n + 1] <= marks, "marks must not fall");
        for (int64_t m = ptr[n]; m < ptr[n + 1]; m++)
          require(steps[m] >= 1 && steps[m] <= D && steps[m] <= n - shape.begin(s) + 1 && item[m] >= 0 && item[m] < items,
                  "a marked segment is too long, begins before its sequence, or has an unknown item");
      }
    length.resize(D * stride);
    for (int64_t d = 0; d < D; d++)
      for (int64_t j = 0; j < stride; j++)
        length[d * stride + j] = j < L && d < limit[order.label[j]] ? length_(d, order.label[j]) : -std::numeric_limits<double>::infinity();
  }

  Own own(const Shape& shape, const Order& order, int64_t s, int stride) const {
    Own o;
    o.steps = shape.steps(s), o.labels = (int)shape.labels, o.stride = stride, o.most = (int)shape.most;
    o.wide = order.wide.data(), o.place = order.place.data();
    o.length = length.data(), o.ptr = ptr + shape.begin(s);
    o.mark_steps = steps, o.item = item, o.item_ptr = item_ptr, o.item_label = item_label, o.weight = weight;
    return o;
  }
};

// Which columns of the parts stand where in a row.
class Columns {
 public:
  Columns(const Given& given, const std::vector<int32_t>& label) : width_(given.width), column_(label) {
    if (given.space)
      for (int32_t& c : column_) c = given.space[c];
    readers_.assign((size_t)width_ + 1, 0);
    for (int32_t c : column_) readers_[c + 1]++;
    for (int64_t c = 0; c < width_; c++) readers_[c + 1] += readers_[c];
    std::vector<int32_t> next(readers_.begin(), readers_.end() - 1);
    reader_.resize(column_.size());
    for (size_t k = 0; k < column_.size(); k++) reader_[next[column_[k]]++] = (int32_t)k;
  }
  // The steps of a sequence that begins with step `first`, padded with zeros.
  const double* take(const double* from, int64_t first, int64_t steps, int stride, double* to) const {
    if (!from) return nullptr;
    const int64_t L = (int64_t)column_.size();
    from += first * width_;
    for (int64_t n = 0; n < steps; n++, from += width_, to += stride) {
      for (int64_t k = 0; k < L; k++) to[k] = from[column_[k]];
      for (int64_t k = L; k < stride; k++) to[k] = 0;
    }
    return to - steps * stride;
  }
  // The other way: each column is the sum of the places that read it.
  void give(const double* rows, int64_t first, int64_t steps, int stride, double factor, double* out) const {
    out += first * width_;
    const int32_t *readers = readers_.data(), *reader = reader_.data();
    for (int64_t n = 0; n < steps; n++, out += width_, rows += stride)
      for (int64_t c = 0; c < width_; c++) {
        double sum = 0;
        for (int32_t k = readers[c]; k < readers[c + 1]; k++) sum += rows[reader[k]];
        out[c] = sum * factor;
      }
  }

 private:
  int64_t width_;
  std::vector<int32_t> column_, readers_, reader_;  // (L) of a place; the places that read each column
};

// What is added up over the sequences of a thread, labels as the caller numbers them.
struct Sums {
  std::vector<double> pairs, lengths, weights;  // (L, L) of a shared table, (D, L), (F)

  void clear(const Shape& shape, int64_t n_weights) {
    pairs.assign((size_t)(shape.labels * shape.labels), 0.0);
    lengths.assign((size_t)(shape.most * shape.labels), 0.0);
    weights.assign((size_t)n_weights, 0.0);
  }
  void add(const Sums& other) {
    for (size_t k = 0; k < pairs.size(); k++) pairs[k] += other.pairs[k];
    for (size_t k = 0; k < lengths.size(); k++) lengths[k] += other.lengths[k];
    for (size_t k = 0; k < weights.size(); k++) weights[k] += other.weights[k];
  }
};

}  // namespace segments
}  // namespace crfield
