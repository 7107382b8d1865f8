// The server's sweep of the sparse models: sparse.md, sections 2 (tau), 4 (the sweep) and 11 (slab, groups of coefficients).
//
// Counters (client = server, step = number of the sweep, i = g p + j for coefficient j of regression g):
//   global_scales  tau: item i, as in scales.hpp.
//   indicators     item g p + number of the indicator: first uniform.        effects    item i: first normal.
//   variances      eta, a gamma number: item g (common) or i (coordinate).   rates      rho: gamma numbers 2 g and 2 g + 1.
//   scales         lambda of client k in later passes: item k G p + i, G regressions.
#pragma once
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

/// One regression of one chain at the server, in its own memory.
struct ServerRow {
    using Numbers = std::vector<double>;

    const ServerOptions& o;
    Index number, n_clients, p, n_coefficients = 0, clips = 0, fault = -1;
    std::vector<Index> kind;       // of each coefficient: -2 none, -1 always included, or the number of its indicator
    std::vector<Index> indicators; // the numbers that occur
    Numbers theta, tau_sq, gamma, eta, inclusion, W, mhat, logit, scratch, drawn;
    double included = 0;

    ServerRow(const ServerOptions& options, Index row, Index clients, Tensor<const std::int64_t, 1> kinds)
        : o(options), number(row), n_clients(clients), p(kinds.shape[0]), kind(p), theta(p), tau_sq(p), gamma(p), eta(p), inclusion(p),
          W(p), mhat(p), logit(p), scratch(p), drawn(p) {
        std::vector<bool> seen(p);
        for (Index j = 0; j < p; ++j) {
            kind[j] = kinds[j];
            n_coefficients += kind[j] > -2;
            if (kind[j] >= 0 && !seen[kind[j]]) seen[kind[j]] = true, indicators.push_back(kind[j]);
        }
    }

    Counter counter(Index j, U32 step) const { return {U32(number * p + j), 0, server_client, step}; }
    double spike(Index j) const { return o.spike_variance > 0 ? o.spike_variance : o.c0 * eta[j]; }

    void load(const ServerState<const double>& from, Index chain) {
        copy(from.theta[chain][number], theta.data()), copy(from.tau_sq[chain][number], tau_sq.data());
        copy(from.gamma[chain][number], gamma.data()), copy(from.eta[chain][number], eta.data());
        for (Index j = 0; j < p; ++j)
            if (kind[j] == -1) gamma[j] = 1;
    }
    void store(const ServerResult& to, Index chain) const {
        copy(theta.data(), to.state.theta[chain][number]), copy(tau_sq.data(), to.state.tau_sq[chain][number]);
        copy(gamma.data(), to.state.gamma[chain][number]), copy(eta.data(), to.state.eta[chain][number]);
        copy(inclusion.data(), to.inclusion[chain][number]);
        const auto events = to.events[chain][number];
        events[0] = clips, events[1] = events[2] = 0, events[3] = fault;
    }

    /// tau_j^2; then W_j = sum_k 1/(lambda_kj^2 tau_j^2) and mhat_j = theta_j + (sum_k d_kj/(lambda_kj^2 tau_j^2)) / W_j.
    void draw_tau(const double* sums, U32 step, U64 key) {
        const double slab_precision = 1 / (o.slab * o.slab);
        for (Index j = 0; j < p; ++j) scratch[j] = kind[j] == -2 ? 1 : 0.5 * sums[2 * p + j], drawn[j] = kind[j] == -2 ? 1 : tau_sq[j];
        const HalfCauchy prior{o.scale_tau, o.expanded};
        clips += draw_global_variances(p, scratch.data(), double(n_clients), drawn.data(), prior, counter(0, step), key);
        for (Index j = 0; j < p; ++j) {
            if (kind[j] == -2) continue;
            tau_sq[j] = drawn[j];
            W[j] = sums[j] / tau_sq[j];
            double shift = sums[p + j] / tau_sq[j];
            if (slab_precision > 0) W[j] += double(n_clients) * slab_precision, shift += sums[3 * p + j] * slab_precision;
            mhat[j] = theta[j] + shift / W[j];
        }
    }

