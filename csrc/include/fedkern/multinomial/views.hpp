// What the kernels of multinomial models take: plain aggregates that cross from one instruction-set level to another.
#pragma once
#include "fedkern/view.hpp"

namespace fedkern {

/// Rows with a response that is one of `levels`: y is its number, 0 of the reference. A point has a block of coefficients for each
/// other level, one after the other.
struct MultinomialRows {
    Matrix<const double> X;
    Vector<const double> y;
    Index levels;
};

} // namespace fedkern
