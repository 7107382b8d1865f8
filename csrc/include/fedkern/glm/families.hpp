// The scalar mathematics of the families: log p(y | a), a = x'theta + offset, its derivatives, and their expectations for
// a ~ N(m, s^2). `value` leaves out what does not depend on a; that is `base`.
#pragma once
#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>

#include "quadrature.hpp"
#include "views.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

inline constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// y in {0, 1}: log p = y a - log(1 + e^a).
struct Bernoulli {
    double clean(double y) const { return y == 0 || y == 1 ? y : nan; }
    double base(double) const { return 0; }
    template <class T> FEDKERN_INLINE T value(T a, T y) const { return y * a - math::softplus(a); }
    template <class T> FEDKERN_INLINE T slope(T a, T y) const { return y - math::sigmoid(a); }

    void expect(Index n, const double* m, const double* s, const double* y, double* value, double* slope, double* curvature) const {
        for (Index i = 0; i < n; i += 8) {
            double b[8];
            for (int l = 0; l < 8; ++l) b[l] = (2 * y[i + l] - 1) * m[i + l];
            logistic_expectations(8, b, s + i, value ? value + i : nullptr, slope + i, curvature + i);
            for (int l = 0; l < 8; ++l) slope[i + l] *= 2 * y[i + l] - 1;
        }
    }

    void predict(Index n, const double* m, const double* s, bool probit, double* mean) const {
        for (Index i = 0; i < n; i += 8) {
            double a[8], curvature[8];
            for (int l = 0; l < 8; ++l) a[l] = -m[i + l];
            if (probit)
                for (int l = 0; l < 8; ++l) mean[i + l] = math::sigmoid(m[i + l] / std::sqrt(1 + s[i + l] * s[i + l] * (M_PI / 8)));
            else
                logistic_expectations(8, a, s + i, nullptr, mean + i, curvature); // sigmoid(m) is the slope at -m
        }
    }
};

/// log y! for whole y >= 0.
inline double log_factorial(double y) {
    struct Table {
        double value[256];
        Table() {
            for (int k = 0; k < 256; ++k) value[k] = std::lgamma(k + 1.0);
        }
    };
    static const Table table;
    if (y < 256) return table.value[int(y)];
    const double r = 1 / y, r2 = r * r; // Stirling's series; the next term is below 1e-20
    return (y + 0.5) * std::log(y) - y + 0.91893853320467274178 + r * (1.0 / 12 - r2 * (1.0 / 360 - r2 * (1.0 / 1260)));
}

/// y in {0, 1, 2, ..}: log p = y a - e^a - log y!.
struct Poisson {
    double clean(double y) const { return y >= 0 && y == std::floor(y) && y <= std::numeric_limits<double>::max() ? y : nan; }
    double base(double y) const { return y == y ? -log_factorial(y) : nan; }
    template <class T> FEDKERN_INLINE T value(T a, T y) const { return y * a - math::exp(a); }
    template <class T> FEDKERN_INLINE T slope(T a, T y) const { return y - math::exp(a); }

    void expect(Index n, const double* m, const double* s, const double* y, double* value, double* slope, double* curvature) const {
        for (Index i = 0; i < n; ++i) {
            const double rate = math::exp(m[i] + 0.5 * s[i] * s[i]);
            slope[i] = y[i] - rate;
            curvature[i] = -rate;
        }
        if (value)
            for (Index i = 0; i < n; ++i) value[i] = y[i] * m[i] + curvature[i];
    }

    void predict(Index n, const double* m, const double* s, bool, double* mean) const {
        for (Index i = 0; i < n; ++i) mean[i] = math::exp(m[i] + 0.5 * s[i] * s[i]);
    }
};

/// y real, standard deviation `scale`.
struct Gaussian {
    double scale, precision = 1 / (scale * scale), constant = -std::log(scale) - 0.91893853320467274178; // log(2 pi) / 2

    double clean(double y) const { return std::isfinite(y) ? y : nan; }
    double base(double) const { return constant; }
    template <class T> FEDKERN_INLINE T value(T a, T y) const { return T(-0.5 * precision) * (y - a) * (y - a); }
    template <class T> FEDKERN_INLINE T slope(T a, T y) const { return T(precision) * (y - a); }

    void expect(Index n, const double* m, const double* s, const double* y, double* value, double* slope, double* curvature) const {
        for (Index i = 0; i < n; ++i) {
            slope[i] = precision * (y[i] - m[i]);
            curvature[i] = -precision + 0 * slope[i]; // NaN with it
        }
        if (value)
            for (Index i = 0; i < n; ++i) value[i] = -0.5 * precision * ((y[i] - m[i]) * (y[i] - m[i]) + s[i] * s[i]);
    }

    void predict(Index n, const double* m, const double*, bool, double* mean) const { std::copy_n(m, n, mean); }
};

