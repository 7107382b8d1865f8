// Scalar mathematics of networks and of the autoencoder's objective, for host and device. Specification: docs/spec/sigma.md,
// sections 1 and 2.
#pragma once
#include "fedkern/math.hpp"
#include "views.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

// ---- Activations. The slope is a function of the value.

template <Activation kind, class T> FEDKERN_INLINE T activated(T x) {
    if constexpr (kind == Activation::tanh) return math::tanh(x);
    else if constexpr (kind == Activation::relu) return x < 0 ? T(0) : x; // NaN stays
    else return x;
}

/// d times the slope at a value; V is a number, or several in a register.
template <Activation kind, class V> FEDKERN_INLINE V with_slope(const V& d, const V& value) {
    if constexpr (kind == Activation::tanh) return d * (1 - value * value);
    else if constexpr (kind == Activation::relu) return value > 0 ? d : d - d;
    else return d;
}

// ---- Latent variables z = mean + sd e, sd = exp(log_v / 2).

/// A log variance between its bounds.
template <class T> FEDKERN_INLINE T bounded(T raw) {
    const T low = raw < T(-12) ? T(-12) : raw;
    return low > T(6) ? T(6) : low; // NaN stays
}

/// A term of a divergence, and the cotangents of a latent variable's mean and of its log variance's raw value.
template <class T> struct ToHead {
    T divergence, mean, raw;
};

/// KL[N(mean, v) || N(0, 1)]; `weight`: of divergences, over the size of the batch.
template <class T> FEDKERN_INLINE ToHead<T> standard_back(T mean, T raw, T log_v, T sd, T e, T to_z, T weight) {
    const T v = sd * sd;
    const T slope = T(0.5) * to_z * e * sd - weight * (T(0.5) * (v - 1));
    return {T(0.5) * (v + mean * mean - 1 - log_v), to_z - weight * mean, raw == log_v ? slope : T(0)};
}

/// Of both heads: the posterior's with the divergence, and the prior's.
template <class T> struct ToHeads {
    T divergence, mean, raw, prior_mean, prior_raw;
};

/// KL[N(mean, v) || N(mean0, v0)].
template <class T> FEDKERN_INLINE ToHeads<T> divergence_back(T mean, T raw, T log_v, T sd, T e, T to_z, T mean0, T raw0, T weight) {
    const T log_v0 = bounded(raw0);
    const T precision = math::exp(-log_v0), v = sd * sd, away = mean - mean0;
    const T distance = (v + away * away) * precision, to_m = weight * (away * precision);
    const T slope = T(0.5) * to_z * e * sd - weight * (T(0.5) * (v * precision - 1));
    return {T(0.5) * (log_v0 - log_v + distance - 1), to_z - to_m, raw == log_v ? slope : T(0), to_m,
            raw0 == log_v0 ? weight * (T(0.5) * (distance - 1)) : T(0)};
}

/// The mean of a batch's ELBO from those of |theta - mu|^2 and of both divergences; d numbers in theta.
FEDKERN_INLINE double elbo_of(double squares, double global, double local, double d, double gamma) {
    constexpr double log_2_pi = 1.8378770664093454836;
    const double precision = 1 / (gamma * gamma);
    return -0.5 * squares * precision - d * (math::log(gamma) + 0.5 * log_2_pi) - global - local;
}

// ---- Adam with beta 0.9 and 0.999, epsilon 1e-8, up the gradient.

/// rate / (1 - 0.9^count), 1 / (1 - 0.999^count), and what the gradient is multiplied by.
template <class T> struct AdamUp {
    T slope, correction, factor;
};

template <class T> FEDKERN_INLINE T root(T x) {
#ifdef __CUDACC__
    return ::sqrt(x);
#else
    if constexpr (sizeof(T) == 8) return __builtin_sqrt(x);
    else return __builtin_sqrtf(x);
#endif
}

template <class T> FEDKERN_INLINE void adam_up(const AdamUp<T>& x, T g, T& parameter, T& m, T& v) {
    const T beta1 = T(0.9), rest1 = T(1 - 0.9), beta2 = T(0.999), rest2 = T(1 - 0.999), epsilon = T(1e-8);
    const T gj = x.factor * g;
    m = beta1 * m + rest1 * gj;
    v = beta2 * v + rest2 * (gj * gj);
    parameter += x.slope * m / (root(v * x.correction) + epsilon);
}

} // namespace FEDKERN_ISA
} // namespace fedkern
