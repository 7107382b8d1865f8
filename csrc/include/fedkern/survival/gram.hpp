// Weighted Gram matrices of rows that follow each other at a stride, read by whole vectors of eight: what stands behind a row's last
// number takes part in nothing that is read.
#pragma once
#include <algorithm>

#include "fedkern/pack.hpp"
#include "fedkern/pieces.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {
namespace survival {

inline constexpr Index pack = 8, block = 128; // numbers of a vector, rows at a time

using Eight = Pack<double, int(pack)>;

/// Rows of a tile: as many sums as registers hold, beside what is added to them.
inline constexpr int most_rows = register_bytes == 64 ? 12 : register_bytes == 32 ? 6 : 2;

/// sum += w x x' over the rows of a block: C rows of the matrix, from column `at` on, and one vector of columns from `from` on.
/// A sum waits four cycles for the one before, and two are made in a cycle: small tiles add up rows in turns.
template <int C>
void gram_tile(const double* x, Index stride, const double* weights, Index rows, Index width, Index at, Index from, double* sum) {
    constexpr int sums = C * Eight::parts, turns = sums >= 8 ? 1 : sums >= 4 ? 2 : 4;
    Eight total[turns][C];
    for (int c = 0; c < C; ++c) {
        total[0][c] = Eight::load(sum + c * width);
        for (int t = 1; t < turns; ++t) total[t][c] = Eight::all(0);
    }
    const double *left = x + at, *right = x + from;
    const auto add = [&](int t, double weight) {
        const Eight columns = Eight::load(right) * Eight::all(weight);
        for (int c = 0; c < C; ++c) total[t][c] = total[t][c] + Eight::all(left[c]) * columns;
        left += stride, right += stride;
        asm("" : "+r"(left)); // two addresses, and not one for each number
    };
    const Index even = rows - rows % turns;
    for (Index r = 0; r < even; r += turns)
        for (int t = 0; t < turns; ++t) add(t, weights[r + t]);
    for (Index r = even; r < rows; ++r) add(0, weights[r]);
    for (int t = 1; t < turns; ++t)
        for (int c = 0; c < C; ++c) total[0][c] = total[0][c] + total[t][c];
    for (int c = 0; c < C; ++c) total[0][c].store(sum + c * width);
}

/// A tile of `count` rows of the matrix, at most C.
template <int C> void gram_tile_of(Index count, const double* x, Index stride, const double* weights, Index rows, Index width, Index at,
                                   Index from, double* sum) {
    if constexpr (C > 1)
        if (count < C) return gram_tile_of<C - 1>(count, x, stride, weights, rows, width, at, from, sum);
    gram_tile<C>(x, stride, weights, rows, width, at, from, sum);
}

/// Lower triangle (p, width) of sum += X'WX, for rows of p numbers, behind which others stand up to `width`.
inline void add_gram(const double* x, Index stride, const double* weights, Index rows, Index p, Index width, double* sum) {
    for (Index b = 0; b < p; b += pack)
        for (Index i = b; i < p;) {
            const Index left = p - i, tiles = (left + most_rows - 1) / most_rows, count = (left + tiles - 1) / tiles;
            gram_tile_of<most_rows>(count, x, stride, weights, rows, width, i, b, sum + i * width + b);
            i += count;
        }
}

} // namespace survival
} // namespace FEDKERN_ISA
} // namespace fedkern
