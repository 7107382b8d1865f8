// The evidence lower bound of a mean-field posterior and its gradient in (mu, omega = log sigma). pvi.md, sections 2 and 3.4.
#pragma once
#include "examples.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

/// log of the constant that makes the cavity a density; 0 if nothing does.
inline double log_normaliser(const Cavity& prior) {
    double sum = 0;
    for (Index j = 0; j < prior.shift.size; ++j) {
        const double h = prior.shift[j], P = prior.precision[j];
        if (!(P > 0)) return 0;
        sum += 0.5 * (std::log(P) - h * h / P) - half_log_2pi;
    }
    return sum;
}

/// By quadrature: sum_i w_i E l_i - KL(q || prior).
inline double analytic_elbo(const Regression& data, const Posterior& q, const Cavity& prior, Likelihood likelihood, Vector<double> grad_mu,
                            Vector<double> grad_omega, int n_threads) {
    const Index d = data.d;
    std::vector<double> total(2 * d);
    const Activations activations(q);
    double elbo = 0;
    sum_examples(data, *make_family(likelihood), Analytic{activations}, nullptr, &elbo, Vector<double>{total.data(), 2 * d}, n_threads);
    for (Index j = 0; j < d; ++j) {
        const double mu = q.mu[j], omega = q.log_sigma[j], h = prior.shift[j], P = prior.precision[j], v = activations.variance()[j];
        elbo += h * mu - 0.5 * P * (v + mu * mu) + omega + half_log_2pi + 0.5;
        grad_mu[j] = total[j] + h - P * mu;
        grad_omega[j] = total[d + j] + 1 - P * v;
    }
    return elbo;
}

/// From draws theta_s = mu + sigma e_s: the mean of sum_i w_i l_i + log prior - log q at theta_s. The path gradient ("stl") holds
/// (mu, sigma) in log q fixed; the total one does not.
inline double sampled_elbo(const Regression& data, const Posterior& q, const Cavity& prior, Likelihood likelihood, bool stl,
                           const Draws& draws, Vector<double> grad_mu, Vector<double> grad_omega, int n_threads) {
    const Index d = data.d, S = draws.count;
    const auto e = normal_draws(draws, d);
    std::vector<double> sigma(d), theta(S * d), gradient(S * d), loglik(S);
    for (Index j = 0; j < d; ++j) sigma[j] = math::exp(q.log_sigma[j]);
    for (Index s = 0; s < S; ++s)
        for (Index j = 0; j < d; ++j) theta[s * d + j] = q.mu[j] + sigma[j] * e[s * d + j];
    glm_logliks(data, {theta.data(), S, d, d}, likelihood, loglik.data(), {gradient.data(), S, d, d}, n_threads);
    double elbo = 0;
    for (Index s = 0; s < S; ++s) elbo += loglik[s];
    for (Index j = 0; j < d; ++j) {
        const double h = prior.shift[j], P = prior.precision[j];
        double sum_mu = 0, sum_omega = 0;
        for (Index s = 0; s < S; ++s) {
            const double t = theta[s * d + j], es = e[s * d + j];
            const double u = gradient[s * d + j] + h - P * t + (stl ? es / sigma[j] : 0);
            sum_mu += u;
            sum_omega += u * es * sigma[j];
            elbo += h * t - 0.5 * P * t * t + 0.5 * es * es + q.log_sigma[j] + half_log_2pi;
        }
        grad_mu[j] = sum_mu / double(S);
        grad_omega[j] = sum_omega / double(S) + (stl ? 0 : 1);
    }
    return elbo / double(S);
}

/// The ELBO; with a prior that is a density its normalising constant is in it, so that it bounds the log evidence.
inline double glm_elbo_grad(const Regression& data, const Posterior& q, const Cavity& prior, Likelihood likelihood, ElboEstimator estimator,
                            const Draws& draws, Vector<double> grad_mu, Vector<double> grad_omega, int n_threads) {
    const double elbo = estimator == ElboEstimator::analytic ? analytic_elbo(data, q, prior, likelihood, grad_mu, grad_omega, n_threads)
                                                             : sampled_elbo(data, q, prior, likelihood, estimator == ElboEstimator::stl,
                                                                            draws, grad_mu, grad_omega, n_threads);
    return elbo + log_normaliser(prior);
}

} // namespace FEDKERN_ISA
} // namespace fedkern
