// Local sweeps of the sparse models: a site's scales, coefficients and error variance given the global theta and tau.
// docs/spec/sparse.md, section 2 (conditionals), 3 (draw of the coefficients), 8 (the p regressions of a Markov random field).
//
// Counters. Coefficient j of regression g: item g p + j of stream scales; the normals of regression g: items from g p of stream
// coefficients; sigma^2 of regression g: item g of stream variances.
#pragma once
#include "fedkern/blocks.hpp"
#include "gaussian.hpp"
#include "scales.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

/// One chain of one regression. All arrays are neighbours in memory; coefficient `inert` (-1: none) does not exist.
struct LocalChain {
    Index regression, inert;
    double rss; // |y|^2 - |q|^2
    const double* tau_sq;
    Residual of; // e = q - R theta
    double *d, *lambda_sq, sigma_sq;
    double *m, *t; // scratch
};

inline void sweep_chain(LocalChain& x, CoefficientDraw& coefficients, Index p, const LocalModel& model, const SweepCounter& counter,
                        U64 chain, Vector<long> events) {
    const U64 scale_key = stream_key(counter.seed, Stream::scales, chain);
    const U64 normal_key = stream_key(counter.seed, Stream::coefficients, chain);
    const U64 variance_key = stream_key(counter.seed, Stream::variances, chain);
    double gammas[tile_size]; // of the next sweeps
    for (Index k = 0; k < event_count; ++k) events[k] = k == fault ? -1 : 0;
    for (Index sweep = 0; sweep < counter.n_sweeps; ++sweep) {
        const auto stop = [&](Quantity quantity) { events[fault] = 8 * sweep + quantity; };
        const Counter at{U32(x.regression * p), 0, counter.client, U32(counter.step + sweep)};

        // lambda^2 given m = d^2 / (2 tau^2)
        for (Index j = 0; j < p; ++j) x.m[j] = 0.5 * x.d[j] * x.d[j] / x.tau_sq[j];
        if (x.inert >= 0) x.m[x.inert] = 1;
        events[scales_clipped] += draw_local_variances(p, x.m, x.lambda_sq, model.lambda, at, scale_key);
        if (x.inert >= 0) x.lambda_sq[x.inert] = 1;
        bool known = true;
        for (Index j = 0; j < p; ++j) known &= x.lambda_sq[j] > 0;
        for (Index j = 0; j < p; ++j) x.t[j] = math::sqrt(x.lambda_sq[j] * x.tau_sq[j]);
        if (model.slab < math::infinity<double>())
            for (Index j = 0; j < p; ++j) x.t[j] = prior_deviation(x.t[j], model.slab);
        if (!known) return stop(of_lambda);
        if (x.inert >= 0) x.t[x.inert] = 0;

        // d ~ N(., .)
        const auto way = coefficients.draw(x.t, math::sqrt(x.sigma_sq), x.of, at, normal_key, x.d);
        if (way == CoefficientDraw::Way::failed) return stop(of_coefficients);
        events[orthogonal_factors] += way == CoefficientDraw::Way::factorised_again;
        events[data_draws] += way == CoefficientDraw::Way::data;

        // sigma^2 ~ IG(a + n/2, b + RSS/2), RSS = rss + |q - R (theta + d)|^2
        const double rss = x.rss + coefficients.residual_squares(x.of.e, x.d);
        if (sweep % tile_size == 0) {
            const Index next = std::min(tile_size, counter.n_sweeps - sweep);
            gammas_of_steps(model.shape + 0.5 * model.n, {U32(x.regression), 0, at.client, at.step}, variance_key, next, gammas);
        }
        x.sigma_sq = (model.rate + 0.5 * rss) / gammas[sweep % tile_size];
        if (!positive(x.sigma_sq)) return stop(of_sigma);
    }
}

/// Into how many parts independent tasks are cut: each part has its own memory.
FEDKERN_INLINE Index parts(Index tasks, int n_threads) { return std::min<Index>(tasks, n_threads > 1 ? 4 * n_threads : 1); }

