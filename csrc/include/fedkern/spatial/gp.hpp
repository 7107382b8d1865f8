// Gaussian processes at fixed locations: covariances, pivoted Cholesky factors, draws (docs/spec/sigma.md, section 3).
#pragma once
#include "fedkern/blas.hpp"
#include "fedkern/tensor.hpp"
#include "table.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

/// Locations with a coordinate in each row, and squared distances from them.
struct Locations {
    Index n, p;
    Scratch<double> x;

    explicit Locations(Matrix<const double> rows) : n(rows.rows), p(rows.cols), x(rows.rows * rows.cols) {
        for (Index i = 0; i < n; ++i)
            for (Index d = 0; d < p; ++d) x[d * n + i] = rows.row(i)[d];
    }
    void squares(Index from, double* out) const {
        std::fill(out, out + n, 0.0);
        for (Index d = 0; d < p; ++d) {
            const double* at = &x[d * n];
            for (Index i = 0; i < n; ++i) out[i] += (at[i] - at[from]) * (at[i] - at[from]);
        }
    }
};

/// Squared distances become covariances.
template <GpKind kind> void gp_kernel(double* values, Index count, double lengthscale) {
    const double rate = gp_rate(kind, lengthscale);
    for (Index i = 0; i < count; ++i) values[i] = gp_value(kind, values[i], rate);
}

inline void gp_kernel(GpKind kind, double* values, Index count, double lengthscale) {
    if (!is_lengthscale(lengthscale)) return std::fill(values, values + count, math::not_a_number<double>());
    if (kind == GpKind::rbf) return gp_kernel<GpKind::rbf>(values, count, lengthscale);
    if (kind == GpKind::matern12) return gp_kernel<GpKind::matern12>(values, count, lengthscale);
    if (kind == GpKind::matern32) return gp_kernel<GpKind::matern32>(values, count, lengthscale);
    gp_kernel<GpKind::matern52>(values, count, lengthscale);
}

/// One row of a covariance matrix.
inline void gp_row(const Locations& at, GpKind kind, double lengthscale, double jitter, Index i, double* out) {
    at.squares(i, out);
    gp_kernel(kind, out, at.n, lengthscale);
    out[i] += jitter;
}

inline void gp_covariance(Matrix<const double> x, Vector<const double> lengthscale, GpKind kind, double jitter, Tensor<double, 3> out,
                          int n_threads) {
    const Locations at(x);
    const Index n = at.n, rows = lengthscale.size * n;
    for_blocks(rows, block_count(rows), worthwhile(n_threads, 20.0 * double(rows) * double(n)), [&](Index, Index begin, Index end) {
        const Scratch<double> space(n);
        for (Index row = begin; row < end; ++row) {
            const auto to = out[row / n][row % n];
            double* values = to.stride[0] == 1 ? to.data : &space[0];
            gp_row(at, kind, lengthscale[row / n], jitter, row % n, values);
            if (to.stride[0] != 1) copy(values, to);
        }
    });
}

inline constexpr double near_pivots = 1e-6; // pivots that count as equal

/// A factor by columns, F (rank, n), and the trace of what is missing.
inline double gp_pivoted(const Locations& at, GpKind kind, double lengthscale, double tolerance, Index rank, double* F, double* left) {
    const Index n = at.n;
    std::fill(F, F + rank * n, 0.0);
    std::fill(left, left + n, is_lengthscale(lengthscale) ? 1.0 : math::not_a_number<double>());
    const auto trace = [&] {
        double sum = 0;
        for (Index i = 0; i < n; ++i) sum += left[i];
        return sum;
    };
    for (Index r = 0; r < std::min(rank, n) && trace() > double(n) * tolerance; ++r) {
        const double least = (1 - near_pivots) * *std::max_element(left, left + n);
        const Index pivot = std::find_if(left, left + n, [&](double v) { return v >= least; }) - left;
        double* column = F + r * n;
        gp_row(at, kind, lengthscale, 0, pivot, column);
        for (Index s = 0; s < r; ++s) {
            const double *before = F + s * n, factor = before[pivot];
            for (Index i = 0; i < n; ++i) column[i] -= before[i] * factor;
        }
        const double inverse = 1 / math::sqrt(left[pivot]);
        for (Index i = 0; i < n; ++i) column[i] *= inverse, left[i] = std::max(left[i] - column[i] * column[i], 0.0);
        left[pivot] = 0;
    }
    return trace();
}

inline void gp_factor(Matrix<const double> x, Vector<const double> lengthscale, GpKind kind, double tolerance, Tensor<double, 3> factors,
                      Vector<double> residual, int n_threads) {
    const Locations at(x);
    const Index n = at.n, m = lengthscale.size, rank = factors.shape[2];
    n_threads = worthwhile(n_threads, double(m) * double(n) * double(rank) * double(rank + 20));
    for_blocks(m, block_count(m, 1), n_threads, [&](Index, Index begin, Index end) {
        const Scratch<double> F(rank * n), left(n);
        for (Index t = begin; t < end; ++t) {
            residual[t] = gp_pivoted(at, kind, lengthscale[t], tolerance, rank, F, left);
            const auto to = factors[t];
            for (Index i = 0; i < n; ++i) {
                const auto row = to[i];
                for (Index r = 0; r < rank; ++r) row[r] = F[r * n + i];
            }
        }
    });
}

/// L e for every lengthscale; -1, or the first whose covariance has no factor.
inline Index gp_sample(Matrix<const double> x, Vector<const double> lengthscale, GpKind kind, double jitter, DrawNames names,
                       Matrix<double> theta, int n_threads, const Blas& blas) {
    const Locations at(x);
    const Index n = at.n, m = lengthscale.size;
    const Scratch<int> infos(m);
    n_threads = worthwhile(n_threads, double(m) * double(n) * double(n) * double(n + 60) / 3);
    for_blocks(m, block_count(m, 1), n_threads, [&](Index, Index begin, Index end) {
        const Scratch<double> A(n * n), e(n);
        for (Index b = begin; b < end; ++b) {
            for (Index i = 0; i < n; ++i) gp_row(at, kind, lengthscale[b], jitter, i, &A[i * n]);
            int info = 0;
            if (n) call(blas.dpotrf, 'L', n, static_cast<double*>(A), n, &info);
            infos[b] = info;
            fill_normal_from({e, n}, b * n, names);
            if (n) call(blas.dtrmv, 'L', 'N', 'N', n, static_cast<double*>(A), n, static_cast<double*>(e), 1);
            for (Index i = 0; i < n; ++i) theta.row(b)[i] = e[i];
        }
    });
    for (Index b = 0; b < m; ++b)
        if (infos[b]) return b;
    return -1;
}

} // namespace FEDKERN_ISA
} // namespace fedkern
