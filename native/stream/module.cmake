crfield_module(_stream native/stream/module.cpp PLAIN native/stream/recursion.cpp)
