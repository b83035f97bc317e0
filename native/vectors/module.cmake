crfield_module(_vectors native/vectors/module.cpp LEVELLED native/vectors/passes.cpp PLAIN native/vectors/history.cpp)

# `#pragma omp simd` lets the compiler reorder the sums it marks, and no others; no OpenMP library is used. Nobody looks at
# floating-point exceptions, so both sides of a choice may be computed.
foreach(level 0 2 3 4)
  if(TARGET _vectors_level${level})
    target_compile_options(_vectors_level${level} PRIVATE ${CRFIELD_FLAG}-fopenmp-simd ${CRFIELD_FLAG}-fno-trapping-math)
  endif()
endforeach()
