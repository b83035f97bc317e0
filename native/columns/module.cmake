crfield_module(_columns native/columns/module.cpp)
