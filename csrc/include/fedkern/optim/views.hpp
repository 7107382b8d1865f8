// What the optimisers take: plain aggregates, which cross from one instruction-set level to another.
#pragma once
#include "fedkern/view.hpp"

namespace fedkern {

struct AdamRule {
    double learning_rate, beta1, beta2, epsilon;
};

struct AdagradRule {
    double learning_rate, epsilon;
};

} // namespace fedkern
