// What a client of the augmented models does between two messages: a gradient of all its parameters, a step of Adam, the next draw.
// w = theta with a diagonal q(theta). docs/methods/vertical.md, sections 4 to 6.
#pragma once
#include "fedkern/optim/adaptive.hpp"
#include "fedkern/rng.hpp"
#include "gradients.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

inline constexpr double least_log_sd = -18.420680743952367; // of q(theta): log 1e-8

FEDKERN_INLINE double coefficient_sd(double log_sd) { return math::exp(log_sd < least_log_sd ? least_log_sd : log_sd); }

inline Vector<const double> constant(Vector<double> x) { return {x.data, x.size, x.stride}; }

/// theta = mu + sd eps.
inline void coefficients(Vector<const double> mu, Vector<const double> log_sd, Vector<const double> eps, Vector<double> theta, int) {
    for (Index j = 0; j < theta.size; ++j) theta[j] = mu[j] + coefficient_sd(log_sd[j]) * eps[j];
}

/// The gradient of (mu, log sd), given that of the coefficients without their prior.
inline void coefficients_gradient(const ClientState<const double>& from, const Iteration& x, const double* grad_w, double* gradient) {
    const Index p = from.theta.size;
    const double precision = 1 / (x.prior_sd * x.prior_sd);
    for (Index j = 0; j < p; ++j) {
        const double c = grad_w[j] + (x.prior_mean - from.theta[j]) * precision;
        const auto d = normal_gradient(x.path, c, from.eps[j], coefficient_sd(from.parameters[p + j]));
        gradient[j] = d.mean, gradient[p + j] = d.log_sd;
    }
}

/// The parameters after a step uphill, and the normals and the coefficients of the next draw.
inline void stepped(const ClientState<const double>& from, Vector<const double> gradient, const Iteration& x,
                    const ClientState<double>& to, int n_threads) {
    const Index p = to.theta.size, n = to.z.size;
    adam(from.moments, gradient, x.adam, to.moments, to.parameters, n_threads);
    for (Index j = 0; j < gradient.size; ++j) to.parameters[j] += from.parameters[j];
    const Scratch<double> normals(p + n);
    fill_pairs_in_parts<fill_normal>({normals, p + n}, x.counter, x.key, worthwhile(n_threads, 60 * double(p + n)));
    for (Index j = 0; j < p; ++j) to.eps[j] = normals[j];
    for (Index i = 0; i < n; ++i) to.tau[i] = normals[p + i];
    const auto seen = constant(to.parameters);
    coefficients(seen.part(0, p), seen.part(p, 2 * p), constant(to.eps), to.theta, n_threads);
}

inline void mean_field_iteration(Matrix<const double> H, const ClientState<const double>& from, Vector<const double> message,
                                 const Iteration& x, const ClientState<double>& to, int n_threads) {
    const Index p = H.cols, n = H.rows, m = 2 * p, l = m + n, k = l + n;
    const Scratch<double> gradient(k), grad_w(p), cotangent(n);
    const Vector<double> all{gradient, k};
    mean_field_gradient({H, from.g, from.z, from.tau, message, {nullptr, n}, x.rho, x.path}, from.parameters.part(l, k), {grad_w, p},
                        {cotangent, n}, all.part(m, l), all.part(l, k), n_threads);
    coefficients_gradient(from, x, grad_w, gradient);
    stepped(from, constant(all), x, to, n_threads);
    const auto seen = constant(to.parameters);
    mean_field_draw(H, constant(to.theta), constant(to.tau), seen.part(m, l), seen.part(l, k), to.g, to.z, n_threads);
}

inline void amortised_iteration(Matrix<const double> H, const ClientState<const double>& from, Vector<const double> message,
                                const IterationInputs& q, const Iteration& x, const ClientState<double>& to, int n_threads) {
    const Index p = H.cols, n = H.rows, k = from.parameters.size;
    const Scratch<double> gradient(k), grad_w(p), cotangent(n);
    const Vector<double> all{gradient, k};
    amortised_gradient({H, from.g, from.z, from.tau, message, {nullptr, n}, x.rho, x.path},
                       {q.extra, from.parameters.part(2 * p, k), q.net}, {grad_w, p}, {cotangent, n}, all.part(2 * p, k), n_threads);
    coefficients_gradient(from, x, grad_w, gradient);
    stepped(from, constant(all), x, to, n_threads);
    amortised_draw(H, constant(to.theta), constant(to.tau), {q.next, constant(to.parameters).part(2 * p, k), q.net}, x.rho, to.g, to.z,
                   n_threads);
}

} // namespace FEDKERN_ISA
} // namespace fedkern
