// In which order messages are updated, and until when.
#pragma once
#include <cstdint>
#include <vector>

#include "graph/wiring.hpp"

namespace crfield {
namespace graph {

enum class Schedule { synchronous, sweeps, residual };

struct Options {
  Schedule schedule = Schedule::synchronous;
  const double* damping = nullptr;  // (B)
  int64_t max_sweeps = 1;
  double tol = 0;
  int n_jobs = 1;
};

// Messages (E, 2, L) in, messages out; residual (B) and sweeps (B) of every graph. Afterwards the rows of the wiring
// hold node scores and messages in logs.
void run(Wiring&, const std::vector<int64_t>& first_edge, const Options&, double* messages, double* residual,
         int64_t* sweeps);

// Totals (B), node beliefs (N, L) and edge beliefs (T, L, L) of the messages in the wiring.
void answers(Wiring&, const std::vector<int64_t>& first_edge, int n_jobs, double* total, double* node, double* edge);

// Labels (N) read off messages (E, 2, L).
void decode(const Input&, const double* messages, int32_t* labels, int n_jobs);

}  // namespace graph
}  // namespace crfield
