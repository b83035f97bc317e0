crfield_module(_records native/records/module.cpp PLAIN native/records/reader.cpp native/records/values.cpp)
