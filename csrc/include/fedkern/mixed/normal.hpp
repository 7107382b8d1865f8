// The standard normal between two points, in both tails and for points that lie close together.
#pragma once
#include "fedkern/glm/scalar.hpp"
#include "fedkern/math.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {
namespace mixed {

inline constexpr double one_tail = 30, narrow_half = 0.15;

/// log Phi(-x), the mean of t and its variance where t > x.
struct Tail {
    double value, mean, variance;
};

FEDKERN_INLINE Tail normal_tail(double x) {
    const bool far = x > one_tail;
    const double near = far ? one_tail : x, below = math::normal_cdf(-near), rate = math::normal_pdf(near) / below;
    // phi(x) / Phi(-x) - x beyond, by its asymptotic series
    const double away = far ? x : one_tail, inverse = 1 / away, s = inverse * inverse;
    const double beyond = inverse * math::polynomial(s, 1., -2., 10., -74., 706., -8162., 110410., -1708394.), all = away + beyond;
    return {far ? -0.5 * x * x - half_log_2pi - math::log(all) : math::log(below), far ? all : rate,
            far ? 1 - all * beyond : 1 - rate * (rate - near)};
}

/// log(Phi(b) - Phi(a)), and mean and variance between the two.
struct Interval {
    double value, mean, variance;
};

/// b = a + gap; one of them may be infinite. `narrow`: some may be closer together than the difference of two tails can say.
template <bool narrow> FEDKERN_INLINE Interval normal_interval(double given_a, double given_b, double gap) {
    const bool turn = given_a + given_b > 0; // b is not far to the right
    const double a = turn ? -given_b : given_a, b = turn ? -given_a : given_b;
    const bool open = !(a > -math::infinity<double>());
    const Tail to_b = normal_tail(-b), to_a = normal_tail(open ? 1.0 : -a);
    const double less = open ? 0.0 : math::exp(to_a.value - to_b.value), keep = 1 / (1 - less);
    double mean = (less * to_a.mean - to_b.mean) * keep;
    const double from_b = to_b.mean + mean, from_a = to_a.mean + mean;
    double variance = (to_b.variance + from_b * from_b - less * (to_a.variance + from_a * from_a)) * keep;
    double value = to_b.value + math::log1p(-less);
    if constexpr (narrow) { // Gauss and Legendre
        constexpr double t[3] = {0.23861918608319691, 0.66120938646626451, 0.93246951420315203};
        constexpr double weight[3] = {0.46791393457269105, 0.36076157304813861, 0.17132449237917036};
        const double middle = 0.5 * (a + b), size = math::magnitude(middle);
        const bool close = 0.5 * gap * (1 + size) < narrow_half;
        const double h = close ? 0.5 * gap : 0.0, c = close ? middle : 0.0;
        double total = 0, first = 0, second = 0;
        for (int j = 0; j < 3; ++j)
            for (int sign = -1; sign < 2; sign += 2) {
                const double x = sign * h * t[j], p = weight[j] * math::exp(-c * x - 0.5 * x * x);
                total += p, first += p * x, second += p * x * x;
            }
        const double shift = first / total;
        value = close ? math::log(0.5 * gap * total) - 0.5 * c * c - half_log_2pi : value;
        mean = close ? c + shift : mean, variance = close ? second / total - shift * shift : variance;
    }
    const double some = variance < 1 ? variance : 1.0;
    return {value, turn ? -mean : mean, some > 0 ? some : 0.0};
}

} // namespace mixed
} // namespace FEDKERN_ISA
} // namespace fedkern
