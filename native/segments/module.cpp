// Python's door to the segment kernels; the contract is in src/crfield/kernels/segments.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include "segments/batches.hpp"

NB_MODULE(_segments, module) {
  nanobind::set_leak_warnings(false);  // an array still alive when Python ends is no fault
  using namespace crfield::segments;
  using nanobind::arg;
  module.def("level", &level);
  module.def("sum_product", &sum_product);
  module.def("max_product", &max_product);
  module.def("expand", &expand, arg("offsets"), arg("limit"), arg("node"), arg("first").none(), arg("last").none(),
             arg("mean").none(), arg("length"), arg("ptr"), arg("steps"), arg("item"), arg("item_ptr"),
             arg("item_label"), arg("weight"), arg("out"), arg("n_jobs"));
  module.def("expectations", &expectations, arg("offsets"), arg("limit"), arg("space"), arg("node"),
             arg("first").none(), arg("last").none(), arg("mean").none(), arg("length"), arg("ptr"), arg("steps"), arg("item"),
             arg("item_ptr"), arg("item_label"), arg("weight"), arg("edge"), arg("factor"), arg("total"),
             arg("node_out"), arg("first_out").none(), arg("last_out").none(), arg("mean_out").none(),
             arg("length_out"), arg("weight_out"), arg("edge_out"), arg("n_jobs"));
}
