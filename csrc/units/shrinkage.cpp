#include "fedkern/shrinkage.hpp"

#include "table.hpp"

namespace fedkern::tables::FEDKERN_ISA {

const ShrinkageTable shrinkage = {
    .local_sweeps = local_sweeps,
    .local_sweeps_batched = local_sweeps_batched,
    .gaussian_posterior_draw = gaussian_posterior_draw,
};

} // namespace fedkern::tables::FEDKERN_ISA
