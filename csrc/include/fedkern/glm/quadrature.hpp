// E log sigmoid(a) and of its derivatives for a ~ N(b, s^2). Specification: docs/spec/pvi.md, section 3.1.
#pragma once
#include <algorithm>
#include <cmath>

#include "fedkern/pack.hpp"
#include "scalar.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

/// Eight rows with s <= 5. exp(-b - s t) over equidistant t is a geometric series: two exponentials a row instead of 64. The two
/// nodes of a pair have a = b +- s t, e1 = exp(-a1), e2 = exp(-a2) and e1 e2 = c, the same for all pairs; with D = (1 + e1)(1 + e2)
/// and p = sigmoid(-a) = e / (1 + e): p1 + p2 = (e1 + e2 + 2 c) / D and p1 p2 = c / D. One division serves the four nodes of two pairs.
template <bool with_value> void logistic_narrow(const double* b, const double* s, double* value, double* slope, double* curvature) {
    using V = Pack<double>;
    alignas(64) double start[8], half[8], product[TrapezoidRule::pairs * 8];
    for (int l = 0; l < 8; ++l) {
        start[l] = math::exp(-std::clamp(b[l], -170.0, 170.0)); // beyond, the sigmoid is 0 or 1 at every node
        half[l] = math::exp(-0.5 * TrapezoidRule::step * s[l]);
    }
    const V one = V::all(1), down = V::load(half), up = one / down, down2 = down * down, up2 = up * up, e = V::load(start);
    const V c = e * e, twice_c = c + c, one_c = one + c;
    V e1 = e * down, e2 = e * up, slopes = V::all(0), squares = V::all(0);
    for (int j = 0; j < TrapezoidRule::pairs; j += 2) {
        const V sum = e1 + e2;
        e1 = e1 * down2, e2 = e2 * up2;
        const V next = e1 + e2;
        e1 = e1 * down2, e2 = e2 * up2;
        const V D = one_c + sum, D_next = one_c + next, both = one / (D * D_next), inverse = both * D_next, inverse_next = both * D;
        const V p = (sum + twice_c) * inverse, p_next = (next + twice_c) * inverse_next;
        const V w = V::all(trapezoid_weight[j]), w_next = V::all(trapezoid_weight[j + 1]);
        slopes = slopes + w * p + w_next * p_next;
        squares = squares + w * (p * p - twice_c * inverse) + w_next * (p_next * p_next - twice_c * inverse_next); // p1^2 + p2^2
        if constexpr (with_value) D.store(product + 8 * j), D_next.store(product + 8 * j + 8);
    }
    slopes.store(slope);
    squares.store(curvature);
    for (int l = 0; l < 8; ++l) curvature[l] = curvature[l] > slope[l] ? 0 : curvature[l] - slope[l]; // E p^2 - E p <= 0
    if constexpr (with_value) {
        for (double& p : product) p = math::log(p);
        V values = V::all(0);
        for (int j = 0; j < TrapezoidRule::pairs; ++j) values = values + V::all(trapezoid_weight[j]) * V::load(product + 8 * j);
        values.store(value);
        for (int l = 0; l < 8; ++l) value[l] = (b[l] < -170 ? b[l] + 170 : 0.0) - value[l];
    }
}

/// One row with s > 5.
inline void logistic_wide(double b, double s, double* value, double* slope, double* curvature) {
    using V = Pack<double>;
    alignas(64) double z[MixtureRule::count], below[MixtureRule::count], density[MixtureRule::count];
    for (int j = 0; j < MixtureRule::count; ++j) {
        z[j] = (MixtureRule::step * (j - MixtureRule::middle) - b) / s;
        below[j] = math::normal_cdf(z[j]);
    }
    for (int j = 0; j < MixtureRule::count; ++j) density[j] = math::normal_pdf(z[j]);
    V slopes = V::all(0), curvatures = V::all(0), values = V::all(0);
    for (int j = 0; j < MixtureRule::count; j += 8) {
        const V w = V::load(mixture_weight + j), c = V::load(below + j), p = V::load(density + j);
        slopes = slopes + w * c;
        curvatures = curvatures + w * p;
        values = values + w * (V::load(z + j) * c + p);
    }
    *slope = slopes.sum();
    *curvature = -curvatures.sum() / s;
    if (value) *value = -s * values.sum();
}

/// For n rows, n a multiple of eight: value (unless null), slope and curvature of E log sigmoid(a).
inline void logistic_expectations(Index n, const double* b, const double* s, double* value, double* slope, double* curvature) {
    for (Index i = 0; i < n; i += 8) {
        double narrow[8];
        for (int l = 0; l < 8; ++l) narrow[l] = s[i + l] <= TrapezoidRule::widest ? s[i + l] : 0;
        if (value) logistic_narrow<true>(b + i, narrow, value + i, slope + i, curvature + i);
        else logistic_narrow<false>(b + i, narrow, nullptr, slope + i, curvature + i);
        for (Index l = i; l < i + 8; ++l)
            if (!(s[l] <= TrapezoidRule::widest)) logistic_wide(b[l], s[l], value ? value + l : nullptr, slope + l, curvature + l);
    }
}

} // namespace FEDKERN_ISA
} // namespace fedkern
