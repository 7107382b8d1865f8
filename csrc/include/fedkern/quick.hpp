// An exponential for sums of many, of which none needs its last bits.
#pragma once
#include "math.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

/// e^x for |x| <= 700, to 4e-14 of itself within 30 and 1e-13 at the ends: what a sum of such terms needs.
FEDKERN_INLINE double quick_exp(double x) {
    using F = math::Format<double>;
    const double shifted = x * 1.4426950408889634 + F::round, k = shifted - F::round;
    const double r = x - k * 0.69314718055994531; // |r| <= log(2) / 2
    const double q = math::polynomial(r, 0x1.0000000000000p+0, 0x1.fffffffff70abp-2, 0x1.5555555553b48p-3, 0x1.555555745858dp-5,
                                      0x1.1111111c5719ap-7, 0x1.6c164d7dbdce2p-10, 0x1.a019ad55d1aa7p-13, 0x1.a15af3e6562d7p-16,
                                      0x1.72c79824255e0p-19); // (exp(r) - 1) / r
    return math::from_bits<double>(math::to_bits(1 + r * q) + (math::to_bits(shifted) << F::fraction));
}

/// e^-x for x >= 0, beyond 700 that of 700.
FEDKERN_INLINE double quick_decay(double x) { return quick_exp(x < 700 ? -x : -700.0); }

} // namespace FEDKERN_ISA
} // namespace fedkern
