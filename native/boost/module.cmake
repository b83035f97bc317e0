crfield_module(_boost native/boost/module.cpp
  PLAIN native/boost/bins.cpp native/boost/histograms.cpp native/boost/cuts.cpp native/boost/rounds.cpp
  LEVELLED native/boost/logits.cpp)
