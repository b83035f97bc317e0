// One step of a growing chain; the contract is in src/crfield/kernels/stream.py. Pointers are checked by the door.
#pragma once
#include <cstdint>
#include <vector>

namespace crfield {
namespace stream {

// The arrays of one stream.
struct Memory {
  int64_t labels, window, slots;
  const double* start;        // (L)
  const double* transitions;  // (L, L)
  double* alpha;              // (H, L)
  double* nodes;              // (H, L)
  double* edges;              // (H, L, L), or null: one table for all steps
  double* delta;              // (L)
  int32_t* back;              // (M, L)
  int32_t* origin;            // (L)
  int64_t steps, oldest;
};

// Room for one step, made once for a set of streams.
struct Room {
  std::vector<double> first, second;
  std::vector<int32_t> alive, found;
  std::vector<uint8_t> seen;
  explicit Room(int64_t labels);
};

struct Commit {
  int64_t count, forced;
};

// Advance the filter; gives what the log of the total grows by.
double filter(const Memory& m, const double* node, const double* edge, double* probabilities, Room& room);

// p(label of the step `window - 1` ago | everything so far), NaN where the stream is younger.
void smooth(const Memory& m, double* out, Room& room);

// Advance the survivors; `oldest` moves by what is committed.
Commit survive(Memory& m, const double* node, const double* table, int32_t* committed, Room& room);

}  // namespace stream
}  // namespace crfield
