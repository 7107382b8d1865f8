// Sums of clipped rows, and noise that a key repeats. A warp holds R rows of up to 32 C columns in registers: each number is read
// from memory once.
#include "grid.hpp"
#include "fedkern/privacy/scalar.hpp"
#include "fedkern/rng.hpp"

namespace fedkern {
namespace cuda {

/// Block b takes the rows [b rows / blocks, (b + 1) rows / blocks); partial[b] is its sum. A row that is not finite counts nothing.
template <class T, int C, int R> FEDKERN_KERNEL clip_rows(Matrix<const T> x, double bound, double* partial) {
    FEDKERN_SHARED(double, room, most_warps * 32 * C);
    const Index begin = x.rows * blockIdx.x / gridDim.x, end = x.rows * (blockIdx.x + 1) / gridDim.x;
    double sum[C] = {};
    for (Index first = begin + warp() * R; first < end; first += warps() * R) {
        T row[R][C];
        double squares[R] = {};
        const int left = rows_left<R>(first, end);
#pragma unroll
        for (int r = 0; r < R; ++r) {
            const bool there = r == 0 || r < left;
            load_row(x.row(there ? first + r : first), there, row[r]);
        }
#pragma unroll
        for (int r = 0; r < R; ++r)
#pragma unroll
            for (int c = 0; c < C; ++c) squares[r] += double(row[r][c]) * double(row[r][c]);
        const double w = clip_weight(warp_sums(squares), bound, sizeof(T) == 4);
#pragma unroll
        for (int r = 0; r < R; ++r) {
            const double wr = __shfl_sync(all_lanes, w, r * (32 / R));
            if (wr > 0) {
#pragma unroll
                for (int c = 0; c < C; ++c) sum[c] += wr * double(row[r][c]);
            }
        }
    }
    store_block_sums(sum, room, partial + blockIdx.x * x.cols, x.cols);
}

/// The weights of long rows, one a warp.
template <class T> FEDKERN_KERNEL clip_weights(Matrix<const T> x, double bound, double* w) {
    for (Index i = warp_of_grid(); i < x.rows; i += warps_of_grid()) {
        double squares = 0;
        for (Index j = lane(); j < x.cols; j += 32) {
            const double v = double(x.row(i)[j]);
            squares += v * v;
        }
        const double weight = clip_weight(warp_sum(squares), bound, sizeof(T) == 4);
        if (lane() == 0) w[i] = weight;
    }
}

/// The weighted sum of long rows: block (b, tile) takes a share of the rows and `blockDim.x` columns.
template <class T> FEDKERN_KERNEL weighted_rows(Matrix<const T> x, const double* w, double* partial) {
    const Index begin = x.rows * blockIdx.x / gridDim.x, end = x.rows * (blockIdx.x + 1) / gridDim.x;
    const Index j = Index(blockIdx.y) * blockDim.x + threadIdx.x;
    if (j >= x.cols) return;
    double sum = 0;
    for (Index i = begin; i < end; ++i)
        if (w[i] > 0) sum += w[i] * double(x.row(i)[j]);
    partial[blockIdx.x * x.cols + j] = sum;
}

/// out_j = total_j + sigma z_j, z the normals of rng.normal at draw 0.
FEDKERN_KERNEL noisy(Vector<const double> total, double sigma, U64 key, Counter counter, Vector<double> out) {
    for (Index i = thread_of_grid(); 2 * i < out.size; i += threads_of_grid()) {
        const auto z = normal_pair(philox_bits({U32(i), counter.draw, counter.client, counter.step}, key));
        out[2 * i] = total[2 * i] + sigma * z.first;
        if (2 * i + 1 < out.size) out[2 * i + 1] = total[2 * i + 1] + sigma * z.second;
    }
}

FEDKERN_INSTANCE(clip_rows<double, 1, 8>)
FEDKERN_INSTANCE(clip_rows<double, 4, 4>)
FEDKERN_INSTANCE(clip_rows<double, 16, 1>)
FEDKERN_INSTANCE(clip_rows<float, 1, 8>)
FEDKERN_INSTANCE(clip_rows<float, 4, 4>)
FEDKERN_INSTANCE(clip_rows<float, 16, 1>)
FEDKERN_INSTANCE(clip_weights<double>)
FEDKERN_INSTANCE(clip_weights<float>)
FEDKERN_INSTANCE(weighted_rows<double>)
FEDKERN_INSTANCE(weighted_rows<float>)
FEDKERN_INSTANCE(noisy)
FEDKERN_INSTANCE(sum_partials<double>)

} // namespace cuda
} // namespace fedkern
