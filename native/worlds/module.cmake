crfield_module(_worlds native/worlds/module.cpp PLAIN native/worlds/tag.cpp native/worlds/soccer.cpp)
# A game is chaotic: one rounding less makes it another game, so none is fused away.
target_compile_options(_worlds PRIVATE ${CRFIELD_FLAG}-ffp-contract=off)
