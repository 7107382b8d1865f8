// Clipping of per-example vectors. Specification: dp-pvi.md, section 4.
#pragma once
#include <cmath>
#include <vector>

#include "blocks.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

/// ||x||^2 in float64. A sum has eight partial sums on every machine, whatever its vector registers hold.
template <class T> double squared_norm(const T* x, Index size) {
    constexpr Index lanes = 8;
    double partial[lanes] = {};
    Index j = 0;
    for (; j + lanes <= size; j += lanes)
        for (Index l = 0; l < lanes; ++l) partial[l] += double(x[j + l]) * double(x[j + l]);
    for (; j < size; ++j) partial[j % lanes] += double(x[j]) * double(x[j]);
    return ((partial[0] + partial[4]) + (partial[2] + partial[6])) + ((partial[1] + partial[5]) + (partial[3] + partial[7]));
}

/// w = min(1, bound / norm); 0 for a row that is not finite, which the caller skips (0 x inf would be NaN).
inline double clip_weight(double squared_norm, double bound) {
    if (!std::isfinite(squared_norm)) return 0;
    const double norm = std::sqrt(squared_norm);
    return norm > bound ? bound / norm : 1;
}

/// total_j = sum_i w_i x_ij, w_i = clip_weight(||x_i||^2, bound). Each row is read from memory once; extra memory is
/// O(blocks x cols). Returns the number of rows skipped because they are not finite.
template <class T> Index clip_sum(Matrix<const T> x, double bound, Vector<double> total, int n_threads) {
    const Index blocks = block_count(x.rows);
    std::vector<double> partial(blocks * x.cols);
    std::vector<Index> skipped(blocks);
    for_blocks(x.rows, blocks, n_threads, [&](Index block, Index begin, Index end) {
        double* sum = partial.data() + block * x.cols;
        std::vector<T> copy(x.col_stride == 1 ? 0 : x.cols);
        for (Index i = begin; i < end; ++i) {
            const T* row = contiguous(x.row(i), copy.data());
            const double w = clip_weight(squared_norm(row, x.cols), bound);
            if (w > 0)
                for (Index j = 0; j < x.cols; ++j) sum[j] += w * double(row[j]);
            else
                ++skipped[block];
        }
    });
    Index all_skipped = 0;
    for (Index j = 0; j < x.cols; ++j) total[j] = 0;
    for (Index b = 0; b < blocks; ++b) {
        for (Index j = 0; j < x.cols; ++j) total[j] += partial[b * x.cols + j];
        all_skipped += skipped[b];
    }
    return all_skipped;
}

} // namespace FEDKERN_ISA
} // namespace fedkern
