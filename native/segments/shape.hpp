// Sizes of a batch of sequences, checked, and where the labels stand in a row of scores.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "segments/batches.hpp"

namespace crfield {
namespace segments {

constexpr int64_t MOST_LABELS = 65535, MOST_STEPS = int64_t(1) << 24, MOST_NUMBERS = int64_t(1) << 40;

// Where the sequences lie, and the sizes; thrown out here if they do not fit.
struct Shape {
  const int64_t* offsets;
  int64_t sequences, nodes, labels, most, longest = 0;
  std::vector<int64_t> first_edge;
  bool shared = true;

  Shape(const Ints& given, int64_t n, int64_t d, int64_t l, const Array3<const double>* edge)
      : offsets(given.data()), sequences((int64_t)given.shape(0) - 1), nodes(n), labels(l), most(d) {
    require(sequences >= 0 && offsets[0] == 0, "offsets must start at 0 and not fall");
    first_edge.assign((size_t)sequences + 1, 0);
    for (int64_t s = 0; s < sequences; s++) {
      const int64_t steps = offsets[s + 1] - offsets[s];
      require(steps >= 0, "offsets must start at 0 and not fall");
      first_edge[s + 1] = first_edge[s] + std::max<int64_t>(steps - 1, 0);
      longest = std::max(longest, steps);
    }
    require(offsets[sequences] == nodes && labels >= 1 && labels <= MOST_LABELS && most >= 1 && most <= MOST_STEPS,
            "segment scores do not fit");
    require((longest + 1) <= MOST_NUMBERS / most / (labels + 8), "a sequence has too many segments");
    if (!edge) return;
    require((int64_t)edge->shape(1) == labels && (int64_t)edge->shape(2) == labels,
            "edge scores do not fit the labels");
    shared = edge->shape(0) == 1;
    require(shared || (int64_t)edge->shape(0) == first_edge.back(), "edge scores do not fit the edges");
  }

  int64_t begin(int64_t s) const { return offsets[s]; }
  int64_t steps(int64_t s) const { return offsets[s + 1] - offsets[s]; }

  // Sequences of each thread: about equally many nodes, whatever the speed of the threads.
  std::vector<int64_t> cut(int parts) const {
    std::vector<int64_t> at((size_t)parts + 1, sequences);
    at[0] = 0;
    for (int p = 1; p < parts; p++) {
      const int64_t wanted = nodes / parts * p + nodes % parts * p / parts;
      at[p] = std::max<int64_t>(at[p - 1], std::lower_bound(offsets, offsets + sequences, wanted) - offsets);
    }
    return at;
  }
  int parts(int n_jobs) const { return (int)std::max<int64_t>(1, std::min<int64_t>(n_jobs, sequences)); }
};

// Where labels stand in a row. Those that may last longest come first, so that lengths which no label of a vector may
// have are left out; without limits all last equally long and stay where they are.
struct Order {
  std::vector<int32_t> label, place;  // (L) the label at a place; the place of a label
  std::vector<int64_t> deep;          // (vectors)
  std::vector<int32_t> wide;          // (D)

  Order(const Shape& shape, int stride, int lanes, const int32_t* limit)
      : label((size_t)shape.labels),
        place((size_t)shape.labels),
        deep((size_t)(stride / lanes), 0),
        wide((size_t)shape.most, 0) {
    std::iota(label.begin(), label.end(), 0);
    if (limit) std::stable_sort(label.begin(), label.end(), [&](int32_t i, int32_t j) { return limit[i] > limit[j]; });
    for (int64_t k = 0; k < shape.labels; k++) {
      place[label[k]] = (int32_t)k;
      int64_t& own = deep[k / lanes];
      own = std::max<int64_t>(own, limit ? limit[label[k]] : shape.most);
    }
    size_t vectors = deep.size();
    for (int64_t d = 0; d < shape.most; d++) {
      while (vectors && deep[vectors - 1] <= d) vectors--;
      wide[d] = (int32_t)vectors;
    }
  }
};

// Where states stand in a row of products: those with the same first length side by side, so that a vector whose states
// all have one length only, say, is read at that length only.
struct ProductOrder {
  std::vector<int32_t> label, place;  // (L) the state at a place; the place of a state
  std::vector<int32_t> from, deep;    // (vectors) the lengths d - 1 in [from, deep) that some state of it has
  std::vector<double> least;          // (stride) the fewest steps of a state; padding: infinity

  // `possible(d, j)`: whether state j may last d + 1 steps.
  template <class Possible>
  ProductOrder(const Shape& shape, int stride, int lanes, const Possible& possible)
      : label((size_t)shape.labels),
        place((size_t)shape.labels),
        from((size_t)(stride / lanes), (int32_t)shape.most),
        deep((size_t)(stride / lanes), 0),
        least((size_t)stride, std::numeric_limits<double>::infinity()) {
    std::vector<int32_t> low((size_t)shape.labels, (int32_t)shape.most), high((size_t)shape.labels, 0);
    for (int64_t j = 0; j < shape.labels; j++)
      for (int64_t d = 0; d < shape.most; d++)
        if (possible(d, j)) low[j] = std::min<int32_t>(low[j], (int32_t)d), high[j] = (int32_t)d + 1;
    std::iota(label.begin(), label.end(), 0);
    std::stable_sort(label.begin(), label.end(), [&](int32_t i, int32_t j) {
      return low[i] != low[j] ? low[i] < low[j] : high[i] > high[j];
    });
    for (int64_t k = 0; k < shape.labels; k++) {
      const int32_t j = label[k];
      place[j] = (int32_t)k;
      from[k / lanes] = std::min(from[k / lanes], low[j]);
      deep[k / lanes] = std::max(deep[k / lanes], high[j]);
      if (high[j]) least[k] = low[j] + 1.0;
    }
  }
};

}  // namespace segments
}  // namespace crfield
