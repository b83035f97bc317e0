crfield_module(_sites native/sites/module.cpp
  PLAIN native/sites/gibbs.cpp native/sites/settle.cpp native/sites/pseudo.cpp
  LEVELLED native/sites/softmax.cpp)
