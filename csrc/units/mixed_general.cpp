#include "fedkern/mixed/general.hpp"

#include "tables/mixed_general.hpp"

namespace fedkern::tables::FEDKERN_ISA {

extern const MixedGeneralTable mixed_general = {
    .values = mixed_general_values,
    .curvature = mixed_general_curvature,
};

} // namespace fedkern::tables::FEDKERN_ISA
