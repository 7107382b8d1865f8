// Spatial priors: draws from tables, through eigenvectors and through whole factors; covariances and their pivoted factors.
// docs/spec/sigma.md, section 3.
#include "dense.hpp"
#include "table.hpp"
#include "fedkern/rng.hpp"
#include "fedkern/spatial/scalar.hpp"
#include "fedkern/spatial/views.hpp"

namespace fedkern {
namespace cuda {

/// Number `number` of a stream of normals.
FEDKERN_INLINE double normal_number(Index number, const DrawNames& names) {
    const auto z = normal_pair(philox_bits({U32(number / 2), 0, names.client, names.step}, names.key));
    return number % 2 ? z.second : z.first;
}

/// Names the draws of a call; their keys follow from these.
struct Names {
    U64 seed, chain;
    U32 client, step;
    FEDKERN_INLINE DrawNames draws() const { return {stream_key(seed, Stream::prior_draws, chain), client, step}; }
};

/// Which entry of a table each row has.
FEDKERN_KERNEL entries(Drawn table, Vector<Index> entry) {
    for (Index row = thread_of_grid(); row < entry.size; row += threads_of_grid()) entry[row] = table.number_of(row);
}

// ---- Autoregressive priors through eigenvectors: before and after the library's matrix product.

/// e_bk / sqrt(precision of eigenvector k), 0 where that is 0.
FEDKERN_KERNEL eigen_coefficients(Vector<const double> values, Vector<const double> phi, CarForm form, Names names, double* e) {
    const Index n = values.size;
    const DrawNames draws = names.draws();
    for (Index k = thread_of_grid(); k < phi.size * n; k += threads_of_grid()) {
        const double value = values[k % n], x = phi[k / n];
        const double p = form == CarForm::car ? 1 - x * value : form == CarForm::leroux ? (1 - x) + x * value : value;
        e[k] = p == 0 ? 0 : normal_number(k, draws) / math::sqrt(p);
    }
}

// ---- Gaussian processes.

/// The covariance at a squared distance; NaN for a lengthscale that is none.
FEDKERN_INLINE double covariance_at(double square, GpKind kind, double lengthscale) {
    return is_lengthscale(lengthscale) ? gp_value(kind, square, gp_rate(kind, lengthscale)) : math::not_a_number<double>();
}

FEDKERN_INLINE double square_between(const Matrix<const double>& x, Index i, Index j) {
    double sum = 0;
    for (Index d = 0; d < x.cols; ++d) {
        const double apart = x.row(i)[d] - x.row(j)[d];
        sum += apart * apart;
    }
    return sum;
}

/// out (m, n, n), rows of n numbers `matrix` and `row` apart.
struct Covariances {
    double* data;
    Index matrix, row, col;
};
FEDKERN_KERNEL gp_covariances(Matrix<const double> x, Vector<const double> lengthscale, GpKind kind, double jitter, Covariances out) {
    const Index n = x.rows;
    for (Index k = thread_of_grid(); k < lengthscale.size * n * n; k += threads_of_grid()) {
        const Index t = k / (n * n), i = k / n % n, j = k % n;
        out.data[t * out.matrix + i * out.row + j * out.col] =
            covariance_at(square_between(x, i, j), kind, lengthscale[t]) + (i == j ? jitter : 0);
    }
}

FEDKERN_INLINE double block_max(double x, double* room) {
#pragma unroll
    for (int bit = 16; bit > 0; bit /= 2) {
        const double other = __shfl_xor_sync(all_lanes, x, bit);
        x = other > x ? other : x;
    }
    if (lane() == 0) room[warp()] = x;
    __syncthreads();
    for (int w = 0; w < warps(); ++w) x = room[w] > x ? room[w] : x;
    __syncthreads();
    return x;
}

inline constexpr double near_pivots = 1e-6; // pivots that count as equal

/// Pivoted factors, a lengthscale a block: F (rank, n) by columns, and what is left of the diagonal, in `workspace`.
FEDKERN_LARGE_KERNEL gp_pivoted(Matrix<const double> x, Vector<const double> lengthscale, GpKind kind, double tolerance, Index rank,
                                Covariances factors, Vector<double> residual, double* workspace) {
    FEDKERN_SHARED(double, room, most_warps);
    const Index n = x.rows, thread = threadIdx.x, threads = blockDim.x;
    for (Index t = blockIdx.x; t < lengthscale.size; t += gridDim.x) {
        double *const F = workspace + blockIdx.x * (rank + 1) * n, *const left = F + rank * n;
        const double scale = lengthscale[t];
        for (Index k = thread; k < rank * n; k += threads) F[k] = 0;
        for (Index i = thread; i < n; i += threads) left[i] = is_lengthscale(scale) ? 1 : math::not_a_number<double>();
        __syncthreads();
        double trace = 0;
        for (Index r = 0;; ++r) {
            trace = 0;
            for (Index i = thread; i < n; i += threads) trace += left[i];
            trace = block_sum(trace, room);
            __syncthreads();
            if (!(r < rank && r < n && trace > double(n) * tolerance)) break;
            double most = -1, first = -double(n);
            for (Index i = thread; i < n; i += threads) most = left[i] > most ? left[i] : most;
            const double least = (1 - near_pivots) * block_max(most, room);
            for (Index i = thread; i < n; i += threads)
                if (left[i] >= least && -double(i) > first) first = -double(i);
            const Index pivot = Index(-block_max(first, room));
            const double inverse = 1 / math::sqrt(left[pivot]);
            __syncthreads();
            for (Index i = thread; i < n; i += threads) {
                double value = covariance_at(square_between(x, i, pivot), kind, scale);
                for (Index s = 0; s < r; ++s) value -= F[s * n + i] * F[s * n + pivot];
                value *= inverse;
                F[r * n + i] = value;
                const double rest = left[i] - value * value;
                left[i] = i == pivot || rest < 0 ? 0 : rest;
            }
            __syncthreads();
        }
        for (Index k = thread; k < n * rank; k += threads)
            factors.data[t * factors.matrix + k / rank * factors.row + k % rank * factors.col] = F[k % rank * n + k / rank];
        if (thread == 0) residual[t] = trace;
        __syncthreads();
    }
}

/// theta_b = L e with L L' = K + jitter I, a draw a block; failed[b]: whether there is no such L. workspace: the packed matrix of
/// n + 1 rows, and 2 n numbers, a block.
FEDKERN_LARGE_KERNEL gp_draws(Matrix<const double> x, Vector<const double> lengthscale, GpKind kind, double jitter, Names names,
                              Matrix<double> theta, Index* failed, double* workspace) {
    FEDKERN_SHARED(int, flag, 1);
    const Index n = x.rows;
    const DrawNames draws = names.draws();
    const int thread = int(threadIdx.x), threads = int(blockDim.x);
    double *const e = workspace + blockIdx.x * (packed_size(n + 1) + 2 * n), *const inverse = e + n;
    const Packed A{inverse + n, int(n) + 1};
    for (Index b = blockIdx.x; b < theta.rows; b += gridDim.x) {
        for (Index j = warp(); j < n; j += warps())
            for (Index i = j + lane(); i <= n; i += 32)
                A(int(i), int(j)) = i == n ? 0 : covariance_at(square_between(x, i, j), kind, lengthscale[b]) + (i == j ? jitter : 0);
        for (Index i = thread; i < n; i += threads) e[i] = normal_number(b * n + i, draws);
        const bool good = factorise(A, int(n), inverse, flag);
        for (Index i = thread; i < n; i += threads) {
            double sum = 0;
            for (Index j = 0; j <= i; ++j) sum += A(int(i), int(j)) * e[j];
            theta.row(b)[i] = sum;
        }
        if (thread == 0) failed[b] = !good;
        __syncthreads();
    }
}

FEDKERN_INSTANCE(entries)
FEDKERN_INSTANCE(normals<double>)
FEDKERN_INSTANCE(stored_draws<double>)
FEDKERN_INSTANCE(dense_draws<double>)
FEDKERN_INSTANCE(sparse_draws<double>)
FEDKERN_INSTANCE(eigen_coefficients)
FEDKERN_INSTANCE(gp_covariances)
FEDKERN_INSTANCE(gp_pivoted)
FEDKERN_INSTANCE(gp_draws)

} // namespace cuda
} // namespace fedkern
