// The scalar mathematics of the families, for host and device: log p(y | a), a = x'theta + offset, its derivatives, and for one row
// their expectations for a ~ N(m, s^2). `value` leaves out what does not depend on a; that is `base`. `power` is the exponential that
// `value` and `slope` share.
#pragma once
#include "fedkern/math.hpp"
#include "tables.hpp"
#include "views.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

inline constexpr double half_log_2pi = 0.91893853320467274178;

FEDKERN_INLINE bool is_finite(double x) { return math::magnitude(x) < math::infinity<double>(); }

/// y in {0, 1}: log p = y a - log(1 + e^a).
struct Bernoulli {
    FEDKERN_INLINE double clean(double y) const { return y == 0 || y == 1 ? y : math::not_a_number<double>(); }
    FEDKERN_INLINE double base(double) const { return 0; }
    template <class T> FEDKERN_INLINE T power(T a) const { return math::exp_decay(a); }
    template <class T> FEDKERN_INLINE T value(T a, T y, T power) const { return y * a - math::softplus(a, power); }
    template <class T> FEDKERN_INLINE T slope(T a, T y, T power) const { return y - math::sigmoid(a, power); }
};

/// log y! for whole y >= 0.
FEDKERN_INLINE double log_factorial(double y) {
    if (y < 256) return log_factorials[int(y)];
    const double r = 1 / y, r2 = r * r; // Stirling's series; the next term is below 1e-20
    return (y + 0.5) * math::log(y) - y + half_log_2pi + r * (1.0 / 12 - r2 * (1.0 / 360 - r2 * (1.0 / 1260)));
}

/// y in {0, 1, 2, ..}: log p = y a - e^a - log y!.
struct Poisson {
    FEDKERN_INLINE double clean(double y) const {
        const double whole = y < 0x1p52 ? (y + 0x1p52) - 0x1p52 : y; // the nearest whole number
        return y >= 0 && y == whole && is_finite(y) ? y : math::not_a_number<double>();
    }
    FEDKERN_INLINE double base(double y) const { return y == y ? -log_factorial(y) : y; }
    template <class T> FEDKERN_INLINE T power(T a) const { return math::exp(a); }
    template <class T> FEDKERN_INLINE T value(T a, T y, T power) const { return y * a - power; }
    template <class T> FEDKERN_INLINE T slope(T, T y, T power) const { return y - power; }
};

/// y real, standard deviation `scale`.
struct Gaussian {
    double scale, precision = 1 / (scale * scale), constant = -math::log(scale) - half_log_2pi;

    FEDKERN_INLINE double clean(double y) const { return is_finite(y) ? y : math::not_a_number<double>(); }
    FEDKERN_INLINE double base(double) const { return constant; }
    template <class T> FEDKERN_INLINE T power(T) const { return 0; }
    template <class T> FEDKERN_INLINE T value(T a, T y, T) const { return T(-0.5 * precision) * (y - a) * (y - a); }
    template <class T> FEDKERN_INLINE T slope(T a, T y, T) const { return T(precision) * (y - a); }
};

/// log Gamma(y + r) - log Gamma(r) for y >= 0, r > 0, without the digits that the two would lose to each other.
FEDKERN_DEVICE double log_rising(double y, double r) {
    double low = 1, high = 1; // both arguments are raised above 10, where the series holds to 1e-14
    for (; r < 10; ++r) low *= r, high *= y + r;
    const auto rest = [](double x) {
        const double i = 1 / x, i2 = i * i;
        return i * (1.0 / 12 - i2 * (1.0 / 360 - i2 * (1.0 / 1260 - i2 * (1.0 / 1680 - i2 * (1.0 / 1188)))));
    };
    const double growth = y * (math::log(y + r) - 1) + (r - 0.5) * math::log1p(y / r);
    return growth + rest(y + r) - rest(r) + math::log(low / high);
}

/// y in {0, 1, 2, ..}, mean e^a, variance e^a + e^2a / scale. With b = a - log scale: log p = y b - (y + scale) log(1 + e^b) + base.
struct NegativeBinomial {
    double scale, shift = math::log(scale);

    FEDKERN_INLINE double clean(double y) const { return Poisson{}.clean(y); }
    FEDKERN_INLINE double base(double y) const { return y == y ? log_rising(y, scale) - log_factorial(y) : y; }
    template <class T> FEDKERN_INLINE T power(T a) const { return math::exp_decay(a - T(shift)); }
    template <class T> FEDKERN_INLINE T value(T a, T y, T power) const {
        return y * (a - T(shift)) - (y + T(scale)) * math::softplus(a - T(shift), power);
    }
    template <class T> FEDKERN_INLINE T slope(T a, T y, T power) const { return y - (y + T(scale)) * math::sigmoid(a - T(shift), power); }
};

