crfield_module(_dense native/dense/module.cpp
  PLAIN native/dense/lattice.cpp native/dense/mean_field.cpp native/dense/loops.cpp
  LEVELLED native/dense/embed.cpp native/dense/load.cpp native/dense/nodes.cpp native/dense/points.cpp)
