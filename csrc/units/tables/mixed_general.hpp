#pragma once
#include "fedkern/mixed/views.hpp"

namespace fedkern {

struct MixedGeneralTable {
    void (*values)(Matrix<const double> points, const MixedRows& rows, const MixedTimes& times, Vector<double> value, int n_threads);
    void (*curvature)(Matrix<const double> points, const MixedRows& rows, const MixedTimes& times, Vector<double> value,
                      Matrix<double> gradient, Matrix<double> minus_hessian, int n_threads);
};

} // namespace fedkern
