#pragma once
#include <cstdint>
#include "fedkern/blas.hpp"
#include "fedkern/shrinkage/server_views.hpp"

namespace fedkern {

struct ShrinkageServerTable {
    void (*local_sums)(Tensor<const double, 3> deviation, Tensor<const double, 3> lambda_sq, double slab, Tensor<double, 4> sums,
                       int n_threads);
    void (*global_sweep)(Tensor<const double, 4> deviation, Tensor<const double, 4> lambda_sq, Tensor<const std::int64_t, 2> indicators,
                         ServerState<const double>, ServerOptions, ServerDraws, ServerResult, Clients, int n_threads);
    void (*global_sweep_sums)(Tensor<const double, 4> sums, Index n_clients, Tensor<const std::int64_t, 2> indicators,
                              ServerState<const double>, ServerOptions, ServerDraws, ServerResult, int n_threads);
    void (*move_terms)(Tensor<const double, 2> R, Tensor<const double, 2> q, Tensor<const std::int64_t, 1> block, MoveState,
                       Tensor<const double, 2> deviation, Tensor<const double, 1> sigma_sq, double slab, Tensor<double, 2> gradient,
                       Tensor<double, 3> precision, int n_threads);
    void (*move)(Tensor<const double, 2> gradient, Tensor<const double, 3> precision, Tensor<const std::int64_t, 1> block, MoveState,
                 MovePrior, U64 seed, U64 chain, U32 step, Tensor<double, 2> theta, Tensor<double, 2> t, int n_threads, const Blas&);
};

} // namespace fedkern
