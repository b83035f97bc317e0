crfield_module(_tangent native/tangent/module.cpp PLAIN native/tangent/sweep.cpp)
