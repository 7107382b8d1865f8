// A few numbers worked on together, by default 64 bytes: one register at AVX-512, two at AVX2, four at the baseline. Element j of
// a sum always goes to lane j mod N, and lanes are always added in the same order, whatever the registers hold (`widest` bytes at most).
#pragma once
#if defined(__AVX__)
#include <immintrin.h>
#endif

#include <utility>

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

template <class T, int N = 64 / sizeof(T), int widest = register_bytes> struct Pack {
    static constexpr int size = N, bytes = N * sizeof(T) < widest ? N * sizeof(T) : widest;
    static constexpr int per = bytes / sizeof(T), parts = N / per;
    typedef T Part __attribute__((vector_size(bytes)));
    Part part[parts];

    FEDKERN_INLINE static Pack all(T x) {
        Pack v;
        for (int i = 0; i < parts; ++i) v.part[i] = x - Part{};
        return v;
    }

    /// The next N numbers, converted to T if they are of another type.
    template <class U> FEDKERN_INLINE static Pack load(const U* x) {
        typedef U Source __attribute__((vector_size(per * sizeof(U))));
        Pack v;
        for (int i = 0; i < parts; ++i) {
            Source s;
            __builtin_memcpy(&s, x + i * per, sizeof s);
            v.part[i] = __builtin_convertvector(s, Part);
        }
        return v;
    }

    /// The next n <= N numbers, and zeros; nothing behind them is read.
    template <class U> FEDKERN_INLINE static Pack load(const U* x, int n) {
#if defined(__AVX512F__)
        if constexpr (bytes == 64) {
            Pack v;
            const unsigned mask = (1u << n) - 1;
            if constexpr (sizeof(T) == 4)
                v.part[0] = (Part)_mm512_maskz_loadu_ps(__mmask16(mask), x);
            else if constexpr (sizeof(U) == 4)
                v.part[0] = (Part)_mm512_maskz_cvtps_pd(__mmask8(mask), _mm256_maskz_loadu_ps(__mmask8(mask), x));
            else
                v.part[0] = (Part)_mm512_maskz_loadu_pd(__mmask8(mask), x);
            return v;
        }
#endif
#if defined(__AVX__)
        if constexpr (bytes == 32) {
            Pack v;
            for (int i = 0; i < parts; ++i) {
                if constexpr (sizeof(T) == 4)
                    v.part[i] = (Part)_mm256_maskload_ps(x + i * per, *(const __m256i_u*)(first<int>.mask + N - n + i * per));
                else if constexpr (sizeof(U) == 4)
                    v.part[i] = (Part)_mm256_cvtps_pd(_mm_maskload_ps(x + i * per, *(const __m128i_u*)(first<int>.mask + N - n + i * per)));
                else
                    v.part[i] = (Part)_mm256_maskload_pd(x + i * per, *(const __m256i_u*)(first<long>.mask + N - n + i * per));
            }
            return v;
        }
#endif
        T copy[N] = {};
        for (int i = 0; i < n; ++i) copy[i] = T(x[i]);
        return load(copy);
    }

    FEDKERN_INLINE void store(T* x) const {
        for (int i = 0; i < parts; ++i) __builtin_memcpy(x + i * per, &part[i], sizeof(Part));
    }

    FEDKERN_INLINE Pack operator+(const Pack& b) const {
        Pack v;
        for (int i = 0; i < parts; ++i) v.part[i] = part[i] + b.part[i];
        return v;
    }
    FEDKERN_INLINE Pack operator-(const Pack& b) const {
        Pack v;
        for (int i = 0; i < parts; ++i) v.part[i] = part[i] - b.part[i];
        return v;
    }
    FEDKERN_INLINE Pack operator*(const Pack& b) const {
        Pack v;
        for (int i = 0; i < parts; ++i) v.part[i] = part[i] * b.part[i];
        return v;
    }
    FEDKERN_INLINE Pack operator/(const Pack& b) const {
        Pack v;
        for (int i = 0; i < parts; ++i) v.part[i] = part[i] / b.part[i];
        return v;
    }

    /// Rounded toward zero.
    FEDKERN_INLINE Pack truncated() const {
        Pack v;
#if defined(__AVX512F__)
        if constexpr (bytes == 64 && sizeof(T) == 8) {
            v.part[0] = (Part)_mm512_maskz_roundscale_pd(0xff, (__m512d)part[0], _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
            return v;
        }
#endif
#if defined(__AVX__)
        if constexpr (bytes == 32 && sizeof(T) == 8) {
            for (int i = 0; i < parts; ++i) v.part[i] = (Part)_mm256_round_pd((__m256d)part[i], _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
            return v;
        }
#endif
        for (int i = 0; i < parts; ++i)
            for (int l = 0; l < per; ++l) v.part[i][l] = __builtin_trunc(part[i][l]);
        return v;
    }

    /// Halves are added to each other until one number is left.
    FEDKERN_INLINE T sum() const {
        if constexpr (parts == 4)
            return fold((part[0] + part[2]) + (part[1] + part[3]));
        else if constexpr (parts == 2)
            return fold(part[0] + part[1]);
        else
            return fold(part[0]);
    }

  private:
    template <class I> struct First { // N times -1, N times 0
        I mask[2 * N] = {};
        constexpr First() {
            for (int i = 0; i < N; ++i) mask[i] = -1;
        }
    };
    template <class I> static constexpr First<I> first{};

    template <class P> FEDKERN_INLINE static T fold(const P& v) {
        constexpr int half = sizeof(P) / sizeof(T) / 2;
        if constexpr (half == 1)
            return v[0] + v[1];
        else
            return fold(halves_added(v, std::make_integer_sequence<int, half>()));
    }
    template <class P, int... I> FEDKERN_INLINE static auto halves_added(const P& v, std::integer_sequence<int, I...>) {
        return __builtin_shufflevector(v, v, I...) + __builtin_shufflevector(v, v, (I + int(sizeof...(I)))...);
    }
};

} // namespace FEDKERN_ISA
} // namespace fedkern
