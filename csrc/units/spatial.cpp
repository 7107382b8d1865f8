#include "fedkern/spatial/factor.hpp"
#include "fedkern/spatial/gp.hpp"

#include "tables/spatial.hpp"

namespace fedkern::tables::FEDKERN_ISA {

extern const SpatialTable spatial = {
    .table_sample = table_sample,
    .car_logdensity = car_logdensity,
    .within = within,
    .car_factor = car_factor,
    .car_sample = car_sample,
    .gp_covariance = gp_covariance,
    .gp_factor = gp_factor,
    .gp_sample = gp_sample,
};

} // namespace fedkern::tables::FEDKERN_ISA
