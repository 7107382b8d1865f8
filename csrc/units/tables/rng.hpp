#pragma once
#include "fedkern/counts.hpp"

namespace fedkern {

struct RngTable {
    using FillPairs = void (*)(Vector<double> out, Counter first, U64 key, int n_threads);
    void (*words)(Matrix<U32> out, Counter first, U64 key, int n_threads);
    FillPairs uniform, normal, exponential;
    void (*gamma)(Vector<const double> shape, Vector<double> out, Counter first, U64 key, int n_threads);
    void (*inverse_gaussian)(Vector<const double> mean, Vector<const double> shape, Vector<double> out, Counter first, U64 key,
                             int n_threads);
    void (*polya_gamma)(Vector<const double> z, Vector<double> out, Counter first, U64 key, int n_threads);
    void (*counts)(const Counts& vectors, Index terms, int n_threads);
};

} // namespace fedkern
