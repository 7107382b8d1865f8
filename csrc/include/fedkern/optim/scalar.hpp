// One parameter's iteration of an optimiser, for host and device. Source: docs/spec/pvi.md, section 5.
#pragma once
#include "fedkern/math.hpp"
#include "views.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

// The bias corrections learning_rate / (1 - beta1^count) and 1 / (1 - beta2^count), of log(beta): nothing cancels.
FEDKERN_INLINE double adam_slope(const AdamRule& rule, double count, double log_beta1) {
    return -rule.learning_rate / math::expm1(count * log_beta1);
}
FEDKERN_INLINE double adam_shrink(double count, double log_beta2) { return -1 / math::expm1(count * log_beta2); }

/// What one iteration makes of a parameter's numbers.
struct Adapted {
    double m, v, t, step;
};

/// m' = beta1 m + (1 - beta1) g; v' = beta2 v + (1 - beta2) g^2; t' = t + 1; step = slope(t') m' / (sqrt(v' shrink(t')) + epsilon)
/// of slope = learning_rate / (1 - beta1^t') and shrink = 1 / (1 - beta2^t').
template <class Slope, class Shrink>
FEDKERN_INLINE Adapted adam(const AdamRule& rule, double m, double v, double t, double g, const Slope& slope, const Shrink& shrink) {
    const double m1 = rule.beta1 * m + (1 - rule.beta1) * g, v1 = rule.beta2 * v + (1 - rule.beta2) * (g * g), t1 = t + 1;
    return {m1, v1, t1, slope(t1) * m1 / (math::sqrt(v1 * shrink(t1)) + rule.epsilon)};
}

/// learning_rate g / (sqrt(G) + epsilon) of the new sum of squares G.
FEDKERN_INLINE double adagrad_step(const AdagradRule& rule, double sum, double g) {
    return rule.learning_rate * g / (math::sqrt(sum) + rule.epsilon);
}

} // namespace FEDKERN_ISA
} // namespace fedkern
