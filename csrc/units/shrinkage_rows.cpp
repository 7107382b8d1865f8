#include "fedkern/shrinkage/rows.hpp"

#include "tables/shrinkage_rows.hpp"

namespace fedkern::tables::FEDKERN_ISA {

extern const ShrinkageRowsTable shrinkage_rows = {
    .logistic_sweeps = logistic_sweeps,
    .imputed_sweeps = imputed_sweeps,
};

} // namespace fedkern::tables::FEDKERN_ISA
