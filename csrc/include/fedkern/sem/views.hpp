// What the kernels of the structural equation model take: plain aggregates that cross from one instruction-set level to another.
#pragma once
#include "fedkern/rng.hpp"
#include "fedkern/shrinkage/views.hpp"
#include "fedkern/tensor.hpp"

namespace fedkern {

/// Of c chains with p variables; T is const double for the state before, double for the state after.
template <class T> struct SemState {
    Tensor<T, 3> deviation, lambda_sq; // (c, p, p), row j belongs to the equation of variable j
    Tensor<T, 2> b;                    // (c, p), scales of the Laplace errors
    Tensor<T, 3> log_step;             // (c, p, p), of the proposals; the diagonal is that of the row moves
};

struct SemData {
    Tensor<const double, 3> Y;             // (c, p, n)
    Tensor<const double, 3> theta, tau_sq; // (c, p, p), global
    Vector<const double> temperature;      // (c,), the power of the likelihood
};

enum class SemUpdate { row_gibbs, element, row };

struct SemOptions {
    U64 seed, chain; // chain i of the call has number chain + i
    U32 client, step;
    Index n_sweeps;
    SemUpdate update;
    bool swap, stable, adapt;
    HalfCauchy lambda;
    double shape, rate; // b ~ IG(shape, rate)
};

/// Columns of `events`.
enum SemEvent { sem_clipped, sem_accepted, sem_proposed, sem_swaps, sem_refactorised, sem_fault, sem_events };

/// Quantities in a fault, which is 8 x sweep + quantity, or -1.
enum SemFault { sem_lambda = 0, sem_coefficients = 1, sem_scale = 2, sem_determinant = 7 };

} // namespace fedkern
