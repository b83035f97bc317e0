// Python's view of the online trainers: everything handed in is checked here or in the constructors behind.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>

#include <cmath>
#include <tuple>

#include "arrays.hpp"
#include "chain/batch_arrays.hpp"
#include "online/trainer.hpp"

namespace crfield {
namespace {

template <class T>
std::vector<T> to_vector(const Array1<const T>& a) {
  return std::vector<T>(a.data(), a.data() + a.shape(0));
}

// The arguments of a layout, in the order of `kernels.linear`; the last three may be left out.
std::unique_ptr<Model> make_model(nb::tuple parts) {
  require(parts.size() == 12 || parts.size() == 15, "a layout has twelve parts, or fifteen with fixed scores");
  const auto feature_ptr = nb::cast<Maybe1<int64_t>>(parts[2]);
  const auto feature_label = nb::cast<Maybe1<int32_t>>(parts[3]);
  const auto pairs = nb::cast<Array1<const int32_t>>(parts[7]);
  const auto edge_ptr = nb::cast<Maybe1<int64_t>>(parts[9]);
  const auto edge_pair = nb::cast<Maybe1<int32_t>>(parts[10]);
  require(feature_ptr.has_value() == feature_label.has_value(), "feature lists come in pairs");
  require(edge_ptr.has_value() == edge_pair.has_value(), "edge feature lists come in pairs");
  auto model = std::make_unique<Model>(
      nb::cast<int>(parts[0]), nb::cast<int64_t>(parts[1]), feature_ptr ? to_vector(*feature_ptr) : std::vector<int64_t>{},
      feature_label ? to_vector(*feature_label) : std::vector<int32_t>{}, !feature_ptr, nb::cast<int64_t>(parts[4]),
      nb::cast<bool>(parts[5]), nb::cast<bool>(parts[6]), to_vector(pairs), nb::cast<int64_t>(parts[8]),
      edge_ptr ? to_vector(*edge_ptr) : std::vector<int64_t>{}, edge_pair ? to_vector(*edge_pair) : std::vector<int32_t>{},
      !edge_ptr, nb::cast<int64_t>(parts[11]));
  if (parts.size() == 15) {
    const auto edge = nb::cast<Array2<const double>>(parts[12]);
    model->fix(std::vector<double>(edge.data(), edge.data() + edge.size()),
               to_vector(nb::cast<Array1<const double>>(parts[13])), to_vector(nb::cast<Array1<const double>>(parts[14])));
  }
  return model;
}

Loss loss_of(int number) {
  require(number >= 0 && number <= 3, "no such loss");
  return (Loss)number;
}

// A trainer and the arrays that it looks at.
class Online {
 public:
  Online(nb::tuple layout, nb::tuple batch, Array1<const int32_t> labels, Maybe2<uint8_t> allowed, Maybe1<double> weight,
         Maybe2<double> cost, Array1<const double> weights, bool penalise_intercepts)
      : labels_(labels), allowed_(allowed), weight_(weight), cost_(cost) {
    std::unique_ptr<Model> model = make_model(layout);
    require(batch.size() == 9, "a batch has nine arrays");
    batch_ = std::make_unique<BatchArrays>(BatchArrays{
        nb::cast<Array1<const int64_t>>(batch[0]), nb::cast<Array1<const int64_t>>(batch[1]),
        nb::cast<Array1<const int32_t>>(batch[2]), nb::cast<Maybe1<double>>(batch[3]), nb::cast<Maybe2<double>>(batch[4]),
        nb::cast<Maybe1<int64_t>>(batch[5]), nb::cast<Maybe1<int32_t>>(batch[6]), nb::cast<Maybe1<double>>(batch[7]),
        nb::cast<Maybe2<double>>(batch[8])});
    BatchView x = batch_->view(*model);
    require((int64_t)labels.shape(0) == x.nodes, "labels do not fit the nodes");
    require(!allowed || shaped(*allowed, x.nodes, model->labels), "allowed does not fit the nodes");
    require(!cost || shaped(*cost, x.nodes, model->labels), "costs do not fit the nodes");
    require(!weight || (int64_t)weight->shape(0) == x.sequences, "weight does not fit the sequences");
    require((int64_t)weights.shape(0) == model->n_weights, "weights do not fit the model");
    for (size_t k = 0; cost && k < cost->size(); k++)
      require(cost->data()[k] >= 0 && cost->data()[k] < INFINITY, "costs must be finite and at least 0");
    Gold gold;
    gold.labels = labels.data();
    gold.allowed = allowed ? allowed->data() : nullptr;
    gold.weight = weight ? weight->data() : nullptr;
    gold.cost = cost ? cost->data() : nullptr;
    nb::gil_scoped_release unlocked;
    trainer_ = std::make_unique<Trainer>(std::move(model), std::move(x), gold, weights.data(), penalise_intercepts);
  }

