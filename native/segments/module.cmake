crfield_module(_segments native/segments/module.cpp
  PLAIN native/segments/batches.cpp
  LEVELLED native/segments/sweep.cpp native/segments/parts.cpp native/segments/products.cpp)
