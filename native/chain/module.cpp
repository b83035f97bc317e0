// Python's view of the chain kernels: arrays are checked here, once, and everything behind trusts them.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "arrays.hpp"
#include "chain/batch_arrays.hpp"
#include "chain/checks.hpp"
#include "chain/inference.hpp"
#include "chain/model.hpp"
#include "chain/pack.hpp"
#include "chain/packed_binding.hpp"
#include "chain/padded.hpp"
#include "chain/primal_dual.hpp"
#include "chain/problem.hpp"
#include "chain/tagger.hpp"
#include "level.hpp"

namespace crfield {
namespace {

std::unique_ptr<Problem> make_problem(std::shared_ptr<const Model> model, const BatchArrays& arrays,
                                      Array1<const int32_t> labels, Maybe2<uint8_t> allowed, Maybe1<double> weight,
                                      int group_width) {
  const BatchView x = arrays.view(*model);
  require((int64_t)labels.shape(0) == x.nodes, "labels do not fit the nodes");
  require(!allowed || ((int64_t)allowed->shape(0) == x.nodes && (int)allowed->shape(1) == model->labels),
          "allowed does not fit the nodes");
  require(!weight || (int64_t)weight->shape(0) == x.sequences, "weight does not fit the sequences");
  require(group_width >= 1 && group_width <= 64, "group_width must lie in 1 … 64");
  nb::gil_scoped_release unlocked;
  return std::make_unique<Problem>(std::move(model), x, labels.data(), allowed ? allowed->data() : nullptr,
                                   weight ? weight->data() : nullptr, group_width);
}

template <class T>
std::vector<T> to_vector(const Array1<const T>& a) {
  return std::vector<T>(a.data(), a.data() + a.shape(0));
}

}  // namespace
}  // namespace crfield

