#include "fedkern/glm/full.hpp"

#include "tables/glm.hpp"

namespace fedkern::tables::FEDKERN_ISA {

extern const GlmTable glm = {
    .logliks = glm_logliks,
    .elbo_grad = glm_elbo_grad,
    .elbo_grad_full = glm_elbo_grad_full,
    .expectations = glm_expectations,
    .predict = glm_predict,
    .clipped_sum = glm_clipped_sum<double>,
    .clipped_sum_full = glm_clipped_sum_full<double>,
    .clipped_grid_sum = glm_clipped_sum<long>,
    .clipped_grid_sum_full = glm_clipped_sum_full<long>,
};

} // namespace fedkern::tables::FEDKERN_ISA
