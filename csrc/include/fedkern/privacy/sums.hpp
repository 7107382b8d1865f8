// Sums of clipped per-example vectors, and noise. Specification: docs/spec/pvi.md, section 4.
#pragma once
#include <vector>

#include "fedkern/blocks.hpp"
#include "fedkern/rng.hpp"
#include "scalar.hpp"

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
            else ++skipped[block];
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

/// out_j = total_j + sigma z_j, z the normals of rng.normal at draw 0. For experiments: whoever has the key can take it off again.
inline void add_noise(Vector<const double> total, double sigma, U64 key, U32 client, U32 step, Vector<double> out, int n_threads) {
    fill_pairs_in_parts<fill_normal>(out, {0, 0, client, step}, key, n_threads);
    for (Index j = 0; j < out.size; ++j) out[j] = total[j] + sigma * out[j];
}

} // namespace FEDKERN_ISA
} // namespace fedkern
