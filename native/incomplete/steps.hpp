// Steps of boosting with incomplete information; the contract is in src/crfield/kernels/incomplete.py.
#pragma once
#include <cstdint>

namespace crfield {
namespace incomplete {

struct Rule {
  double l2, smoothing, longest;
};

// The root of plus e^{scale d} - minus e^{-scale d} + l2 (weight + d).
double step(double plus, double minus, double weight, double scale, const Rule& rule);

// Everything a sweep reads and writes; every index has been checked.
struct Sweep {
  int64_t columns, labels;          // D, Y
  const int64_t *indptr, *indices;  // the columns, CSC
  const double* values;
  const int64_t *spans, *offsets, *owner;  // cells of a row, cells of a datum, datum of a cell
  const int64_t* label;
  const double *prior, *weight;
  double *scores, *heavy, *table;
  int64_t cells;
  int loss;  // 0 exp, 1 joint, 2 jensen, 3 mix
  bool tight;
  Rule rule;
};

void sweep(const Sweep& s);

}  // namespace incomplete
}  // namespace crfield