/// Runs chains x regressions on several threads. start(task, chain, theta) fills the chain's numbers of its data, and theta with
/// the x of e = q(i) - R x; q(task, i) is element i of q.
template <class Start, class Q> void sweep_all(const Design& design, Index chains, Index regressions, const Rows<const double>& tau_sq,
                                               const LocalState<const double>& from, const LocalModel& model, const SweepCounter& counter,
                                               const LocalState<double>& to, const Rows<long>& events, int n_threads, const Start& start,
                                               const Q& q) {
    const Index p = design.p, r = design.r, tasks = chains * regressions;
    const double shorter = double(std::min(p, r)), once = double(p) * (shorter * shorter / 3 + 4 * shorter + 200);
    n_threads = worthwhile(n_threads, double(tasks) * double(counter.n_sweeps) * once);
    for_blocks(tasks, parts(tasks, n_threads), n_threads, [&](Index, Index begin, Index end) {
        CoefficientDraw coefficients(design, model.form);
        const Numbers space(7 * p + r);
        double *const theta = space, *const tau = theta + p, *const c = tau + p, *const d = c + p, *const lambda = d + p,
                      *const m = lambda + p;
        double *const t = m + p, *const e = t + p;
        for (Index task = begin; task < end; ++task) {
            LocalChain chain{task % regressions, -1, 0, tau, {e, c}, d, lambda, from.sigma_sq.row(task)[0], m, t};
            for (Index j = 0; j < p; ++j)
                tau[j] = tau_sq.row(task)[j], d[j] = from.deviation.row(task)[j], lambda[j] = from.lambda_sq.row(task)[j];
            start(task, chain, theta);
            if (chain.inert >= 0) tau[chain.inert] = 1, d[chain.inert] = 0;
            design.residual([&](Index i) { return q(task, i); }, theta, e);
            sweep_chain(chain, coefficients, p, model, counter, counter.chain + U64(task / regressions), events.row(task));
            for (Index j = 0; j < p; ++j) to.deviation.row(task)[j] = d[j], to.lambda_sq.row(task)[j] = lambda[j];
            to.sigma_sq.row(task)[0] = chain.sigma_sq;
        }
    });
}

/// Sweeps of one site's regression: q (c, r) = Q'y, rss (c,) = |y|^2 - |q|^2.
inline void local_sweeps(const Factor& factor, Matrix<const double> q, Vector<const double> rss, const Rows<const double>& theta,
                         const Rows<const double>& tau_sq, const LocalState<const double>& from, const LocalModel& model,
                         const SweepCounter& counter, const LocalState<double>& to, const Rows<long>& events, int n_threads) {
    const Design design(factor);
    sweep_all(
        design, theta.chains, 1, tau_sq, from, model, counter, to, events, n_threads,
        [&](Index task, LocalChain& chain, double* x) {
            chain.rss = rss[task];
            for (Index j = 0; j < design.p; ++j) x[j] = theta.row(task)[j];
        },
        [&](Index task, Index i) { return q.row(task)[i]; });
}

/// Sweeps of the p regressions of one column on the others, all on one factor R. S with s_jj = 0 makes row and column j of A_j
/// those of the identity, so nothing is copied.
inline void local_sweeps_batched(const Factor& factor, const Rows<const double>& theta, const Rows<const double>& tau_sq,
                                 const LocalState<const double>& from, const LocalModel& model, const SweepCounter& counter,
                                 const LocalState<double>& to, const Rows<long>& events, int n_threads) {
    const Design design(factor);
    if (design.p == 0) return;
    sweep_all(
        design, theta.chains, design.p, tau_sq, from, model, counter, to, events, n_threads,
        [&](Index task, LocalChain& chain, double* x) { // e = R (e_j - theta)
            for (Index j = 0; j < design.p; ++j) x[j] = theta.row(task)[j];
            chain.inert = chain.regression;
            x[chain.inert] = -1;
        },
        [](Index, Index) { return 0.; });
}

/// One draw of each chain's coefficients, prior N(mean, scale^2). NaN where it fails.
inline void gaussian_posterior_draw(const Factor& factor, Matrix<const double> q, Matrix<const double> mean, Matrix<const double> scale,
                                    Vector<const double> sigma_sq, double slab, DrawForm form, const SweepCounter& counter,
                                    Matrix<double> deviation, int n_threads) {
    const Design design(factor);
    const Index p = design.p, chains = mean.rows;
    for_blocks(chains, parts(chains, n_threads), n_threads, [&](Index, Index begin, Index end) {
        CoefficientDraw coefficients(design, form);
        const Numbers space(4 * p + design.r);
        double *const theta = space, *const t = theta + p, *const c = t + p, *const d = c + p, *const e = d + p;
        for (Index i = begin; i < end; ++i) {
            for (Index j = 0; j < p; ++j) theta[j] = mean.row(i)[j], t[j] = prior_deviation(scale.row(i)[j], slab);
            design.residual([&](Index k) { return q.row(i)[k]; }, theta, e);
            Residual of{e, c};
            const U64 key = stream_key(counter.seed, Stream::coefficients, counter.chain + U64(i));
            const auto way = coefficients.draw(t, math::sqrt(sigma_sq[i]), of, {0, 0, counter.client, counter.step}, key, d);
            for (Index j = 0; j < p; ++j) deviation.row(i)[j] = way == CoefficientDraw::Way::failed ? math::not_a_number<double>() : d[j];
        }
    });
}

} // namespace FEDKERN_ISA
} // namespace fedkern
