#pragma once
#include "fedkern/rng.hpp"
#include "fedkern/spatial_views.hpp"

namespace fedkern {

struct SpatialTable {
    void (*table_sample)(const DrawTable&, DrawKeys, U32 step, Matrix<double> theta, Vector<Index> entry, int n_threads);
};

} // namespace fedkern
