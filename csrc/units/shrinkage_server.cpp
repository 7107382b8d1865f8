#include "fedkern/shrinkage_server.hpp"

#include "table.hpp"

namespace fedkern::tables::FEDKERN_ISA {

const ShrinkageServerTable shrinkage_server = {
    .local_sums = local_sums,
    .global_sweep = global_sweep,
    .global_sweep_sums = global_sweep_sums,
};

} // namespace fedkern::tables::FEDKERN_ISA
