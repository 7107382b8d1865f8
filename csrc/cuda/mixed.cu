// Log-likelihoods of mixed models at many points. A thread is a point and takes a share of the groups, so that the threads of a warp
// read the same rows. Every row is computed at every node: the products of exponentials that a processor's loops live on
// (mixed/values.hpp) would need memory for each row and node. Pinheiro and Bates (1995), section 2.4.
#include "grid.hpp"
#include "fedkern/mixed/scalar.hpp"

namespace fedkern {
namespace cuda {

using mixed::pair;
using mixed::Row;

/// Nodes of the standard normal, rising, and log w + t^2 / 2 with weights that add up to 1.
struct MixedRule {
    double t[mixed_nodes], weight[mixed_nodes];
};

/// The fixed part of each row's predictor at each point: base (n, points).
FEDKERN_KERNEL predictors(Matrix<const double> points, MixedRows rows, double* base) {
    for (Index k = thread_of_grid(); k < rows.X.rows * points.rows; k += threads_of_grid()) {
        const Index i = k / points.rows, s = k - i * points.rows;
        double eta = rows.offset.data ? rows.offset[i] : 0;
        for (Index j = 0; j < rows.X.cols; ++j) eta += rows.X.row(i)[j] * points.row(s)[j];
        base[k] = eta;
    }
}

/// What depends on no point, summed over the rows of each block.
template <MixedFamily family> FEDKERN_KERNEL constants(MixedRows rows, double* partial) {
    FEDKERN_SHARED(double, room, most_warps);
    double sum = 0;
    for (Index i = thread_of_grid(); i < rows.y.size; i += threads_of_grid())
        sum += mixed::row_constant<family>(rows.y[i], rows.trials.data ? rows.trials[i] : 1);
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/// The rows of one group at one point.
template <MixedFamily family, int d> struct Group {
    static constexpr int pairs = d * (d + 1) / 2;
    const MixedRows& rows;
    const double* base; // of the point
    Index stride, begin, end;
    double T[pairs], square;

    struct Level {
        double value, gradient[d], curve[pairs]; // l, its gradient and minus its Hessian

        FEDKERN_INLINE bool finite() const {
            double sum = value;
#pragma unroll
            for (int a = 0; a < d; ++a) sum += gradient[a];
#pragma unroll
            for (int a = 0; a < pairs; ++a) sum += curve[a];
            return is_finite(sum);
        }

        /// curve = C C', and x = curve^-1 gradient.
        FEDKERN_INLINE void solve(double (&C)[pairs], double (&x)[d]) const {
#pragma unroll
            for (int a = 0; a < d; ++a) {
                x[a] = gradient[a];
#pragma unroll
                for (int b = 0; b <= a; ++b) {
                    double sum = curve[pair(a, b)];
#pragma unroll
                    for (int c = 0; c < b; ++c) sum -= C[pair(a, c)] * C[pair(b, c)];
                    C[pair(a, b)] = a == b ? math::sqrt(sum) : sum / C[pair(b, b)];
                }
#pragma unroll
                for (int b = 0; b < a; ++b) x[a] -= C[pair(a, b)] * x[b];
                x[a] /= C[pair(a, a)];
            }
#pragma unroll
            for (int a = d - 1; a >= 0; --a) {
#pragma unroll
                for (int b = a + 1; b < d; ++b) x[a] -= C[pair(b, a)] * x[b];
                x[a] /= C[pair(a, a)];
            }
        }
    };

    FEDKERN_INLINE void effects(const double (&u)[d], double (&v)[d]) const {
#pragma unroll
        for (int a = 0; a < d; ++a) {
            v[a] = 0;
#pragma unroll
            for (int b = 0; b <= a; ++b) v[a] += T[pair(a, b)] * u[b];
        }
    }

    FEDKERN_INLINE Row<family> row(Index i, const double (&v)[d]) const {
        double eta = base[i * stride];
#pragma unroll
        for (int a = 0; a < d; ++a) eta += rows.Z.row(i)[a] * v[a];
        return {eta, rows.y[i], rows.trials.data ? rows.trials[i] : 1, square};
    }

    /// gradient = T'G - u, curve = T'M T + I.
    FEDKERN_INLINE void finish(const double (&u)[d], const double (&G)[d], const double (&M)[pairs], Level& at) const {
#pragma unroll
        for (int c = 0; c < d; ++c) {
            at.gradient[c] = -u[c];
#pragma unroll
            for (int a = c; a < d; ++a) at.gradient[c] += T[pair(a, c)] * G[a];
#pragma unroll
            for (int e = 0; e <= c; ++e) {
                double sum = c == e;
#pragma unroll
                for (int a = c; a < d; ++a)
#pragma unroll
                    for (int b = e; b < d; ++b) sum += T[pair(a, c)] * M[a > b ? pair(a, b) : pair(b, a)] * T[pair(b, e)];
                at.curve[pair(c, e)] = sum;
            }
        }
    }

    FEDKERN_INLINE void look(const double (&u)[d], Level& at) const {
        double v[d], G[d] = {}, M[pairs] = {};
        effects(u, v);
        at.value = 0;
#pragma unroll
        for (int a = 0; a < d; ++a) at.value -= 0.5 * u[a] * u[a];
#pragma unroll 1
        for (Index i = begin; i < end; ++i) {
            Row<family> one = row(i, v);
            at.value += one.value;
            if constexpr (mixed::is_counted(family)) {
                const double most = mixed::most_curve * (1 + rows.y[i]), less = one.curve > most ? most / one.curve : 1.0;
                one.slope *= less, one.curve *= less;
            }
#pragma unroll
            for (int a = 0; a < d; ++a) {
                const double z = rows.Z.row(i)[a];
                G[a] += one.slope * z;
#pragma unroll
                for (int b = 0; b <= a; ++b) M[pair(a, b)] += one.curve * z * rows.Z.row(i)[b];
            }
        }
        finish(u, G, M, at);
    }

    /// Counts begin at the weighted least squares of log(y + 1/2), all else at 0.
    FEDKERN_INLINE void start(double (&u)[d]) const {
        double none[d] = {};
        if constexpr (mixed::is_counted(family)) {
            double G[d] = {}, M[pairs] = {}, C[pairs];
            Level at;
#pragma unroll 1
            for (Index i = begin; i < end; ++i) {
                const double count = rows.y[i] + 0.5, weight = family == MixedFamily::poisson ? count : count / (1 + square * count);
                const double left = weight * (math::log(count) - base[i * stride]);
#pragma unroll
                for (int a = 0; a < d; ++a) {
                    const double z = rows.Z.row(i)[a];
                    G[a] += left * z;
#pragma unroll
                    for (int b = 0; b <= a; ++b) M[pair(a, b)] += weight * z * rows.Z.row(i)[b];
                }
            }
            finish(none, G, M, at);
            at.value = 0;
            at.solve(C, u);
            double sum = 0;
#pragma unroll
            for (int a = 0; a < d; ++a) sum += u[a];
            if (at.finite() && is_finite(sum)) return;
        }
#pragma unroll
        for (int a = 0; a < d; ++a) u[a] = 0;
    }

    /// Newton's steps, halved until l does not fall: u becomes the mode, C C' minus the Hessian there. l; NaN: not found.
    FEDKERN_INLINE double mode(double (&u)[d], double (&C)[pairs]) const {
        Level here = {}, there;
        double step[d] = {}, tried[d];
        start(u);
#pragma unroll 1
        for (int count = 0; count <= mixed::steps; ++count) {
            double most = 0;
#pragma unroll
            for (int a = 0; a < d; ++a) {
                tried[a] = u[a] + step[a];
                const double size = math::magnitude(step[a]);
                most = size > most ? size : most;
            }
            look(tried, there);
            const bool finite = there.finite(), first = count == 0;
            if (first && !finite) break;
            if (finite && (first || there.value >= here.value - mixed::slack * (1 + math::magnitude(here.value)))) {
                here = there;
#pragma unroll
                for (int a = 0; a < d; ++a) u[a] = tried[a];
                here.solve(C, step);
                if (!first && most < mixed::near) return here.value;
            } else {
#pragma unroll
                for (int a = 0; a < d; ++a) step[a] *= 0.5;
            }
        }
        return math::not_a_number<double>();
    }

    /// The logarithm of the integral.
    FEDKERN_INLINE double integral(const MixedRule& rule) const {
        double u[d], C[pairs] = {}, inverse[pairs];
        const double level = mode(u, C);
        double value = level;
#pragma unroll
        for (int a = 0; a < d; ++a) {
            value -= math::log(C[pair(a, a)]);
#pragma unroll
            for (int b = 0; b <= a; ++b) {
                double sum = a == b;
#pragma unroll
                for (int c = b; c < a; ++c) sum -= C[pair(a, c)] * inverse[pair(c, b)];
                inverse[pair(a, b)] = sum / C[pair(a, a)];
            }
        }
        const int Q = family == MixedFamily::gaussian ? 1 : rows.nodes, count = d == 1 ? Q : d == 2 ? Q * Q : Q * Q * Q;
        double total = 0;
#pragma unroll 1
        for (int k = 0; k < count; ++k) {
            double t[d], at[d], v[d], x = -level;
            int left = k;
#pragma unroll
            for (int a = d - 1; a >= 0; --a) {
                const int q = left % Q;
                left /= Q;
                t[a] = rule.t[q], x += rule.weight[q];
            }
#pragma unroll
            for (int a = 0; a < d; ++a) {
                at[a] = u[a];
#pragma unroll
                for (int b = a; b < d; ++b) at[a] += inverse[pair(b, a)] * t[b];
                x -= 0.5 * at[a] * at[a];
            }
            effects(at, v);
#pragma unroll 1
            for (Index i = begin; i < end; ++i) x += row(i, v).value;
            total += math::exp(x);
        }
        return value + math::log(total);
    }
};

/// partial (gridDim.y, points): sums over a share of the groups, with what a negative binomial's counts add.
template <MixedFamily family, int d>
FEDKERN_LARGE_KERNEL group_integrals(Matrix<const double> points, MixedRows rows, MixedRule rule, const double* base, double* partial) {
    const Index S = points.rows, s = thread_of_grid(), piece = blockIdx.y, pieces = gridDim.y, n = rows.y.size;
    if (s >= S) return;
    const auto xi = points.row(s);
    double square = 1;
    if constexpr (family == MixedFamily::gaussian) square = math::exp(-2 * xi[xi.size - 1]);
    if constexpr (family == MixedFamily::negative_binomial) square = xi[xi.size - 1] * xi[xi.size - 1];
    double sum = 0;
    Index begin, end; // of the rows
    if constexpr (d == 0) {
        begin = n * piece / pieces, end = n * (piece + 1) / pieces;
        for (Index i = begin; i < end; ++i)
            sum += Row<family>(base[i * S + s], rows.y[i], rows.trials.data ? rows.trials[i] : 1, square).value;
    } else {
        const Index groups = rows.starts.size - 1, first = groups * piece / pieces, last = groups * (piece + 1) / pieces;
        Group<family, d> group{rows, base + s, S, 0, 0, {}, square};
#pragma unroll
        for (int a = 0; a < d; ++a)
#pragma unroll
            for (int b = 0; b <= a; ++b) {
                const double x = xi[rows.X.cols + pair(a, b)];
                group.T[pair(a, b)] = a == b ? math::exp(x) : x;
            }
#pragma unroll 1
        for (Index g = first; g < last; ++g) {
            group.begin = rows.starts[g], group.end = rows.starts[g + 1];
            if (group.begin < group.end) sum += group.integral(rule); // that of an empty group is 1
        }
        begin = rows.starts[first], end = rows.starts[last];
    }
    if constexpr (family == MixedFamily::negative_binomial) {
        const double most = double(mixed::least_large), before = mixed::rising_before(most, square, math::log1p(square * most));
#pragma unroll 1
        for (Index i = begin; i < end; ++i) {
            const double y = rows.y[i];
#pragma unroll 1
            for (double k = 0; k < y && k < most; ++k) sum += math::log1p(k * square);
            if (y > most) sum += mixed::rising_before(y, square, math::log1p(square * y)) - before;
        }
    }
    partial[piece * S + s] = sum;
}

/// The value of each point: NaN if it is not finite, or the point is not.
FEDKERN_KERNEL totals(Matrix<const double> points, MixedRows rows, const double* partial, Index pieces, const double* constant,
                      Index blocks, Vector<double> value) {
    for (Index s = thread_of_grid(); s < points.rows; s += threads_of_grid()) {
        const auto xi = points.row(s);
        double total = 0;
        for (Index b = 0; b < blocks; ++b) total += constant[b];
        for (Index piece = 0; piece < pieces; ++piece) total += partial[piece * points.rows + s];
        if (rows.family == MixedFamily::gaussian) total -= double(rows.y.size) * xi[xi.size - 1];
        bool finite = is_finite(total);
        for (Index j = 0; j < xi.size; ++j) finite = finite && is_finite(xi[j]);
        value[s] = finite ? total : math::not_a_number<double>();
    }
}

FEDKERN_INSTANCE(predictors)
FEDKERN_INSTANCE(constants<MixedFamily::binomial>)
FEDKERN_INSTANCE(constants<MixedFamily::poisson>)
FEDKERN_INSTANCE(constants<MixedFamily::gaussian>)
FEDKERN_INSTANCE(constants<MixedFamily::negative_binomial>)
FEDKERN_INSTANCE(group_integrals<MixedFamily::binomial, 0>)
FEDKERN_INSTANCE(group_integrals<MixedFamily::binomial, 1>)
FEDKERN_INSTANCE(group_integrals<MixedFamily::binomial, 2>)
FEDKERN_INSTANCE(group_integrals<MixedFamily::binomial, 3>)
FEDKERN_INSTANCE(group_integrals<MixedFamily::poisson, 0>)
FEDKERN_INSTANCE(group_integrals<MixedFamily::poisson, 1>)
FEDKERN_INSTANCE(group_integrals<MixedFamily::poisson, 2>)
FEDKERN_INSTANCE(group_integrals<MixedFamily::poisson, 3>)
FEDKERN_INSTANCE(group_integrals<MixedFamily::gaussian, 0>)
FEDKERN_INSTANCE(group_integrals<MixedFamily::gaussian, 1>)
FEDKERN_INSTANCE(group_integrals<MixedFamily::gaussian, 2>)
FEDKERN_INSTANCE(group_integrals<MixedFamily::gaussian, 3>)
FEDKERN_INSTANCE(group_integrals<MixedFamily::negative_binomial, 0>)
FEDKERN_INSTANCE(group_integrals<MixedFamily::negative_binomial, 1>)
FEDKERN_INSTANCE(group_integrals<MixedFamily::negative_binomial, 2>)
FEDKERN_INSTANCE(group_integrals<MixedFamily::negative_binomial, 3>)
FEDKERN_INSTANCE(totals)

} // namespace cuda
} // namespace fedkern
