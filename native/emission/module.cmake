crfield_module(_emission native/emission/module.cpp
  PLAIN native/emission/emission.cpp
  LEVELLED native/emission/sums.cpp)
