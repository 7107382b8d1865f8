// Draws from a table of priors: scale x F_t e, or scale x P' L_t'^-1 e, for an entry t that a group of rows shares. A block's first
// number is its row.
#pragma once
#include "grid.hpp"
#include "fedkern/spatial/scalar.hpp"

namespace fedkern {
namespace cuda {

/// What all draws of a step share; rows of `values` are the entries. The step is the first one's number and how many the device has
/// made since: the same arguments do for all.
struct Drawn {
    Matrix<const double> values;
    Vector<const double> scale;
    Index group;
    U64 key; // of entries
    const Index* made;
    U32 first;

    FEDKERN_INLINE Index number_of(Index row) const { return table_entry(values.rows, row / group, first + U32(*made), key); }
    FEDKERN_INLINE Vector<const double> entry_of(Index row) const { return values.row(number_of(row)); }
};

/// Numbers 0, .., size - 1 of a stream of normals at a step.
template <class T> FEDKERN_KERNEL normals(U64 key, U32 first, const Index* made, Index size, T* out) {
    const U32 step = first + U32(*made);
    for (Index i = thread_of_grid(); 2 * i < size; i += threads_of_grid()) {
        const auto z = normal_pair(philox_bits({U32(i), 0, 0, step}, key));
        out[2 * i] = T(z.first);
        if (2 * i + 1 < size) out[2 * i + 1] = T(z.second);
    }
}

/// The conditions of the entries.
template <class T> FEDKERN_KERNEL conditions(Drawn table, Matrix<const double> phi, Matrix<T> t) {
    for (Index i = thread_of_grid(); i < t.rows * t.cols; i += threads_of_grid()) {
        const Index r = i / t.cols, c = i - r * t.cols;
        t.row(r)[c] = T(phi.row(table.number_of(r))[c]);
    }
}

/// Entries that are draws themselves.
template <class T> FEDKERN_KERNEL stored_draws(Drawn table, Matrix<T> theta) {
    const Index r = blockIdx.x;
    const auto values = table.entry_of(r);
    for (Index i = Index(blockIdx.y) * blockDim.x + threadIdx.x; i < theta.cols; i += Index(gridDim.y) * blockDim.x)
        theta.row(r)[i] = T(table.scale[i] * values[i]);
}

/// Entries that are factors (n, rank), row by row; e (rows, rank) are normals. A warp for each number.
template <class T> FEDKERN_KERNEL dense_draws(Drawn table, Index rank, const double* e, Matrix<T> theta) {
    const Index r = blockIdx.x;
    const auto values = table.entry_of(r);
    for (Index i = Index(blockIdx.y) * warps() + warp(); i < theta.cols; i += Index(gridDim.y) * warps()) {
        double sum = 0;
#pragma unroll 2
        for (Index k = lane(); k < rank; k += 32) sum += values[i * rank + k] * e[r * rank + k];
        sum = warp_sum(sum);
        if (lane() == 0) theta.row(r)[i] = T(table.scale[i] * sum);
    }
}

/// Entries that are columns of a sparse factor L: L'x = e from the last number to the first, and theta[order] = scale x. One warp a
/// block; its lanes share a column, whose first numbers, one a lane, the diagonal before all, were fetched while the column behind it
/// waited for its sum. x stands in shared memory, or where that is too small over e (rows, n).
template <class T> FEDKERN_KERNEL sparse_draws(Drawn table, Vector<const Index> indptr, Vector<const Index> indices,
                                               Vector<const Index> order, double* e, bool shared, Matrix<T> theta) {
    FEDKERN_DYNAMIC_SHARED(double, room);
    const Index r = blockIdx.x, n = theta.cols;
    const auto values = table.entry_of(r);
    double *from = e + r * n, *x = shared ? room : from;
    Index begin = indptr[n - 1], end = indptr[n], before = n > 1 ? indptr[n - 2] : 0;
    double value = 0, number = from[n - 1];
    Index at = 0;
    if (begin + lane() < end) value = values[begin + lane()], at = indices[begin + lane()];
    for (Index j = n - 1; j >= 0; --j) {
        const double inverse = 1 / value, normal = number; // on the first lane
        double sum = lane() > 0 && begin + lane() < end ? value * x[at] : 0;
#pragma unroll 1
        for (Index k = begin + lane() + 32; k < end; k += 32) sum += values[k] * x[indices[k]];
        if (j > 0) {
            end = begin, begin = before, before = j > 1 ? indptr[j - 2] : 0, number = from[j - 1];
            if (begin + lane() < end) value = values[begin + lane()], at = indices[begin + lane()];
        }
        sum = warp_sum(sum);
        if (lane() == 0) {
            const double xj = (normal - sum) * inverse;
            x[j] = xj;
            const Index i = order[j];
            theta.row(r)[i] = T(table.scale[i] * xj);
        }
        __syncwarp();
    }
}

} // namespace cuda
} // namespace fedkern
