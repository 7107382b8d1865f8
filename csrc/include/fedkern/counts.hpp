// Counts whose probabilities follow from each other: P(Y = k) = (a + b / k) P(Y = k - 1) (Panjer 1981).
#pragma once
#include <algorithm>
#include <cstdint>

#include "fedkern/rng.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

/// The vectors of `add_up`: given are u, most, P(Y = 0), a and b, and k and P(Y <= k) are made.
struct Counts {
    Vector<const double> u, most, first, a, b;
    Vector<double> count, sum;
};

/// Adds up P(Y = k) until the sum reaches u, k is `most`, or `terms` - 1. Some rows together, without a branch: those that have
/// ended add zeros.
inline void add_up(const Counts& c, Index terms, Index begin, Index end) {
    constexpr Index together = 32;
    for (; begin < end; begin += together) {
        const Index size = std::min(together, end - begin);
        alignas(64) double u[together], most[together], a[together], b[together], p[together], sum[together], count[together];
        const auto load = [&](Vector<const double> x, double* to) { // beyond the last row zeros, which end at once
            if (x.stride == 1) std::copy_n(x.data + begin, size, to);
            else
                for (Index i = 0; i < size; ++i) to[i] = x[begin + i];
            std::fill(to + size, to + together, 0.0);
        };
        load(c.u, u), load(c.most, most), load(c.a, a), load(c.b, b), load(c.first, p);
        for (Index i = 0; i < together; ++i) sum[i] = p[i], count[i] = 0;
        for (Index k = 1; k < terms; ++k) {
            const double before = double(k - 1), number = double(k);
            std::int64_t going = 0;
            for (Index i = 0; i < together; ++i) {
                const std::int64_t goes = (u[i] > sum[i]) & (most[i] > before);
                p[i] = goes ? p[i] * (a[i] + b[i] / number) : 0.0;
                sum[i] += p[i], count[i] += goes ? 1.0 : 0.0, going |= goes;
            }
            if (!going) break;
        }
        for (Index i = 0; i < size; ++i) c.count[begin + i] = count[i], c.sum[begin + i] = sum[i];
    }
}

inline void add_up_in_parts(const Counts& c, Index terms, int n_threads) {
    fill_in_parts(c.u.size, tile_size, n_threads, [&](Index begin, Index end) { add_up(c, terms, begin, end); });
}

} // namespace FEDKERN_ISA
} // namespace fedkern
