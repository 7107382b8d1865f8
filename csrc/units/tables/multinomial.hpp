#pragma once
#include "fedkern/multinomial/views.hpp"

namespace fedkern {

struct MultinomialTable {
    void (*multinomial_values)(Matrix<const double> points, const MultinomialRows& rows, Vector<double> value, int n_threads);
    void (*multinomial_curvature)(Matrix<const double> points, const MultinomialRows& rows, Vector<double> value, Matrix<double> gradient,
                                  Matrix<double> minus_hessian, int n_threads);
};

} // namespace fedkern
