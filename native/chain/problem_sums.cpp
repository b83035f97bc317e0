#include "chain/problem_sums.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "threads.hpp"

namespace crfield {

Problem::Sums::Sums(std::shared_ptr<Workspace> workspace, int n_jobs)
    : workspace_(std::move(workspace)), n_jobs_(std::max(1, n_jobs)) {
  for (int q = 0; q < std::max(SHARES, n_jobs_); q++) {
    call_.parts.push_back(std::make_unique<Part>());
    call_.parts.back()->running = true;
  }
}

void Problem::Sums::begin(const double* w, double* out) {
  w_ = w;
  out_ = out;
  value_ = 0;
  opened_ = false;
  std::memset(out, 0, sizeof(double) * workspace_->model->n_weights);
}

// Weights laid out and sums of zero, with room for so many merged rows.
void Problem::Sums::open(int64_t room) {
  const Model& m = *workspace_->model;
  if (opened_) close();
  room_ = std::max(room, room_);
  call_.loaded.set(m, w_, n_jobs_, room_);
  boundary_ = m.ends(w_, ends_);
  run_parts(n_jobs_, [&](int t) {
    for (size_t q = call_.parts.size() * t / n_jobs_; q < call_.parts.size() * (t + 1) / n_jobs_; q++)
      clear_part(m, (int)q, room_, *call_.parts[q]);
  });
  opened_ = true;
}

// The sums of all shares, added to the gradient.
void Problem::Sums::close() {
  const Model& m = *workspace_->model;
  const Problem any(workspace_);
  run_parts(n_jobs_, [&](int t) {
    for (size_t q = 0; q < call_.parts.size(); q++)
      any.fold_columns(*call_.parts[q], m.columns * t / n_jobs_, m.columns * (t + 1) / n_jobs_, q == 0, out_);
  });
  std::vector<double> variance(m.labels, 0.0);
  for (const auto& part : call_.parts) any.fold_rest(*part, call_.loaded.edges().table(), variance.data(), out_);
  opened_ = false;
}

void Problem::Sums::add(const Problem& problem) {
  const Model& m = *workspace_->model;
  if (problem.model_ != workspace_->model) throw std::invalid_argument("the problem is of another workspace");
  const int64_t merged = problem.merged_.size();
  if (!opened_ || merged > room_) open(merged);
  problem.sum_merged(call_.loaded);
  const Shared shared{problem.rows(), problem.rows(), boundary_, Mode::GRADIENT, out_, false};
  const int shares = (int)call_.parts.size();
  run_parts(n_jobs_, [&](int t) {
    for (int q = shares * t / n_jobs_; q < shares * (t + 1) / n_jobs_; q++) {
      Part& part = *call_.parts[q];
      problem.one_share(q, shares, call_, shared, part);
      if (merged)  // these have gone to their members
        std::memset(m.direct ? part.merged.data() : part.rows.data() + m.rows() * m.stride, 0,
                    sizeof(double) * merged * m.stride);
    }
  });
  for (const auto& part : call_.parts) value_ += part->value;
  if (m.edge_features()) return;
  for (size_t p = 0; p < m.pairs.size(); p++) {
    out_[m.at_pairs + p] -= problem.gold_pairs_[p];
    value_ -= problem.gold_pairs_[p] * w_[m.at_pairs + p];
  }
  value_ -= problem.gold_fixed_;
}

double Problem::Sums::end() {
  if (opened_) close();
  return value_;
}

}  // namespace crfield
