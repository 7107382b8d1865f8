// Full-rank posteriors q = N(mu, L L'): sums over examples of v_i = (r x, k tril(x u')), u = L'x, and the ELBO with its gradient in
// (mu, L). Specification: docs/spec/pvi.md, section 3.5.
#pragma once
#include "elbo.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

/// total_mu = sum of w_i r_i x_i; total_L, (d, d), has sum of w_i k_i x_i u_i' in its lower triangle and unspecified numbers above.
/// Clipping, skipped rows and value as in sum_examples.
template <class Out> Index sum_full_examples(const Regression& data, const Activations& q, const Family& family, const Clipping* clip,
                                             double* value, std::vector<Out>& total_mu, std::vector<Out>& total_L, int n_threads) {
    constexpr bool grid = std::is_integral_v<Out>;
    const Index d = data.d, padded = round_up(d, 16), size = padded + d * padded;
    const Index chunks = chunk_count(data.n, size);
    Lines<Out> partial(chunks * size);
    std::vector<Index> skipped(chunks);
    std::vector<double> values(chunks);
    for_blocks(data.n, chunks, n_threads, [&](Index chunk, Index begin, Index end) {
        Out *sum_mu = partial.data() + chunk * size, *sum_L = sum_mu + padded;
        alignas(64) double m[block_rows], s[block_rows], r[block_rows], k[block_rows], e[block_rows], part[block_rows * panel];
        Lines<double> u(block_rows * padded), row(grid ? padded : 0);
        for (RowBlock<double> block(data, family, begin, end); block.next();) {
            row_dots(block.x, Ahead{}, block.size, q.mu(), d, m);
            std::fill_n(s, block.size, 0.0);
            for (Index p = 0; p < q.panels(); ++p) {
                q.rotate(block, p, part);
                for (Index i = 0; i < block.size; ++i) std::copy_n(part + i * panel, panel, &u[i * padded + p * panel]);
                add_squares(part, block.size, s);
            }
            Activations::finish(block, m, s);
            family.expect(block.padded, m, s, block.y, value ? e : nullptr, r, k);
            if (value) {
                family.base(block.size, block.y, s);
                for (Index i = 0; i < block.size; ++i) values[chunk] += block.weight[i] * (e[i] + s[i]);
            }
            const double *x[block_rows], *us[block_rows];
            Index kept = 0;
            for (Index i = 0; i < block.size; ++i) {
                double a = block.weight[i] * r[i], b = block.weight[i] * k[i];
                if (clip) {
                    double sum_2 = 0, sum_4 = 0, below = 0; // sum x^2, sum_i x_i^2 sum_{j <= i} u_j^2
                    for (Index j = 0; j < d; ++j) {
                        const double xj = block.x[i][j], uj = u[i * padded + j];
                        below += uj * uj;
                        sum_2 += xj * xj;
                        sum_4 += xj * xj * below;
                    }
                    const double squared = a * a * sum_2 + b * b * sum_4 + 0 * m[i];
                    double w;
                    clip_weights(1, &squared, *clip, data.single, &w);
                    if (is_extreme(a) | is_extreme(b)) {
                        const double careful = row_square(a, sum_2) + row_square(b, sum_4) + 0 * m[i];
                        clip_weights(1, &careful, *clip, data.single, &w);
                    }
                    if (!(w == w)) {
                        ++skipped[chunk];
                        continue;
                    }
                    a *= w, b *= w;
                }
                x[kept] = block.x[i], us[kept] = u.data() + i * padded, r[kept] = a, k[kept] = b;
                ++kept;
            }
            if constexpr (grid) {
                for (Index i = 0; i < kept; ++i)
                    for (Index j = 0; j < d; ++j) {
                        const double xj = x[i][j], scaled = k[i] * xj;
                        sum_mu[j] += Out(r[i] * xj);
                        for (Index l = 0; l <= j; ++l) sum_L[j * padded + l] += Out(scaled * us[i][l]);
                    }
            } else {
                for (Index i = 0; i < kept; ++i)
                    for (Index j = 0; j < d; ++j) sum_mu[j] += r[i] * x[i][j];
                for (Index p = 0; p < q.panels(); ++p) {
                    const Index width = std::min(panel, d - p * panel);
                    for (Index i = 0; i < kept; ++i)
                        for (Index j = 0; j < panel; ++j) part[i * panel + j] = j < width ? k[i] * x[i][p * panel + j] : 0;
                    if (width == panel) {
                        add_panel(us, kept, part, (p + 1) * panel, sum_L + p * panel * padded, padded);
                    } else {
                        Lines<double> last(panel * padded);
                        add_panel(us, kept, part, d, last.data(), padded);
                        for (Index j = 0; j < width * padded; ++j) sum_L[p * panel * padded + j] += last[j];
                    }
                }
            }
        }
    });
    Index all_skipped = 0;
    for (Index b = 0; b < chunks; ++b) {
        const Out *from_mu = partial.data() + b * size, *from_L = from_mu + padded;
        for (Index j = 0; j < d; ++j) {
            total_mu[j] += from_mu[j];
            for (Index l = 0; l <= j; ++l) total_L[j * d + l] += from_L[j * padded + l];
        }
        if (value) *value += values[b];
        all_skipped += skipped[b];
    }
    return all_skipped;
}

