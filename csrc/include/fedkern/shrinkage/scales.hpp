// Scales of the horseshoe, local and global: docs/spec/sparse.md, section 2.
//
// Counters. A local scale owns an item. exact: one block an attempt, attempt by attempt; its first uniform chooses the part of the
// mixture and is used again as the proposal's own, the second accepts. expanded: one block, the exponential of nu and then that of
// lambda^2. A global scale of several clients: three blocks an attempt, 0 and 1 of the gamma variate and 2 of the acceptance;
// expanded: block 2 of attempt 0 is that of xi. A global scale of one client is drawn as a local one.
#pragma once
#include "fedkern/rng.hpp"
#include "views.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

inline constexpr double least_variance = 1e-60, most_variance = 1e60, least_rate = 1e-290;
inline constexpr double half_cauchy_e = 0x1.5bf0a8b145769p+1;
inline constexpr U32 global_scale_blocks = 3;

/// lambda^2 or tau^2 within [1e-60, 1e60]; NaN stays.
FEDKERN_INLINE double clipped(double variance) {
    const double low = variance < least_variance ? least_variance : variance;
    return low > most_variance ? most_variance : low;
}

/// One attempt at zeta = 1/lambda^2 of density ~ exp(-m zeta) / (1 + zeta). -1 is a rejection; NaN where m is.
///
/// m >= 1: zeta = Exp(1)/m, taken with 1/(1 + zeta). m < 1: u = log(1 + zeta) has density ~ exp(-m e^u); with u0 = -log m, u is
/// uniform on (0, u0) with probability u0 / (u0 + 1/e) and taken with exp(-m e^u), otherwise u0 + Exp(1), taken with
/// exp(-m e^u + 1 + (u - u0)). r is uniform on (0, 1 + e u0): below 1 it is the uniform of the exponential, above it e u + 1.
FEDKERN_INLINE double half_cauchy_rate(double m) { return m < least_rate ? least_rate : m; }
FEDKERN_INLINE double half_cauchy_width(double rate) { return -log_uniform(rate < 1 ? rate : 1); } // u0
FEDKERN_INLINE double half_cauchy_point(double u0, U64 first) { return uniform(first) * (1 + half_cauchy_e * u0); } // r
FEDKERN_INLINE double half_cauchy_tail(double r) { return -log_uniform(r < 1 ? r : 1); } // the exponential
FEDKERN_INLINE double half_cauchy_zeta(double rate, double u0, double r, double exponential) {
    const double shallow = math::expm1(r < 1 ? u0 + exponential : (r - 1) * (1 / half_cauchy_e)), steep = exponential / rate;
    return rate < 1 ? shallow : steep;
}
FEDKERN_INLINE double half_cauchy_if_taken(double rate, double r, double exponential, double zeta, U64 second) {
    const double v = uniform(second), log_ratio = exponential - rate * (1 + zeta) + (r < 1 ? 1 : 0);
    const double excess = rate < 1 ? log_uniform(v) - log_ratio : v * (1 + zeta) - 1; // no branch: a loop becomes vector instructions
    return excess >= 0 ? -1 : zeta;
}
FEDKERN_INLINE double half_cauchy_proposal(double m, Pair<U64> bits) {
    const double rate = half_cauchy_rate(m), u0 = half_cauchy_width(rate), r = half_cauchy_point(u0, bits.first);
    const double exponential = half_cauchy_tail(r), zeta = half_cauchy_zeta(rate, u0, r, exponential);
    return half_cauchy_if_taken(rate, r, exponential, zeta, bits.second);
}

/// lambda^2 by parameter expansion, m = d^2 / (2 tau^2): nu ~ IG(1, 1/s^2 + 1/lambda^2), lambda^2 ~ IG(1, 1/nu + m).
FEDKERN_INLINE double expanded_variance(double m, double lambda_sq, double scale, Pair<U64> bits) {
    const auto [first, second] = exponential_pair(bits);
    return (first / (1 / (scale * scale) + 1 / lambda_sq) + m) / second;
}

/// lambda^2 given m, item `at.item`; not clipped. A loop over many is below, for the host.
FEDKERN_INLINE double local_variance(double m, double lambda_sq, const HalfCauchy& prior, Counter at, U64 key) {
    if (prior.expanded) return expanded_variance(m, lambda_sq, prior.scale, philox_bits(at, key));
    const double s2 = prior.scale * prior.scale, per_s2 = 1 / s2;
    for (;; ++at.draw) {
        const double value = s2 / half_cauchy_proposal(m * per_s2, philox_bits(at, key));
        if (!(value < 0)) return value;
    }
}

