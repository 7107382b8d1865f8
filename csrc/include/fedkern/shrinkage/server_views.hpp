// What the server's kernels of the sparse models take and give. No code: it crosses from one instruction-set level to another.
#pragma once
#include <cstdint>

#include "fedkern/rng.hpp"
#include "fedkern/tensor.hpp"

namespace fedkern {

struct ServerOptions {
    bool expanded, blocked, common, shared_rho;
    double c0, spike_variance, scale_tau, scale_lambda, shape_eta, rate_eta, rho_a, rho_b, slab;
};

/// State of (chain, regression, coefficient); rho of (chain, regression).
template <class T> struct ServerState {
    Tensor<T, 3> theta, tau_sq, gamma, eta;
    Tensor<T, 2> rho;
};

struct ServerDraws {
    U64 seed, chain; // of the first chain
    U32 step;        // of the first sweep
    Index passes;
};

struct ServerResult {
    ServerState<double> state;
    Tensor<double, 3> inclusion;
    Tensor<std::int64_t, 3> events;
};

/// The clients' deviations and lambda^2 of (client, chain, regression, coefficient), to be moved and drawn in place.
struct Clients {
    Tensor<double, 4> deviation, lambda_sq;
};

struct MoveState {
    Tensor<const double, 2> theta, tau_sq;
};

struct MovePrior {
    Tensor<const double, 2> gamma, eta;
    double scale_tau, c0, spike_variance;
};

} // namespace fedkern
