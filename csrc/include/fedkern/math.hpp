// Elementary functions without branches, so that a plain loop over them becomes vector instructions at every level.
//
// NaN gives NaN, +-inf the limit, results below the normal range have one more rounding and no more. Largest error over dense
// grids of the whole domain, in units in the last place (tests/cpp/math.cpp): exp, log, log1p, sin, cos, expm1 2; sigmoid, softplus,
// tanh 3; normal_pdf 4; normal_cdf 5. The coefficients are Chebyshev fits of the functions named beside them, rounded to the type.
#pragma once
#include "view.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {
namespace math {

template <class T> struct Format; // what exponents and roundings need to know of a type

template <> struct Format<double> {
    using Bits = unsigned long long;
    static constexpr int fraction = 52, bias = 1023;
    static constexpr double round = 0x1.8p52;                                      // x + round - round: the nearest integer
    static constexpr double log2_high = 0x1.62e42feep-1, log2_low = 0x1.a39ef35793c76p-33; // k log2_high is exact
    static constexpr double exp_least = -746, exp_most = 710;                      // exp is 0 below and inf above
};

template <> struct Format<float> {
    using Bits = unsigned;
    static constexpr int fraction = 23, bias = 127;
    static constexpr float round = 0x1.8p23f;
    static constexpr float log2_high = 0x1.62ep-1f, log2_low = 0x1.0bfbe8p-15f;
    static constexpr float exp_least = -104, exp_most = 89;
};

template <class T> FEDKERN_INLINE constexpr auto to_bits(T x) { return __builtin_bit_cast(typename Format<T>::Bits, x); }
template <class T> FEDKERN_INLINE constexpr T from_bits(typename Format<T>::Bits b) { return __builtin_bit_cast(T, b); }

template <class T> FEDKERN_INLINE constexpr T infinity() { return T(from_bits<double>(0x7ff0000000000000)); }
template <class T> FEDKERN_INLINE constexpr T not_a_number() { return T(from_bits<double>(0x7ff8000000000000)); }
template <class T> FEDKERN_INLINE T magnitude(T x) {
    return from_bits<T>(to_bits(x) & ~(typename Format<T>::Bits(1) << (8 * sizeof(T) - 1)));
}

#ifdef __CUDACC__
FEDKERN_INLINE double sqrt(double x) { return ::sqrt(x); }
#else
FEDKERN_INLINE double sqrt(double x) { return __builtin_sqrt(x); }
#endif

/// c0 + c1 x + c2 x^2 + ...
template <class T> FEDKERN_INLINE T polynomial(T, T c) { return c; }
template <class T, class... Rest> FEDKERN_INLINE T polynomial(T x, T c, Rest... rest) { return c + x * polynomial(x, rest...); }

/// e^x = (1 + minus_one) scale^2; minus_one is accurate where it is small, and scale is 1 for |x| < log(2).
template <class T> struct ExpParts {
    T minus_one, scale;
};

/// The parts of exp(x + low) for a `low` that is tiny beside 1 and an x in the range of the exponent.
template <class T> FEDKERN_INLINE ExpParts<T> exp_parts(T x, T low) {
    using F = Format<T>;
    // x = 2 k log(2) + r, |r| <= log(2): the factor 2^k is applied twice, because 2^2k may lie outside the range of the exponent.
    const T shifted = x * T(0.72134752044448170) + F::round, k = shifted - F::round;
    const T r = ((x - k * (2 * F::log2_high)) - k * (2 * F::log2_low)) + low;
    T q; // (exp(r) - 1 - r) / r^2
    if constexpr (sizeof(T) == 8)
        q = polynomial(r, 0x1.fffffffffffffp-2, 0x1.5555555555555p-3, 0x1.5555555555b30p-5, 0x1.11111111112a0p-7,
                       0x1.6c16c16afa9eap-10, 0x1.a01a019f82924p-13, 0x1.a01a04169b07fp-16, 0x1.71de3ba57935bp-19,
                       0x1.27e2833b35235p-22, 0x1.ae61b481bcce4p-26, 0x1.213595824f56cp-29, 0x1.639310a240694p-33);
    else
        q = polynomial(r, 0x1p-1f, 0x1.55555ap-3f, 0x1.555558p-5f, 0x1.110c5cp-7f, 0x1.6c13p-10f, 0x1.a4fdp-13f,
                       0x1.a401e4p-16f);
    return {r + r * r * q, from_bits<T>((to_bits(shifted) + F::bias) << F::fraction)};
}

/// exp(x + low) for a `low` that is tiny beside 1. `signed_argument` = false: x <= 0 is known.
template <bool signed_argument = true, class T> FEDKERN_INLINE T exp_of_sum(T x, T low) {
    using F = Format<T>;
    const auto [minus_one, scale] = exp_parts(x, low);
    const T value = (1 + minus_one) * scale * scale;
    const T below = x < F::exp_least ? T(0) : value;
    return signed_argument && x > F::exp_most ? infinity<T>() : below;
}

/// e^x.
template <class T> FEDKERN_INLINE T exp(T x) { return exp_of_sum(x, T(-0.0)); }

/// e^-|x|.
template <class T> FEDKERN_INLINE T exp_decay(T x) { return exp_of_sum<false>(-magnitude(x), T(-0.0)); }

/// e^x - 1, accurate for small x too.
template <class T> FEDKERN_INLINE T expm1(T x) {
    using F = Format<T>;
    const auto [minus_one, scale] = exp_parts(x, T(-0.0));
    const T inverse = from_bits<T>((typename F::Bits(2 * F::bias) << F::fraction) - to_bits(scale));
    const T value = (minus_one * scale + (scale - inverse)) * scale;
    const T below = x < F::exp_least ? T(-1) : value;
    return x > F::exp_most ? infinity<T>() : below;
}

/// log(x) + low, x positive, finite and normal, low tiny; `shifted` is added to the exponent.
template <class T> FEDKERN_INLINE T log_plus(T x, T low, T shifted) {
    using F = Format<T>;
    using Bits = typename F::Bits;
    // x = 2^k (1 + f), sqrt(1/2) <= 1 + f < sqrt(2)
    constexpr Bits least = to_bits(T(0.70710678118654752)), one = Bits(F::bias) << F::fraction;
    const Bits raised = to_bits(x) + (one - least);
    const T k = (from_bits<T>(to_bits(T(F::round)) + (raised >> F::fraction)) - (F::round + F::bias)) + shifted;
    const T f = from_bits<T>((raised & ((Bits(1) << F::fraction) - 1)) + least) - 1;
    const T s = f / (2 + f), z = s * s; // log(1 + f) = 2 atanh(s)
    T q;                                // 2 (atanh(s) / s - 1) / s^2
    if constexpr (sizeof(T) == 8)
        q = polynomial(z, 0x1.5555555555558p-1, 0x1.99999999952d7p-2, 0x1.2492492df281ap-2, 0x1.c71c62e3f11e6p-3,
                       0x1.7462b51cb66b1p-3, 0x1.39fe51a7c18f9p-3, 0x1.2b5900de53b32p-3);
    else
        q = polynomial(z, 0x1.55555cp-1f, 0x1.997c2ep-2f, 0x1.2ee656p-2f);
    const T h = f * f * T(0.5);
    return k * F::log2_high - ((h - (s * (h + z * q) + (k * F::log2_low + low))) - f);
}

/// The natural logarithm: -inf at 0, NaN below.
template <class T> FEDKERN_INLINE T log(T x) {
    constexpr T least = sizeof(T) == 8 ? T(0x1p-1022) : T(0x1p-126);
    const bool subnormal = x < least;
    const T value = log_plus(subnormal ? x * T(0x1p54) : x, T(-0.0), subnormal ? T(-54) : T(0));
    const T special = x == 0 ? -infinity<T>() : x > 0 ? x : not_a_number<T>();
    return x > 0 && x < infinity<T>() ? value : special;
}

/// log(1 + x), accurate for small x too: -inf at -1, NaN below.
template <class T> FEDKERN_INLINE T log1p(T x) {
    const T u = 1 + x, v = u - 1, low = (1 - (u - v)) + (x - v); // u + low = 1 + x exactly
    const T value = log_plus(u, low / u, T(-0.0));
    const T special = x == -1 ? -infinity<T>() : x > 0 ? x : not_a_number<T>();
    return x > -1 && x < infinity<T>() ? value : special;
}

/// log(1 + t) for 0 <= t <= 1: 2 atanh(t / (2 + t)).
template <class T> FEDKERN_INLINE T log1p_unit(T t) {
    const T s = t / (2 + t), z = s * s;
    T q; // 2 (atanh(s) / s - 1) / s^2
    if constexpr (sizeof(T) == 8)
        q = polynomial(z, 0x1.5555555555555p-1, 0x1.999999999a3ddp-2, 0x1.24924923d44c6p-2, 0x1.c71c727143318p-3,
                       0x1.745cf0b0e03bdp-3, 0x1.3b18b294bebf9p-3, 0x1.10ac75dc602b1p-3, 0x1.eb905e8575054p-4,
                       0x1.687a6e7c95176p-4, 0x1.4b0a26c5f2aefp-3);
    else
        q = polynomial(z, 0x1.55554cp-1f, 0x1.99ad6cp-2f, 0x1.21249ap-2f, 0x1.12f598p-2f);
    return 2 * s + s * z * q;
}

/// 1 / (1 + e^-x), accurate in both tails of its own value.
template <class T> FEDKERN_INLINE T sigmoid(T x) {
    const T t = exp_decay(x);
    return (x < 0 ? t : T(1)) / (1 + t);
}

/// log(1 + e^x). In one loop with sigmoid(x), the compiler computes the exponential once.
template <class T> FEDKERN_INLINE T softplus(T x) { return (x < 0 ? T(0) : x) + log1p_unit(exp_decay(x)); }

/// tanh(x) = n / (2 - n), n = 1 - e^-2|x|, with the sign of x; accurate for small x too.
template <class T> FEDKERN_INLINE T tanh(T x) {
    using F = Format<T>;
    constexpr typename F::Bits sign = typename F::Bits(1) << (8 * sizeof(T) - 1);
    const T whole = magnitude(x), a = whole > 20 ? T(20) : whole; // tanh(20) = 1
    // -2 a = k log(2) + 2 h, |h| <= log(2) / 4. An error of h matters less the larger a is, so that one product is good enough.
    const T shifted = a * T(-2.8853900817779268) + F::round;
    const T h = -a - (shifted - F::round) * T(0.34657359027997265);
    T q; // (exp(2 h) - 1 - 2 h) / h^2
    if constexpr (sizeof(T) == 8)
        q = polynomial(h, 0x1.0000000000001p+1, 0x1.5555555555556p+0, 0x1.5555555553d4fp-1, 0x1.11111111109adp-2, 0x1.6c16c17893833p-4,
                       0x1.a01a01a7c8d47p-6, 0x1.a019b8ef67c6cp-8, 0x1.71de0d9c145d0p-10, 0x1.2891a8c1d838dp-12,
                       0x1.af38d53857513p-15);
    else
        q = polynomial(h, 0x1p+1f, 0x1.555556p+0f, 0x1.5554e8p-1f, 0x1.1110ep-2f, 0x1.6d4336p-4f, 0x1.a12528p-6f);
    const T scale = from_bits<T>((to_bits(shifted) + F::bias) << F::fraction); // 2^k
    const T n = (1 - scale) - scale * (2 * h + h * h * q);
    return from_bits<T>(to_bits(n / (2 - n)) | (to_bits(x) & sign));
}

template <class T> struct SinCos {
    T sin, cos;
};

/// sin and cos of 2 pi u, |u| <= 2^49; exact at multiples of 1/4.
FEDKERN_INLINE SinCos<double> sincos_turns(double u) {
    const double shifted = 4 * u + Format<double>::round;
    const double r = u - 0.25 * (shifted - Format<double>::round), z = r * r; // |r| <= 1/8
    const double odd = polynomial(z, -0x1.4abbce625be52p+5, 0x1.466bc6775a476p+6, -0x1.32d2cce500387p+6, 0x1.50783208843ebp+5,
                                  -0x1.e3027dea82bd7p+3, 0x1.e4a9d9166f052p+1); // (sin(2 pi r) / r - 2 pi) / r^2
    const double even = polynomial(z, -0x1.3bd3cc9be45dep+4, 0x1.03c1f081b5ac0p+6, -0x1.55d3c7e3cb241p+6, 0x1.e1f5068688d5bp+5,
                                   -0x1.a6d1eef479be1p+4, 0x1.f9ce245cada0bp+2, -0x1.b2f3eb054afcdp+0); // (cos(2 pi r) - 1) / r^2
    const double s = r * 0x1.921fb54442d18p+2 + r * (0x1.1a62633145c07p-52 + z * odd);
    const double c = 1 + z * even;
    // The two lowest bits count quarter turns. The exchange is done with bits: baseline cannot compare 64-bit integers.
    const auto quarter = to_bits(shifted), exchange = (to_bits(s) ^ to_bits(c)) & (0 - (quarter & 1));
    return {from_bits<double>(to_bits(s) ^ exchange ^ (quarter & 2) << 62),
            from_bits<double>(to_bits(c) ^ exchange ^ ((quarter + 1) & 2) << 62)};
}

/// exp(-a^2 / 2) for a >= 0: the square is split, because its rounding error would be multiplied by itself.
FEDKERN_INLINE double exp_half_square(double a) {
    a = a > 40 ? 40 : a;
    const double high = from_bits<double>(to_bits(a) & ~0x7ffffffULL);
    return exp_of_sum<false>(-0.5 * high * high, -0.5 * (a - high) * (a + high));
}

/// The standard normal density.
FEDKERN_INLINE double normal_pdf(double x) { return 0x1.9884533d43651p-2 * exp_half_square(magnitude(x)); }

/// The standard normal distribution function, with a small relative error in the lower tail.
FEDKERN_INLINE double normal_cdf(double x) {
    const double whole = magnitude(x), a = whole > 40 ? 40 : whole;
    // (a + 5) exp(a^2 / 2) Phi(-a) = 1 / sqrt(2 pi) + (2.5 - 1 / sqrt(2 pi)) 5 v + a v^2 s: its limits and a correction.
    const double v = 1 / (a + 5), q = 1 - 10 * v;
    const double s = polynomial(q, -0x1.b360c328ad5dfp+3, 0x1.ecfcc21b7e4bep+2, -0x1.d9878f958c123p+1, 0x1.6ea8da93aefcfp+0,
                                -0x1.989e8276484e3p-2, 0x1.98b57e760ea9ap-5, 0x1.14387bb2ab39dp-6, -0x1.46e74dd8de88cp-7,
                                0x1.d8cb20fdf0c2fp-11, 0x1.e338a59f6218ap-11, -0x1.2b9d08d69ca3ep-12, -0x1.3486ac9bd4387p-14,
                                0x1.91c78f205fcf9p-15, 0x1.917f191a2e1f9p-18, -0x1.f7e960d7c5743p-18, -0x1.45ab79a2c6b87p-21,
                                0x1.4259608636292p-20, 0x1.3d08cffba519ap-24, -0x1.8fd08b43b5abbp-23, -0x1.27fb978843fcdp-28,
                                0x1.6a2dcbdcfec6bp-26);
    const double tail = exp_half_square(a) * (v * (0x1.9884533d43651p-2 + v * (0x1.502b52fe6d783p+3 + a * v * s)));
    return x < 0 ? tail : 1 - tail;
}

} // namespace math
} // namespace FEDKERN_ISA
} // namespace fedkern