    /// logit P(gamma = 1) = logit rho + the sum of its coefficients' log ratios, by a logistic draw.
    template <class LogRatio> void draw_gamma(double rho, double weight, U32 step, U64 key, const LogRatio& ratio) {
        const double prior = math::log(rho) - math::log1p(-rho);
        for (const Index i : indicators) logit[i] = prior;
        for (Index j = 0; j < p; ++j)
            if (kind[j] >= 0) logit[kind[j]] += ratio(j);
        included = 0;
        Numbers& chosen = scratch;
        Numbers& probability = drawn;
        first_halves(step, key, [&](Index i, U64 bits) { probability[i] = uniform(bits); });
        for (const Index i : indicators) {
            const double u = probability[i], known = logit[i] - logit[i]; // NaN unless finite
            chosen[i] = (log_uniform(u) - log_uniform(1 - u) < logit[i] ? 1 : 0) + known;
            probability[i] = math::sigmoid(logit[i]) + known;
            included += chosen[i];
        }
        for (Index j = 0; j < p; ++j) {
            if (kind[j] == -2) continue;
            if (kind[j] >= 0) gamma[j] = chosen[kind[j]];
            inclusion[j] += weight * (kind[j] >= 0 ? probability[kind[j]] : 1);
        }
    }

    /// theta_j | gamma_j ~ N(W mhat / (W + 1/v), 1/(W + 1/v)).
    void draw_theta(U32 step, U64 key) {
        for (Index begin = 0; begin < p; begin += tile_size) {
            const Tile tile(counter(begin, step), key);
            double normal[tile_size];
            for (Index i = 0; i < tile_size; ++i) normal[i] = normal_pair(tile[i]).first;
            for (Index j = begin; j < std::min(begin + tile_size, p); ++j) {
                if (kind[j] == -2) continue;
                const double v = gamma[j] == 1 ? eta[j] : spike(j), spread = 1 + W[j] * v;
                theta[j] = mhat[j] * (W[j] * v / spread) + math::sqrt(v / spread) * normal[j - begin];
            }
        }
    }

    /// use(j, the first half of item j's block) for all j.
    template <class Use> void first_halves(U32 step, U64 key, const Use& use) {
        for (Index begin = 0; begin < p; begin += tile_size) {
            const Tile tile(counter(begin, step), key);
            for (Index j = begin; j < std::min(begin + tile_size, p); ++j) use(j, tile.first[j - begin]);
        }
    }

    /// eta ~ IG(a + p/2, b + (1/2) sum_j theta_j^2 / c0^(1-gamma_j)), or of each coordinate; a fixed spike says nothing of eta.
    void draw_eta(U32 step, U64 key) {
        const double of_spike = o.spike_variance > 0 ? 0 : 1 / o.c0;
        double count = 0, sum = 0;
        for (Index j = 0; j < p; ++j) {
            if (kind[j] == -2) continue;
            const double weight = gamma[j] == 1 ? 1 : of_spike, one = weight > 0 ? 0.5 : 0, square = 0.5 * weight * theta[j] * theta[j];
            count += one, sum += square;
            if (!o.common) eta[j] = (o.rate_eta + square) / fedkern::gamma(o.shape_eta + one, counter(j, step), key);
        }
        if (!o.common) return;
        const double drawn = (o.rate_eta + sum) / fedkern::gamma(o.shape_eta + count, {U32(number), 0, server_client, step}, key);
        for (double& e : eta) e = drawn;
    }

    /// All of section 4 but rho and d; `weight` of this pass in the mean of P(gamma = 1). False after a fault.
    bool sweep(const double* sums, double rho, double weight, Index pass, U32 step, const ServerKeys& keys) {
        draw_tau(sums, step, keys.global_scales);
        if (o.blocked)
            draw_gamma(rho, weight, step, keys.indicators,
                       [&](Index j) { return log_ratio(mhat[j], eta[j] + 1 / W[j], spike(j) + 1 / W[j]); });
        draw_theta(step, keys.effects);
        draw_eta(step, keys.variances);
        if (!o.blocked) draw_gamma(rho, weight, step, keys.indicators, [&](Index j) { return log_ratio(theta[j], eta[j], spike(j)); });
        return check(tau_sq, pass, 3) && check(theta, pass, 4) && check(eta, pass, 5) && check(inclusion, pass, 7);
    }

