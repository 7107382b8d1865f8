// Weighted Gram matrices of rows that follow each other, padded to whole vectors of eight.
#pragma once
#include "fedkern/pieces.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {
namespace survival {

inline constexpr Index pack = 8, block = 128; // numbers of a vector, rows at a time

#ifdef __AVX512F__
inline constexpr int most_rows = 8; // of a tile: as many vectors as registers hold
#else
inline constexpr int most_rows = 4;
#endif

/// sum += w x x' over the rows of a block: C rows of the matrix, from column `at` on, and one vector of columns from `from` on.
template <int C> void gram_tile(const double* x, const double* weights, Index rows, Index width, Index at, Index from, double* sum) {
    using Pack [[gnu::vector_size(64)]] = double;
    Pack total[C], columns;
    for (int c = 0; c < C; ++c) __builtin_memcpy(&total[c], sum + c * width, sizeof columns);
    for (Index r = 0; r < rows; ++r, x += width) {
        __builtin_memcpy(&columns, x + from, sizeof columns);
        columns *= weights[r];
        for (int c = 0; c < C; ++c) total[c] += x[at + c] * columns;
    }
    for (int c = 0; c < C; ++c) __builtin_memcpy(sum + c * width, &total[c], sizeof columns);
}

/// Lower triangle (p, width) of sum += X'WX, for rows of `width` numbers, of which p count.
inline void add_gram(const double* x, const double* weights, Index rows, Index p, Index width, double* sum) {
    for (Index b = 0; b < p; b += pack)
        for (Index i = b; i < p;) {
            const Index left = p - i;
            double* to = sum + i * width + b;
            if (left >= most_rows) {
                gram_tile<most_rows>(x, weights, rows, width, i, b, to), i += most_rows;
            } else if (left >= 4) {
                gram_tile<4>(x, weights, rows, width, i, b, to), i += 4;
            } else if (left >= 2) {
                gram_tile<2>(x, weights, rows, width, i, b, to), i += 2;
            } else {
                gram_tile<1>(x, weights, rows, width, i, b, to), i += 1;
            }
        }
}

} // namespace survival
} // namespace FEDKERN_ISA
} // namespace fedkern
