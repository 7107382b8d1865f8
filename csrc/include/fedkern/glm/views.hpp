// What the glm kernels take: plain aggregates, which cross from one instruction-set level to another.
#pragma once
#include "fedkern/view.hpp"

namespace fedkern {

/// One number for each row, of any plain type; stride in bytes. No data: `fill` everywhere.
struct Column {
    enum class Type { f64, f32, i64, i32, i8, u8 };
    const void* data;
    Index stride;
    Type type;
    double fill;
};

/// X (n, d), in float64 or float32, and what stands beside it; `picked` are the rows in use, in order, or null for all.
struct Regression {
    const void* x;
    bool single; // float32
    Index rows, d, row_stride, col_stride; // in elements
    Column y, offset, weight;
    const Index* picked;
    Index n; // rows in use
};

/// A family by its number, as in `AnyFamily` (scalar.hpp), and its dispersion.
struct Likelihood {
    int family;
    double scale;
};

/// q = N(mu, diag(exp(2 log_sigma))), or N(mu, L L') with L the lower triangle of `factor` if that has data.
struct Posterior {
    Vector<const double> mu, log_sigma;
    Matrix<const double> factor;
    FEDKERN_INLINE bool full() const { return factor.data != nullptr; }
};

/// exp(shift'theta - theta' P theta / 2); P is diagonal, or `full` if that has data. Need not be normalisable.
struct Cavity {
    Vector<const double> shift, precision;
    Matrix<const double> full;
};

/// How an expectation under q is estimated: exactly (quadrature), or from draws.
struct Draws {
    enum class Kind { analytic, weights, activations };
    Kind kind;
    Index count;
    unsigned long long key;
    unsigned client, step;
};

struct Clipping {
    double bound; // of an example's norm; inf for none
    double grid;  // 0: float64 sums; else examples are rounded toward zero to whole multiples of it
    double noise; // standard deviation of the keyed noise on the sum, in units of the bound; 0 for none
};

enum class ElboEstimator { stl, total, analytic };

} // namespace fedkern