  Trainer& get() { return *trainer_; }
  void fits(size_t n) const { require((int64_t)n == trainer_->model().n_weights, "weights do not fit the model"); }

 private:
  std::unique_ptr<BatchArrays> batch_;
  Array1<const int32_t> labels_;
  Maybe2<uint8_t> allowed_;
  Maybe1<double> weight_;
  Maybe2<double> cost_;
  std::unique_ptr<Trainer> trainer_;
};

using Order = Array1<const int64_t>;

std::tuple<double, int64_t, double> told(const Met& met) { return {met.loss, met.mistakes, met.missing}; }

}  // namespace
}  // namespace crfield

NB_MODULE(_online, module) {
  nanobind::set_leak_warnings(false);  // a trainer still alive when Python ends is no fault
  using namespace crfield;
  nb::class_<Online>(module, "Trainer")
      .def(nb::init<nb::tuple, nb::tuple, Array1<const int32_t>, Maybe2<uint8_t>, Maybe1<double>, Maybe2<double>,
                    Array1<const double>, bool>(),
           nb::arg("layout"), nb::arg("batch"), nb::arg("labels"), nb::arg("allowed").none(), nb::arg("weight").none(),
           nb::arg("cost").none(), nb::arg("weights"), nb::arg("penalise_intercepts"))
      .def("weights",
           [](Online& o, Array1<double> out) {
             o.fits(out.shape(0));
             o.get().weights(out.data());
           })
      .def("average",
           [](Online& o, Array1<double> out) {
             o.fits(out.shape(0));
             o.get().average(out.data());
           })
      .def("set_weights",
           [](Online& o, Array1<const double> w) {
             o.fits(w.shape(0));
             o.get().set_weights(w.data());
           })
      .def("evaluate",
           [](Online& o, Array1<const double> w, int loss) {
             o.fits(w.shape(0));
             const Loss which = loss_of(loss);
             nb::gil_scoped_release unlocked;
             return o.get().evaluate(w.data(), which);
           })
      .def("perceptron",
           [](Online& o, Order order) {
             nb::gil_scoped_release unlocked;
             return told(o.get().perceptron(order.data(), (int64_t)order.shape(0)));
           })
      .def("passive_aggressive",
           [](Online& o, Order order, int variant, double aggressiveness) {
             require(variant >= 0 && variant <= 2 && aggressiveness > 0, "no such variant, or C not above 0");
             nb::gil_scoped_release unlocked;
             return told(o.get().passive_aggressive(order.data(), (int64_t)order.shape(0), variant, aggressiveness));
           })
      .def("arow",
           [](Online& o, Order order, double regularity) {
             require(regularity > 0, "r must be above 0");
             nb::gil_scoped_release unlocked;
             return told(o.get().arow(order.data(), (int64_t)order.shape(0), regularity));
           })
      .def("descend",
           [](Online& o, Order order, Array1<const double> rates, int batch, int loss, double l1, double l2) {
             require(batch >= 1 && batch <= 64, "batch must lie in 1 … 64");
             require((int64_t)rates.shape(0) * batch >= (int64_t)order.shape(0), "a rate is missing");
             const Loss which = loss_of(loss);
             nb::gil_scoped_release unlocked;
             return told(
                 o.get().descend(order.data(), (int64_t)order.shape(0), rates.data(), batch, which, l1, l2));
           })
      .def("adagrad",
           [](Online& o, Order order, double rate, int batch, int loss, double l1, double l2) {
             require(batch >= 1 && batch <= 64, "batch must lie in 1 … 64");
             const Loss which = loss_of(loss);
             nb::gil_scoped_release unlocked;
             return told(o.get().adagrad(order.data(), (int64_t)order.shape(0), rate, batch, which, l1, l2));
           })
      .def("frank_wolfe",
           [](Online& o, Order order, double l2, int steps) {
             require(l2 > 0 && steps >= 1, "l2 must be above 0, steps at least 1");
             nb::gil_scoped_release unlocked;
             return told(o.get().frank_wolfe(order.data(), (int64_t)order.shape(0), l2, steps));
           })
      .def("mixture_cost", [](Online& o) { return o.get().mixture_cost(); });
}
