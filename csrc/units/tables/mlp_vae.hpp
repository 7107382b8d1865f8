#pragma once
#include "fedkern/blas.hpp"
#include "fedkern/mlp/vae_views.hpp"
#include "fedkern/spatial/views.hpp"

namespace fedkern {

struct MlpVaeTable {
    template <class T> using Gradient = void(Vector<const T> parameters, const VaeBatch<T>&, const Autoencoder&, VaeObjective,
                                             Vector<T> gradient, Vector<double> terms, int n_threads, const Blas&);
    template <class T> using Steps = void(const VaeState<const T>& from, const DrawTable&, const VaeTraining&, const Autoencoder&,
                                          const VaeState<T>& to, Matrix<double> trace, int n_threads, const Blas&);

    Gradient<float>* gradient_f32;
    Gradient<double>* gradient_f64;
    Steps<float>* steps_f32;
    Steps<double>* steps_f64;
};

} // namespace fedkern
