// What the kernels of the sparse models take: plain aggregates, which cross from one instruction-set level to another.
#pragma once
#include "fedkern/view.hpp"

namespace fedkern {

struct Blas;

/// Half-Cauchy C+(0, scale); expanded: drawn through the auxiliary nu or xi, otherwise exactly.
struct HalfCauchy {
    double scale = 1;
    bool expanded = false;
};

/// In which space the coefficients are drawn: that of p coefficients, that of r rows, or whichever is cheaper and accurate.
enum class DrawForm { automatic, gram, data };

/// R (r, p), upper trapezoidal, what is below its diagonal is not read; R'R (p, p), symmetric, or no data: made where needed.
struct Factor {
    const Blas* blas;
    Matrix<const double> R, gram;
};

/// Parameters of local sweeps: sigma^2 ~ IG(shape + n/2, rate + RSS/2), lambda ~ C+(0, .), slab of the regularised horseshoe.
struct LocalModel {
    double n, shape, rate, slab;
    HalfCauchy lambda;
    DrawForm form;
};

/// Chain i of a call has number chain + i, sweep t number step + t.
struct SweepCounter {
    unsigned long long seed, chain;
    unsigned client, step;
    Index n_sweeps;
};

/// A row of numbers for each chain and each of its regressions: (c, p), (c, p, p), or (c,), (c, p) with rows of one number.
template <class T> struct Rows {
    T* data;
    Index chains, regressions, cols;
    Index chain_stride, regression_stride, col_stride; // in elements
    FEDKERN_INLINE Vector<T> row(Index task) const {
        return {data + task / regressions * chain_stride + task % regressions * regression_stride, cols, col_stride};
    }
};

/// A site's coefficients, their scales and the error variances.
template <class T> struct LocalState {
    Rows<T> deviation, lambda_sq, sigma_sq;
};

} // namespace fedkern
