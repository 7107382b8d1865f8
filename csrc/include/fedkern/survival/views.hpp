// What the kernels of survival models take: plain aggregates that cross from one instruction-set level to another.
#pragma once
#include "fedkern/view.hpp"

namespace fedkern {

/// Rows by stratum, in each from the last time to the first, those whose event it is behind the others of one time. A set is all
/// who have their event at one time of one stratum: at risk there are rows first .. ends - 1, the last `deaths` of which have it, but
/// for those whose `until` is not above the set's number. No data: weights 1, offset 0, nobody leaves.
struct SurvivalRows {
    Matrix<const double> X;
    Vector<const double> weights, offset;
    Vector<const Index> first, ends, deaths, until;
};

} // namespace fedkern
