// One evaluation over several problems of one model that come one after the other, such as the shards of a data set.
//
// Weights are laid out once and gradients folded once, not for every problem: with millions of weights and problems of
// a few megabytes that would cost more than the sequences do. As in Problem::run there are at least two shares of the
// groups, so one and two threads give the same bits; each share has its sums for the whole evaluation.
#pragma once
#include "chain/problem_memory.hpp"

namespace crfield {

class Problem::Sums {
 public:
  Sums(std::shared_ptr<Workspace> workspace, int n_jobs);
  void begin(const double* w, double* out);  // both must live until the end
  void add(const Problem& problem);
  double end();

 private:
  void open(int64_t room);
  void close();
  std::shared_ptr<Workspace> workspace_;
  int n_jobs_;
  const double* w_ = nullptr;
  double* out_ = nullptr;
  double value_ = 0;
  int64_t room_ = 0;  // for merged rows
  bool opened_ = false;
  Call call_;
  std::vector<double> ends_;
  const double* boundary_ = nullptr;
};

}  // namespace crfield
