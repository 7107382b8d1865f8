// Sums over examples of the gradient of E log p(y_i | x_i'theta) in (mu, omega = log sigma), each example's vector clipped without
// being written down. Specification: dp-pvi.md, sections 3 and 4.
#pragma once
#include "glm.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

/// A row's norm is right to 1e-15, so this keeps what is summed below the bound.
inline constexpr double clip_margin = 1 - 1e-9;

/// What is summed for a row: alpha x and beta x^2 sigma^2. Coefficients of the rows that are kept, four at a time.
template <class T> struct Kept {
    Index size = 0;
    const T* x[RowBlock<T>::capacity];
    double alpha[RowBlock<T>::capacity], beta[RowBlock<T>::capacity];

    void add(const T* row, double a, double b) {
        x[size] = row, alpha[size] = a, beta[size] = b;
        ++size;
    }
    void pad() {
        for (; size % 4; ++size) x[size] = x[0], alpha[size] = beta[size] = 0;
    }
};

template <bool grid> FEDKERN_INLINE double rounded(double x) { return grid ? __builtin_trunc(x) : x; }

/// g_j += sum_i alpha_i x_ij, h_j += sum_i beta_i x_ij^2 v_j (without a grid v_j is left to the caller: it is the same for all rows).
template <bool grid, class T> void add_rows(const Kept<T>& kept, const double* v, Index d, double* __restrict g, double* __restrict h) {
    for (Index i = 0; i < kept.size; i += 4) {
        const T *x0 = kept.x[i], *x1 = kept.x[i + 1], *x2 = kept.x[i + 2], *x3 = kept.x[i + 3];
        const double a0 = kept.alpha[i], a1 = kept.alpha[i + 1], a2 = kept.alpha[i + 2], a3 = kept.alpha[i + 3];
        const double b0 = kept.beta[i], b1 = kept.beta[i + 1], b2 = kept.beta[i + 2], b3 = kept.beta[i + 3];
        for (Index j = 0; j < d; ++j) {
            const double y0 = x0[j], y1 = x1[j], y2 = x2[j], y3 = x3[j], vj = grid ? v[j] : 1;
            g[j] += (rounded<grid>(a0 * y0) + rounded<grid>(a1 * y1)) + (rounded<grid>(a2 * y2) + rounded<grid>(a3 * y3));
            h[j] += (rounded<grid>(b0 * (y0 * y0 * vj)) + rounded<grid>(b1 * (y1 * y1 * vj))) +
                    (rounded<grid>(b2 * (y2 * y2 * vj)) + rounded<grid>(b3 * (y3 * y3 * vj)));
        }
    }
}

