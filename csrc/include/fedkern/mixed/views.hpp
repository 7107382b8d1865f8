// What the kernels of mixed models take: plain aggregates that cross from one instruction-set level to another.
#pragma once
#include "fedkern/view.hpp"

namespace fedkern {

enum class MixedFamily {
    binomial,
    poisson,
    gaussian,
    negative_binomial,
    student,
    gamma,
    beta,
    zero_inflated_poisson,
    zero_inflated_negative_binomial,
    ordinal,
    ordinal_probit,
    weibull,
    exponential,
    piecewise,
    probit,
    cloglog,
    beta_binomial,
    lognormal,
    inverse_gaussian,
    hurdle_poisson,
    hurdle_negative_binomial,
    poisson_lognormal,
    lognormal_aft,
    loglogistic_aft,
    families // how many there are
}; // up to negative_binomial in values.hpp and curvature.hpp, the others in families.hpp and declared.hpp

/// Rows sorted by group; Z has at most `mixed_effects` columns. No data: trials 1, offset 0. `starts` rises from 0 to the number of rows.
struct MixedRows {
    Matrix<const double> X, Z;
    Vector<const double> y, trials, offset;
    Vector<const Index> starts;
    MixedFamily family;
    int nodes; // of the quadrature, a dimension
};

/// What families of times have beside; no data: all times are events, there are no cuts, all rows were seen from 0 on.
struct MixedTimes {
    Vector<const double> upper, cuts, entry;
};

inline constexpr int mixed_effects = 3, mixed_nodes = 128;

/// Whether a product of such rows may have several modes: at most one effect.
constexpr bool has_several_modes(MixedFamily family) {
    return family == MixedFamily::student || family == MixedFamily::beta || family == MixedFamily::zero_inflated_poisson ||
           family == MixedFamily::zero_inflated_negative_binomial || family == MixedFamily::beta_binomial ||
           family == MixedFamily::inverse_gaussian || family == MixedFamily::hurdle_negative_binomial;
}

} // namespace fedkern
