// What a family is to a mixed model, row by row, for host and device.
#pragma once
#include "fedkern/glm/scalar.hpp"
#include "fedkern/math.hpp"
#include "views.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {
namespace mixed {

inline constexpr double most_eta = 690;  // of a logarithm of a mean: beyond it a value is as bad as it gets, and finite
inline constexpr double least_square = 1e-100; // a negative binomial whose phi^2 is smaller is Poisson
inline constexpr double most_curve = 1e8; // of a row of counts in a search, beside y: a step is the same, and the others' part not lost
inline constexpr int steps = 600; // of a search, halved ones among them
inline constexpr double near = 1e-6, slack = 1e-10; // the last step leaves an error of its square; what rounding does to l
inline constexpr Index least_large = 64; // of counts, from which on a sum of logarithms is Euler's and Maclaurin's

FEDKERN_INLINE constexpr int pair(int a, int b) { return a * (a + 1) / 2 + b; } // of a lower triangle

inline constexpr bool is_counted(MixedFamily family) { return family == MixedFamily::poisson || family == MixedFamily::negative_binomial; }

/// A row's value without what does not depend on eta, its slope and minus its curvature. `square` is phi^2 or the precision.
template <MixedFamily family> struct Row {
    double value, slope, curve;
    FEDKERN_INLINE Row(double eta, double y, double trials, double square) {
        if constexpr (family == MixedFamily::binomial) {
            const double decay = math::exp_decay(eta), inverse = 1 / (1 + decay), p = (eta < 0 ? decay : 1.0) * inverse;
            value = y * eta - trials * math::softplus(eta, decay);
            slope = y - trials * p;
            curve = trials * decay * inverse * inverse;
        } else if constexpr (family == MixedFamily::gaussian) {
            const double r = y - eta;
            value = -0.5 * square * r * r, slope = square * r, curve = square;
        } else {
            const double kept = eta < most_eta ? eta : eta > most_eta ? most_eta : eta, mean = math::exp(kept);
            if constexpr (family == MixedFamily::poisson) {
                value = y * kept - mean, slope = y - mean, curve = mean;
            } else {
                const double x = square * mean, log = math::log1p(x), inverse = 1 / (1 + x);
                const double whole = square > least_square ? (y + 1 / square) * log : mean;
                value = y * kept - whole;
                slope = (y - mean) * inverse;
                curve = mean * inverse * ((1 + square * y) * inverse);
            }
        }
    }
};

/// What depends on no point, of a row; NaN: a response that the family does not have.
template <MixedFamily family> FEDKERN_INLINE double row_constant(double y, double trials) {
    if constexpr (family == MixedFamily::gaussian) {
        return 0 * y - half_log_2pi;
    } else {
        const bool counts = Poisson{}.clean(y) == y;
        if constexpr (family == MixedFamily::binomial) {
            if (!counts || !(y <= trials) || !(Poisson{}.clean(trials) == trials)) return math::not_a_number<double>();
            return log_factorial(trials) - log_factorial(y) - log_factorial(trials - y);
        } else {
            return counts ? -log_factorial(y) : math::not_a_number<double>();
        }
    }
}

/// The antiderivative of Euler and Maclaurin of the sum over k < x of log(1 + a k), up to a constant; `f` is log(1 + a x). The next
/// term is below 1e-15 from `least_large` on.
FEDKERN_INLINE double rising_before(double x, double a, double f) {
    const double z = a * x;
    double integral; // ((1 + z) log(1 + z) - z) / a
    if (z < 0.1) {
        double series = 0;
        for (int j = 16; j >= 0; --j) series = (j % 2 ? -1.0 : 1.0) / ((j + 1.0) * (j + 2.0)) + series * z;
        integral = z * x * series;
    } else {
        integral = ((1 + z) * f - z) / a;
    }
    const double s = a / (1 + z), s2 = s * s;
    return integral - 0.5 * f + s * (1.0 / 12 + s2 * (-2.0 / 720 + s2 * (24.0 / 30240)));
}

} // namespace mixed
} // namespace FEDKERN_ISA
} // namespace fedkern
