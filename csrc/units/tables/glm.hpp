#pragma once
#include "fedkern/glm/views.hpp"

namespace fedkern {

struct GlmTable {
    template <class Out> using ClippedSum = Index(const Regression&, const Posterior&, Likelihood, const Draws&, const Clipping&,
                                                  Vector<Out> total, int n_threads);

    void (*logliks)(const Regression&, Matrix<const double> thetas, Likelihood, double* loglik, Matrix<double> grads, int n_threads);
    double (*elbo_grad)(const Regression&, const Posterior&, const Cavity&, Likelihood, ElboEstimator, const Draws&, Vector<double> grad_mu,
                        Vector<double> grad_log_sigma, int n_threads);
    double (*elbo_grad_full)(const Regression&, const Posterior&, const Cavity&, double normaliser, Likelihood, ElboEstimator, const Draws&,
                             Vector<double> grad_mu, Matrix<double> grad_factor, int n_threads);
    void (*expectations)(const Regression&, const Posterior&, Likelihood, Vector<double> value, Vector<double> slope,
                         Vector<double> curvature, int n_threads);
    void (*predict)(const Regression&, const Posterior&, Likelihood, bool probit, Vector<double> mean, int n_threads);
    ClippedSum<double>*clipped_sum, *clipped_sum_full;
    ClippedSum<long>*clipped_grid_sum, *clipped_grid_sum_full; // in units of the grid
};

} // namespace fedkern
