#include "fedkern/survival/curvature.hpp"

#include "tables/survival.hpp"

namespace fedkern::tables::FEDKERN_ISA {

extern const SurvivalTable survival = {
    .cox_values = survival_cox_values,
    .cox_curvature = survival_cox_curvature,
};

} // namespace fedkern::tables::FEDKERN_ISA
