// Cholesky factors of precisions whose last block is dense: the areas of a client, its border last (docs/spec/sigma.md, section 13).
#pragma once
#include "fedkern/math.hpp"
#include "fedkern/pieces.hpp"
#include "views.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

/// L's columns left of the dense block, from the left (George and Liu, 1981), and what they leave of the block. The column whose
/// pivot is not greater than zero, or -1.
inline Index bordered_factor(Vector<const double> values, const BorderedPattern& p, Matrix<const double> block, Vector<double> factor,
                             Matrix<double> rest) {
    const Index k = p.columns, b = block.rows;
    const Scratch<double> work(k + b), L(values), left(b * b);
    const Scratch<Index> at(k), following(k), first(k); // columns whose next row is j, as a list for each j
    std::fill(&work[0], &work[0] + k + b, 0.0);
    for (Index j = 0; j < k; ++j) first[j] = -1;
    for (Index r = 0; r < b; ++r)
        for (Index c = 0; c <= r; ++c) left[r * b + c] = block.row(r)[c];
    const auto wait = [&](Index c) {
        if (at[c] == p.indptr[c + 1] || p.indices[at[c]] >= k) return;
        const Index row = p.indices[at[c]];
        following[c] = first[row], first[row] = c;
    };
    for (Index j = 0; j < k; ++j) {
        const Index begin = p.indptr[j], end = p.indptr[j + 1];
        for (Index a = begin; a < end; ++a) work[p.indices[a]] = L[a];
        for (Index c = first[j], next; c >= 0; c = next) {
            next = following[c];
            const double scale = L[at[c]];
            const Index stop = p.indptr[c + 1];
#pragma GCC unroll 4
            for (Index a = at[c]; a < stop; ++a) work[p.indices[a]] -= L[a] * scale;
            ++at[c];
            wait(c);
        }
        if (!(work[j] > 0)) return j;
        const double root = math::sqrt(work[j]), inverse = 1 / root;
        L[begin] = root;
        for (Index a = begin + 1; a < end; ++a) L[a] = work[p.indices[a]] * inverse, work[p.indices[a]] = 0;
        Index border = begin + 1;
        while (border < end && p.indices[border] < k) ++border;
        for (Index a = border; a < end; ++a) {
            double* row = &left[(p.indices[a] - k) * b];
            for (Index c = border; c <= a; ++c) row[p.indices[c] - k] -= L[a] * L[c];
        }
        at[j] = begin + 1;
        wait(j);
    }
    for (Index a = 0; a < factor.size; ++a) factor[a] = L[a];
    for (Index r = 0; r < b; ++r)
        for (Index c = 0; c <= r; ++c) rest.row(r)[c] = rest.row(c)[r] = left[r * b + c];
    return -1;
}

/// The entries of the inverse in the pattern of L, from the last column to the first (Takahashi, Fagan and Chin, 1973); `block` is the
/// inverse's dense block.
inline void bordered_inverse(Vector<const double> factor, const BorderedPattern& p, Matrix<const double> block, Vector<double> inverse) {
    const Index k = p.columns, b = block.rows;
    const Scratch<double> Z(factor.size), x(k + b), sum(k + b), last(b * b);
    std::fill(&x[0], &x[0] + k + b, 0.0);
    for (Index r = 0; r < b; ++r)
        for (Index c = 0; c < b; ++c) last[r * b + c] = block.row(r)[c];
    for (Index j = k - 1; j >= 0; --j) {
        const Index begin = p.indptr[j], end = p.indptr[j + 1];
        const double pivot = 1 / factor[begin];
        Index border = begin + 1;
        while (border < end && p.indices[border] < k) ++border;
        for (Index a = begin + 1; a < end; ++a) x[p.indices[a]] = factor[a] * pivot, sum[p.indices[a]] = 0;
        // sum = Z x over the rows of the column, each pair once; sums of other rows are nobody's
        for (Index a = begin + 1; a < border; ++a) {
            const Index r = p.indices[a];
            const double own = x[r];
            // Two sums, in turns: with one, each addition would wait for the one before it. Four below.
            double even = Z[p.indptr[r]] * own, odd = 0;
            const auto add = [&](Index c, double& total) __attribute__((always_inline)) {
                const Index i = p.indices[c];
                total += Z[c] * x[i];
                sum[i] += Z[c] * own;
            };
            Index c = p.indptr[r] + 1;
            for (const Index stop = p.indptr[r + 1] - 1; c < stop; c += 2) add(c, odd), add(c + 1, even);
            if (c < p.indptr[r + 1]) add(c, odd);
            sum[r] += even + odd;
        }
        for (Index a = border; a < end; ++a) {
            const double* row = &last[(p.indices[a] - k) * b];
            double part[4] = {};
            const auto add = [&](int s, Index c) __attribute__((always_inline)) { part[s] += row[p.indices[c] - k] * x[p.indices[c]]; };
            Index c = border;
            for (; c + 4 <= end; c += 4) add(0, c), add(1, c + 1), add(2, c + 2), add(3, c + 3);
            for (; c < end; ++c) add(0, c);
            sum[p.indices[a]] += (part[0] + part[1]) + (part[2] + part[3]);
        }
        double own = pivot * pivot;
        for (Index a = begin + 1; a < end; ++a) {
            const Index i = p.indices[a];
            own += x[i] * sum[i];
            Z[a] = -sum[i];
            x[i] = 0;
        }
        Z[begin] = own;
    }
    for (Index a = 0; a < inverse.size; ++a) inverse[a] = Z[a];
}

