#pragma once
#include <cstdint>
#include "fedkern/rng.hpp"

namespace fedkern {

struct PrivacyTable {
    Index (*clip_sum_f32)(Matrix<const float>, double bound, Vector<double> total, int n_threads);
    Index (*clip_sum_f64)(Matrix<const double>, double bound, Vector<double> total, int n_threads);
    void (*add_noise)(Vector<const double> total, double sigma, U64 key, U32 client, U32 step, Vector<double> out, int n_threads);
    Index (*discrete_gaussian)(Vector<const std::uint32_t> words, std::int64_t sigma, Vector<std::int64_t> out, Index* used);
};

} // namespace fedkern
