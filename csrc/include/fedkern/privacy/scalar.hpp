// The clip rule, for host and device. Specification: docs/spec/pvi.md, section 4.
#pragma once
#include "fedkern/math.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

/// By how much the rule stays below the bound, so that rounding can't carry a row over it. `single`: the sums of a row may be in
/// float32.
FEDKERN_INLINE constexpr double clip_margin(bool single) { return single ? 2e-5 : 1e-9; }

/// Sums of float32 rows in float32 lanes are closed after so many columns, and the range of squared norms in which neither overflow nor
/// what underflow loses matters, of weights too: docs/spec/pvi.md, section 4, "Rows in float32". Other rows get float64 sums.
inline constexpr Index narrow_columns = 2048;
inline constexpr double narrow_least = 0x1p-60, narrow_most = 0x1p100, narrow_weight = 0x1p-64;

/// Whether the square of a row's coefficient can't be formed: it would lose digits below the normal numbers, or would be so large that
/// what sums of squares have lost there would count. docs/spec/pvi.md, section 4, "Small bounds".
inline constexpr double largest_coefficient = 1e100, least_coefficient = 0x1p-480;
FEDKERN_INLINE bool is_extreme(double c) {
    const double size = math::magnitude(c);
    return (size > largest_coefficient) | ((size < least_coefficient) & (size != 0));
}

/// c^2 s, the squared norm of c times a vector whose squared norm is s. NaN, as of a row that is skipped, where c is too large.
FEDKERN_INLINE double row_square(double c, double s) {
    const double careful = math::magnitude(c) > largest_coefficient ? math::not_a_number<double>() : c * (c * s);
    return is_extreme(c) ? careful : c * c * s;
}

/// w = min(1, bound (1 - margin) / norm). 0 for a row whose norm is not finite, which the caller skips (0 x inf would be NaN).
FEDKERN_INLINE double clip_weight(double squared_norm, double bound, bool single = false) {
    if (!(squared_norm < math::infinity<double>())) return 0;
    const double norm = math::sqrt(squared_norm), most = bound * (1 - clip_margin(single));
    return norm > most ? most / norm : 1;
}

} // namespace FEDKERN_ISA
} // namespace fedkern
