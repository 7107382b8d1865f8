// What all kernels of this folder share: sums over warps and blocks in a fixed order, and the one seam to the host, where tests run
// the same text (tests/cpp/emulator.hpp).
//
// Rules. No kernel waits for another block. Sums of floating-point numbers have a fixed order, never atomics. The number of blocks
// follows from the sizes of the arguments, not from the card. A block has whole warps.
#pragma once
#ifdef __CUDACC__
#define FEDKERN_SHARED(T, name, size) __shared__ T name[size]
#define FEDKERN_DYNAMIC_SHARED(T, name)                                                                                                    \
    extern __shared__ __align__(16) unsigned char fedkern_dynamic[];                                                                       \
    T* const name = reinterpret_cast<T*>(fedkern_dynamic)
#define FEDKERN_CALLED __device__ __noinline__ // long, and wanted in several places
#define FEDKERN_INSTANCE(...) // what the tests emulate; on a device an instance is made when it is asked for by this name
#else
#include "emulator.hpp"
#define FEDKERN_CALLED inline
#endif
#include "fedkern/math.hpp"
#include "fedkern/view.hpp"

// Two blocks a multiprocessor at least: left to itself, the compiler spills registers so that more may fit.
#define FEDKERN_KERNEL __global__ void __launch_bounds__(::fedkern::cuda::most_threads, 2)
// One, where the shared memory of a block leaves no place for a second.
#define FEDKERN_LARGE_KERNEL __global__ void __launch_bounds__(::fedkern::cuda::most_threads, 1)

namespace fedkern {
namespace cuda {

inline constexpr unsigned all_lanes = 0xffffffff;
inline constexpr int most_threads = 256, most_warps = most_threads / 32;

FEDKERN_INLINE int lane() { return int(threadIdx.x % 32); }
FEDKERN_INLINE int warp() { return int(threadIdx.x / 32); }
FEDKERN_INLINE int warps() { return int(blockDim.x / 32); }
/// The number of a thread, or of a warp, in the whole grid, and how many there are.
FEDKERN_INLINE Index thread_of_grid() { return Index(blockIdx.x) * blockDim.x + threadIdx.x; }
FEDKERN_INLINE Index threads_of_grid() { return Index(gridDim.x) * blockDim.x; }
FEDKERN_INLINE Index warp_of_grid() { return Index(blockIdx.x) * warps() + warp(); }
FEDKERN_INLINE Index warps_of_grid() { return Index(gridDim.x) * warps(); }

/// Where 16 bytes can be stored at once.
FEDKERN_INLINE bool aligned(const void* at) { return reinterpret_cast<unsigned long long>(at) % 16 == 0; }

/// How many of R rows from `first` on there are.
template <int R> FEDKERN_INLINE int rows_left(Index first, Index end) { return end - first < R ? int(end - first) : R; }

/// Numbers lane, lane + 32, .. of a row of up to 32 C; zeros behind them, and everywhere if the row is not there. A pointer that
/// `walks` saves a product of 64 bits for each number, and takes registers.
template <bool walks = true, class T, int C> FEDKERN_INLINE void load_row(Vector<const T> row, bool there, T (&x)[C]) {
    const int size = there ? int(row.size) - lane() : 0; // from the lane's first number on
    const T* from = row.data + lane() * row.stride;
#pragma unroll
    for (int c = 0; c < C; ++c) {
        x[c] = 32 * c < size ? from[walks ? 0 : c * 32 * row.stride] : T(0);
        if (walks) from += 32 * row.stride;
    }
}

/// The sum over a warp, on every lane.
FEDKERN_INLINE double warp_sum(double x) {
    for (int bit = 16; bit > 0; bit /= 2) x += __shfl_xor_sync(all_lanes, x, bit);
    return x;
}

/// R sums over a warp at once, R a power of two: lane l receives the one of v[row_of<R>(l)].
template <int R> FEDKERN_INLINE int row_of(int l) { return l / (32 / R); }
template <int R> FEDKERN_INLINE double warp_sums(double (&v)[R]) {
#pragma unroll
    for (int half = R / 2, bit = 16; half > 0; half /= 2, bit /= 2) {
        const bool upper = lane() & bit;
#pragma unroll
        for (int i = 0; i < half; ++i) {
            const double sent = upper ? v[i] : v[i + half], kept = upper ? v[i + half] : v[i];
            v[i] = kept + __shfl_xor_sync(all_lanes, sent, bit);
        }
    }
#pragma unroll
    for (int bit = 16 / R; bit > 0; bit /= 2) v[0] += __shfl_xor_sync(all_lanes, v[0], bit);
    return v[0];
}

/// The sum over a block, on every thread; `room` has a number for each warp, and may be used again after the next barrier.
FEDKERN_INLINE double block_sum(double x, double* room) {
    x = warp_sum(x);
    if (lane() == 0) room[warp()] = x;
    __syncthreads();
    double sum = 0;
    for (int w = 0; w < warps(); ++w) sum += room[w];
    return sum;
}

/// Adds what the warps of a block hold, C numbers a lane, and writes element lane + 32 c of the sum if it is below `size`. `room` has
/// 32 C numbers for each warp.
template <int C, class T> FEDKERN_INLINE void store_block_sums(const T (&x)[C], T* room, T* to, Index size) {
#pragma unroll
    for (int c = 0; c < C; ++c) room[warp() * 32 * C + c * 32 + lane()] = x[c];
    __syncthreads();
    for (Index j = threadIdx.x; j < size; j += blockDim.x) {
        T sum = 0;
        for (int w = 0; w < warps(); ++w) sum += room[w * 32 * C + j];
        to[j] = sum;
    }
    __syncthreads();
}

/// total_j = sum_b partial[b][j] over blocks b, in an order that only their number knows. 32 columns a block.
template <class T> FEDKERN_KERNEL sum_partials(const T* partial, Index blocks, Index size, Vector<T> total) {
    FEDKERN_SHARED(T, sums, most_threads);
    const Index j = Index(blockIdx.x) * 32 + lane();
    T sum = 0;
    if (j < size) {
        constexpr int ahead = 16; // reads that do not wait for each other: one by one they took a third of `clip_sum`
        Index b = warp();
        for (; b + (ahead - 1) * warps() < blocks; b += ahead * warps()) {
            T x[ahead];
#pragma unroll
            for (int k = 0; k < ahead; ++k) x[k] = partial[(b + k * warps()) * size + j];
#pragma unroll
            for (int k = 0; k < ahead; ++k) sum += x[k];
        }
        for (; b < blocks; b += warps()) sum += partial[b * size + j];
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (warp() == 0 && j < size) {
        for (int w = 1; w < warps(); ++w) sum += sums[w * 32 + lane()];
        total[j] = sum;
    }
}

} // namespace cuda
} // namespace fedkern
