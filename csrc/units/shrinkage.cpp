#include "fedkern/shrinkage/local.hpp"

#include "tables/shrinkage.hpp"

namespace fedkern::tables::FEDKERN_ISA {

extern const ShrinkageTable shrinkage = {
    .local_sweeps = local_sweeps,
    .local_sweeps_batched = local_sweeps_batched,
    .gaussian_posterior_draw = gaussian_posterior_draw,
};

} // namespace fedkern::tables::FEDKERN_ISA
