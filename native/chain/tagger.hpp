// Weights ready for prediction, and gradients of scores as gradients of weights.
#pragma once
#include <memory>
#include <vector>

#include "arrays.hpp"
#include "chain/batch_arrays.hpp"
#include "chain/model.hpp"
#include "sequence_tagger.hpp"

namespace crfield {

// Immutable, so any number of threads may use one.
class Tagger : public SequenceDecoder {
 public:
  Tagger(std::shared_ptr<const Model> model, Array1<const double> w);

  void decode(const BatchArrays& arrays, Array1<int32_t> path, Array1<double> total, int n_jobs) const;
  void scores(const BatchArrays& arrays, Array2<double> node, Array3<double> edge, int n_jobs) const;

  int labels() const override { return model_->labels; }
  int64_t columns() const override { return model_->columns; }
  int64_t n_dense() const override { return model_->n_dense; }
  int64_t edge_columns() const override { return model_->edge_columns; }
  double decode(const SequenceRows& rows, Scratch& scratch, int32_t* path) const override;
  nb::capsule decoder() const { return nb::capsule(static_cast<const SequenceDecoder*>(this), DECODER_CAPSULE); }

 private:
  void node_scores(const BatchView& x, int64_t s, double* score) const;

  std::shared_ptr<const Model> model_;
  std::vector<double> weights_, fixed_ends_;
  const double* ends_ = nullptr;
  Loaded loaded_;
};

// A gradient in the shape of the scores, added to the weights it came from.
void pull(const Model& m, const BatchArrays& arrays, Array2<const double> node, Array3<const double> edge,
          Array1<double> out);

}  // namespace crfield
