#include "fedkern/augmented/iteration.hpp"

#include "tables/augmented.hpp"

namespace fedkern::tables::FEDKERN_ISA {

extern const AugmentedTable augmented = {
    .coefficients = coefficients,
    .mean_field_draw = mean_field_draw,
    .mean_field_gradient = mean_field_gradient,
    .amortised_draw = amortised_draw,
    .amortised_gradient = amortised_gradient,
    .mean_field_iteration = mean_field_iteration,
    .amortised_iteration = amortised_iteration,
    .network_iteration = network_iteration,
};

} // namespace fedkern::tables::FEDKERN_ISA
