#pragma once
#include "fedkern/survival/views.hpp"

namespace fedkern {

struct SurvivalTable {
    void (*cox_values)(Matrix<const double> points, const SurvivalRows& rows, Vector<double> value, int n_threads);
    void (*cox_curvature)(Matrix<const double> points, const SurvivalRows& rows, Vector<double> value, Matrix<double> gradient,
                          Matrix<double> minus_hessian, int n_threads);
};

} // namespace fedkern
