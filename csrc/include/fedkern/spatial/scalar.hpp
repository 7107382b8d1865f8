// Which entry of a table of priors is drawn, and covariances at a distance, for host and device.
// Specification: docs/spec/sigma.md, section 3.
#pragma once
#include "fedkern/rng.hpp"
#include "views.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

/// Number floor(u T) for a group of rows.
FEDKERN_INLINE Index table_entry(Index entries, Index group, U32 step, U64 key) {
    const auto u = uniform_pair(philox_bits({U32(group / 2), 0, 0, step}, key));
    const Index t = Index((group % 2 ? u.second : u.first) * double(entries));
    return t < entries ? t : entries - 1;
}

inline constexpr double least_lengthscale = 1e-150; // squares of smaller numbers would be 0
inline constexpr double most_lengthscale = 1e150;   // and of larger ones, and of distances as large, infinite
inline constexpr double far_apart = 1000;           // exp(-1000) is 0; farther, a Matern factor of infinity would meet that 0

/// Whether covariances have such a lengthscale; of others they are NaN.
FEDKERN_INLINE bool is_lengthscale(double x) { return x > 0 && x <= most_lengthscale; }

/// What the squared distances of an rbf are multiplied with, and the distances of a Matern.
FEDKERN_INLINE double gp_rate(GpKind kind, double lengthscale) {
    if (lengthscale < least_lengthscale) lengthscale = least_lengthscale;
    if (kind == GpKind::rbf) return -0.5 / (lengthscale * lengthscale);
    return math::sqrt(kind == GpKind::matern12 ? 1.0 : kind == GpKind::matern32 ? 3.0 : 5.0) / lengthscale;
}

/// The covariance at a squared distance.
FEDKERN_INLINE double gp_value(GpKind kind, double square, double rate) {
    if (kind == GpKind::rbf) return math::exp(rate * square);
    const double scaled = rate * math::sqrt(square), a = scaled > far_apart ? far_apart : scaled, decay = math::exp(-a);
    return kind == GpKind::matern12 ? decay : (1 + a + (kind == GpKind::matern52 ? a * a * (1. / 3) : 0)) * decay;
}

} // namespace FEDKERN_ISA
} // namespace fedkern