NB_MODULE(_chain, module) {
  nanobind::set_leak_warnings(false);  // a model still alive when Python ends is no fault
  using namespace crfield;
  best_kernels();  // throws where no level that was built is for this processor
  module.def("level", [] { return best_kernels()->level; });
  module.def("sum_product", &sum_product, nb::arg("offsets"), nb::arg("node"), nb::arg("edge"), nb::arg("total"),
             nb::arg("node_out"), nb::arg("edge_out"), nb::arg("each"), nb::arg("n_jobs"),
             nb::arg("weight").none() = nb::none());
  bind_padded(module);
  module.def("max_product", &max_product);
  module.def("observed", &observed);
  module.def("pull", &pull);

  nb::class_<BatchArrays>(module, "BatchArrays")
      .def("__init__",
           [](BatchArrays* self, Array1<const int64_t> offsets, Array1<const int64_t> indptr,
              Array1<const int32_t> indices, Maybe1<double> values, Maybe2<double> dense, Maybe1<int64_t> edge_indptr,
              Maybe1<int32_t> edge_indices, Maybe1<double> edge_values, Maybe2<double> edge_dense) {
             new (self) BatchArrays{offsets, indptr, indices, values, dense, edge_indptr, edge_indices, edge_values,
                                    edge_dense};
           },
           nb::arg("offsets"), nb::arg("indptr"), nb::arg("indices"), nb::arg("values").none(),
           nb::arg("dense").none(), nb::arg("edge_indptr").none(), nb::arg("edge_indices").none(),
           nb::arg("edge_values").none(), nb::arg("edge_dense").none());

  nb::class_<Model>(module, "Model")
      .def("__init__",
           [](Model* self, int labels, int64_t columns, std::optional<Array1<const int64_t>> feature_ptr,
              std::optional<Array1<const int32_t>> feature_label, int64_t n_dense, bool bias, bool boundaries,
              Array1<const int32_t> pairs, int64_t edge_columns, std::optional<Array1<const int64_t>> edge_ptr,
              std::optional<Array1<const int32_t>> edge_pair, int64_t n_edge_dense, Maybe2<double> fixed_edge,
              Maybe1<double> fixed_start, Maybe1<double> fixed_end) {
             require(feature_ptr.has_value() == feature_label.has_value(), "feature lists come in pairs");
             require(edge_ptr.has_value() == edge_pair.has_value(), "edge feature lists come in pairs");
             require(fixed_edge.has_value() == fixed_start.has_value() &&
                         fixed_start.has_value() == fixed_end.has_value(),
                     "fixed scores do not fit the labels");
             require(!fixed_edge || fixed_edge->shape(0) == fixed_edge->shape(1), "fixed scores do not fit the labels");
             new (self) Model(labels, columns, feature_ptr ? to_vector(*feature_ptr) : std::vector<int64_t>{},
                              feature_label ? to_vector(*feature_label) : std::vector<int32_t>{}, !feature_ptr, n_dense,
                              bias, boundaries, to_vector(pairs), edge_columns,
                              edge_ptr ? to_vector(*edge_ptr) : std::vector<int64_t>{},
                              edge_pair ? to_vector(*edge_pair) : std::vector<int32_t>{}, !edge_ptr, n_edge_dense);
             if (!fixed_edge) return;
             const double* edge = fixed_edge->data();
             try {
               self->fix(std::vector<double>(edge, edge + fixed_edge->size()), to_vector<double>(*fixed_start),
                         to_vector<double>(*fixed_end));
             } catch (...) {
               self->~Model();
               throw;
             }
           },
           nb::arg("labels"), nb::arg("columns"), nb::arg("feature_ptr").none(), nb::arg("feature_label").none(),
           nb::arg("n_dense"), nb::arg("bias"), nb::arg("boundaries"), nb::arg("pairs"), nb::arg("edge_columns"),
           nb::arg("edge_ptr").none(), nb::arg("edge_pair").none(), nb::arg("n_edge_dense"),
           nb::arg("fixed_edge") = nb::none(), nb::arg("fixed_start") = nb::none(), nb::arg("fixed_end") = nb::none())
      .def_ro("n_weights", &Model::n_weights);

  nb::class_<Tagger>(module, "Tagger")
      .def("__init__", [](Tagger* self, std::shared_ptr<Model> model,
                          Array1<const double> w) { new (self) Tagger(std::move(model), w); })
      .def("decode", nb::overload_cast<const BatchArrays&, Array1<int32_t>, Array1<double>, int>(&Tagger::decode,
                                                                                                nb::const_))
      .def("decoder", &Tagger::decoder)
      .def("scores", &Tagger::scores);

  nb::class_<Problem> problem(module, "Problem");
  problem
      .def(nb::new_([](std::shared_ptr<Model> model, const BatchArrays& batch, Array1<const int32_t> labels,
                       Maybe2<uint8_t> allowed, Maybe1<double> weight, int group_width) {
             return make_problem(std::move(model), batch, labels, allowed, weight, group_width);
           }),
           nb::arg("model"), nb::arg("batch"), nb::arg("labels"), nb::arg("allowed").none(), nb::arg("weight").none(),
           nb::arg("group_width"))
      .def_prop_ro("n_groups", &Problem::n_groups)
      .def_prop_ro("n_merged", &Problem::n_merged)
      .def("evaluate",
           [](const Problem& p, Array1<const double> w, Array1<double> gradient, int n_jobs) {
             require((int64_t)w.shape(0) == p.model().n_weights && gradient.shape(0) == w.shape(0),
                     "weights or gradient do not fit the model");
             nb::gil_scoped_release unlocked;
             return p.evaluate(w.data(), gradient.data(), n_jobs);
           })
      .def("evaluate_single",
           [](const Problem& p, Array1<const double> w, Array1<double> gradient, int n_jobs) {
             require((int64_t)w.shape(0) == p.model().n_weights && gradient.shape(0) == w.shape(0),
                     "weights or gradient do not fit the model");
             nb::gil_scoped_release unlocked;
             double error = 0;
             const double value = p.evaluate_single(w.data(), gradient.data(), n_jobs, error);
             return std::pair<double, double>(value, error);
           })
      .def("curvature",
           [](const Problem& p, Array1<const double> w, Array1<double> out, int n_jobs) {
             require((int64_t)w.shape(0) == p.model().n_weights && out.shape(0) == w.shape(0),
                     "weights or output do not fit the model");
             nb::gil_scoped_release unlocked;
             p.curvature(w.data(), out.data(), n_jobs);
           })
      .def("descend", [](const Problem& p, Array1<double> w, Array1<const int64_t> order, double step, double done,
                         double horizon, double l2) {
        require((int64_t)w.shape(0) == p.model().n_weights, "weights do not fit the model");
        nb::gil_scoped_release unlocked;
        Epoch epoch;
        epoch.step = step;
        epoch.done = done;
        epoch.horizon = horizon;
        epoch.l2 = l2;
        return p.descend(w.data(), order.data(), (int64_t)order.shape(0), epoch);
      });
  bind_packed(module, problem);

  nb::class_<PrimalDual>(module, "PrimalDual")
      .def("__init__",
           [](PrimalDual* self, const Problem& problem, Maybe1<uint8_t> penalised, int width) {
             require(!penalised || (int64_t)penalised->shape(0) == problem.model().n_weights,
                     "penalised does not fit the model");
             require(width >= 1 && width <= 64, "width must lie in 1 … 64");
             nb::gil_scoped_release unlocked;
             new (self) PrimalDual(problem, penalised ? penalised->data() : nullptr, width);
           },
           nb::arg("problem"), nb::arg("penalised").none(), nb::arg("width"), nb::keep_alive<1, 2>())
      .def_prop_ro("n_rows", &PrimalDual::n_rows)
      .def_prop_ro("n_blocks", &PrimalDual::n_blocks)
      .def_prop_ro("n_sequences", &PrimalDual::n_sequences)
      .def_prop_ro("sequences", [](const PrimalDual& p) { return p.sequence_order(); })
      .def("epoch",
           [](PrimalDual& p, Array1<const int64_t> order, bool adagrad, bool curvature, bool lengths, double damping,
              double rate, double l1, double l2) {
             DualEpoch options;
             options.adagrad = adagrad;
             options.curvature = curvature;
             options.lengths = lengths;
             options.damping = damping;
             options.rate = rate;
             options.l1 = l1;
             options.l2 = l2;
             nb::gil_scoped_release unlocked;
             return p.epoch(order.data(), (int64_t)order.shape(0), options);
           })
      .def("set",
           [](PrimalDual& p, int what, Array1<const double> flat) {
             require((int64_t)flat.shape(0) == p.model().n_weights && what >= 0 && what <= 3, "the vector does not fit");
             p.set((PrimalDual::What)what, flat.data());
           })
      .def("get",
           [](const PrimalDual& p, int what, Array1<double> flat) {
             require((int64_t)flat.shape(0) == p.model().n_weights && what >= 0 && what <= 3, "the vector does not fit");
             p.get((PrimalDual::What)what, flat.data());
           })
      .def("curvature",
           [](const PrimalDual& p, Array1<double> flat) {
             require((int64_t)flat.shape(0) == p.model().n_weights, "the vector does not fit");
             p.get_curvature(flat.data());
           })
      .def("pull_table",
           [](const PrimalDual& p, Array1<double> flat) {
             require((int64_t)flat.shape(0) == p.model().n_weights, "the vector does not fit");
             nb::gil_scoped_release unlocked;
             return p.pull_table(flat.data());
           })
      .def("set_table",
           [](PrimalDual& p, Array2<const float> node, Array2<const float> pairs, Array2<const double> told) {
             require(shaped(node, p.n_rows(), p.model().labels) &&
                         shaped(pairs, p.n_sequences(), p.model().pairs.size()) && shaped(told, p.n_sequences(), 2),
                     "the table does not fit");
             p.set_table(node.data(), pairs.data(), told.data());
           })
      .def("get_table", [](const PrimalDual& p, Array2<float> node, Array2<float> pairs, Array2<double> told) {
        require(shaped(node, p.n_rows(), p.model().labels) &&
                    shaped(pairs, p.n_sequences(), p.model().pairs.size()) && shaped(told, p.n_sequences(), 2),
                "the table does not fit");
        p.get_table(node.data(), pairs.data(), told.data());
      });
}
