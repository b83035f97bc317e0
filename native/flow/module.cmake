crfield_module(_flow native/flow/module.cpp PLAIN native/flow/network.cpp)
