#pragma once
#include "fedkern/blas.hpp"
#include "fedkern/rng.hpp"
#include "fedkern/spatial/views.hpp"
#include "fedkern/tensor.hpp"

namespace fedkern {

struct SpatialTable {
    void (*table_sample)(const DrawTable&, DrawKeys, U32 step, Matrix<double> theta, Vector<Index> entry, int n_threads);
    bool (*car_logdensity)(Matrix<const double> theta, Vector<const double> phi, const AreaGraph&, const CarModel&, Vector<double> value,
                           Matrix<double> grad_theta, Vector<double> grad_phi, int n_threads);
    bool (*within)(const AreaGraph&);
    Index (*car_factor)(Vector<const double> phi, const AreaGraph&, const FactorPattern&, CarForm, Matrix<double> values,
                        Vector<double> logdet, int n_threads);
    void (*car_sample)(Matrix<const double> vectors, Vector<const double> values, Vector<const double> weights, Vector<const double> phi,
                       CarForm, DrawNames, Matrix<double> theta, int n_threads, const Blas&);
    Index (*bordered_factor)(Vector<const double> values, const BorderedPattern&, Matrix<const double> block, Vector<double> factor,
                             Matrix<double> rest);
    void (*bordered_inverse)(Vector<const double> factor, const BorderedPattern&, Matrix<const double> block, Vector<double> inverse);
    void (*bordered_solve)(Matrix<const double> right, Vector<const double> factor, const BorderedPattern&, bool back,
                           Matrix<double> solved);
    void (*gp_covariance)(Matrix<const double> x, Vector<const double> lengthscale, GpKind, double jitter, Tensor<double, 3> out,
                          int n_threads);
    void (*gp_factor)(Matrix<const double> x, Vector<const double> lengthscale, GpKind, double tolerance, Tensor<double, 3> factors,
                      Vector<double> residual, int n_threads);
    Index (*gp_sample)(Matrix<const double> x, Vector<const double> lengthscale, GpKind, double jitter, DrawNames, Matrix<double> theta,
                       int n_threads, const Blas&);
};

} // namespace fedkern
