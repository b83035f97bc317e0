// Scores and neighbours as the site kernels read them; everything was checked by module.cpp.
#pragma once
#include <cstdint>

namespace crfield {
namespace sites {

struct Field {
  int64_t graphs, nodes, labels, tables;
  const int64_t* offsets;  // (graphs + 1)
  const int64_t* indptr;   // (nodes + 1)
  const int64_t* other;    // the node at the other end of each place
  const int64_t* slot;     // 2 table + (1 when the node is the edge's tail)
  const double* node;      // (nodes, labels)
  const double* edge;      // (tables, labels, labels)

  // One edge seen from one end: score of own label l beside label m at the other end is table[l * own + m * far].
  struct View {
    const double* table;
    int64_t own, far;
  };
  View view(int64_t place) const {
    const int64_t s = slot[place];
    const double* table = edge + (s >> 1) * labels * labels;
    return s & 1 ? View{table, labels, 1} : View{table, 1, labels};
  }

  // out[l] = sum over edges of edge(l, y_other)
  void pull(int64_t n, const int32_t* y, double* out) const {
    for (int64_t l = 0; l < labels; l++) out[l] = 0.0;
    for (int64_t place = indptr[n]; place < indptr[n + 1]; place++) {
      const View e = view(place);
      const double* row = e.table + y[other[place]] * e.far;
      for (int64_t l = 0; l < labels; l++) out[l] += row[l * e.own];
    }
  }
};

struct Walks {
  int64_t chains, sweeps, burn_in, batches;
  uint64_t seed;
  const double *node_scale, *edge_scale;  // (sweeps)
  int32_t *labels, *best;                 // (chains, nodes)
  double *best_score, *trace, *work;      // (chains, graphs), (chains, sweeps), (chains, graphs, 2)
  double* conditional;                    // (chains, 2, nodes, labels)
  int32_t* drawn;                         // (chains, 2, nodes, labels)
  double *batch_square, *pairs;           // (chains, nodes, labels), (chains, tables, labels, labels)
};

void gibbs(const Field& field, const Walks& walks, int n_jobs);
void icm(const Field& field, int64_t chains, int32_t* labels, int64_t max_sweeps, int64_t* sweeps, uint8_t* settled,
         int n_jobs);
void mean_field(const Field& field, int64_t starts, double* beliefs, int64_t max_sweeps, double tol, double* bound,
                int64_t* sweeps, uint8_t* settled, int n_jobs);

struct Gold {
  int64_t nodes, labels, tables, edges;
  const double *node, *edge;
  const int64_t *tails, *heads, *table;
  const int32_t* label;    // (nodes), -1 where `allowed` decides
  const uint8_t* allowed;  // (nodes, labels) or null
  const double* weight;    // (nodes) or null for ones
  double *node_gradient, *edge_gradient;
};

double pseudo_likelihood(const Gold& gold);

}  // namespace sites
}  // namespace crfield