/// tau^2 given m = (1/2) sum_k d_k^2 / lambda_k^2 of `clients` clients, not clipped; `tau_sq`, the last value, counts only where
/// the prior is expanded. Exact: z = 1/tau^2 has density ~ z^((M-1)/2) exp(-m z) / (1 + z), here for s = 1.
FEDKERN_INLINE double global_variance(double m, double clients, double tau_sq, const HalfCauchy& prior, Counter counter, U64 key) {
    const double s2 = prior.scale * prior.scale;
    const auto block = [&](U32 draw) {
        counter.draw = draw;
        return philox_bits(counter, key);
    };
    if (!(m >= 0)) return math::not_a_number<double>();
    if (prior.expanded) {
        const double xi_inverse = exponential_pair(block(2)).first / (1 / s2 + 1 / tau_sq);
        const double shape = (clients + 1) / 2;
        for (U32 attempt = 0;; ++attempt) {
            const double g = gamma_proposal(shape, block(attempt * global_scale_blocks), block(attempt * global_scale_blocks + 1));
            if (g >= 0) return (xi_inverse + m) / g;
        }
    }
    const double scaled = m / s2, rate = scaled < least_rate ? least_rate : scaled;
    if (!(rate > 0)) return math::not_a_number<double>(); // 0 / 0: no attempt would be taken
    if (clients == 1)
        for (U32 attempt = 0;; ++attempt) {
            const double zeta = half_cauchy_proposal(rate, block(attempt));
            if (zeta >= 0) return s2 / zeta;
        }
    const bool steep = rate >= (clients - 1) / 2;
    const double shape = steep ? (clients + 1) / 2 : (clients - 1) / 2;
    for (U32 attempt = 0;; ++attempt) {
        const U32 first = attempt * global_scale_blocks;
        const auto block1 = block(first + 1);
        const double g = gamma_proposal(shape, block(first), block1);
        if (g < 0) continue;
        const double z = g * gamma_boost(shape, block1) / rate;
        if (uniform(block(first + 2).first) * (1 + z) < (steep ? 1 : z)) return s2 / z;
    }
}

#ifndef __CUDACC__ // what follows is loops for a CPU

/// zeta[i] = half_cauchy_proposal of its rate, its width u0 and the halves of a block, step by step; n is at most `tile_size`.
inline void half_cauchy_proposals(const double* __restrict__ rate, const double* __restrict__ u0, const U64* first, const U64* second,
                                  Index n, double* __restrict__ zeta) {
    alignas(64) double r[tile_size], exponential[tile_size];
    for (Index i = 0; i < n; ++i) r[i] = half_cauchy_point(u0[i], first[i]);
    for (Index i = 0; i < n; ++i) exponential[i] = half_cauchy_tail(r[i]);
    for (Index i = 0; i < n; ++i) zeta[i] = half_cauchy_zeta(rate[i], u0[i], r[i], exponential[i]);
    for (Index i = 0; i < n; ++i) zeta[i] = half_cauchy_if_taken(rate[i], r[i], exponential[i], zeta[i], second[i]);
}

/// Draws lambda_sq[i] given m[i] = d_i^2 / (2 tau_i^2), item first.item + i. Returns how many were clipped; NaN where m is NaN.
inline Index draw_local_variances(Index n, const double* m, double* lambda_sq, const HalfCauchy& prior, Counter first, U64 key) {
    constexpr Index chunk = tile_size;
    const double s2 = prior.scale * prior.scale, per_s2 = 1 / s2;
    Index outside = 0;
    for (Index begin = 0; begin < n; begin += chunk) {
        alignas(64) U64 item[chunk], low[chunk], high[chunk];
        alignas(64) double rate[chunk], u0[chunk], value[chunk];
        const Index size = std::min(chunk, n - begin), padded = whole_groups(size);
        Counter at = {0, 0, first.client, first.step};
        for (Index i = 0; i < padded; ++i) item[i] = first.item + U32(begin + i);
        for (Index i = 0; i < size; ++i) rate[i] = m[begin + i], value[i] = lambda_sq[begin + i];
        for (Index i = size; i < padded; ++i) rate[i] = value[i] = 1;
        blocks_of(item, padded, at, key, low, high);
        if (prior.expanded) {
            for (Index i = 0; i < padded; ++i) value[i] = expanded_variance(rate[i], value[i], prior.scale, {low[i], high[i]});
        } else {
            for (Index i = 0; i < padded; ++i) rate[i] = half_cauchy_rate(rate[i] * per_s2);
            for (Index i = 0; i < padded; ++i) u0[i] = half_cauchy_width(rate[i]);
            half_cauchy_proposals(rate, u0, low, high, padded, value);
            // Those that were rejected, together, until all have a value. Where a register has room, each makes several attempts.
            Index pending[chunk], left = 0;
            for (Index i = 0; i < size; ++i) pending[left] = i, left += value[i] < 0;
            while (left > 0) {
                alignas(64) U64 draw[chunk];
                alignas(64) double rates[chunk], widths[chunk], again[chunk];
                const Index some = whole_groups(left), times = some / left;
                for (Index k = 0, t = 1, j = 0; k < some; ++k, ++j) {
                    if (j == left) ++t, j = 0;
                    const Index i = pending[j];
                    item[k] = first.item + U32(begin + i), draw[k] = at.draw + U32(t), rates[k] = rate[i], widths[k] = u0[i];
                }
                blocks_of_draws(item, draw, some, at, key, low, high);
                half_cauchy_proposals(rates, widths, low, high, some, again);
                Index still = 0;
                for (Index k = 0; k < left; ++k) {
                    const Index i = pending[k];
                    double taken = again[k];
                    for (Index t = 1; t < times; ++t) taken = taken < 0 ? again[t * left + k] : taken;
                    value[i] = taken, pending[still] = i, still += taken < 0;
                }
                left = still, at.draw += U32(times);
            }
            for (Index i = 0; i < size; ++i) value[i] = s2 / value[i];
        }
        for (Index i = 0; i < size; ++i) {
            const double kept = clipped(value[i]);
            outside += (kept < value[i]) | (kept > value[i]);
            lambda_sq[begin + i] = kept;
        }
    }
    return outside;
}

