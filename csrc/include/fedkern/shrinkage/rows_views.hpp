// What the kernels of the sparse models that touch rows take. No code: it crosses from one instruction-set level to another.
#pragma once
#include <cstdint>

#include "fedkern/tensor.hpp"
#include "views.hpp"

namespace fedkern {

/// State of (chain, coefficient), and the intercept of each chain.
template <class T> struct RowState {
    Tensor<const double, 2> theta, tau_sq;
    Tensor<T, 2> deviation, lambda_sq;
    Tensor<T, 1> alpha;
};

/// Logistic: N(0, scale_intercept^2) of the intercept, if there is one. Gaussian: sigma^2 ~ IG(shape, rate), a flat intercept, if
/// there is one.
struct RowModel {
    HalfCauchy lambda;
    double slab, scale_intercept, shape, rate;
    bool intercept;
};

/// Which values are missing. of_row: number of a row's pattern, -1 where nothing is missing. K: the missing (rows) regressed on the
/// observed (columns); L: lower Cholesky factor of the missing given the observed, 0 elsewhere; shift: what the missing are expected
/// to be where the observed are 0.
struct Patterns {
    Tensor<const std::int64_t, 1> of_row;
    Tensor<const double, 3> K, L;
    Tensor<const double, 2> shift;
};

} // namespace fedkern
