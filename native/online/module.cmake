# Packing, scoring, decoding and sums over paths are those of the chain group, whose objects are linked, not compiled again.
crfield_module(_online native/online/module.cpp
  PLAIN native/online/slots.cpp native/online/trainer.cpp native/online/mistakes.cpp native/online/descend.cpp
        native/online/frank_wolfe.cpp native/chain/batch_arrays.cpp)
target_sources(_online PRIVATE $<TARGET_OBJECTS:_chain_model>)
foreach(level 0 2 3 4)
  if(TARGET _chain_level${level})
    target_sources(_online PRIVATE $<TARGET_OBJECTS:_chain_level${level}>)
  endif()
endforeach()
