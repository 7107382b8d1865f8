// What the draws of coefficients and their scales share on host and device: docs/spec/sparse.md, sections 2, 3 and 11.
#pragma once
#include "fedkern/math.hpp"
#include "views.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

enum Quantity : long { of_lambda, of_coefficients, of_sigma, of_tau, of_theta, of_eta, of_rho, of_others };

/// What a row of `events` holds.
enum Event { scales_clipped, orthogonal_factors, data_draws, fault, event_count };

inline constexpr Index least_for_data = 33;    // coefficients: below, the Gram form is always the cheaper one
inline constexpr double data_rows = 0.6;       // of p: below, the data-space form is the cheaper one
inline constexpr double most_data_scale = 1e4; // of t / sigma: beyond, the data-space form loses digits

/// Whether coefficients are drawn in the space of r rows, where their scales allow it.
FEDKERN_INLINE bool by_rows(DrawForm form, Index r, Index p) {
    const bool cheaper = p >= least_for_data && double(r) < data_rows * double(p);
    return r > 0 && (form == DrawForm::data || (form == DrawForm::automatic && cheaper));
}

/// The standard deviation of N(0, t^2) N(0, slab^2).
FEDKERN_INLINE double prior_deviation(double t, double slab) {
    const double ratio = t / slab;
    return t / math::sqrt(1 + ratio * ratio);
}

} // namespace FEDKERN_ISA
} // namespace fedkern
