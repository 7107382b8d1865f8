#include "fedkern/shrinkage/moves.hpp"
#include "fedkern/shrinkage/server.hpp"

#include "tables/shrinkage_server.hpp"

namespace fedkern::tables::FEDKERN_ISA {

extern const ShrinkageServerTable shrinkage_server = {
    .local_sums = local_sums,
    .global_sweep = global_sweep,
    .global_sweep_sums = global_sweep_sums,
    .move_terms = move_terms,
    .move = move,
};

} // namespace fedkern::tables::FEDKERN_ISA
