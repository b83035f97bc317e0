crfield_module(_planes native/planes/module.cpp)
