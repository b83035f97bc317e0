crfield_module(_virtual native/virtual/module.cpp
  PLAIN native/virtual/listen.cpp
  LEVELLED native/virtual/two_labels.cpp MOST 3)
