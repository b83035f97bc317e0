// Checks of what Python hands in, and the work split by sequences.
#pragma once
#include <algorithm>
#include <optional>
#include <stdexcept>
#include <vector>

#include "arrays.hpp"

namespace crfield {

template <class T>
using Maybe1 = std::optional<Array1<const T>>;
template <class T>
using Maybe2 = std::optional<Array2<const T>>;

inline int64_t check_offsets(const Array1<const int64_t>& offsets) {
  require(offsets.shape(0) >= 1 && offsets(0) == 0, "offsets must start at 0");
  for (size_t s = 1; s < offsets.shape(0); s++) require(offsets(s) >= offsets(s - 1), "offsets must not fall");
  return offsets(offsets.shape(0) - 1);
}

inline std::vector<int64_t> edge_offsets_of(const int64_t* offsets, int64_t sequences) {
  std::vector<int64_t> out(sequences + 1, 0);
  for (int64_t s = 0; s < sequences; s++) out[s + 1] = out[s] + std::max<int64_t>(0, offsets[s + 1] - offsets[s] - 1);
  return out;
}

inline void check_columns(const int64_t* indptr, const int32_t* indices, int64_t rows, int64_t columns) {
  int32_t low = 0, high = -1;
  for (int64_t k = 0; k < indptr[rows]; k++) {
    low = std::min(low, indices[k]);
    high = std::max(high, indices[k]);
  }
  require(low >= 0 && high < columns, "a column index is out of range");
}

inline void check_csr(const Array1<const int64_t>& indptr, const Array1<const int32_t>& indices, const Maybe1<double>& values,
               int64_t rows, int64_t columns) {
  const int64_t nnz = (int64_t)indices.shape(0);
  require((int64_t)indptr.shape(0) == rows + 1 && indptr(0) == 0 && indptr(rows) == nnz, "indptr does not fit the rows");
  const int64_t* p = indptr.data();
  for (int64_t r = 0; r < rows; r++) require(p[r] <= p[r + 1], "indptr must not fall");
  check_columns(p, indices.data(), rows, columns);
  require(!values || (int64_t)values->shape(0) == nnz, "values do not fit the indices");
}

// Sequences [first, last) of each part, about the same number of nodes each.
inline std::vector<int64_t> split_sequences(const int64_t* offsets, int64_t sequences, int parts) {
  std::vector<int64_t> cut(parts + 1, sequences);
  cut[0] = 0;
  for (int p = 1; p < parts; p++)
    cut[p] = std::lower_bound(offsets, offsets + sequences, offsets[sequences] * p / parts) - offsets;
  return cut;
}

}  // namespace crfield
