#pragma once
#include "fedkern/shrinkage/views.hpp"

namespace fedkern {

struct ShrinkageTable {
    void (*local_sweeps)(const Factor&, Matrix<const double> q, Vector<const double> rss, const Rows<const double>& theta,
                         const Rows<const double>& tau_sq, const LocalState<const double>& from, const LocalModel&, const SweepCounter&,
                         const LocalState<double>& to, const Rows<long>& events, int n_threads);
    void (*local_sweeps_batched)(const Factor&, const Rows<const double>& theta, const Rows<const double>& tau_sq,
                                 const LocalState<const double>& from, const LocalModel&, const SweepCounter&, const LocalState<double>& to,
                                 const Rows<long>& events, int n_threads);
    void (*gaussian_posterior_draw)(const Factor&, Matrix<const double> q, Matrix<const double> mean, Matrix<const double> scale,
                                    Vector<const double> sigma_sq, double slab, DrawForm, const SweepCounter&, Matrix<double> deviation,
                                    int n_threads);
};

} // namespace fedkern
