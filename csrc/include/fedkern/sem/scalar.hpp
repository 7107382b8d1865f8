// What the structural equation model's moves share on host and device: docs/spec/sparse.md, section 9.
#pragma once
#include "fedkern/rng.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {
namespace sem {

inline constexpr double least_ratio = 1e-12, refactorise_below = 1e-3; // of determinants
inline constexpr double target_acceptance = 0.44;                      // of one-dimensional moves
inline constexpr double least_residual = 1e-150;                       // beside b

/// One independence step of x from 0, density ~ |1 + r x|^N exp(-(x - a)^2 / 2): a normal at each of its two modes, 1.3 times as
/// wide as Laplace's. x and not the ratio itself, which is too close to 1 where r is small. `choice`: block 2 of the row, whose
/// uniforms choose the mode and accept; `normal`: block 3.
FEDKERN_INLINE double draw_ratio(double N, double r, double a, Pair<U64> chosen, Pair<U64> moved) {
    const double turn = 1 - a * r; // r x^2 + turn x - (a + N r) = 0
    const double discriminant = (1 + a * r) * (1 + a * r) + 4 * N * (r * r);
    const double q = -0.5 * (turn < 0 ? turn - math::sqrt(discriminant) : turn + math::sqrt(discriminant));
    const double mode[2] = {q / r, -(a + N * r) / q};
    double ratio[2] = {1 + r * mode[0], 1 + r * mode[1]};
    if (math::magnitude(ratio[1]) < math::magnitude(ratio[0])) // the smaller from the product of the two
        ratio[1] = -N * (r * r) / ratio[0];
    else ratio[0] = -N * (r * r) / ratio[1];
    const auto log_target = [&](double x, double ratio) { return N * math::log(math::magnitude(ratio)) - 0.5 * (x - a) * (x - a); };
    double wide[2], mass[2];
    for (int k = 0; k < 2; ++k) {
        const double sd = 1 / math::sqrt(1 + N * (r / ratio[k]) * (r / ratio[k]));
        mass[k] = log_target(mode[k], ratio[k]) + math::log(sd), wide[k] = 1.3 * sd;
    }
    const double share = math::sigmoid(mass[0] - mass[1]), first = share < 0.001 ? 0.001 : 0.999 < share ? 0.999 : share;
    const auto log_proposal = [&](double x) {
        const double z0 = (x - mode[0]) / wide[0], z1 = (x - mode[1]) / wide[1];
        const double low = math::log(first / wide[0]) - 0.5 * z0 * z0, high = math::log((1 - first) / wide[1]) - 0.5 * z1 * z1;
        return (low < high ? high : low) + math::log1p_unit(math::exp_decay(low - high));
    };
    const auto [choice, accept] = uniform_pair(chosen);
    const int which = choice < first ? 0 : 1;
    const double x = (which ? mode[1] : mode[0]) + (which ? wide[1] : wide[0]) * normal_pair(moved).first;
    if (!(math::magnitude(1 + r * x) >= least_ratio)) return 0;
    const double gain = log_target(x, 1 + r * x) - log_target(0, 1) + log_proposal(0) - log_proposal(x);
    return metropolis_accept(gain, accept) ? x : 0;
}

} // namespace sem
} // namespace FEDKERN_ISA
} // namespace fedkern
