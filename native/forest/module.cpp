// Python's door to the exact kernels on graphs; the contract is in src/crfield/kernels/forest.py.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "forest/graphs.hpp"

NB_MODULE(_forest, module) {
  using namespace crfield::forest;
  module.def("level", [] { return best_kernels()->level; });
  module.attr("WIDE") = WIDE;
  module.attr("WIDEST") = WIDEST;
  module.def("order", &order);
  module.def("sum_product", &sum_product);
  module.def("max_product", &max_product);
  module.def("eliminate", &eliminate);
  module.def("clique_sum_product", &clique_sum_product);
  module.def("clique_max_product", &clique_max_product);
}
