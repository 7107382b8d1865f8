#pragma once
#include "fedkern/blas.hpp"
#include "fedkern/shrinkage/rows_views.hpp"

namespace fedkern {

struct ShrinkageRowsTable {
    void (*logistic_sweeps)(Tensor<const double, 2> X, Tensor<const double, 2> y, RowState<const double> from, RowModel, SweepCounter,
                            RowState<double> to, Tensor<std::int64_t, 2> events, int n_threads, const Blas&);
    void (*imputed_sweeps)(Tensor<const double, 2> y, Patterns, RowState<const double> from, Tensor<const double, 1> sigma_sq,
                           Tensor<const double, 3> completed, RowModel, SweepCounter, RowState<double> to, Tensor<double, 1> new_sigma_sq,
                           Tensor<double, 3> new_completed, Tensor<std::int64_t, 2> events, int n_threads, const Blas&);
};

} // namespace fedkern
