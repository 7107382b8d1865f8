// Sums of clipped per-example vectors, and noise. Specification: docs/spec/pvi.md, section 4.
#pragma once
#include <vector>

#include "fedkern/blocks.hpp"
#include "fedkern/rng.hpp"
#include "rows.hpp"
#include "scalar.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

/// ||x||^2 of R rows, in lanes of their type that are closed after `narrow_columns` columns.
template <Reading how, int R, class T>
FEDKERN_INLINE void squared_norms(const T* const* x, Index size, const char* at, Index pace, double* squared) {
    using V = PackOf<how, T>;
    for (int r = 0; r < R; ++r) squared[r] = 0;
    for (Index begin = 0; begin < size; begin += narrow_columns) {
        const T* row[R];
        V sum[R];
        for (int r = 0; r < R; ++r) row[r] = x[r] + begin, sum[r] = V::all(0);
        for_packs<V, R>(row, std::min(narrow_columns, size - begin), [&](int r, const V& xj, Index) {
            if constexpr (how == Reading::asked) ask(at), at += pace;
            sum[r] = sum[r] + xj * xj;
        });
        for (int r = 0; r < R; ++r) squared[r] += double(sum[r].sum());
    }
}

/// ||x||^2 in float64.
template <class T> double squared_norm(const T* x, Index size) {
    using V = Streamed<double>;
    V sum = V::all(0);
    for_packs<V, 1>(&x, size, [&](int, const V& xj, Index) { sum = sum + xj * xj; });
    return sum.sum();
}

/// A few rows that stay in cache, and their weights.
template <class T> struct FewRows {
    static constexpr Index most = 64;
    const T* x[most];
    alignas(64) double squared[most], weight[most];
    alignas(64) T w[most];
    Index size = 0;

    /// Finds the weights; calls apart(i) for a row that is to be taken in float64, or not at all, and leaves it out.
    template <class Apart> void weigh(double bound, const Apart& apart) {
        constexpr bool single = sizeof(T) == 4;
        Index others = 0;
        for (Index i = 0; i < size; ++i) weight[i] = clip_weight(squared[i], bound, single);
        for (Index i = 0; i < size; ++i) others += !is_plain(i), w[i] = T(weight[i]);
        if (others) {
            const Index all = size;
            size = 0;
            for (Index i = 0; i < all; ++i)
                if (is_plain(i)) x[size] = x[i], w[size++] = T(weight[i]);
                else apart(x[i]);
        }
        for (; size % 8; ++size) x[size] = x[0], w[size] = 0;
    }

  private:
    bool is_plain(Index i) const {
        if constexpr (sizeof(T) == 8) return weight[i] > 0;
        else return (squared[i] >= narrow_least) & (squared[i] <= narrow_most) & (weight[i] >= narrow_weight);
    }
};

/// `clip_sum` of rows that are read in one of three ways: the same numbers.
template <Reading how, class T> Index clip_sum_of(Matrix<const T> x, double bound, Vector<double> total, int n_threads) {
    constexpr bool single = sizeof(T) == 4;
    constexpr int tile = how == Reading::flowing ? 1 : register_bytes >= 32 ? 4 : 2; // eight sums in registers
    const Index d = x.cols, padded = (d + 15) / 16 * 16, blocks = block_count(x.rows, 2 * min_block_length);
    // So many rows are still in the first-level cache, or, if they are long, in the second, when they are read again.
    Index few = FewRows<T>::most;
    while (few > 8 && few * d * Index(sizeof(T)) > (how == Reading::flowing ? short_bytes : block_bytes)) few /= 2;
    const bool in_place = x.col_stride == 1, near = in_place && x.row_stride >= d && x.row_stride <= 2 * d;
    std::vector<double> partial(blocks * padded);
    std::vector<Index> skipped(blocks);
    for_blocks(x.rows, blocks, worthwhile(n_threads, 4.0 * double(x.rows) * double(d)), [&](Index block, Index begin, Index end) {
        double* sum = partial.data() + block * padded;
        std::vector<T> copies(in_place ? 0 : few * d), close(single ? padded : 0);
        FewRows<T> rows;
        for (Index first = begin; first < end; first += few) {
            rows.size = std::min(few, end - first);
            for (Index i = 0; i < rows.size; ++i) rows.x[i] = contiguous(x.row(first + i), in_place ? nullptr : copies.data() + i * d);
            // The memory is asked for the next rows evenly: one half in each of the two passes.
            const bool ahead = how == Reading::asked && near && first + 2 * few <= x.rows;
            const char* at = reinterpret_cast<const char*>(ahead ? rows.x[0] + few * x.row_stride : rows.x[0]);
            const Index row_bytes = ahead ? x.row_stride * Index(sizeof(T)) : 0, line = ahead ? 64 : 0;
            Index i = 0;
            for (; i + tile <= rows.size; i += tile)
                squared_norms<how, tile>(rows.x + i, d, at + i * row_bytes / 2, line / 2, rows.squared + i);
            for (; i < rows.size; ++i) squared_norms<how, 1>(rows.x + i, d, at + i * row_bytes / 2, line / 2, rows.squared + i);
            rows.weigh(bound, [&](const T* row) {
                const double w = clip_weight(squared_norm(row, d), bound, single);
                for (Index j = 0; w > 0 && j < d; ++j) sum[j] += w * double(row[j]);
                skipped[block] += !(w > 0);
            });
            at += few * row_bytes / 2;
            if constexpr (single) {
                add_eights<how>(rows.x, rows.w, rows.size, d, at, line, close.data());
                if ((first - begin + few) % FewRows<T>::most == 0 || first + few >= end)
                    for (Index j = 0; j < padded; ++j) sum[j] += double(close[j]), close[j] = 0;
            } else {
                add_eights<how>(rows.x, rows.w, rows.size, d, at, line, sum);
            }
        }
    });
    Index all_skipped = 0;
    for (Index j = 0; j < d; ++j) total[j] = 0;
    for (Index b = 0; b < blocks; ++b) {
        for (Index j = 0; j < d; ++j) total[j] += partial[b * padded + j];
        all_skipped += skipped[b];
    }
    return all_skipped;
}

/// total_j = sum_i w_i x_ij, w_i = clip_weight(||x_i||^2, bound). Each row is read from memory once; extra memory is
/// O(blocks x cols). Float32 rows have norms and products in float32 lanes, and the sums of 64 rows in float32: section 4, "Rows in
/// float32"; those beyond the range in which its proof holds are taken in float64. Returns the number of rows skipped because they
/// are not finite.
template <class T> Index clip_sum(Matrix<const T> x, double bound, Vector<double> total, int n_threads) {
    switch (reading(x.rows, x.cols * Index(sizeof(T)), x.col_stride == 1 && x.row_stride == x.cols)) {
    case Reading::cached: return clip_sum_of<Reading::cached>(x, bound, total, n_threads);
    case Reading::flowing: return clip_sum_of<Reading::flowing>(x, bound, total, n_threads);
    default: return clip_sum_of<Reading::asked>(x, bound, total, n_threads);
    }
}

/// out_j = total_j + sigma z_j, z the normals of rng.normal at draw 0. For experiments: whoever has the key can take it off again.
inline void add_noise(Vector<const double> total, double sigma, U64 key, U32 client, U32 step, Vector<double> out, int n_threads) {
    fill_pairs_in_parts<fill_normal>(out, {0, 0, client, step}, key, n_threads);
    for (Index j = 0; j < out.size; ++j) out[j] = total[j] + sigma * out[j];
}

} // namespace FEDKERN_ISA
} // namespace fedkern
