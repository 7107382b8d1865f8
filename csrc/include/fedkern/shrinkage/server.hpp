// The server's sweep of the sparse models: sparse.md, sections 2 (tau), 4 (the sweep) and 11 (slab, groups of coefficients).
//
// Counters (client = server, step = number of the sweep, i = g p + j for coefficient j of regression g):
//   global_scales  tau: item i, as in scales.hpp.
//   indicators     item g p + number of the indicator: first uniform.        effects    item i: first normal.
//   variances      eta, a gamma number: item g (common) or i (coordinate).   rates      rho: gamma numbers 2 g and 2 g + 1.
//   scales         lambda of client k in later passes: item k G p + i, G regressions.
#pragma once
#include <utility>
#include <vector>

#include "fedkern/blocks.hpp"
#include "scales.hpp"
#include "server_views.hpp"

namespace fedkern {

inline namespace FEDKERN_ISA {

inline constexpr U32 server_client = 0xffffffff;

struct ServerKeys {
    U64 scales, variances, global_scales, indicators, effects, rates;

    ServerKeys(U64 seed, U64 chain)
        : scales(stream_key(seed, Stream::scales, chain)), variances(stream_key(seed, Stream::variances, chain)),
          global_scales(stream_key(seed, Stream::global_scales, chain)), indicators(stream_key(seed, Stream::indicators, chain)),
          effects(stream_key(seed, Stream::effects, chain)), rates(stream_key(seed, Stream::rates, chain)) {}
};

// ---- S0 = sum 1/lambda^2, S1 = sum d/lambda^2, S2 = sum d^2/lambda^2 and, with a slab, S3 = sum d.

/// The terms of one client. In memory, and never inlined: a product that were fused with the sum would have other bits than one
/// that has travelled.
[[gnu::noinline]] inline void local_products(const double* d, const double* lambda_sq, Index p, bool slab, double* products) {
    double *zero = products, *one = zero + p, *two = one + p, *three = two + p;
    for (Index j = 0; j < p; ++j) zero[j] = 1 / lambda_sq[j];
    for (Index j = 0; j < p; ++j) one[j] = d[j] * zero[j];
    for (Index j = 0; j < p; ++j) two[j] = d[j] * one[j];
    if (slab)
        for (Index j = 0; j < p; ++j) three[j] = d[j];
}

inline void local_sums(Tensor<const double, 3> deviation, Tensor<const double, 3> lambda_sq, double slab, Tensor<double, 4> out,
                       int n_threads) {
    const Index c = deviation.shape[0], g = deviation.shape[1], p = deviation.shape[2];
    for_blocks(c * g, c * g, worthwhile(n_threads, 10. * double(c * g * p)), [&](Index row, Index, Index) {
        const Index i = row / g, r = row % g;
        std::vector<double> work(6 * p);
        double *d = work.data(), *l = d + p, *products = l + p;
        copy(deviation[i][r], d), copy(lambda_sq[i][r], l);
        local_products(d, l, p, positive(slab), products);
        for (Index s = 0; s < out.shape[0]; ++s) copy(products + s * p, out[s][i][r]);
    });
}

// ---- Draws.

/// log N(x; 0, wide) - log N(x; 0, narrow).
FEDKERN_INLINE double log_ratio(double x, double wide, double narrow) {
    return 0.5 * (math::log(narrow / wide) + (x / wide) * (x / narrow) * (wide - narrow));
}

/// Beta(a + included, b + number - included).
inline double draw_rho(double included, double n_indicators, const ServerOptions& o, Index first, U32 step, U64 key) {
    const double x = gamma(o.rho_a + included, {U32(2 * first), 0, server_client, step}, key);
    const double y = gamma(o.rho_b + n_indicators - included, {U32(2 * first + 1), 0, server_client, step}, key);
    const double rho = x / (x + y);
    return rho < 1e-12 ? 1e-12 : rho > 1 - 1e-12 ? 1 - 1e-12 : rho;
}

/// Arrays of n numbers each, all 1 at first: n is whole groups, so that loops over a row's coefficients have no rest.
struct RowMemory {
    std::vector<double> numbers;
    Index n, taken = 0;

    RowMemory(Index arrays, Index length) : numbers(arrays * length, 1.), n(length) {}
    double* take(Index arrays = 1) { return numbers.data() + n * std::exchange(taken, taken + arrays); }
};

/// What the rows of a unit need one after the other.
struct ServerWork {
    Index n_sums;
    RowMemory memory;
    double *const W = memory.take(), *const mhat = memory.take(), *const logit = memory.take(), *const scratch = memory.take(),
                  *const drawn = memory.take(), *const old = memory.take();
    double *const sums = memory.take(n_sums), *const products = memory.take(n_sums);

    ServerWork(Index n, Index sums_of_clients) : n_sums(sums_of_clients), memory(6 + 2 * sums_of_clients, n) {}
    ServerWork(const ServerWork&) = delete;
};

/// One regression of one chain at the server, in its own memory. Of a coefficient that is not there, numbers are made and not kept.
struct ServerRow {
    const ServerOptions& o;
    Index number, n_clients, p, n = whole_groups(p), clips = 0, fault = -1;
    std::vector<Index> kind; // of each coefficient: -2 none, -1 always included, or the number of its indicator
    RowMemory memory{7, n};
    double *theta = memory.take(), *tau_sq = memory.take(), *gamma = memory.take(), *eta = memory.take(), *inclusion = memory.take();
    double *there = memory.take(), *occurs = memory.take(); // of a coefficient and of an indicator: 1, or 0
    double included = 0, n_indicators = 0;

    ServerRow(const ServerOptions& options, Index row, Index clients, Tensor<const std::int64_t, 1> kinds)
        : o(options), number(row), n_clients(clients), p(kinds.shape[0]), kind(p) {
        std::fill_n(inclusion, n, 0.), std::fill_n(there, n, 0.), std::fill_n(occurs, n, 0.);
        for (Index j = 0; j < p; ++j) {
            kind[j] = kinds[j], there[j] = kind[j] > -2;
            if (kind[j] >= 0) occurs[kind[j]] = 1;
        }
        for (Index i = 0; i < p; ++i) n_indicators += occurs[i];
    }
    ServerRow(ServerRow&&) = default; // the numbers stay where they are

    Counter counter(Index j, U32 step) const { return {U32(number * p + j), 0, server_client, step}; }

    void load(const ServerState<const double>& from, Index chain) {
        copy(from.theta[chain][number], theta), copy(from.tau_sq[chain][number], tau_sq);
        copy(from.gamma[chain][number], gamma), copy(from.eta[chain][number], eta);
        for (Index j = 0; j < p; ++j)
            if (kind[j] == -1) gamma[j] = 1;
    }
    void store(const ServerResult& to, Index chain) const {
        copy(theta, to.state.theta[chain][number]), copy(tau_sq, to.state.tau_sq[chain][number]);
        copy(gamma, to.state.gamma[chain][number]), copy(eta, to.state.eta[chain][number]);
        copy(inclusion, to.inclusion[chain][number]);
        const auto events = to.events[chain][number];
        events[0] = clips, events[1] = events[2] = 0, events[3] = fault;
    }

    /// use(j, size, the blocks' two halves) for the items j .. j + size - 1 of a row; size is at most `tile_size`.
    template <class Use> void for_tiles(U32 step, U64 key, const Use& use) const {
        alignas(64) U64 item[tile_size], first[tile_size], second[tile_size];
        for (Index begin = 0; begin < n; begin += tile_size) {
            const Index size = std::min(tile_size, n - begin);
            const Counter at = counter(begin, step);
            for (Index i = 0; i < size; ++i) item[i] = U32(at.item + U32(i));
            blocks_of(item, size, at, key, first, second);
            use(begin, size, first, second);
        }
    }

    /// tau_j^2; then W_j = sum_k 1/(lambda_kj^2 tau_j^2) and mhat_j = theta_j + (sum_k d_kj/(lambda_kj^2 tau_j^2)) / W_j.
    void draw_tau(const ServerWork& work, U32 step, U64 key) {
        const double slab_precision = 1 / (o.slab * o.slab), clients = double(n_clients);
        const double *const zero = work.sums, *const one = zero + n, *const two = one + n, *const three = two + n;
        double *const drawn = work.drawn, *const W = work.W, *const mhat = work.mhat;
        for (Index j = 0; j < n; ++j) work.scratch[j] = there[j] > 0 ? 0.5 * two[j] : 1, drawn[j] = there[j] > 0 ? tau_sq[j] : 1;
        clips += draw_global_variances(p, work.scratch, clients, drawn, {o.scale_tau, o.expanded}, counter(0, step), key);
        for (Index j = 0; j < n; ++j) {
            tau_sq[j] = there[j] > 0 ? drawn[j] : tau_sq[j];
            W[j] = zero[j] / drawn[j], mhat[j] = one[j] / drawn[j];
        }
        if (slab_precision > 0)
            for (Index j = 0; j < n; ++j) W[j] += clients * slab_precision, mhat[j] += three[j] * slab_precision;
        for (Index j = 0; j < n; ++j) mhat[j] = theta[j] + mhat[j] / W[j];
    }

    /// logit P(gamma = 1) = logit rho + the sum of its coefficients' log ratios, by a logistic draw. `ratio` are the latter.
    void draw_gamma(double rho, double weight, const ServerWork& work, U32 step, U64 key) {
        const double prior = math::log(rho) - math::log1p(-rho);
        double *const logit = work.logit, *const chosen = work.scratch, *const probability = work.drawn;
        const double* ratio = work.scratch;
        std::fill_n(logit, n, prior);
        for (Index j = 0; j < p; ++j)
            if (kind[j] >= 0) logit[kind[j]] += ratio[j];
        for_tiles(step, key, [&](Index begin, Index size, const U64* first, const U64*) {
            for (Index k = 0; k < size; ++k) {
                const Index i = begin + k;
                const double u = uniform(first[k]), known = logit[i] - logit[i]; // NaN unless finite
                chosen[i] = (log_uniform(u) - log_uniform(1 - u) < logit[i] ? 1 : 0) + known;
                probability[i] = math::sigmoid(logit[i]) + known;
            }
        });
        included = 0;
        for (Index i = 0; i < p; ++i) included += occurs[i] > 0 ? chosen[i] : 0;
        for (Index j = 0; j < p; ++j) {
            if (kind[j] == -2) continue;
            if (kind[j] >= 0) gamma[j] = chosen[kind[j]];
            inclusion[j] += weight * (kind[j] >= 0 ? probability[kind[j]] : 1);
        }
    }

    /// theta_j | gamma_j ~ N(W mhat / (W + 1/v), 1/(W + 1/v)).
    void draw_theta(const ServerWork& work, U32 step, U64 key) {
        const double fixed = o.spike_variance, c0 = o.c0;
        for_tiles(step, key, [&](Index begin, Index size, const U64* first, const U64* second) {
            alignas(64) double normal[tile_size];
            first_normals(first, second, size, normal);
            const double *const W = work.W + begin, *const mhat = work.mhat + begin, *const e = eta + begin, *const g = gamma + begin;
            double *const to = theta + begin, *const is = there + begin;
            for (Index i = 0; i < size; ++i) {
                const double spike = fixed > 0 ? fixed : c0 * e[i], v = g[i] == 1 ? e[i] : spike, spread = 1 + W[i] * v;
                const double noise = math::sqrt(v / spread) * normal[i], value = mhat[i] * (W[i] * v / spread) + noise;
                to[i] = is[i] > 0 ? value : to[i];
            }
        });
    }

    /// eta ~ IG(a + p/2, b + (1/2) sum_j theta_j^2 / c0^(1-gamma_j)), or of each coordinate; a fixed spike says nothing of eta.
    void draw_eta(const ServerWork& work, U32 step, U64 key) {
        const double of_spike = o.spike_variance > 0 ? 0 : 1 / o.c0;
        double *const square = work.scratch, *const shape = work.drawn;
        for (Index j = 0; j < n; ++j) {
            const double weight = gamma[j] == 1 ? 1 : of_spike;
            square[j] = there[j] > 0 ? 0.5 * weight * theta[j] * theta[j] : 0;
            shape[j] = there[j] > 0 && weight > 0 ? 0.5 : 0;
        }
        if (o.common) {
            double count = 0, sum = 0;
            for (Index j = 0; j < p; ++j) count += shape[j], sum += square[j];
            const double drawn = (o.rate_eta + sum) / fedkern::gamma(o.shape_eta + count, {U32(number), 0, server_client, step}, key);
            std::fill_n(eta, n, drawn);
            return;
        }
        for (Index j = 0; j < n; ++j) shape[j] += o.shape_eta;
        fill_gamma({shape, p}, {shape, p}, counter(0, step), key);
        for (Index j = 0; j < n; ++j) eta[j] = there[j] > 0 ? (o.rate_eta + square[j]) / shape[j] : eta[j];
    }

    /// All of section 4 but rho and d; `weight` of this pass in the mean of P(gamma = 1). False after a fault.
    bool sweep(const ServerWork& work, double rho, double weight, Index pass, U32 step, const ServerKeys& keys) {
        const double fixed = o.spike_variance, c0 = o.c0;
        const double *const W = work.W, *const mhat = work.mhat;
        double* const ratio = work.scratch;
        draw_tau(work, step, keys.global_scales);
        if (o.blocked) {
            for (Index j = 0; j < n; ++j) ratio[j] = log_ratio(mhat[j], eta[j] + 1 / W[j], (fixed > 0 ? fixed : c0 * eta[j]) + 1 / W[j]);
            draw_gamma(rho, weight, work, step, keys.indicators);
        }
        draw_theta(work, step, keys.effects);
        draw_eta(work, step, keys.variances);
        if (!o.blocked) {
            for (Index j = 0; j < n; ++j) ratio[j] = log_ratio(theta[j], eta[j], fixed > 0 ? fixed : c0 * eta[j]);
            draw_gamma(rho, weight, work, step, keys.indicators);
        }
        return check(tau_sq, pass, 3) && check(theta, pass, 4) && check(eta, pass, 5) && check(inclusion, pass, 7);
    }

    bool check(const double* numbers, Index pass, Index quantity) {
        U64 odd = 0;
        for (Index j = 0; j < n; ++j) odd |= U64(there[j] > 0) & U64(!(math::magnitude(numbers[j]) < math::infinity<double>()));
        if (odd) fault = 8 * pass + quantity;
        return !odd;
    }
};

// ---- Sweeps of many chains and regressions.

/// lambda_kj | d_kj, tau_j at the server.
inline void draw_lambda(ServerRow& row, const ServerWork& work, const Clients& clients, Index chain, Index n_rows, U32 step, U64 key) {
    const Index p = row.p;
    double *const m = work.scratch, *const drawn = work.drawn;
    for (Index k = 0; k < row.n_clients; ++k) {
        const auto d = clients.deviation[k][chain][row.number], lambda_sq = clients.lambda_sq[k][chain][row.number];
        for (Index j = 0; j < p; ++j) m[j] = row.there[j] > 0 ? 0.5 * d[j] * d[j] / row.tau_sq[j] : 1;
        copy(lambda_sq, drawn);
        const Counter first = plus(row.counter(0, step), k * n_rows * p);
        row.clips += draw_local_variances(p, m, drawn, {row.o.scale_lambda, row.o.expanded}, first, key);
        for (Index j = 0; j < p; ++j) lambda_sq[j] = row.there[j] > 0 ? drawn[j] : lambda_sq[j];
    }
}

/// The sums over the clients, in their order.
inline void sum_clients(const ServerRow& row, const ServerWork& work, const Clients& clients, Index chain) {
    const Index n = row.n, all = work.n_sums * n;
    double *const d = work.scratch, *const lambda_sq = work.drawn, *const sums = work.sums, *const products = work.products;
    std::fill_n(d, n, 1.), std::fill_n(lambda_sq, n, 1.);
    for (Index k = 0; k < row.n_clients; ++k) {
        copy(clients.deviation[k][chain][row.number], d), copy(clients.lambda_sq[k][chain][row.number], lambda_sq);
        local_products(d, lambda_sq, n, work.n_sums == 4, k ? products : sums);
        for (Index e = 0; k && e < all; ++e) sums[e] += products[e];
    }
}

/// Passes of all regressions of a chain, or of one of them where each has its own rho. `clients` or, for one pass, `given` sums.
inline void sweep_rows(Index chain, Index begin, Index end, Index n_rows, const Clients* clients, const Tensor<const double, 4>* given,
                       Index n_clients, Tensor<const std::int64_t, 2> indicators, const ServerState<const double>& from,
                       const ServerOptions& o, const ServerDraws& draws, const ServerResult& to) {
    if (begin == end) return; // a rate that is no number is the fault of the first regression, and there is none
    const Index p = indicators.shape[1];
    const ServerKeys keys(draws.seed, draws.chain + U64(chain));
    std::vector<ServerRow> rows;
    rows.reserve(end - begin);
    for (Index r = begin; r < end; ++r) {
        rows.emplace_back(o, r, n_clients, indicators[r]);
        rows.back().load(from, chain);
        to.state.rho[chain][r] = from.rho[chain][r];
    }
    const ServerWork work(whole_groups(p), o.slab < math::infinity<double>() ? 4 : 3);
    bool stopped = false;
    for (Index pass = 0; pass < draws.passes && !stopped; ++pass) {
        const U32 step = draws.step + U32(pass);
        double included = 0, n_indicators = 0;
        for (ServerRow& row : rows) {
            if (clients) {
                if (pass) draw_lambda(row, work, *clients, chain, n_rows, step, keys.scales);
                sum_clients(row, work, *clients, chain);
            } else
                for (Index s = 0; s < work.n_sums; ++s) copy((*given)[s][chain][row.number], work.sums + s * row.n);
            std::copy_n(row.theta, p, work.old);
            stopped = !row.sweep(work, to.state.rho[chain][row.number], 1 / double(draws.passes), pass, step, keys) || stopped;
            for (Index j = 0; j < p; ++j) work.old[j] -= row.theta[j];
            for (Index k = 0; clients && k < n_clients; ++k) {
                const auto d = clients->deviation[k][chain][row.number];
                for (Index j = 0; j < p; ++j) d[j] += work.old[j];
            }
            included += row.included, n_indicators += row.n_indicators;
        }
        if (stopped) break;
        const double rho = draw_rho(included, n_indicators, o, begin, step, keys.rates);
        for (ServerRow& row : rows) to.state.rho[chain][row.number] = rho;
        if (!(rho < 1)) rows[0].fault = 8 * pass + 6, stopped = true;
    }
    for (const ServerRow& row : rows) row.store(to, chain);
}

inline void sweep_chains(const Clients* clients, const Tensor<const double, 4>* given, Index n_clients,
                         Tensor<const std::int64_t, 2> indicators, const ServerState<const double>& from, const ServerOptions& o,
                         const ServerDraws& draws, const ServerResult& to, int n_threads) {
    const Index c = from.rho.shape[0], g = from.rho.shape[1], parts = o.shared_rho ? 1 : g, length = g ? g / parts : 0;
    const double numbers = double(c * g * indicators.shape[1]), each = double(draws.passes) * (400. + 100. * double(n_clients));
    n_threads = worthwhile(n_threads, numbers * each);
    for_blocks(c * parts, c * parts, n_threads, [&](Index unit, Index, Index) {
        const Index chain = unit / parts, begin = unit % parts * length;
        sweep_rows(chain, begin, begin + length, g, clients, given, n_clients, indicators, from, o, draws, to);
    });
}

/// Sums of one sweep from what a client sent or, summed, from all.
inline void global_sweep_sums(Tensor<const double, 4> sums, Index n_clients, Tensor<const std::int64_t, 2> indicators,
                              ServerState<const double> from, ServerOptions o, ServerDraws draws, ServerResult to, int n_threads) {
    sweep_chains(nullptr, &sums, n_clients, indicators, from, o, draws, to, n_threads);
}

/// Several sweeps with all clients' deviations and lambda^2, which are copied to `clients`, moved and drawn there.
inline void global_sweep(Tensor<const double, 4> deviation, Tensor<const double, 4> lambda_sq, Tensor<const std::int64_t, 2> indicators,
                         ServerState<const double> from, ServerOptions o, ServerDraws draws, ServerResult to, Clients clients,
                         int n_threads) {
    const Index m = deviation.shape[0], c = deviation.shape[1], g = deviation.shape[2], p = deviation.shape[3];
    for (Index k = 0; k < m; ++k)
        for (Index i = 0; i < c; ++i)
            for (Index r = 0; r < g; ++r)
                for (Index j = 0; j < p; ++j) {
                    clients.deviation[k][i][r][j] = deviation[k][i][r][j];
                    clients.lambda_sq[k][i][r][j] = lambda_sq[k][i][r][j];
                }
    sweep_chains(&clients, nullptr, m, indicators, from, o, draws, to, n_threads);
}

} // namespace FEDKERN_ISA
} // namespace fedkern
