#pragma once
#include "fedkern/blas.hpp"
#include "fedkern/mlp/vae_views.hpp"
#include "fedkern/spatial/views.hpp"

namespace fedkern {

template <class T> struct MlpVaeTable {
    using Gradient = void(Vector<const T> parameters, const VaeBatch<T>&, const Autoencoder&, VaeObjective, Vector<T> gradient,
                          Vector<double> terms, int n_threads, const Blas&);
    using Steps = void(const VaeState<const T>& from, const DrawTable&, const VaeTraining&, const Autoencoder&, const VaeState<T>& to,
                       Matrix<double> trace, int n_threads, const Blas&);

    Gradient* gradient;
    Steps* steps;
};

} // namespace fedkern
