crfield_module(_virtual native/virtual/module.cpp PLAIN native/virtual/listen.cpp)
