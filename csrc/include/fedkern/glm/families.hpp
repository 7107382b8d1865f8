// The families over the rows of a block, in loops that become vector instructions; their scalar mathematics is in scalar.hpp.
#pragma once
#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>
#include <type_traits>

#include "quadrature.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

inline constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// ---- Expectations for n rows, n a multiple of eight; value may be null.

inline void expect(const Bernoulli&, Index n, const double* m, const double* s, const double* y, double* value, double* slope,
                   double* curvature) {
    for (Index i = 0; i < n; i += 8) {
        double b[8];
        for (int l = 0; l < 8; ++l) b[l] = (2 * y[i + l] - 1) * m[i + l];
        logistic_expectations(8, b, s + i, value ? value + i : nullptr, slope + i, curvature + i);
        for (int l = 0; l < 8; ++l) slope[i + l] *= 2 * y[i + l] - 1;
    }
}

inline void expect(const Poisson&, Index n, const double* m, const double* s, const double* y, double* value, double* slope,
                   double* curvature) {
    for (Index i = 0; i < n; ++i) {
        const double rate = math::exp(m[i] + 0.5 * s[i] * s[i]);
        slope[i] = y[i] - rate;
        curvature[i] = -rate;
    }
    if (value)
        for (Index i = 0; i < n; ++i) value[i] = y[i] * m[i] + curvature[i];
}

inline void expect(const Gaussian& f, Index n, const double* m, const double* s, const double* y, double* value, double* slope,
                   double* curvature) {
    for (Index i = 0; i < n; ++i) {
        slope[i] = f.precision * (y[i] - m[i]);
        curvature[i] = -f.precision + 0 * slope[i]; // NaN with it
    }
    if (value)
        for (Index i = 0; i < n; ++i) value[i] = -0.5 * f.precision * ((y[i] - m[i]) * (y[i] - m[i]) + s[i] * s[i]);
}

inline void expect(const NegativeBinomial& f, Index n, const double* m, const double* s, const double* y, double* value, double* slope,
                   double* curvature) {
    for (Index i = 0; i < n; i += 8) {
        double b[8];
        for (int l = 0; l < 8; ++l) b[l] = f.shift - m[i + l]; // log sigmoid(-b) = -log(1 + e^b)
        logistic_expectations(8, b, s + i, value ? value + i : nullptr, slope + i, curvature + i);
        for (Index l = i; l < i + 8; ++l) {
            const double count = y[l] + f.scale;
            if (value) value[l] = y[l] * (m[l] - f.shift) + count * value[l];
            slope[l] = y[l] - count * slope[l];
            curvature[l] *= count;
            if (Expectation far; far_row(b[l - i], s[l], far)) {
                far = far_from(f, m[l], s[l], y[l], far);
                if (value) value[l] = far.value;
                slope[l] = far.slope, curvature[l] = far.curvature;
            }
        }
    }
}

// ---- The mean of y.

inline void predict(const Bernoulli&, Index n, const double* m, const double* s, bool probit, double* mean) {
    for (Index i = 0; i < n; i += 8) {
        double a[8], curvature[8];
        for (int l = 0; l < 8; ++l) a[l] = -m[i + l];
        if (probit)
            for (int l = 0; l < 8; ++l) mean[i + l] = math::sigmoid(m[i + l] / std::sqrt(1 + s[i + l] * s[i + l] * (M_PI / 8)));
        else logistic_expectations(8, a, s + i, nullptr, mean + i, curvature); // sigmoid(m) is the slope at -m
    }
}

template <class F> void predict(const F& f, Index n, const double* m, const double* s, bool probit, double* mean) {
    for (Index i = 0; i < n; ++i) mean[i] = mean_row(f, m[i], s[i], probit, AllNodes{});
}

/// A likelihood over the rows of a block. The loops are written once, below, for every family.
struct Family {
    virtual ~Family() = default;
    virtual void clean(Index n, double* y) const = 0;                  // what is outside the domain becomes NaN
    virtual void base(Index n, const double* y, double* out) const = 0;
    virtual void slopes(Index n, const double* a, const double* y, double* slope) const = 0;
    virtual void weigh(Index n, const double* a, const double* y, const double* w, double* value, double* slope) const = 0;
    virtual void weigh(Index n, const float* a, const float* y, const float* w, float* value, float* slope) const = 0;
    /// n a multiple of eight; value may be null.
    virtual void expect(Index n, const double* m, const double* s, const double* y, double* value, double* slope,
                        double* curvature) const = 0;
    virtual void predict(Index n, const double* m, const double* s, bool probit, double* mean) const = 0;
};

template <class F> struct FamilyOf final : Family {
    F f;
    explicit FamilyOf(F functions) : f(functions) {}

    void clean(Index n, double* y) const override {
        for (Index i = 0; i < n; ++i) y[i] = f.clean(y[i]);
    }
    void base(Index n, const double* y, double* out) const override {
        for (Index i = 0; i < n; ++i) out[i] = f.base(y[i]);
    }
    void slopes(Index n, const double* a, const double* y, double* slope) const override {
        for (Index i = 0; i < n; ++i) slope[i] = f.slope(a[i], y[i], f.power(a[i]));
    }
    template <class T> void weigh_all(Index n, const T* a, const T* y, const T* w, T* __restrict value, T* __restrict slope) const {
        for (Index i = 0; i < n; ++i) slope[i] = f.power(a[i]);
        for (Index i = 0; i < n; ++i) {
            value[i] = w[i] * f.value(a[i], y[i], slope[i]);
            slope[i] = w[i] * f.slope(a[i], y[i], slope[i]);
        }
    }
    void weigh(Index n, const double* a, const double* y, const double* w, double* value, double* slope) const override {
        weigh_all(n, a, y, w, value, slope);
    }
    void weigh(Index n, const float* a, const float* y, const float* w, float* value, float* slope) const override {
        weigh_all(n, a, y, w, value, slope);
    }
    void expect(Index n, const double* m, const double* s, const double* y, double* value, double* slope,
                double* curvature) const override {
        fedkern::expect(f, n, m, s, y, value, slope, curvature);
    }
    void predict(Index n, const double* m, const double* s, bool probit, double* mean) const override {
        fedkern::predict(f, n, m, s, probit, mean);
    }
};

inline std::unique_ptr<const Family> make_family(Likelihood likelihood) {
    return AnyFamily(likelihood).of([](const auto& f) -> std::unique_ptr<const Family> {
        using F = std::decay_t<decltype(f)>;
        if constexpr (std::is_same_v<F, NoFamily>)
            throw std::invalid_argument("family: no likelihood has this number; is the extension older than families.py?");
        else return std::make_unique<FamilyOf<F>>(f);
    });
}

} // namespace FEDKERN_ISA
} // namespace fedkern