// ---- Expectations of one row, whose nodes several threads may share: `Nodes` are those of one, node `first`, `first` + `step`, ..,
// and `sum` adds what the threads have found. The host's loops do eight rows at once (quadrature.hpp), by the same rules.

/// Trapezoid rule for N(0, 1): 64 nodes +-(j + 1/2) step in [-6.5, 6.5]; the two of a pair have one weight.
/// Largest errors (value, slope, curvature): 1e-10, 2e-11, 1e-11 at s = 1; 2e-9, 6e-9, 4e-8 at s = 5.
struct TrapezoidRule {
    static constexpr int pairs = 32;
    static constexpr double widest = 5, step = 13.0 / 63;
};

/// For wide s: the logistic distribution as 96 steps at -38, -37.2 .. 38, each of which a normal averages in closed form.
struct MixtureRule {
    static constexpr int count = 96;
    static constexpr double step = 0.8, middle = 47.5;
};

/// A thread that has all nodes.
struct AllNodes {
    static constexpr int first = 0, step = 1;
    FEDKERN_INLINE double sum(double x) const { return x; }
};

struct Expectation {
    double value, slope, curvature;
};

/// E log sigmoid(a) and of its derivatives, a ~ N(b, s^2); quadrature.hpp has the algebra of the narrow case.
template <class Nodes> FEDKERN_DEVICE Expectation logistic_row(double b, double s, bool with_value, const Nodes& nodes) {
    double value = 0, slope = 0, curvature = 0;
    const bool narrow = s <= TrapezoidRule::widest;
    if (narrow) {
        const double inside = b < -170 ? -170 : b > 170 ? 170 : b, e = math::exp(-inside), c = e * e;
        for (int j = nodes.first; j < TrapezoidRule::pairs; j += nodes.step) {
            const double q = math::exp(-(j + 0.5) * TrapezoidRule::step * s), w = trapezoid_weight[j];
            const double sum = e * q + e / q, D = (1 + c) + sum, inverse = 1 / D, p = (sum + 2 * c) * inverse;
            slope += w * p;
            curvature += w * (p * p - 2 * c * inverse);
            if (with_value) value += w * math::log(D);
        }
    } else {
        for (int j = nodes.first; j < MixtureRule::count; j += nodes.step) {
            const double z = (MixtureRule::step * (j - MixtureRule::middle) - b) / s, w = mixture_weight[j];
            const double below = math::normal_cdf(z), density = math::normal_pdf(z);
            slope += w * below;
            curvature += w * density;
            value += w * (z * below + density);
        }
    }
    value = nodes.sum(value), slope = nodes.sum(slope), curvature = nodes.sum(curvature);
    if (narrow) return {(b < -170 ? b + 170 : 0.0) - value, slope, curvature > slope ? 0 : curvature - slope};
    return {-s * value, slope, -curvature / s};
}

/// The same by the series of log(1 + x), x = e^-a, as multiples of E x = exp(s^2 / 2 - b): of a sigmoid far in its tail a quadrature
/// loses what 1 - p has. E x^k = (E x)^k exp(k (k - 1) s^2 / 2), and what is left out is below the last term. Returns whether few
/// terms are enough.
FEDKERN_DEVICE bool far_row(double b, double s, Expectation& of) {
    const double variance = s * s;
    if (!(b > 3 + 1.5 * variance)) return false;
    double before = 1;
    of = {1, 1, 1};
    for (int k = 2; k <= 12; ++k) {
        const double size = math::exp((1 - k) * b + 0.5 * (k * k - 1) * variance), term = k % 2 ? size : -size;
        of.value += term / k, of.slope += term, of.curvature += k * term;
        if (k * size < 1e-15) return true;
        if (size > before) return false;
        before = size;
    }
    return false;
}

/// A negative binomial's row whose rate e^a is far below its r, by the numbers of `far_row`: with r without end it is Poisson.
FEDKERN_INLINE Expectation far_from(const NegativeBinomial& f, double m, double s, double y, const Expectation& far) {
    const double rate = math::exp(m + 0.5 * s * s) * (1 + y / f.scale);
    return {y * (m - f.shift) - rate * far.value, y - rate * far.slope, -rate * far.curvature};
}

/// What a number stands for that no family has: NaN everywhere. A host refuses it by name (`make_family`).
struct NoFamily {
    static constexpr double nothing = math::not_a_number<double>();
    FEDKERN_INLINE double clean(double) const { return nothing; }
    FEDKERN_INLINE double base(double) const { return nothing; }
    template <class T> FEDKERN_INLINE T power(T) const { return T(nothing); }
    template <class T> FEDKERN_INLINE T value(T, T, T power) const { return power; }
    template <class T> FEDKERN_INLINE T slope(T, T, T power) const { return power; }
};

