#include "fedkern/spatial_table.hpp"

#include "tables/spatial.hpp"

namespace fedkern::tables::FEDKERN_ISA {

extern const SpatialTable spatial = {
    .table_sample = table_sample,
};

} // namespace fedkern::tables::FEDKERN_ISA
