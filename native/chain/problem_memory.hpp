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
  Buffer<float> float_score, float_side;  // of groups in single precision: problem_single.cpp
  Buffer<double> float_totals;
  double value = 0, error = 0;
  bool running = false;  // sums go on from problem to problem: problem_sums.cpp
};

struct Problem::Call {
  Loaded loaded;
  std::vector<std::unique_ptr<Part>> parts;
  Buffer<double> mask, row_square, single_square[SINGLES], list_square, dense_square;
};

}  // namespace crfield
