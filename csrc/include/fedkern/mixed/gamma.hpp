// Gamma functions without what cancels in differences of them.
#pragma once
#include "fedkern/glm/scalar.hpp"
#include "fedkern/math.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {
namespace mixed {

/// `rest` of log Gamma(x) = (x - 1/2) log x - x + log(2 pi) / 2 + rest, x (digamma(x) - log x), x^2 trigamma(x) - x.
struct Stirling {
    double rest, first, second;
};

/// Below 10 by the recurrence from x + 10, whose product x (x + 1) .. (x + 9) has no cancellation in its derivatives.
FEDKERN_INLINE Stirling stirling(double x) {
    const bool small = x < 10;
    const double z = small ? x + 10 : x, inverse = 1 / z, s = inverse * inverse;
    const double rest = inverse * math::polynomial(s, 1.0 / 12, -1.0 / 360, 1.0 / 1260, -1.0 / 1680, 1.0 / 1188, -691.0 / 360360);
    const double first = -inverse * math::polynomial(s, 1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240, 1.0 / 132, -691.0 / 32760);
    const double second = inverse * math::polynomial(s, 1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30, 5.0 / 66, -691.0 / 2730);
    double p = 1, dp = 0, ddp = 0; // (x + 1) .. (x + 9)
    for (int j = 1; j < 10; ++j) {
        const double by = x + j;
        ddp = ddp * by + 2 * dp, dp = dp * by + p, p *= by;
    }
    const double safe = x > 1e-300 ? x : 1e-300, log_x = math::log(safe), log_z = math::log(z), by = 1 / p, sum = dp * by;
    const double squares = sum * sum - ddp * by; // sums of 1 / (x + j) and of their squares, j = 1 .. 9
    const double near = rest + ((z - 0.5) * log_z - z) - log_x - math::log(p) - ((x - 0.5) * log_x - x);
    const double psi = log_z + (first - 0.5) * inverse - sum, psi_1 = inverse + (0.5 + second) * s + squares;
    return {small ? near : rest, small ? x * (psi - log_x) - 1 : first - 0.5, small ? 1 + x * x * psi_1 - x : second + 0.5};
}

} // namespace mixed
} // namespace FEDKERN_ISA
} // namespace fedkern
