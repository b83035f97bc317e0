#include "chain/batch_arrays.hpp"

namespace crfield {

BatchView BatchArrays::view(const Model& m) const {
  BatchView x;
  x.nodes = check_offsets(offsets);
  x.sequences = (int64_t)offsets.shape(0) - 1;
  x.offsets = offsets.data();
  x.edge_offsets = edge_offsets_of(x.offsets, x.sequences);
  x.edges = x.edge_offsets.back();
  check_csr(indptr, indices, values, x.nodes, m.columns);
  x.indptr = indptr.data();
  x.indices = indices.data();
  x.values = values ? values->data() : nullptr;
  require(m.n_dense == 0 || (dense && (int64_t)dense->shape(0) == x.nodes && (int64_t)dense->shape(1) == m.n_dense),
          "the dense block does not fit");
  x.dense = dense ? dense->data() : nullptr;
  if (m.edge_columns) {
    require(edge_indptr && edge_indices, "the model has edge columns, the batch has none");
    check_csr(*edge_indptr, *edge_indices, edge_values, x.edges, m.edge_columns);
    x.edge_indptr = edge_indptr->data();
    x.edge_indices = edge_indices->data();
    x.edge_values = edge_values ? edge_values->data() : nullptr;
  }
  require(m.n_edge_dense == 0 || (edge_dense && (int64_t)edge_dense->shape(0) == x.edges &&
                                  (int64_t)edge_dense->shape(1) == m.n_edge_dense),
          "the dense block of the edges does not fit");
  x.edge_dense = edge_dense ? edge_dense->data() : nullptr;
  return x;
}

}  // namespace crfield
