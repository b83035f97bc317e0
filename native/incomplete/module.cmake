crfield_module(_incomplete native/incomplete/module.cpp PLAIN native/incomplete/steps.cpp native/incomplete/bags.cpp)
