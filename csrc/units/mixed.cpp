#include "fedkern/mixed/curvature.hpp"

#include "tables/mixed.hpp"

namespace fedkern::tables::FEDKERN_ISA {

extern const MixedTable mixed = {
    .values = mixed_values,
    .curvature = mixed_curvature,
};

} // namespace fedkern::tables::FEDKERN_ISA
