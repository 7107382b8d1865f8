// What the kernels of the augmented models take: plain aggregates, which cross from one instruction-set level to another.
#pragma once
#include "mlp_views.hpp"

namespace fedkern {

/// What one client's gradient is made of. vertical.md, section 5.
struct Augmented {
    Matrix<const double> H;                           // (n, p), the design: g = H w
    Vector<const double> g, z, tau, message, own;     // (n,); `own` without data: zeros
    double rho;
    bool path; // the path estimator: of -log q with its own parameters frozen; otherwise the entropy in closed form
};

/// The amortised family's conditional of z given g and `extra` (n, e): a network (1 + e, .., 2).
struct Amortised {
    Matrix<const double> extra;
    Vector<const double> psi;
    Network net;
};

struct AugmentedTable {
    void (*mean_field_draw)(Matrix<const double> H, Vector<const double> w, Vector<const double> tau, Vector<const double> mean,
                            Vector<const double> log_sd, Vector<double> g, Vector<double> z, int n_threads);
    void (*mean_field_gradient)(const Augmented&, Vector<const double> log_sd, Vector<double> grad_w, Vector<double> cotangent,
                                Vector<double> grad_mean, Vector<double> grad_log_sd, int n_threads);
    void (*amortised_draw)(Matrix<const double> H, Vector<const double> w, Vector<const double> tau, const Amortised&, double rho,
                           Vector<double> g, Vector<double> z, int n_threads);
    void (*amortised_gradient)(const Augmented&, const Amortised&, Vector<double> grad_w, Vector<double> cotangent,
                               Vector<double> grad_psi, int n_threads);
};

} // namespace fedkern
