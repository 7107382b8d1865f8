// Optimisers over flat parameter vectors: one pass over state and gradient. Source: docs/spec/pvi.md, section 5.
#pragma once
#include <cmath>

#include "fedkern/blocks.hpp"
#include "fedkern/pack.hpp"
#include "fedkern/pieces.hpp"
#include "scalar.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

inline constexpr Index optimiser_columns = 256; // worked on together, in the first-level cache
using OptimiserPiece = Piece<double, optimiser_columns>;

/// Calls work(begin, count) for pieces of the columns.
template <class Work> void for_columns(Index k, int n_threads, double operations, const Work& work) {
    const Index pieces = (k + optimiser_columns - 1) / optimiser_columns;
    for_blocks(pieces, block_count(pieces, 1), worthwhile(n_threads, operations * double(k)), [&](Index, Index first, Index last) {
        for (Index begin = first * optimiser_columns; begin < std::min(k, last * optimiser_columns); begin += optimiser_columns)
            work(begin, std::min(optimiser_columns, k - begin));
    });
}

/// m' = beta1 m + (1 - beta1) g; v' = beta2 v + (1 - beta2) g^2; t' = t + 1;
/// step = learning_rate m' / (1 - beta1^t') / (sqrt(v' / (1 - beta2^t')) + epsilon). State rows: m, v, t.
inline void adam(Matrix<const double> state, Vector<const double> gradient, AdamRule rule, Matrix<double> new_state, Vector<double> step,
                 int n_threads) {
    const double log1 = std::log(rule.beta1), log2 = std::log(rule.beta2);
    for_columns(gradient.size, n_threads, 20, [&](Index begin, Index count) {
        const Index n = (count + 7) / 8 * 8;
        OptimiserPiece in[4], out[4];
        const double *m = in[0].read(state.row(0), begin, count), *v = in[1].read(state.row(1), begin, count),
                     *t = in[2].read(state.row(2), begin, count), *g = in[3].read(gradient, begin, count);
        const Vector<double> rows[] = {new_state.row(0), new_state.row(1), new_state.row(2), step};
        double* to[4];
        for (int i = 0; i < 4; ++i) to[i] = out[i].write(rows[i], begin, count);
        double *m1 = to[0], *v1 = to[1], *t1 = to[2], *s = to[3];

        // The bias corrections 1 - beta^t', without cancellation. Most often all columns have made as many steps.
        const auto slope = [&](double count) { return adam_slope(rule, count, log1); };
        const auto shrink = [&](double count) { return adam_shrink(count, log2); };
        const auto run = [&](const auto& slope_of, const auto& shrink_of) FEDKERN_STREAMED {
#pragma GCC ivdep
            for (Index j = 0; j < n; ++j) {
                const Adapted now = adam(rule, m[j], v[j], t[j], g[j], slope_of, shrink_of);
                m1[j] = now.m, v1[j] = now.v, t1[j] = now.t, s[j] = now.step;
            }
        };
        int others = 0;
        for (Index j = 0; j < count; ++j) others |= t[j] != t[0];
        if (others) run(slope, shrink);
        else run([a = slope(t[0] + 1)](double) { return a; }, [b = shrink(t[0] + 1)](double) { return b; });
        for (int i = 0; i < 4; ++i) out[i].finish(rows[i], begin, count);
    });
}

/// G' = G + g^2; step = learning_rate g / (sqrt(G') + epsilon).
inline void adagrad(Matrix<const double> state, Vector<const double> gradient, AdagradRule rule, Matrix<double> new_state,
                    Vector<double> step, int n_threads) {
    for_columns(gradient.size, n_threads, 10, [&](Index begin, Index count) {
        const Index n = (count + 7) / 8 * 8;
        OptimiserPiece in[2], out[2];
        const double *G = in[0].read(state.row(0), begin, count), *g = in[1].read(gradient, begin, count);
        double *G1 = out[0].write(new_state.row(0), begin, count), *s = out[1].write(step, begin, count);
#pragma GCC ivdep
        for (Index j = 0; j < n; ++j) {
            const double gj = g[j], Gj = G[j] + gj * gj;
            G1[j] = Gj;
            s[j] = adagrad_step(rule, Gj, gj);
        }
        out[0].finish(new_state.row(0), begin, count), out[1].finish(step, begin, count);
    });
}

} // namespace FEDKERN_ISA
} // namespace fedkern