/// total = [sum of w_i r_i x_i, sum of w_i k_i sigma^2 x_i^2], in float64 or in whole multiples of the grid.
/// With `clip`, a row in which anything is not finite is skipped, and the number of those is returned; without, it is summed.
/// `value`, if wanted, receives the sum of E log p.
template <class T, class Out>
Index sum_examples(const Regression<T>& data, const Posterior& q, Likelihood likelihood, const Clipping* clip, double* value,
                   Vector<Out> total, int n_threads) {
    constexpr bool grid = std::is_integral_v<Out>;
    const Index d = data.x.cols, chunks = block_count(data.n);
    const Activations activations(q);
    const double most = clip ? clip->bound * clip_margin : 0, unit = grid ? clip->grid : 1;
    std::vector<Out> partial(chunks * 2 * d);
    std::vector<Index> skipped(chunks);
    std::vector<double> values(chunks);
    with_family(likelihood, [&](const auto& family) {
        for_row_blocks(data, family, chunks, n_threads, [&](Index chunk, const RowBlock<T>& block, Index) {
            alignas(64) double m[64], v[64], n2[64], n4[64], e[64], r[64], k[64];
            for (Index i = 0; i < block.size; ++i) {
                row_sums<true>(block.x[i], activations.mu(), activations.variance(), d, m + i, v + i, n2 + i, n4 + i);
                m[i] += block.offset[i];
            }
            for (Index i = block.size; i < block.padded; ++i) m[i] = v[i] = 0;
            for (Index i = 0; i < block.padded; ++i) v[i] = std::sqrt(v[i]);
            family.expect(block.padded, m, v, block.y, value ? e : nullptr, r, k);
            Kept<T> kept;
            for (Index i = 0; i < block.size; ++i) {
                const double a = block.weight[i] * r[i], b = block.weight[i] * k[i];
                if (value) values[chunk] += block.weight[i] * (e[i] + family.base(block.y[i]));
                if (clip) {
                    const double squared = a * a * n2[i] + b * b * n4[i];
                    if (!std::isfinite(squared) || !std::isfinite(m[i])) {
                        ++skipped[chunk];
                        continue;
                    }
                    const double norm = std::sqrt(squared), w = (norm > most ? most / norm : 1) / unit;
                    kept.add(block.x[i], w * a, w * b);
                } else {
                    kept.add(block.x[i], a, b);
                }
            }
            kept.pad();
            std::vector<double> sums(2 * d);
            add_rows<grid>(kept, activations.variance(), d, sums.data(), sums.data() + d);
            // Whole numbers below 2^53: exact in float64 within a block, in int64 beyond.
            for (Index j = 0; j < 2 * d; ++j) partial[chunk * 2 * d + j] += Out(sums[j]);
        });
    });
    Index all_skipped = 0;
    for (Index j = 0; j < 2 * d; ++j) total[j] = 0;
    for (Index c = 0; c < chunks; ++c) {
        for (Index j = 0; j < 2 * d; ++j) total[j] += partial[c * 2 * d + j];
        if (value) *value += values[c];
        all_skipped += skipped[c];
    }
    if constexpr (!grid)
        for (Index j = 0; j < d; ++j) total[d + j] *= activations.variance()[j];
    return all_skipped;
}

template <class T>
Index glm_clipped_sum(const Regression<T>& data, const Posterior& q, Likelihood likelihood, const Clipping& clip, Vector<double> total,
                      int n_threads) {
    return sum_examples(data, q, likelihood, &clip, nullptr, total, n_threads);
}

template <class T>
Index glm_clipped_grid_sum(const Regression<T>& data, const Posterior& q, Likelihood likelihood, const Clipping& clip,
                           Vector<long> total, int n_threads) {
    return sum_examples(data, q, likelihood, &clip, nullptr, total, n_threads);
}

/// log of the constant that makes the cavity a density; 0 if nothing does.
inline double log_normaliser(const Cavity& prior) {
    double sum = 0;
    for (Index j = 0; j < prior.shift.size; ++j) {
        const double h = prior.shift[j], P = prior.precision[j];
        if (!(P > 0)) return 0;
        sum += 0.5 * (std::log(P / (2 * M_PI)) - h * h / P);
    }
    return sum;
}

/// The ELBO by quadrature, sum_i w_i E l_i - KL(q || prior), and its gradient in (mu, log sigma).
template <class T>
double glm_elbo_grad(const Regression<T>& data, const Posterior& q, const Cavity& prior, Likelihood likelihood, Vector<double> grad_mu,
                     Vector<double> grad_log_sigma, int n_threads) {
    const Index d = data.x.cols;
    std::vector<double> total(2 * d);
    double elbo = 0;
    sum_examples(data, q, likelihood, nullptr, &elbo, Vector<double>{total.data(), 2 * d}, n_threads);
    for (Index j = 0; j < d; ++j) {
        const double mu = q.mu[j], h = prior.shift[j], P = prior.precision[j], variance = math::exp(2 * q.log_sigma[j]);
        elbo += h * mu - 0.5 * P * (variance + mu * mu) + q.log_sigma[j] + 1.4189385332046727418; // log(2 pi e) / 2
        grad_mu[j] = total[j] + h - P * mu;
        grad_log_sigma[j] = total[d + j] + 1 - P * variance;
    }
    return elbo + log_normaliser(prior);
}

} // namespace FEDKERN_ISA
} // namespace fedkern
