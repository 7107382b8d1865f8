#pragma once
#include "fedkern/blas.hpp"
#include "fedkern/mlp/views.hpp"

namespace fedkern {

struct MlpTable {
    template <class T>
    using Forward = void(Matrix<const T> X, Vector<const T> parameters, const Network&, Matrix<T> Y, int n_threads, const Blas&);
    template <class T> using Backward = void(Matrix<const T> X, Vector<const T> parameters, Matrix<const T> upstream, const Network&,
                                             Vector<T> grad_parameters, Matrix<T> grad_X, int n_threads, const Blas&);

    Forward<float>* forward_f32;
    Forward<double>* forward_f64;
    Backward<float>* backward_f32;
    Backward<double>* backward_f64;
};

} // namespace fedkern
