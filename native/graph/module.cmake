crfield_module(_graph native/graph/module.cpp
  PLAIN native/graph/wiring.cpp native/graph/schedule.cpp native/graph/answers.cpp native/graph/decode.cpp
  LEVELLED native/graph/level.cpp)
