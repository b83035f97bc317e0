// What a call of the fused objective works in: one Part a thread, one Call for all of them.
#pragma once
#include <memory>
#include <vector>

#include "chain/problem.hpp"

namespace crfield {

struct Problem::Part {
  Scratch scratch;
  Buffer<double> rows, merged, single, dense, bias, start, end, counts, pair_counts, direct, tail, third;
  const NodeRows* gather_rows = nullptr;
  template <class T>
  struct Side {
    Buffer<T> score, scratch;
  };
  Side<double> doubles;  // of groups side by side: problem_beside.cpp
  Side<float> floats;
  Side<double>& side(double) { return doubles; }
  Side<float>& side(float) { return floats; }
  Buffer<double> totals;
  double value = 0, error = 0;
  bool running = false;  // sums go on from problem to problem: problem_sums.cpp
};

struct Problem::Call {
  Loaded loaded;
  std::vector<std::unique_ptr<Part>> parts;
  Buffer<double> mask, row_square, single_square[SINGLES], list_square, dense_square;
};

}  // namespace crfield
