// Sparse Cholesky factors of autoregressive precisions, eight phi in the lanes of a vector (docs/spec/sigma.md, section 3).
#pragma once
#include "car.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

/// The factors of eight phi, columns from the left (George and Liu, 1981), L in `values` (entries). `failed` (lanes): the first area
/// whose pivot is not greater than zero, or -1.
inline void car_factor_lanes(const AreaGraph& g, const FactorPattern& f, const Index* place, const double* phi, bool leroux, double* values,
                             Index* failed) {
    const Index n = g.n;
    const Scratch<double> work(n * draw_lanes);
    const Scratch<Index> at(n), following(n), first(n); // columns whose next row is j, as a list for each j
    const Lanes zero = Lanes::all(0), one = Lanes::all(1), shared = Lanes::load(phi);
    for (Index j = 0; j < n; ++j) put_lanes(zero, work, j), first[j] = -1, at[j] = f.indptr[j];
    std::fill(failed, failed + draw_lanes, Index{-1});
    const auto wait = [&](Index k) {
        if (at[k] == f.indptr[k + 1]) return;
        const Index row = f.indices[at[k]];
        following[k] = first[row], first[row] = k;
    };
    for (Index j = 0; j < n; ++j) {
        const Index area = f.order[j], begin = f.indptr[j], end = f.indptr[j + 1];
        const Lanes d = Lanes::all(own_weight(g, area));
        put_lanes(leroux ? (one - shared) + shared * d : d, work, j);
        for (Index k = g.indptr[area]; k < g.indptr[area + 1]; ++k)
            if (place[g.indices[k]] > j) put_lanes(zero - shared, work, place[g.indices[k]]);
        for (Index k = first[j], next; k >= 0; k = next) {
            next = following[k];
            const Lanes scale = lanes_at(values, at[k]);
            for (Index a = at[k]; a < f.indptr[k + 1]; ++a)
                put_lanes(lanes_at(work, f.indices[a]) - lanes_at(values, a) * scale, work, f.indices[a]);
            ++at[k];
            wait(k);
        }
        double pivot[draw_lanes], root[draw_lanes];
        lanes_at(work, j).store(pivot);
        for (Index lane = 0; lane < draw_lanes; ++lane)
            if (!(pivot[lane] > 0) && failed[lane] < 0) failed[lane] = area;
        for (Index lane = 0; lane < draw_lanes; ++lane) root[lane] = math::sqrt(pivot[lane]);
        const Lanes diagonal = Lanes::load(root), inverse = one / diagonal;
        put_lanes(diagonal, values, begin);
        put_lanes(zero, work, j);
        for (Index a = begin + 1; a < end; ++a) {
            put_lanes(lanes_at(work, f.indices[a]) * inverse, values, a);
            put_lanes(zero, work, f.indices[a]);
        }
        ++at[j];
        wait(j);
    }
}

/// The factors of all phi; -1, or entry * n + area of the first that fails.
inline Index car_factor(Vector<const double> phi, const AreaGraph& g, const FactorPattern& f, CarForm form, Matrix<double> values,
                        Vector<double> logdet, int n_threads) {
    const Index m = phi.size, n = g.n, entries = values.cols, groups = (m + draw_lanes - 1) / draw_lanes;
    const Scratch<Index> place(n), failed(groups * draw_lanes);
    for (Index j = 0; j < n; ++j) place[f.order[j]] = j;
    for_blocks(groups, block_count(groups, 1), worthwhile(n_threads, 100.0 * double(m) * double(entries)),
               [&](Index, Index from, Index to) {
                   const Scratch<double> L(entries * draw_lanes);
                   for (Index group = from; group < to; ++group) {
                       const Index first = group * draw_lanes, rows = std::min(draw_lanes, m - first);
                       double at[draw_lanes];
                       for (Index lane = 0; lane < draw_lanes; ++lane) at[lane] = phi[first + std::min(lane, rows - 1)];
                       car_factor_lanes(g, f, place, at, form == CarForm::leroux, L, &failed[first]);
                       for (Index lane = 0; lane < rows; ++lane) {
                           const auto row = values.row(first + lane);
                           for (Index k = 0; k < entries; ++k) row[k] = L[k * draw_lanes + lane];
                           double total = 0;
                           for (Index j = 0; j < n; ++j) total += math::log(L[f.indptr[j] * draw_lanes + lane]);
                           logdet[first + lane] = 2 * total;
                       }
                   }
               });
    for (Index t = 0; t < m; ++t)
        if (failed[t] >= 0) return t * n + failed[t];
    return -1;
}

} // namespace FEDKERN_ISA
} // namespace fedkern
