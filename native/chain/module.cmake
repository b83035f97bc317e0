# What _online needs of it too is compiled once, for both.
add_library(_chain_model OBJECT native/chain/pack.cpp native/chain/model.cpp)
crfield_part(_chain_model)
crfield_module(_chain native/chain/module.cpp
  PLAIN native/chain/problem.cpp native/chain/problem_beside.cpp native/chain/problem_pack.cpp
        native/chain/descend.cpp native/chain/inference.cpp native/chain/merge_rows.cpp
        native/chain/shared_prefixes.cpp native/chain/packed.cpp native/chain/packed_binding.cpp
        native/chain/problem_sums.cpp native/chain/padded.cpp native/chain/primal_dual.cpp
        native/chain/primal_dual_pack.cpp native/chain/tagger.cpp native/chain/batch_arrays.cpp
  LEVELLED native/chain/sweep.cpp native/chain/sweep_log.cpp native/chain/both_ends.cpp
           native/chain/side_by_side.cpp native/chain/label_sets.cpp native/chain/sparse_edges.cpp
           native/chain/columns.cpp native/chain/best_path.cpp native/chain/primal_dual_steps.cpp
           native/chain/level.cpp)
target_sources(_chain PRIVATE $<TARGET_OBJECTS:_chain_model>)

# The doors to Python only hand on: optimised little, and not together with the loops, they take a third of the compiler's
# time. A file with options of its own stands outside the unity build. No loop over steps or columns belongs there, nor a
# call of an inline function that has one: of two copies the linker may keep the slow one.
if(NOT CRFIELD_SANITIZE)
  set_source_files_properties(native/chain/module.cpp native/chain/packed_binding.cpp PROPERTIES
    COMPILE_OPTIONS ${CRFIELD_FLAG}-O1)
endif()
