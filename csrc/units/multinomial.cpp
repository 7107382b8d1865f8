#include "fedkern/multinomial/curvature.hpp"

#include "tables/multinomial.hpp"

namespace fedkern::tables::FEDKERN_ISA {

extern const MultinomialTable multinomial = {
    .multinomial_values = multinomial_values,
    .multinomial_curvature = multinomial_curvature,
};

} // namespace fedkern::tables::FEDKERN_ISA
