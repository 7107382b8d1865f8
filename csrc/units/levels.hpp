// The levels of instructions of the processor that is compiled for, and whether this machine has them. setup.py compiles and runs a
// program of this file, too, where it is to build the machine's own level alone.
#pragma once

namespace fedkern {

#if defined(__x86_64__)
inline constexpr const char* known_levels[] = {"avx512", "avx2", "baseline"}; // from the highest
#if defined(__clang__) && (defined(__apple_build_version__) || __clang_major__ < 18)
// An older clang knows no names of levels, and there is no processor with these that lacks the others.
inline bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"); }
inline bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#else
inline bool has_avx2() { return __builtin_cpu_supports("x86-64-v3"); }
inline bool has_avx512() { return __builtin_cpu_supports("x86-64-v4"); }
#endif
inline bool has_baseline() { return true; }
#elif defined(__aarch64__)
inline constexpr const char* known_levels[] = {"neon"};
inline bool has_neon() { return true; } // every 64-bit ARM has it
#else
inline constexpr const char* known_levels[] = {"baseline"};
inline bool has_baseline() { return true; }
#endif

} // namespace fedkern
