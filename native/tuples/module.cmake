crfield_module(_tuples native/tuples/module.cpp
  PLAIN native/tuples/batches.cpp native/tuples/in_logs.cpp
  LEVELLED native/tuples/side_by_side.cpp)
