// Labels are the lanes: a row's number is spread over a vector and meets the parameters of several labels at once.
#include "emission/sums.hpp"

#include "level.hpp"

namespace crfield {
namespace CRFIELD_LEVEL_NAME {

void scores(const emission::Scores& given, int64_t from, int64_t count, double* out) {
  const emission::Scores own = given;  // by value: stores of vectors may alias anything
  const V half = fill(0.5);
  for (int64_t n = 0; n < count; n++) {
    const double* row = own.rows + (from + n) * own.columns;
    for (int64_t c = 0; c < own.labels; c += LANES) {
      V sum = V{};
      for (int64_t d = 0; d < own.columns; d++) {
        const V away = (fill(row[d]) - load(own.mean + d * own.stride + c)) * load(own.inverse + d * own.stride + c);
        sum += away * away;
      }
      store(out + n * own.stride + c, load(own.bias + c) - half * sum);
    }
  }
}

void moments(const emission::Moments& given, int64_t from, int64_t count, const double* responsibility,
             double* sums) {
  const emission::Moments own = given;
  for (int64_t c = 0; c < own.labels; c += LANES) {
    V mass = load(sums + c);
    for (int64_t n = 0; n < count; n++) mass += load(responsibility + n * own.stride + c);
    store(sums + c, mass);
    for (int64_t d = 0; d < own.columns; d++) {
      double *one = sums + (1 + d) * own.stride + c, *two = sums + (1 + own.columns + d) * own.stride + c;
      V first = load(one), second = load(two);
      const V centre = load(own.centre + d * own.stride + c);
      for (int64_t n = 0; n < count; n++) {
        const V away = fill(own.rows[(from + n) * own.columns + d]) - centre;
        const V part = load(responsibility + n * own.stride + c) * away;
        first += part;
        second += part * away;
      }
      store(one, first);
      store(two, second);
    }
  }
}

// A missing cell (NaN) is the same for all labels, so leaving it out is one branch for all lanes.

void observed_scores(const emission::Scores& given, int64_t from, int64_t count, double* out) {
  const emission::Scores own = given;
  const V half = fill(0.5);
  for (int64_t n = 0; n < count; n++) {
    const double* row = own.rows + (from + n) * own.columns;
    for (int64_t c = 0; c < own.labels; c += LANES) {
      V sum = V{}, bias = load(own.bias + c);
      for (int64_t d = 0; d < own.columns; d++) {
        if (row[d] != row[d]) continue;
        const V away = (fill(row[d]) - load(own.mean + d * own.stride + c)) * load(own.inverse + d * own.stride + c);
        sum += away * away;
        bias += load(own.parts + d * own.stride + c);
      }
      store(out + n * own.stride + c, bias - half * sum);
    }
  }
}

void observed_moments(const emission::Moments& given, int64_t from, int64_t count, const double* responsibility,
                      double* sums) {
  const emission::Moments own = given;
  for (int64_t c = 0; c < own.labels; c += LANES) {
    for (int64_t d = 0; d < own.columns; d++) {
      double* all = sums + d * own.stride + c;
      double *one = all + own.columns * own.stride, *two = one + own.columns * own.stride;
      V mass = load(all), first = load(one), second = load(two);
      const V centre = load(own.centre + d * own.stride + c);
      for (int64_t n = 0; n < count; n++) {
        const double cell = own.rows[(from + n) * own.columns + d];
        if (cell != cell) continue;
        const V share = load(responsibility + n * own.stride + c), away = fill(cell) - centre, part = share * away;
        mass += share;
        first += part;
        second += part * away;
      }
      store(all, mass);
      store(one, first);
      store(two, second);
    }
  }
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
