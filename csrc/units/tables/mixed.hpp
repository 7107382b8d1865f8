#pragma once
#include "fedkern/mixed/views.hpp"

namespace fedkern {

struct MixedTable {
    void (*values)(Matrix<const double> points, const MixedRows& rows, Vector<double> value, int n_threads);
    void (*curvature)(Matrix<const double> points, const MixedRows& rows, Vector<double> value, Matrix<double> gradient,
                      Matrix<double> minus_hessian, int n_threads);
};

} // namespace fedkern
