// Positive definite systems of one block, packed, in shared or global memory.
#pragma once
#include "grid.hpp"

namespace fedkern {
namespace cuda {

inline constexpr int panel = 8;

/// Lower triangle by columns; row `rows - 1` is a right-hand side.
struct Packed {
    double* a;
    int rows;
    FEDKERN_INLINE double& operator()(int i, int j) const { return a[Index(j) * rows - Index(j) * (j - 1) / 2 + (i - j)]; }
};
FEDKERN_INLINE Index packed_size(Index rows) { return rows * (rows + 1) / 2; }

/// L of A = L L' in place, m columns, and L^-1 rhs in row m; inverse[j] = 1 / L_jj. Whether A is positive definite; on all threads.
FEDKERN_INLINE bool factorise(const Packed& A, int m, double* inverse, int* failed) {
    const int thread = int(threadIdx.x), threads = int(blockDim.x);
    if (thread == 0) *failed = 0;
    for (int J = 0; J < m; J += panel) {
        const int width = m - J < panel ? m - J : panel;
        __syncthreads();
        for (int i = J + thread; i <= m; i += threads) {
            double x[panel];
#pragma unroll
            for (int b = 0; b < panel; ++b) x[b] = b < width && i >= J + b ? A(i, J + b) : 0;
            for (int k = 0; k < J; ++k) {
                const double l = A(i, k), *const row = &A(J, k);
#pragma unroll
                for (int b = 0; b < panel; ++b)
                    if (b < width) x[b] -= l * row[b];
            }
#pragma unroll
            for (int b = 0; b < panel; ++b)
                if (b < width && i >= J + b) A(i, J + b) = x[b];
        }
        __syncthreads();
        if (warp() == 0) {
            double x[panel];
            const bool mine = lane() < width;
#pragma unroll
            for (int b = 0; b < panel; ++b) x[b] = mine && b <= lane() ? A(J + lane(), J + b) : 0;
#pragma unroll
            for (int c = 0; c < panel; ++c) {
                const double pivot = __shfl_sync(all_lanes, x[c], c);
                if (c < width && !(pivot > 0) && lane() == 0) *failed = 1;
                const double scale = 1 / math::sqrt(pivot);
                x[c] *= scale;
                if (c < width && lane() == c) inverse[J + c] = scale;
#pragma unroll
                for (int b = c + 1; b < panel; ++b) x[b] -= x[c] * __shfl_sync(all_lanes, x[c], b);
            }
#pragma unroll
            for (int b = 0; b < panel; ++b)
                if (mine && b <= lane()) A(J + lane(), J + b) = x[b];
        }
        __syncthreads();
        if (*failed) return false;
        for (int i = J + width + thread; i <= m; i += threads) {
            double x[panel];
#pragma unroll
            for (int b = 0; b < panel; ++b) {
                if (b >= width) break;
                x[b] = A(i, J + b);
#pragma unroll
                for (int c = 0; c < b; ++c) x[b] -= x[c] * A(J + b, J + c);
                x[b] *= inverse[J + b];
                A(i, J + b) = x[b];
            }
        }
    }
    __syncthreads();
    return true;
}

} // namespace cuda
} // namespace fedkern
