#include "fedkern/augmented.hpp"

namespace fedkern::tables::FEDKERN_ISA {

extern const AugmentedTable augmented = {
    .mean_field_draw = mean_field_draw,
    .mean_field_gradient = mean_field_gradient,
    .amortised_draw = amortised_draw,
    .amortised_gradient = amortised_gradient,
};

} // namespace fedkern::tables::FEDKERN_ISA
