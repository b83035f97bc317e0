// One pass over one block of long vectors, compiled per x86-64 level.
//
// A pass works on at most BLOCK entries and adds up its sums; blocks.hpp spreads the blocks over threads and adds
// the sums of all blocks in order. So no result depends on the number of threads.
#pragma once
#include <cstddef>
#include <cstdint>

#include "level.hpp"

namespace crfield {
namespace vectors {

constexpr size_t BLOCK = 16384;  // entries; small enough for an even split, large enough to stream

// The pairs of a history at one block: s[i] and y[i] point at its first entry, i = 0 the oldest.
template <class T>
struct Pairs {
  const T* const* s;
  const T* const* y;
  int count;
};

// A step just taken, at one block, and the room for its rounded pair.
template <class T>
struct NewPair {
  const double *weights, *old_weights, *gradient, *old_gradient;
  T *s, *y;
};

// Sums that `products` leaves behind: five of the new pair, then four for each kept pair.
enum NewSums { S_Y, Y_Y, Y_DY, S_G, Y_DG, NEW_SUMS };
enum PairSums { SI_Y, YI_DY, SI_G, YI_DG, PAIR_SUMS };

template <class T>
struct HistoryPasses {
  // Round and keep the new pair (unless null), and take the products of y and D y of the new pair and of g and D g (unless
  // null) with all pairs. D is the diagonal, or one when null.
  void (*products)(size_t n, Pairs<T> pairs, const NewPair<T>* fresh, const double* g, const double* diagonal,
                   double* sums);
  // out = -(gamma D (g + sum a_i y_i) + sum b_i s_i), sums[0] = g out. With `orthant`, a penalised entry where that is
  // zero becomes zero unless it opposes g.
  void (*combine)(size_t n, Pairs<T> pairs, const double* a, const double* b, double gamma, const double* g,
                  const double* diagonal, const double* orthant, const uint8_t* penalised, double* out, double* sums);
};

struct Passes {
  void (*dot)(size_t n, const double* a, const double* b, double* sums);
  void (*step)(size_t n, const double* w, const double* d, double t, double* out);
  void (*l1_norm)(size_t n, const double* w, const uint8_t* penalised, double* sums);
  // g += l2 w; sums: w w, g d, g g
  void (*ridge)(size_t n, const double* w, double* g, const double* d, double l2, const uint8_t* penalised,
                double* sums);
  void (*pseudo)(size_t n, const double* w, const double* g, double l1, const uint8_t* penalised, double* out,
                 double* sums);
  // sums: pseudo-gradient (out - w), |out|, non-zeros
  void (*orthant)(size_t n, const double* w, const double* g, const double* d, double t, double l1,
                  const uint8_t* penalised, double* out, double* sums);
  HistoryPasses<float> narrow;
  HistoryPasses<double> wide;

  template <class T>
  const HistoryPasses<T>& history() const;
};

template <>
inline const HistoryPasses<float>& Passes::history<float>() const { return narrow; }
template <>
inline const HistoryPasses<double>& Passes::history<double>() const { return wide; }

}  // namespace vectors

#define CRFIELD_VECTORS_LEVEL(name) \
  namespace name {                  \
  extern CRFIELD_OPTIONAL const vectors::Passes passes; \
  }
CRFIELD_VECTORS_LEVEL(level0)
CRFIELD_VECTORS_LEVEL(level2)
CRFIELD_VECTORS_LEVEL(level3)
CRFIELD_VECTORS_LEVEL(level4)
#undef CRFIELD_VECTORS_LEVEL

}  // namespace crfield