/// log Gamma(y + r) - log Gamma(r) for y >= 0, r > 0, without the digits that the two would lose to each other.
inline double log_rising(double y, double r) {
    double low = 1, high = 1; // both arguments are raised above 10, where the series holds to 1e-14
    for (; r < 10; ++r) low *= r, high *= y + r;
    const auto rest = [](double x) {
        const double i = 1 / x, i2 = i * i;
        return i * (1.0 / 12 - i2 * (1.0 / 360 - i2 * (1.0 / 1260 - i2 * (1.0 / 1680 - i2 * (1.0 / 1188)))));
    };
    const double growth = y * (std::log(y + r) - 1) + (r - 0.5) * std::log1p(y / r);
    return growth + rest(y + r) - rest(r) + std::log(low / high);
}

/// y in {0, 1, 2, ..}, mean e^a, variance e^a + e^2a / scale. With b = a - log scale: log p = y b - (y + scale) log(1 + e^b) + base.
struct NegativeBinomial {
    double scale, shift = std::log(scale);

    double clean(double y) const { return Poisson{}.clean(y); }
    double base(double y) const { return y == y ? log_rising(y, scale) - log_factorial(y) : nan; }
    template <class T> FEDKERN_INLINE T value(T a, T y) const { return y * (a - T(shift)) - (y + T(scale)) * math::softplus(a - T(shift)); }
    template <class T> FEDKERN_INLINE T slope(T a, T y) const { return y - (y + T(scale)) * math::sigmoid(a - T(shift)); }

    void expect(Index n, const double* m, const double* s, const double* y, double* value, double* slope, double* curvature) const {
        for (Index i = 0; i < n; i += 8) {
            double b[8];
            for (int l = 0; l < 8; ++l) b[l] = shift - m[i + l]; // log sigmoid(-b) = -log(1 + e^b)
            logistic_expectations(8, b, s + i, value ? value + i : nullptr, slope + i, curvature + i);
            for (Index l = i; l < i + 8; ++l) {
                const double count = y[l] + scale;
                if (value) value[l] = y[l] * (m[l] - shift) + count * value[l];
                slope[l] = y[l] - count * slope[l];
                curvature[l] *= count;
            }
        }
    }

    void predict(Index n, const double* m, const double* s, bool probit, double* mean) const { Poisson{}.predict(n, m, s, probit, mean); }
};

/// A likelihood over the rows of a block. The loops are written once, below, for every family.
struct Family {
    virtual ~Family() = default;
    virtual void clean(Index n, double* y) const = 0;                  // what is outside the domain becomes NaN
    virtual void base(Index n, const double* y, double* out) const = 0;
    virtual void slopes(Index n, const double* a, const double* y, double* slope) const = 0;
    virtual void weigh(Index n, const double* a, const double* y, const double* w, double* value, double* slope) const = 0;
    virtual void weigh(Index n, const float* a, const float* y, const float* w, float* value, float* slope) const = 0;
    /// n a multiple of eight; value may be null.
    virtual void expect(Index n, const double* m, const double* s, const double* y, double* value, double* slope, double* curvature) const = 0;
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
        for (Index i = 0; i < n; ++i) slope[i] = f.slope(a[i], y[i]);
    }
    template <class T> void weigh_all(Index n, const T* a, const T* y, const T* w, T* __restrict value, T* __restrict slope) const {
        for (Index i = 0; i < n; ++i) {
            value[i] = w[i] * f.value(a[i], y[i]);
            slope[i] = w[i] * f.slope(a[i], y[i]);
        }
    }
    void weigh(Index n, const double* a, const double* y, const double* w, double* value, double* slope) const override {
        weigh_all(n, a, y, w, value, slope);
    }
    void weigh(Index n, const float* a, const float* y, const float* w, float* value, float* slope) const override {
        weigh_all(n, a, y, w, value, slope);
    }
    void expect(Index n, const double* m, const double* s, const double* y, double* value, double* slope, double* curvature) const override {
        f.expect(n, m, s, y, value, slope, curvature);
    }
    void predict(Index n, const double* m, const double* s, bool probit, double* mean) const override { f.predict(n, m, s, probit, mean); }
};

inline std::unique_ptr<const Family> make_family(Likelihood likelihood) {
    switch (likelihood.family) {
    case 0: return std::make_unique<FamilyOf<Bernoulli>>(Bernoulli{});
    case 1: return std::make_unique<FamilyOf<Poisson>>(Poisson{});
    case 2: return std::make_unique<FamilyOf<Gaussian>>(Gaussian{likelihood.scale});
    case 3: return std::make_unique<FamilyOf<NegativeBinomial>>(NegativeBinomial{likelihood.scale});
    }
    throw std::invalid_argument("family: no likelihood has this number; is the extension older than families.py?");
}

} // namespace FEDKERN_ISA
} // namespace fedkern
