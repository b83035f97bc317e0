crfield_module(_forest native/forest/module.cpp
  PLAIN native/forest/order.cpp native/forest/eliminate.cpp native/forest/forests.cpp native/forest/junctions.cpp
  LEVELLED native/forest/sweep.cpp native/forest/sweep_log.cpp native/forest/best.cpp native/forest/cliques.cpp
           native/forest/level.cpp)
