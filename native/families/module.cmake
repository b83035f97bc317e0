crfield_module(_families native/families/module.cpp
  PLAIN native/families/slide.cpp native/families/histograms.cpp
  LEVELLED native/families/sums.cpp)