/// total = [the mu block, the lower triangle of the L block row by row]: d + d (d + 1) / 2 numbers.
template <class Out> Index glm_clipped_sum_full(const Regression& data, const Posterior& q, Likelihood likelihood, const Draws& draws,
                                                const Clipping& clip, Vector<Out> total, int n_threads) {
    const Index d = data.d;
    const Activations activations(q);
    std::vector<Out> mu(d), L(d * d);
    const Index skipped = sum_full_examples(data, activations, *make_family(likelihood), &clip, nullptr, mu, L, n_threads);
    Index k = 0;
    for (; k < d; ++k) total[k] = mu[k];
    for (Index i = 0; i < d; ++i)
        for (Index j = 0; j <= i; ++j) total[k++] = L[i * d + j];
    if constexpr (!std::is_integral_v<Out>)
        if (clip.noise > 0) add_keyed_noise(total, clip.noise * clip.bound, draws);
    return skipped;
}

/// The ELBO and its gradient in (mu, L), zero above the diagonal of L. `normaliser` is the log of the prior's constant.
inline double glm_elbo_grad_full(const Regression& data, const Posterior& q, const Cavity& prior, double normaliser, Likelihood likelihood,
                                 ElboEstimator estimator, const Draws& draws, Vector<double> grad_mu, Matrix<double> grad_L,
                                 int n_threads) {
    const Index d = data.d;
    std::vector<double> L(d * d), sum_mu(d), sum_L(d * d), P_mu(d);
    for (Index i = 0; i < d; ++i)
        for (Index j = 0; j <= i; ++j) L[i * d + j] = q.factor.row(i)[j];
    double elbo = normaliser + double(d) * half_log_2pi;
    for (Index i = 0; i < d; ++i) elbo += std::log(L[i * d + i]);

    if (estimator == ElboEstimator::analytic) {
        const Activations activations(q);
        sum_full_examples(data, activations, *make_family(likelihood), nullptr, &elbo, sum_mu, sum_L, n_threads);
        std::vector<double> PL(d);
        elbo += 0.5 * double(d);
        for (Index i = 0; i < d; ++i) {
            const auto P = prior.full.row(i);
            std::fill(PL.begin(), PL.end(), 0.0);
            double P_mu = 0;
            for (Index k = 0; k < d; ++k) P_mu += P[k] * q.mu[k];
            Index k = 0;
            for (; k + 4 <= d; k += 4) { // above the diagonal L is zero
                const double *row = L.data() + k * d, P0 = P[k], P1 = P[k + 1], P2 = P[k + 2], P3 = P[k + 3];
                for (Index j = 0; j < k + 4; ++j) PL[j] = PL[j] + P0 * row[j] + P1 * row[d + j] + P2 * row[2 * d + j] + P3 * row[3 * d + j];
            }
            for (; k < d; ++k)
                for (Index j = 0; j <= k; ++j) PL[j] += P[k] * L[k * d + j];
            for (Index j = 0; j <= i; ++j) {
                elbo -= 0.5 * PL[j] * L[i * d + j];
                sum_L[i * d + j] -= PL[j];
            }
            elbo += prior.shift[i] * q.mu[i] - 0.5 * q.mu[i] * P_mu;
            sum_mu[i] += prior.shift[i] - P_mu;
        }
        for (Index i = 0; i < d; ++i) sum_L[i * d + i] += 1 / L[i * d + i];
    } else {
        const Index S = draws.count;
        const auto e = normal_draws(draws, d);
        std::vector<double> theta(S * d), gradient(S * d), loglik(S), solved(d), copy(d);
        for (Index s = 0; s < S; ++s)
            for (Index i = 0; i < d; ++i) theta[s * d + i] = q.mu[i] + dot(&L[i * d], &e[s * d], i + 1);
        glm_logliks(data, {theta.data(), S, d, d}, likelihood, loglik.data(), {gradient.data(), S, d, d}, n_threads);
        const bool stl = estimator == ElboEstimator::stl;
        for (Index s = 0; s < S; ++s) {
            const double *t = theta.data() + s * d, *es = e.data() + s * d;
            double* u = gradient.data() + s * d;
            elbo += loglik[s] / double(S);
            std::copy_n(es, d, solved.data()); // L'^-1 e, from the last row up
            for (Index i = d; stl && i-- > 0;) {
                const double* row = L.data() + i * d;
                solved[i] /= row[i];
                for (Index j = 0; j < i; ++j) solved[j] -= solved[i] * row[j];
            }
            for (Index i = 0; i < d; ++i) {
                const double P_t = dot(contiguous(prior.full.row(i), copy.data()), t, d);
                elbo += (prior.shift[i] * t[i] - 0.5 * t[i] * P_t + 0.5 * es[i] * es[i]) / double(S);
                u[i] = (u[i] + prior.shift[i] - P_t + (stl ? solved[i] : 0)) / double(S);
                sum_mu[i] += u[i];
                for (Index j = 0; j <= i; ++j) sum_L[i * d + j] += u[i] * es[j];
            }
        }
        if (!stl)
            for (Index i = 0; i < d; ++i) sum_L[i * d + i] += 1 / L[i * d + i];
    }
    for (Index i = 0; i < d; ++i) {
        grad_mu[i] = sum_mu[i];
        for (Index j = 0; j < d; ++j) grad_L.row(i)[j] = j <= i ? sum_L[i * d + j] : 0;
    }
    return elbo;
}

} // namespace FEDKERN_ISA
} // namespace fedkern