    bool check(const Numbers& numbers, Index pass, Index quantity) {
        for (Index j = 0; j < p; ++j)
            if (kind[j] > -2 && !(math::magnitude(numbers[j]) < math::infinity<double>())) {
                fault = 8 * pass + quantity;
                return false;
            }
        return true;
    }
};

// ---- Sweeps of many chains and regressions.

/// lambda_kj | d_kj, tau_j at the server.
inline void draw_lambda(ServerRow& row, const Clients& clients, Index chain, Index n_rows, U32 step, U64 key) {
    const Index p = row.p;
    std::vector<double> m(p), drawn(p);
    for (Index k = 0; k < row.n_clients; ++k) {
        const auto d = clients.deviation[k][chain][row.number], lambda_sq = clients.lambda_sq[k][chain][row.number];
        for (Index j = 0; j < p; ++j) m[j] = row.kind[j] == -2 ? 1 : 0.5 * d[j] * d[j] / row.tau_sq[j];
        copy(lambda_sq, drawn.data());
        const Counter first = plus(row.counter(0, step), k * n_rows * p);
        row.clips += draw_local_variances(p, m.data(), drawn.data(), {row.o.scale_lambda, row.o.expanded}, first, key);
        for (Index j = 0; j < p; ++j)
            if (row.kind[j] > -2) lambda_sq[j] = drawn[j];
    }
}

/// The sums over the clients, in their order; behind them room for the terms of one client.
inline void sum_clients(const ServerRow& row, const Clients& clients, Index chain, std::vector<double>& sums) {
    const Index p = row.p, n = Index(sums.size()) / 2;
    std::vector<double> d(p), lambda_sq(p);
    double* products = sums.data() + n;
    for (Index k = 0; k < row.n_clients; ++k) {
        copy(clients.deviation[k][chain][row.number], d.data()), copy(clients.lambda_sq[k][chain][row.number], lambda_sq.data());
        local_products(d.data(), lambda_sq.data(), p, n == 4 * p, k ? products : sums.data());
        for (Index e = 0; k && e < n; ++e) sums[e] += products[e];
    }
}

/// Passes of all regressions of a chain, or of one of them where each has its own rho. `clients` or, for one pass, `given` sums.
inline void sweep_rows(Index chain, Index begin, Index end, Index n_rows, const Clients* clients, const Tensor<const double, 4>* given,
                       Index n_clients, Tensor<const std::int64_t, 2> indicators, const ServerState<const double>& from,
                       const ServerOptions& o, const ServerDraws& draws, const ServerResult& to) {
    if (begin == end) return; // a rate that is no number is the fault of the first regression, and there is none
    const Index p = indicators.shape[1], n_sums = o.slab < math::infinity<double>() ? 4 : 3;
    const ServerKeys keys(draws.seed, draws.chain + U64(chain));
    std::vector<ServerRow> rows;
    rows.reserve(end - begin);
    for (Index r = begin; r < end; ++r) {
        rows.emplace_back(o, r, n_clients, indicators[r]);
        rows.back().load(from, chain);
        to.state.rho[chain][r] = from.rho[chain][r];
    }
    std::vector<double> sums(2 * n_sums * p), old(p);
    bool stopped = false;
    for (Index pass = 0; pass < draws.passes && !stopped; ++pass) {
        const U32 step = draws.step + U32(pass);
        double included = 0, n_indicators = 0;
        for (ServerRow& row : rows) {
            if (clients) {
                if (pass) draw_lambda(row, *clients, chain, n_rows, step, keys.scales);
                sum_clients(row, *clients, chain, sums);
            } else
                for (Index s = 0; s < n_sums; ++s) copy((*given)[s][chain][row.number], sums.data() + s * p);
            old = row.theta;
            stopped = !row.sweep(sums.data(), to.state.rho[chain][row.number], 1 / double(draws.passes), pass, step, keys) || stopped;
            for (Index k = 0; clients && k < n_clients; ++k) {
                const auto d = clients->deviation[k][chain][row.number];
                for (Index j = 0; j < p; ++j) d[j] += old[j] - row.theta[j];
            }
            included += row.included, n_indicators += double(row.indicators.size());
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
