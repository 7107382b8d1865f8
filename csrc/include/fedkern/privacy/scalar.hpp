// The clip rule, for host and device. Specification: docs/spec/pvi.md, section 4.
#pragma once
#include "fedkern/math.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

/// w = min(1, bound (1 - 1e-9) / norm): rounding can't carry a row over the bound. 0 for a row whose norm is not finite, which the
/// caller skips (0 x inf would be NaN).
FEDKERN_INLINE double clip_weight(double squared_norm, double bound) {
    if (!(squared_norm < math::infinity<double>())) return 0;
    const double norm = math::sqrt(squared_norm), most = bound * (1 - 1e-9);
    return norm > most ? most / norm : 1;
}

} // namespace FEDKERN_ISA
} // namespace fedkern