/// Draws tau_sq[i] given m[i] = (1/2) sum_k d_ki^2 / lambda_ki^2, item first.item + i: `global_variance`, an attempt of all that have
/// no value yet together. Returns how many were clipped.
inline Index draw_global_variances(Index n, const double* m, double clients, double* tau_sq, const HalfCauchy& prior, Counter first,
                                   U64 key) {
    constexpr Index chunk = 64;
    const bool expanded = prior.expanded, together = expanded || clients > 1;
    const double s2 = prior.scale * prior.scale, per_s2 = 1 / s2, steepest = (clients + 1) / 2, shallow = (clients - 1) / 2;
    Index outside = 0;
    for (Index begin = 0; begin < n; begin += chunk) {
        alignas(64) U64 item[chunk], low[global_scale_blocks][chunk], high[global_scale_blocks][chunk];
        alignas(64) double rate[chunk], rates[chunk], shape[chunk], proposal[chunk], boost[chunk], value[chunk];
        const Index size = std::min(chunk, n - begin);
        Index pending[chunk], left = 0;
        // What no attempt would end, and the scale of a single client, are left to `global_variance`.
        for (Index i = 0; i < size; ++i) {
            const double scaled = m[begin + i] / s2;
            rate[i] = expanded ? m[begin + i] : scaled < least_rate ? least_rate : scaled, value[i] = -1;
        }
        for (Index i = 0; i < size; ++i) pending[left] = i, left += together & (m[begin + i] >= 0) & (rate[i] >= 0);
        for (U32 attempt = 0; left > 0; ++attempt) {
            const Index some = whole_groups(left);
            for (Index k = 0; k < some; ++k) {
                const Index i = pending[std::min(k, left - 1)];
                item[k] = first.item + U32(begin + i), rates[k] = rate[i], proposal[k] = tau_sq[begin + i];
            }
            const U32 blocks = expanded && attempt ? 2 : global_scale_blocks;
            for (U32 b = 0; b < blocks; ++b)
                blocks_of(item, some, {0, attempt * global_scale_blocks + b, first.client, first.step}, key, low[b], high[b]);
            if (expanded) {
                if (attempt == 0) {
                    for (Index k = 0; k < some; ++k)
                        rates[k] += exponential_pair({low[2][k], high[2][k]}).first / (per_s2 + 1 / proposal[k]);
                    for (Index k = 0; k < left; ++k) rate[pending[k]] = rates[k];
                }
                for (Index k = 0; k < some; ++k) shape[k] = steepest;
                gamma_proposals(shape, low[0], high[0], low[1], some, proposal);
                for (Index k = 0; k < some; ++k) proposal[k] = proposal[k] >= 0 ? rates[k] / proposal[k] : -1;
            } else {
                for (Index k = 0; k < some; ++k) shape[k] = rates[k] >= shallow ? steepest : shallow;
                gamma_proposals(shape, low[0], high[0], low[1], some, proposal);
                if (shallow < 1) {
                    for (Index k = 0; k < some; ++k) boost[k] = gamma_boost(shape[k], {low[1][k], high[1][k]});
                    for (Index k = 0; k < some; ++k) proposal[k] *= proposal[k] < 0 ? 1 : boost[k];
                }
                for (Index k = 0; k < some; ++k) {
                    const double z = proposal[k] / rates[k], u = uniform(low[2][k]) * (1 + z);
                    const double most = rates[k] >= shallow ? 1 : z, kept = u < most ? s2 / z : -1;
                    proposal[k] = proposal[k] >= 0 ? kept : -1;
                }
            }
            Index still = 0;
            for (Index k = 0; k < left; ++k) {
                const Index i = pending[k];
                value[i] = proposal[k], pending[still] = i, still += proposal[k] < 0;
            }
            left = still;
        }
        for (Index i = 0; i < size; ++i) {
            double drawn = value[i];
            if (!(drawn >= 0)) drawn = global_variance(m[begin + i], clients, tau_sq[begin + i], prior, plus(first, begin + i), key);
            tau_sq[begin + i] = clipped(drawn);
            outside += (tau_sq[begin + i] < drawn) | (tau_sq[begin + i] > drawn);
        }
    }
    return outside;
}

#endif

} // namespace FEDKERN_ISA
} // namespace fedkern
