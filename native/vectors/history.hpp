// The memory of L-BFGS: the last pairs s, y, and the small tables of their products.
//
// The two-loop recursion only ever adds multiples of s_i, D y_i and D g, so it can run on the multiples alone
// once the products s_i·y_j (i not newer than j), y_i·D y_j, s_i·g and y_i·D g are known. A step then reads
// the pairs twice: for the products with the new y and g, and for the final sum. The textbook form
// reads them four times and the working vector 4 m times besides.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "vectors/passes.hpp"

namespace crfield {
namespace vectors {

struct Move {
  const double *weights, *old_weights, *gradient, *old_gradient;
};

struct Course {
  const double* steepest;
  double* out;
  const double* orthant;  // or null
  const uint8_t* penalised;
};

class History {
 public:
  virtual ~History() = default;
  virtual size_t size() const = 0;
  virtual void clear() = 0;
  // Keep the pair of a move; false if its curvature is not positive.
  virtual bool push(const Move& move) = 0;
  // -H g and its slope.
  virtual double direction(const Course& course) = 0;
  // Both, reading the pairs once less.
  virtual std::pair<bool, double> advance(const Move& move, const Course& course) = 0;
  // Bytes of one number of a pair.
  virtual size_t width() const = 0;
  // All pairs, the oldest first, and the tables s_i·y_j and y_i·D y_j (pairs, pairs) in that order.
  virtual void write(uint8_t* s, uint8_t* y, double* s_y, double* y_dy) const = 0;
  // Take `count` pairs, at most the memory, in place of all that are kept.
  virtual void read(size_t count, const uint8_t* s, const uint8_t* y, const double* s_y, const double* y_dy) = 0;
};

// With `trusted`, the diagonal is H0 as it is; otherwise up to the factor that the newest pair asks for.
std::unique_ptr<History> make_history(size_t n, int memory, bool single, const double* diagonal, int n_jobs,
                                      bool trusted);

}  // namespace vectors
}  // namespace crfield
