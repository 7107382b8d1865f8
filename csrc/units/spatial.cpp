#include "fedkern/spatial/bordered.hpp"
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
    .bordered_factor = bordered_factor,
    .bordered_inverse = bordered_inverse,
    .bordered_solve = bordered_solve,
    .gp_covariance = gp_covariance,
    .gp_factor = gp_factor,
    .gp_sample = gp_sample,
};

} // namespace fedkern::tables::FEDKERN_ISA