/// An index of which the compiler knows nothing, so that it makes no gather of its loop: columns are too short for that.
FEDKERN_INLINE Index one_by_one(Index i) {
    __asm__("" : "+r"(i));
    return i;
}

/// W rows from `first` on, side by side in x: what is read of L is read once for all. See `bordered_solve`.
template <int W> inline void bordered_solve_rows(Matrix<const double> right, const double* L, const BorderedPattern& p, bool back,
                                                 Index first, double* x, Matrix<double> solved) {
    for (int r = 0; r < W; ++r)
        for (Index i = 0; i < right.cols; ++i) x[i * W + r] = right.row(first + r)[i];
    if (back)
        for (Index j = p.columns - 1; j >= 0; --j) {
            // Four sums, in turns: with one, each addition would wait for the one before it.
            double sum[4][W] = {};
            const auto add = [&](int s, Index a) __attribute__((always_inline)) {
                const double* from = &x[one_by_one(p.indices[a]) * W];
                for (int r = 0; r < W; ++r) sum[s][r] += L[a] * from[r];
            };
            Index a = p.indptr[j] + 1;
            for (; a + 4 <= p.indptr[j + 1]; a += 4) add(0, a), add(1, a + 1), add(2, a + 2), add(3, a + 3);
            for (; a < p.indptr[j + 1]; ++a) add(0, a);
            double* own = &x[j * W];
            for (int r = 0; r < W; ++r) own[r] = (own[r] - ((sum[0][r] + sum[1][r]) + (sum[2][r] + sum[3][r]))) / L[p.indptr[j]];
        }
    else
        for (Index j = 0; j < p.columns; ++j) {
            double own[W];
            for (int r = 0; r < W; ++r) own[r] = x[j * W + r] /= L[p.indptr[j]];
            for (Index a = p.indptr[j] + 1; a < p.indptr[j + 1]; ++a) {
                double* to = &x[p.indices[a] * W];
                for (int r = 0; r < W; ++r) to[r] -= L[a] * own[r];
            }
        }
    for (int r = 0; r < W; ++r)
        for (Index i = 0; i < right.cols; ++i) solved.row(first + r)[i] = x[i * W + r];
}

/// Rows x with L x = right down to the dense block, of which what is left stands in its place; `back`: with L' x = right, the block's
/// part given. A row has the same bits, whatever is solved beside it.
inline void bordered_solve(Matrix<const double> right, Vector<const double> factor, const BorderedPattern& p, bool back,
                           Matrix<double> solved) {
    constexpr int W = 8;
    const Scratch<double> L(factor), x(right.cols * W);
    Index row = 0;
    for (; row + W <= right.rows; row += W) bordered_solve_rows<W>(right, &L[0], p, back, row, &x[0], solved);
    for (; row < right.rows; ++row) bordered_solve_rows<1>(right, &L[0], p, back, row, &x[0], solved);
}

} // namespace FEDKERN_ISA
} // namespace fedkern
