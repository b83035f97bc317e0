// Which x86-64 level a levelled source is compiled for, and the vector type of that level.
//
// A levelled source is compiled once per level with CRFIELD_LEVEL = 2 (SSE4.2), 3 (AVX2, FMA) or 4 (AVX-512),
// or once with 0 on other processors. Everything in it lives in namespace CRFIELD_LEVEL_NAME, so the copies do
// not clash; the plain binding source picks one by `at_level` (native/at_level.hpp) at run time. A build for one machine leaves levels out
// (CRFIELD_LEVELS in CMakeLists.txt): what a level offers is declared CRFIELD_OPTIONAL, and its address is null where the
// level was not linked in, so that adding levels compiles nothing anew.
//
// Trap: a typedef that carries `aligned(8)` must never be used for values in registers (gcc then emits aligned
// stores for spills and crashes). `V` is the natural type for registers, `Vmem` only for memory access.
#pragma once
#include <cstdint>

#if defined(__ELF__)
#define CRFIELD_OPTIONAL __attribute__((weak))
#else
#define CRFIELD_OPTIONAL
#endif

namespace crfield {

#if defined(CRFIELD_X86) && defined(_MSC_VER)
// By the instruction itself: what __builtin_cpu_supports() reads lies in a library that clang-cl does not link
// unasked (not run on Windows so far; on Linux it finds what the other one finds).
inline int best_level() {
  const auto ask = [](uint32_t leaf, uint32_t (&r)[4]) {
    __asm__ volatile("cpuid" : "=a"(r[0]), "=b"(r[1]), "=c"(r[2]), "=d"(r[3]) : "a"(leaf), "c"(0));
  };
  const auto all = [](uint32_t found, uint32_t wanted) { return (found & wanted) == wanted; };
  uint32_t r[4], saved, rest;
  ask(0, r);
  if (r[0] < 7) return 2;
  ask(1, r);
  if (!all(r[2], 1u << 12 | 1u << 27)) return 2;  // fma, and a system that tells which registers it saves
  __asm__ volatile("xgetbv" : "=a"(saved), "=d"(rest) : "c"(0));
  ask(7, r);
  if (!all(saved, 0x06) || !all(r[1], 1u << 3 | 1u << 5 | 1u << 8)) return 2;  // bmi, avx2, bmi2
  const bool wide = all(saved, 0xe6) && all(r[1], 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31);
  return wide ? 4 : 3;  // avx512f, dq, cd, bw, vl
}
#else
inline int best_level() {
#if defined(CRFIELD_X86)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi") ||
      !__builtin_cpu_supports("bmi2"))
    return 2;
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512vl") &&
                    __builtin_cpu_supports("avx512bw");
  return wide ? 4 : 3;
#else
  return 0;
#endif
}
#endif

}  // namespace crfield

#if defined(CRFIELD_LEVEL)
#define CRFIELD_JOIN2(a, b) a##b
#define CRFIELD_JOIN(a, b) CRFIELD_JOIN2(a, b)
#define CRFIELD_LEVEL_NAME CRFIELD_JOIN(level, CRFIELD_LEVEL)

namespace crfield {
namespace CRFIELD_LEVEL_NAME {

#if CRFIELD_LEVEL == 4
constexpr int LANES = 8;
#elif CRFIELD_LEVEL == 3
constexpr int LANES = 4;
#else
constexpr int LANES = 2;
#endif

typedef double V __attribute__((vector_size(LANES * 8)));
typedef int64_t VI __attribute__((vector_size(LANES * 8)));
typedef double Vmem __attribute__((vector_size(LANES * 8), aligned(8), may_alias));

inline V load(const double* p) { return *(const Vmem*)p; }
inline void store(double* p, V v) { *(Vmem*)p = v; }
// Not V{} + x: that is an addition, because of the sign of zero.
inline V fill(double x) {
#if CRFIELD_LEVEL == 4
  return V{x, x, x, x, x, x, x, x};
#elif CRFIELD_LEVEL == 3
  return V{x, x, x, x};
#else
  return V{x, x};
#endif
}
// gcc 11 has no such function: the same lane by lane, of which it makes the instructions itself.
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 12
template <int... AT, class T>
__attribute__((always_inline)) inline auto shuffled(const T& a, const T& b) {
  typedef decltype(+a[0]) Lane;
  typedef Lane Shuffled __attribute__((vector_size(sizeof...(AT) * sizeof(Lane))));
  constexpr int lanes = sizeof(T) / sizeof(Lane);
  return Shuffled{(AT < lanes ? a[AT % lanes] : b[AT % lanes])...};
}
#define __builtin_shufflevector(a, b, ...) shuffled<__VA_ARGS__>(a, b)
#endif
inline double sum_lanes(V v) {
  double s = v[0];
  for (int i = 1; i < LANES; i++) s += v[i];
  return s;
}
inline double max_lanes(V v) {
  double s = v[0];
  for (int i = 1; i < LANES; i++) s = v[i] > s ? v[i] : s;
  return s;
}

}  // namespace CRFIELD_LEVEL_NAME
}  // namespace crfield
#endif
