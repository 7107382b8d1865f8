// Moves that shift global and local coefficients together: docs/spec/sparse.md, section 6 (and 11 for the slab).
//
// Coordinates x = (theta, t), 2p of them, t_j a signed tau_j; of these a block. theta_k = theta + t w_k with w_k = d_k / tau fixed,
// so Z_k = [I, diag(w_k)] and the likelihood is quadratic in x: H_k = R'R / sigma^2, h_k = R'(q - R theta_k) / sigma^2.
//
// Counters (stream `moves`, client = server, step as given): normal of position b of the block: item b / 2, half b % 2, draw 0;
// kappa_j: first exponential of item j, draw 1.
#pragma once
#include <vector>

#include "fedkern/blas.hpp"
#include "fedkern/blocks.hpp"
#include "gaussian.hpp"
#include "server_views.hpp"

namespace fedkern {

inline namespace FEDKERN_ISA {

/// Z'h and Z'HZ of one client for a block of coordinates, without the prior's terms but with the slab's.
inline void move_terms(Tensor<const double, 2> R, Tensor<const double, 2> q, Tensor<const std::int64_t, 1> block, MoveState state,
                       Tensor<const double, 2> deviation, Tensor<const double, 1> sigma_sq, double slab, Tensor<double, 2> gradient,
                       Tensor<double, 3> precision, int n_threads) {
    const Index r = R.shape[0], p = R.shape[1], w = block.shape[0], c = state.theta.shape[0];
    // Columns of R one after the other, with zeros below their diagonal, and the block's part of R'R.
    std::vector<double> columns(p * r), gram(w * w);
    std::vector<Index> column(w);
    for (Index i = 0; i < r; ++i)
        for (Index j = i; j < p; ++j) columns[j * r + i] = R[i][j];
    const auto length = [&](Index j) { return j + 1 < r ? j + 1 : r; };
    for (Index a = 0; a < w; ++a) {
        column[a] = block[a] % p;
        for (Index b = 0; b <= a; ++b) {
            const Index ja = column[a], jb = column[b];
            gram[a * w + b] = gram[b * w + a] = dot(&columns[ja * r], &columns[jb * r], length(ja < jb ? ja : jb));
        }
    }
    const double slab_precision = 1 / (slab * slab);
    for_blocks(c, c, worthwhile(n_threads, double(c) * double(w) * double(w + r)), [&](Index i, Index, Index) {
        std::vector<double> residual(r), factor(w);
        copy(q[i], residual.data());
        for (Index j = 0; j < p; ++j) {
            const double theta = state.theta[i][j] + deviation[i][j];
            for (Index k = 0; k < length(j); ++k) residual[k] -= columns[j * r + k] * theta;
        }
        const double error_precision = 1 / sigma_sq[i];
        for (Index a = 0; a < w; ++a) {
            const Index j = column[a];
            const bool of_tau = block[a] >= p;
            const double d = deviation[i][j];
            factor[a] = of_tau ? d / math::sqrt(state.tau_sq[i][j]) : 1;
            gradient[i][a] = factor[a] * dot(&columns[j * r], residual.data(), length(j)) * error_precision;
            if (of_tau) gradient[i][a] -= factor[a] * d * slab_precision;
            for (Index b = 0; b <= a; ++b) {
                const double value = factor[a] * factor[b] * gram[a * w + b] * error_precision;
                precision[i][a][b] = precision[i][b][a] = value;
            }
            if (of_tau) precision[i][a][a] += factor[a] * factor[a] * slab_precision;
        }
    });
}

/// x += N(Q^-1 g, Q^-1), Q = sum_k Z'HZ + diag(1/v, 1/kappa), g = sum_k Z'h - x / (v, kappa), with
/// kappa_j ~ IG(1, (s^2 + tau_j^2) / 2). Where Q has no Cholesky factor, the block becomes NaN.
inline void move(Tensor<const double, 2> gradient, Tensor<const double, 3> precision, Tensor<const std::int64_t, 1> block, MoveState state,
                 MovePrior prior, U64 seed, U64 first_chain, U32 step, Tensor<double, 2> theta, Tensor<double, 2> t, int n_threads,
                 const Blas& blas) {
    constexpr U32 server = 0xffffffff;
    const Index c = theta.shape[0], p = theta.shape[1], w = block.shape[0];
    for_blocks(c, c, worthwhile(n_threads, double(c) * double(w) * (double(w * w) / 3 + 100)), [&](Index i, Index, Index) {
        const U64 key = stream_key(seed, Stream::moves, first_chain + U64(i));
        std::vector<double> Q(w * w), g(w), normal(w), scale(w);
        for (Index j = 0; j < p; ++j) theta[i][j] = state.theta[i][j], t[i][j] = math::sqrt(state.tau_sq[i][j]);
        const auto x = [&](Index a) -> double& { return block[a] < p ? theta[i][block[a]] : t[i][block[a] - p]; };
        const auto variance = [&](Index a) {
            const Index j = block[a] % p;
            if (block[a] < p) {
                if (prior.gamma[i][j] == 1) return prior.eta[i][j];
                return prior.spike_variance > 0 ? prior.spike_variance : prior.c0 * prior.eta[i][j];
            }
            const double exponential = exponential_pair(philox_bits({U32(j), 1, server, step}, key)).first;
            return 0.5 * (prior.scale_tau * prior.scale_tau + state.tau_sq[i][j]) / exponential;
        };
        for (Index a = 0; a < w; ++a) {
            const double of_prior = 1 / variance(a), diagonal = precision[i][a][a] + of_prior;
            scale[a] = 1 / math::sqrt(diagonal);
            Q[a * w + a] = scale[a] * diagonal * scale[a];
            g[a] = scale[a] * (gradient[i][a] - of_prior * x(a));
        }
        for (Index a = 0; a < w; ++a)
            for (Index b = 0; b < a; ++b) Q[b * w + a] = scale[a] * precision[i][a][b] * scale[b]; // lower, by columns
        fill_normal({normal.data(), w}, {0, 0, server, step}, key);
        int info = 0;
        if (w) {
            call(blas.dpotrf, 'L', w, Q.data(), w, &info);
            call(blas.dtrsv, 'L', 'N', 'N', w, Q.data(), w, g.data(), 1);
            for (Index a = 0; a < w; ++a) g[a] += normal[a];
            call(blas.dtrsv, 'L', 'T', 'N', w, Q.data(), w, g.data(), 1);
        }
        for (Index a = 0; a < w; ++a) x(a) += info ? math::not_a_number<double>() : scale[a] * g[a];
    });
}

} // namespace FEDKERN_ISA
} // namespace fedkern
