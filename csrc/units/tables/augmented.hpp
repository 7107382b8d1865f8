#pragma once
#include "fedkern/augmented/views.hpp"
#include "fedkern/blas.hpp"

namespace fedkern {

struct AugmentedTable {
    void (*coefficients)(Vector<const double> mu, Vector<const double> scale, Vector<const double> eps, bool full, Vector<double> theta,
                         int n_threads);
    void (*mean_field_draw)(Matrix<const double> H, Vector<const double> w, Vector<const double> tau, Vector<const double> mean,
                            Vector<const double> log_sd, Vector<double> g, Vector<double> z, int n_threads);
    void (*mean_field_gradient)(const Augmented&, Vector<const double> log_sd, Vector<double> grad_w, Vector<double> cotangent,
                                Vector<double> grad_mean, Vector<double> grad_log_sd, int n_threads);
    void (*amortised_draw)(Matrix<const double> H, Vector<const double> w, Vector<const double> tau, const Amortised&, double rho,
                           Vector<double> g, Vector<double> z, int n_threads);
    void (*amortised_gradient)(const Augmented&, const Amortised&, Vector<double> grad_w, Vector<double> cotangent, Vector<double> grad_psi,
                               int n_threads);
    void (*mean_field_iteration)(Matrix<const double> H, const ClientState<const double>&, Vector<const double> message, const Iteration&,
                                 const ClientState<double>& next, int n_threads);
    void (*amortised_iteration)(Matrix<const double> H, const ClientState<const double>&, Vector<const double> message,
                                const IterationInputs&, const Iteration&, const ClientState<double>& next, int n_threads);
    void (*network_iteration)(const Features&, Matrix<const double> H, const ClientState<const double>&, Vector<const double> message,
                              const IterationInputs&, const Iteration&, Matrix<double> next_H, const ClientState<double>& next, const Blas&,
                              int n_threads);
};

} // namespace fedkern