// ---- E log p - base and of its derivatives, a ~ N(m, s^2), and E y; `probit`: the usual approximation for the Bernoulli family.

template <class Nodes>
FEDKERN_DEVICE Expectation expect_row(const Bernoulli&, double m, double s, double y, bool with_value, const Nodes& nodes) {
    const double sign = 2 * y - 1;
    const Expectation e = logistic_row(sign * m, s, with_value, nodes);
    return {e.value, e.slope * sign, e.curvature + 0 * sign}; // NaN with y
}
template <class Nodes> FEDKERN_DEVICE Expectation expect_row(const Poisson&, double m, double s, double y, bool, const Nodes&) {
    const double rate = math::exp(m + 0.5 * s * s);
    return {y * m - rate, y - rate, -rate};
}
template <class Nodes> FEDKERN_DEVICE Expectation expect_row(const Gaussian& f, double m, double s, double y, bool, const Nodes&) {
    const double off = y - m, precision = f.precision;
    return {-0.5 * precision * (off * off + s * s), precision * off, -precision + 0 * off};
}
template <class Nodes>
FEDKERN_DEVICE Expectation expect_row(const NegativeBinomial& f, double m, double s, double y, bool with_value, const Nodes& nodes) {
    const double shift = f.shift, count = y + f.scale;
    // All lanes of a warp make nodes together: none may leave before.
    const Expectation e = logistic_row(shift - m, s, with_value, nodes);
    Expectation far;
    if (far_row(shift - m, s, far)) return far_from(f, m, s, y, far);
    return {y * (m - shift) + count * e.value, y - count * e.slope, count * e.curvature};
}
template <class Nodes> FEDKERN_DEVICE Expectation expect_row(const NoFamily& f, double, double, double, bool, const Nodes&) {
    return {f.nothing, f.nothing, f.nothing};
}

template <class Nodes> FEDKERN_DEVICE double mean_row(const Bernoulli&, double m, double s, bool probit, const Nodes& nodes) {
    if (probit) return math::sigmoid(m / math::sqrt(1 + s * s * 0.39269908169872414)); // pi / 8
    return logistic_row(-m, s, false, nodes).slope; // sigmoid(m) is the slope at -m
}
template <class Nodes> FEDKERN_DEVICE double mean_row(const Gaussian&, double m, double, bool, const Nodes&) { return m; }
template <class Nodes> FEDKERN_DEVICE double mean_row(const Poisson&, double m, double s, bool, const Nodes&) {
    return math::exp(m + 0.5 * s * s);
}
template <class Nodes> FEDKERN_DEVICE double mean_row(const NegativeBinomial&, double m, double s, bool probit, const Nodes& nodes) {
    return mean_row(Poisson{}, m, s, probit, nodes);
}
template <class Nodes> FEDKERN_DEVICE double mean_row(const NoFamily& f, double, double, bool, const Nodes&) { return f.nothing; }

/// A family that is chosen when the program runs: all rows take the same way. The one list of the numbers that families.py gives.
struct AnyFamily {
    int number;
    Gaussian gaussian;
    NegativeBinomial negative_binomial;

    FEDKERN_INLINE explicit AnyFamily(Likelihood likelihood)
        : number(likelihood.family), gaussian{likelihood.scale}, negative_binomial{likelihood.scale} {}

    template <class Work> FEDKERN_INLINE auto of(const Work& work) const {
        switch (number) {
        case 0: return work(Bernoulli{});
        case 1: return work(Poisson{});
        case 2: return work(gaussian);
        case 3: return work(negative_binomial);
        }
        return work(NoFamily{});
    }
    FEDKERN_INLINE double clean(double y) const {
        return of([&](const auto& f) { return f.clean(y); });
    }
    FEDKERN_INLINE double base(double y) const {
        return of([&](const auto& f) { return f.base(y); });
    }
    template <class T> FEDKERN_INLINE T slope(T a, T y) const {
        return of([&](const auto& f) { return f.slope(a, y, f.power(a)); });
    }
    template <class T> struct Weighed {
        T value, slope;
    };
    template <class T> FEDKERN_INLINE Weighed<T> weigh(T a, T y) const {
        return of([&](const auto& f) {
            const T power = f.power(a);
            return Weighed<T>{f.value(a, y, power), f.slope(a, y, power)};
        });
    }
    template <class Nodes> FEDKERN_DEVICE Expectation expect(double m, double s, double y, bool with_value, const Nodes& nodes) const {
        return of([&](const auto& f) { return expect_row(f, m, s, y, with_value, nodes); });
    }
    template <class Nodes> FEDKERN_DEVICE double mean(double m, double s, bool probit, const Nodes& nodes) const {
        return of([&](const auto& f) { return mean_row(f, m, s, probit, nodes); });
    }
};

} // namespace FEDKERN_ISA
} // namespace fedkern
