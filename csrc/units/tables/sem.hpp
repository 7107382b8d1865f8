#pragma once
#include "fedkern/sem/views.hpp"

namespace fedkern {

struct SemTable {
    void (*log_density)(Tensor<const double, 3> Y, Tensor<const double, 3> coefficients, Tensor<const double, 2> b, Vector<double> loglik,
                        int n_threads);
    void (*sweeps)(const SemData& data, const SemState<const double>& before, const SemState<double>& after, const SemOptions& options,
                   Vector<double> loglik, Matrix<std::int64_t> events, int n_threads);
};

} // namespace fedkern
