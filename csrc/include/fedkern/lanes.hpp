// 64 bytes of numbers, worked on together: one register at AVX-512, two at AVX2, four at the baseline. Element j of a sum
// always goes to lane j mod count and lanes are always added in the same order, whatever the registers hold.
#pragma once
#if defined(__AVX__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "view.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

#if defined(__AVX512F__)
inline constexpr int register_bytes = 64;
#elif defined(__AVX__)
inline constexpr int register_bytes = 32;
#else
inline constexpr int register_bytes = 16;
#endif

template <class T> struct Lanes {
    static constexpr int count = 64 / sizeof(T), parts = 64 / register_bytes, per = register_bytes / sizeof(T);
    typedef T Part __attribute__((vector_size(register_bytes)));
    Part part[parts];

    FEDKERN_INLINE static Lanes all(T x) {
        Lanes v;
        for (int i = 0; i < parts; ++i) v.part[i] = x - Part{};
        return v;
    }

    /// The next `count` numbers, converted to T if they are of another type.
    template <class U> FEDKERN_INLINE static Lanes load(const U* x) {
        typedef U Source __attribute__((vector_size(per * sizeof(U))));
        Lanes v;
        for (int i = 0; i < parts; ++i) {
            Source s;
            __builtin_memcpy(&s, x + i * per, sizeof s);
            v.part[i] = __builtin_convertvector(s, Part);
        }
        return v;
    }

    /// The next n < count numbers, and zeros; nothing behind them is read.
    template <class U> FEDKERN_INLINE static Lanes load(const U* x, int n) {
        Lanes v;
#if defined(__AVX512F__)
        if constexpr (sizeof(T) == 4)
            v.part[0] = (Part)_mm512_maskz_loadu_ps(__mmask16((1u << n) - 1), x);
        else if constexpr (sizeof(U) == 4)
            v.part[0] = (Part)_mm512_maskz_cvtps_pd(__mmask8((1u << n) - 1), _mm256_maskz_loadu_ps(__mmask8((1u << n) - 1), x));
        else
            v.part[0] = (Part)_mm512_maskz_loadu_pd(__mmask8((1u << n) - 1), x);
#else
        T copy[count] = {};
        for (int i = 0; i < n; ++i) copy[i] = T(x[i]);
        v = load(copy);
#endif
        return v;
    }

    FEDKERN_INLINE void store(T* x) const {
        for (int i = 0; i < parts; ++i) __builtin_memcpy(x + i * per, &part[i], sizeof(Part));
    }

    FEDKERN_INLINE Lanes operator+(const Lanes& b) const {
        Lanes v;
        for (int i = 0; i < parts; ++i) v.part[i] = part[i] + b.part[i];
        return v;
    }
    FEDKERN_INLINE Lanes operator*(const Lanes& b) const {
        Lanes v;
        for (int i = 0; i < parts; ++i) v.part[i] = part[i] * b.part[i];
        return v;
    }
    FEDKERN_INLINE Lanes operator/(const Lanes& b) const {
        Lanes v;
        for (int i = 0; i < parts; ++i) v.part[i] = part[i] / b.part[i];
        return v;
    }

    /// Halves are added to each other until one number is left.
    FEDKERN_INLINE T sum() const {
        T x[count];
        store(x);
        for (int half = count / 2; half; half /= 2)
            for (int i = 0; i < half; ++i) x[i] += x[i + half];
        return x[0];
    }
};

} // namespace FEDKERN_ISA
} // namespace fedkern
