// Draws from a table of priors (sigma.md, section 3): scale x F_t e, or scale x P' L_t'^-1 e, for an entry t that a group of rows
// of the batch shares. Eight rows of a group are solved together, one in each lane of a vector.
#pragma once
#include "fedkern/mlp/rows.hpp"
#include "fedkern/pack.hpp"
#include "fedkern/pieces.hpp"
#include "fedkern/rng.hpp"
#include "scalar.hpp"
#include "views.hpp"

namespace fedkern {

inline namespace FEDKERN_ISA {

inline DrawKeys draw_keys(U64 seed, U64 chain) {
    return {stream_key(seed, Stream::prior_entries, chain), stream_key(seed, Stream::prior_draws, chain)};
}

using Lanes = Pack<double>;

inline constexpr Index draw_lanes = Lanes::size;

FEDKERN_INLINE Lanes lanes_at(const double* x, Index i) { return Lanes::load(x + i * draw_lanes); }
FEDKERN_INLINE void put_lanes(const Lanes& value, double* x, Index i) { value.store(x + i * draw_lanes); }

/// Of how many rows the normals are made at once, where each row has an entry of its own: a tile of them costs as much as one.
inline Index rows_at_once(const DrawTable& table) { return std::max<Index>(2 * tile_size / std::max<Index>(table.normals(), 1), 1); }

/// How many doubles `table_draws` needs to work with, for any number of rows.
inline Index draws_workspace(const DrawTable& table) {
    const Index e = table.normals();
    return table.group == 1 ? rows_at_once(table) * e + 1 : draw_lanes * (2 * e + 1);
}

/// Numbers first, .., first + out.size - 1 of a stream of normals.
inline void fill_normal_from(Vector<double> out, Index first, DrawNames names) {
    const auto at = [&](Index number) { return Counter{U32(number / 2), 0, names.client, names.step}; };
    Index done = 0;
    if (first % 2 && out.size) out[done++] = normal_pair(philox_bits(at(first), names.key)).second;
    fill_normal(out.part(done, out.size), at(first + done), names.key);
}

/// The entry of a group of rows.
inline Index table_entry(const DrawTable& table, Index group, U32 step, U64 key) { return table_entry(table.entries, group, step, key); }

/// scale x F e: as many rows of F as a register has numbers are added up at once.
template <class T> void dense_draw(const DrawTable& table, const double* F, const double* e, T* theta) {
    using V = Pack<double>;
    const Index rank = table.rank, whole = rank / V::size * V::size;
    const auto products = [&](Index i) __attribute__((always_inline)) {
        const double* row = F + i * rank;
        V sum = V::all(0);
        for (Index r = 0; r < whole; r += V::size) sum = sum + V::load(row + r) * V::load(e + r);
        const int left = int(rank - whole);
        return left ? sum + V::load(row + whole, left) * V::load(e + whole, left) : sum;
    };
    Index i = 0;
    if constexpr (V::parts == 1)
        for (; i + V::size <= table.n; i += V::size) {
            V sums[V::size];
            for (Index k = 0; k < V::size; ++k) sums[k] = products(i + k);
            double draw[V::size];
            (sums_of(sums) * V::load(table.scale + i)).store(draw);
            for (Index k = 0; k < V::size; ++k) theta[i + k] = T(draw[k]);
        }
    for (; i < table.n; ++i) theta[i] = T(table.scale[i] * products(i).sum());
}

/// One draw of an entry from its normals, which are overwritten.
template <class T> void table_draw(const DrawTable& table, const double* values, double* e, T* theta) {
    const Index n = table.n;
    if (table.kind == DrawTable::stored) {
        for (Index i = 0; i < n; ++i) theta[i] = T(table.scale[i] * values[i]);
    } else if (table.kind == DrawTable::dense) {
        dense_draw(table, values, e, theta);
    } else {
        for (Index j = n - 1; j >= 0; --j) {
            const Index begin = table.indptr[j], end = table.indptr[j + 1];
            double even = 0, odd = 0;
            Index k = begin + 1;
            for (; k + 1 < end; k += 2) {
                even += values[k] * e[table.indices[k]];
                odd += values[k + 1] * e[table.indices[k + 1]];
            }
            if (k < end) even += values[k] * e[table.indices[k]];
            e[j] = (e[j] - (even + odd)) / values[begin];
            const Index i = table.order[j];
            theta[i] = T(table.scale[i] * e[j]);
        }
    }
}

/// Up to eight draws of an entry, one in each lane; e (normals, lanes) is overwritten.
template <class T> void table_draw_lanes(const DrawTable& table, const double* values, Index rows, double* e, T* theta) {
    const Index n = table.n;
    const auto store = [&](Index i, const Lanes& value) {
        double draw[draw_lanes];
        (value * Lanes::all(table.scale[i])).store(draw);
        T* at = theta + i;
        if (rows == draw_lanes) {
#pragma GCC unroll 8
            for (Index lane = 0; lane < draw_lanes; ++lane) at[lane * n] = T(draw[lane]);
        } else {
            for (Index lane = 0; lane < rows; ++lane) at[lane * n] = T(draw[lane]);
        }
    };
    if (table.kind == DrawTable::dense) {
        for (Index i = 0; i < n; ++i, values += table.rank) {
            Lanes even = Lanes::all(0), odd = even;
            const auto product = [&](Index r) { return Lanes::all(values[r]) * lanes_at(e, r); };
            Index r = 0;
            for (; r + 1 < table.rank; r += 2) even = even + product(r), odd = odd + product(r + 1);
            if (r < table.rank) even = even + product(r);
            store(i, even + odd);
        }
    } else {
        for (Index j = n - 1; j >= 0; --j) {
            const Index begin = table.indptr[j], end = table.indptr[j + 1];
            Lanes sum[4];
            for (Lanes& one : sum) one = Lanes::all(0);
            const auto product = [&](Index k) { return Lanes::all(values[k]) * lanes_at(e, table.indices[k]); };
            Index k = begin + 1;
            for (; k + 3 < end; k += 4)
                for (Index a = 0; a < 4; ++a) sum[a] = sum[a] + product(k + a);
            for (; k < end; ++k) sum[0] = sum[0] + product(k);
            const Lanes x = (lanes_at(e, j) - ((sum[0] + sum[1]) + (sum[2] + sum[3]))) / Lanes::all(values[begin]);
            put_lanes(x, e, j);
            store(table.order[j], x);
        }
    }
}

/// Rows [begin, end) of the batch of a step, into theta (end - begin, n) and entry (end - begin). `begin` is a multiple of `group`.
template <class T>
void table_draws(const DrawTable& table, DrawKeys keys, U32 step, Index begin, Index end, T* theta, Index* entry, double* workspace) {
    const Index size = table.normals(), together = table.group == 1 ? rows_at_once(table) : 1;
    for (Index first = begin; first < end; first += table.group) {
        const Index t = table_entry(table, first / table.group, step, keys.entries), last = std::min(first + table.group, end);
        const double* values = table.values + t * table.length;
        std::fill(entry + (first - begin), entry + (last - begin), t);
        if (table.group == 1 || table.kind == DrawTable::stored) {
            for (Index b = first; b < last; ++b) {
                const Index row = (b - begin) % together;
                if (row == 0) fill_normal_from({workspace, std::min(together, end - b) * size}, b * size, {keys.draws, 0, step});
                table_draw(table, values, workspace + row * size, theta + (b - begin) * table.n);
            }
            continue;
        }
        for (Index b = first; b < last; b += draw_lanes) {
            const Index rows = std::min(draw_lanes, last - b);
            double *lanes = workspace, *e = workspace + draw_lanes * size;
            fill_normal_from({e, rows * size}, b * size, {keys.draws, 0, step});
            std::fill(e + rows * size, e + draw_lanes * size, 0.0);
            for (Index i = 0; i < size; ++i)
                for (Index lane = 0; lane < draw_lanes; ++lane) lanes[i * draw_lanes + lane] = e[lane * size + i];
            table_draw_lanes(table, values, rows, lanes, theta + (b - begin) * table.n);
        }
    }
}

/// A whole batch.
template <class T>
void table_draws(const DrawTable& table, DrawKeys keys, U32 step, Index batch, T* theta, Index* entry, double* workspace) {
    table_draws(table, keys, step, 0, batch, theta, entry, workspace);
}

/// The same into arrays of any layout, groups dealt to threads.
inline void table_sample(const DrawTable& table, DrawKeys keys, U32 step, Matrix<double> theta, Vector<Index> entry, int n_threads) {
    const Index batch = theta.rows, n = table.n, groups = (batch + table.group - 1) / table.group;
    const bool in_place = theta.col_stride == 1 && theta.row_stride == n && entry.stride == 1;
    const double operations = double(batch) * double(table.length + 40 * table.normals());
    for_blocks(groups, block_count(groups, 1), worthwhile(n_threads, operations), [&](Index, Index first, Index last) {
        const Index begin = first * table.group, end = std::min(last * table.group, batch);
        const Scratch<double> workspace(draws_workspace(table)), draws(in_place ? 0 : (end - begin) * n);
        const Scratch<Index> numbers(in_place ? 0 : end - begin);
        double* to = in_place ? theta.data + begin * n : draws;
        Index* from = in_place ? entry.data + begin : numbers;
        table_draws<double>(table, keys, step, begin, end, to, from, workspace);
        if (in_place) return;
        for (Index b = begin; b < end; ++b) {
            entry[b] = from[b - begin];
            for (Index i = 0; i < n; ++i) theta.row(b)[i] = to[(b - begin) * n + i];
        }
    });
}

} // namespace FEDKERN_ISA
} // namespace fedkern
