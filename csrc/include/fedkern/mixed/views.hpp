// What the kernels of mixed models take: plain aggregates that cross from one instruction-set level to another.
#pragma once
#include "fedkern/view.hpp"

namespace fedkern {

enum class MixedFamily { binomial, poisson, gaussian, negative_binomial };

/// Rows sorted by group; Z has at most `mixed_effects` columns. No data: trials 1, offset 0. `starts` rises from 0 to the number of rows.
struct MixedRows {
    Matrix<const double> X, Z;
    Vector<const double> y, trials, offset;
    Vector<const Index> starts;
    MixedFamily family;
    int nodes; // of the quadrature, a dimension
};

inline constexpr int mixed_effects = 3, mixed_nodes = 128;

} // namespace fedkern
