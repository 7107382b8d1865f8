// The mode of a group's effects, for many points at once: lanes are points, of which each group's rows see all.
#pragma once
#include <type_traits>

#include "fedkern/predictors.hpp"
#include "rows.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {
namespace mixed {

inline constexpr int width = 64;   // lanes of an array

struct alignas(64) Lane {
    double x[width];
    FEDKERN_INLINE double& operator[](int l) { return x[l]; }
    FEDKERN_INLINE const double& operator[](int l) const { return x[l]; }
    FEDKERN_INLINE void fill(double value, int lanes) {
        for (int l = 0; l < lanes; ++l) x[l] = value;
    }
};

/// Some points: coefficients, T, phi^2 or the precision, and of the group at hand the fixed part of each row's predictor.
struct Points {
    int used, lanes; // points, and a multiple of 8
    PointCoefficients beta;
    std::vector<Lane> T, base;
    Lane square, last;
    bool bad[width]; // a coordinate is not finite: the lane holds zeros, and its result is NaN

    Points(const Rows& rows, Matrix<const double> points, Index begin, Index end)
        : used(int(end - begin)), lanes(int((end - begin + 7) / 8 * 8)), beta(rows.p, lanes), T(rows.d * (rows.d + 1) / 2) {
        Index most = 0;
        for (Index g = 0; g < rows.groups; ++g) most = std::max(most, rows.begin[g + 1] - rows.begin[g]);
        base.resize(most);
        std::vector<double> xi(points.cols);
        for (int l = 0; l < lanes; ++l) {
            const auto given = points.row(std::min(begin + l, end - 1)); // lanes beyond the last repeat it
            bad[l] = false;
            for (Index j = 0; j < points.cols; ++j) {
                xi[j] = given[j];
                bad[l] |= !is_finite(xi[j]);
            }
            if (bad[l]) std::fill(xi.begin(), xi.end(), 0.0);
            for (Index j = 0; j < rows.p; ++j) beta.at(j, l) = xi[j];
            for (int a = 0; a < rows.d; ++a)
                for (int b = 0; b <= a; ++b) T[pair(a, b)][l] = a == b ? std::exp(xi[rows.p + pair(a, b)]) : xi[rows.p + pair(a, b)];
            last[l] = rows.dispersed() ? xi.back() : 0;
            square[l] = square_of(rows.family, last[l]);
        }
    }

    void take(const Rows& rows, Index begin, Index end) {
        const double *X = rows.X + begin * rows.p, *offset = rows.offset.data() + begin;
        beta.predict(end - begin, [&](Index r) { return X + r * rows.p; }, [&](Index r) { return offset[r]; }, base.data()->x, width);
    }
};

/// l, its gradient and minus its Hessian at u.
template <int d> struct Level {
    Lane value, gradient[d], curve[d * (d + 1) / 2];

    template <MixedFamily family> void at(const Rows& rows, const Points& points, Index begin, Index end, const Lane* u) {
        const int lanes = points.lanes;
        Lane v[d], G[d], M[d * (d + 1) / 2];
        for (int l = 0; l < lanes; ++l) value[l] = 0;
        for (int a = 0; a < d; ++a)
            for (int l = 0; l < lanes; ++l) {
                double sum = 0;
                for (int b = 0; b <= a; ++b) sum += points.T[pair(a, b)][l] * u[b][l];
                v[a][l] = sum, G[a][l] = 0, value[l] -= 0.5 * u[a][l] * u[a][l];
            }
        for (Lane& m : M) m.fill(0, lanes);
        for (Index i = begin; i < end; ++i) {
            const Lane& base = points.base[i - begin];
            const double y = rows.y[i], trials = rows.trials[i], *z = rows.Z.data() + i * d;
            [[maybe_unused]] const double most = most_curve * (1 + y);
            for (int l = 0; l < lanes; ++l) {
                double eta = base[l];
#pragma GCC unroll 3
                for (int a = 0; a < d; ++a) eta += z[a] * v[a][l];
                Row<family> row(eta, y, trials, points.square[l]);
                value[l] += row.value;
                if constexpr (family == MixedFamily::poisson || family == MixedFamily::negative_binomial) {
                    const double less = row.curve > most ? most / row.curve : 1.0;
                    row.slope *= less, row.curve *= less;
                }
#pragma GCC unroll 3
                for (int a = 0; a < d; ++a) {
                    G[a][l] += row.slope * z[a];
#pragma GCC unroll 3
                    for (int b = 0; b <= a; ++b) M[pair(a, b)][l] += row.curve * z[a] * z[b];
                }
            }
        }
        finish(points, u, G, M);
    }

    /// gradient = T'G - u, curve = T'M T + I.
    void finish(const Points& points, const Lane* u, const Lane* G, const Lane* M) {
        const int lanes = points.lanes;
        const auto& T = points.T;
        for (int c = 0; c < d; ++c) {
            for (int l = 0; l < lanes; ++l) {
                double sum = -u[c][l];
                for (int a = c; a < d; ++a) sum += T[pair(a, c)][l] * G[a][l];
                gradient[c][l] = sum;
            }
            for (int e = 0; e <= c; ++e)
                for (int l = 0; l < lanes; ++l) {
                    double sum = c == e;
                    for (int a = c; a < d; ++a)
                        for (int b = e; b < d; ++b) sum += T[pair(a, c)][l] * M[a > b ? pair(a, b) : pair(b, a)][l] * T[pair(b, e)][l];
                    curve[pair(c, e)][l] = sum;
                }
        }
    }

    bool finite(int l) const {
        double sum = value[l];
        for (const Lane& g : gradient) sum += g[l];
        for (const Lane& c : curve) sum += c[l];
        return is_finite(sum);
    }
};

/// C of curve = C C', in place of it: a lower triangle.
template <int d> void factor(Lane* curve, int lanes) {
    for (int l = 0; l < lanes; ++l)
        for (int a = 0; a < d; ++a)
            for (int b = 0; b <= a; ++b) {
                double sum = curve[pair(a, b)][l];
                for (int c = 0; c < b; ++c) sum -= curve[pair(a, c)][l] * curve[pair(b, c)][l];
                curve[pair(a, b)][l] = a == b ? math::sqrt(sum) : sum / curve[pair(b, b)][l];
            }
}

/// x = (C C')^-1 x.
template <int d> void solve(const Lane* C, Lane* x, int lanes) {
    for (int l = 0; l < lanes; ++l) {
        for (int a = 0; a < d; ++a) {
            for (int b = 0; b < a; ++b) x[a][l] -= C[pair(a, b)][l] * x[b][l];
            x[a][l] /= C[pair(a, a)][l];
        }
        for (int a = d; a-- > 0;) {
            for (int b = a + 1; b < d; ++b) x[a][l] -= C[pair(b, a)][l] * x[b][l];
            x[a][l] /= C[pair(a, a)][l];
        }
    }
}

/// Counts begin at the weighted least squares of log(y + 1/2): a mean that is far too large is left by one in each step of Newton's.
template <int d> void least_squares(const Rows& rows, const Points& points, Index begin, Index end, Lane* u) {
    const int lanes = points.lanes;
    Level<d> level;
    Lane zero[d], G[d], M[d * (d + 1) / 2];
    for (Lane& x : zero) x.fill(0, lanes);
    for (Lane& x : G) x.fill(0, lanes);
    for (Lane& x : M) x.fill(0, lanes);
    for (Index i = begin; i < end; ++i) {
        const double count = rows.y[i] + 0.5, log = std::log(count), *z = rows.Z.data() + i * d;
        for (int l = 0; l < lanes; ++l) {
            const double weight = rows.family == MixedFamily::poisson ? count : count / (1 + points.square[l] * count);
            for (int a = 0; a < d; ++a) {
                G[a][l] += weight * (log - points.base[i - begin][l]) * z[a];
                for (int b = 0; b <= a; ++b) M[pair(a, b)][l] += weight * z[a] * z[b];
            }
        }
    }
    level.value.fill(0, lanes);
    level.finish(points, zero, G, M);
    for (int a = 0; a < d; ++a) u[a] = level.gradient[a];
    factor<d>(level.curve, lanes);
    solve<d>(level.curve, u, lanes);
    for (int l = 0; l < lanes; ++l)
        if (!level.finite(l))
            for (int a = 0; a < d; ++a) u[a][l] = 0;
}

/// Newton steps, each lane's halved until its l does not fall. Leaves l at the mode in `level`, C in its curve; false: not found.
/// `rows` are Rows, or what says by itself where to begin, what l is, and how short the last step is.
template <MixedFamily family, int d, class Some>
void find_modes(const Some& rows, const Points& points, Index begin, Index end, Lane* u, Level<d>& level, bool* found) {
    constexpr bool own = std::is_same_v<Some, Rows>;
    const int lanes = points.lanes;
    if constexpr (!own) rows.template start<d>(u);
    else if (family == MixedFamily::poisson || family == MixedFamily::negative_binomial) least_squares<d>(rows, points, begin, end, u);
    else
        for (int a = 0; a < d; ++a) u[a].fill(0, lanes);
    if constexpr (own) level.template at<family>(rows, points, begin, end, u);
    else rows.template level_at<d>(u, level);
    Lane step[d], tried[d];
    Level<d> next;
    bool searching[width];
    const auto newton = [&](int l) {
        double C[d * (d + 1) / 2], x[d];
        for (int a = 0; a < d; ++a) {
            x[a] = level.gradient[a][l];
            for (int b = 0; b <= a; ++b) {
                double sum = level.curve[pair(a, b)][l];
                for (int c = 0; c < b; ++c) sum -= C[pair(a, c)] * C[pair(b, c)];
                C[pair(a, b)] = a == b ? math::sqrt(sum) : sum / C[pair(b, b)];
            }
            for (int b = 0; b < a; ++b) x[a] -= C[pair(a, b)] * x[b];
            x[a] /= C[pair(a, a)];
        }
        for (int a = d; a-- > 0;) {
            for (int b = a + 1; b < d; ++b) x[a] -= C[pair(b, a)] * x[b];
            x[a] /= C[pair(a, a)];
            step[a][l] = x[a];
        }
    };
    bool any = false;
    for (int l = 0; l < lanes; ++l) {
        found[l] = false;
        searching[l] = level.finite(l) && !points.bad[l];
        for (int a = 0; a < d; ++a) step[a][l] = 0;
        if (searching[l]) newton(l), any = true;
    }
    for (int count = 0; any && count < steps; ++count) {
        for (int a = 0; a < d; ++a)
            for (int l = 0; l < lanes; ++l) tried[a][l] = u[a][l] + step[a][l];
        if constexpr (own) next.template at<family>(rows, points, begin, end, tried);
        else rows.template level_at<d>(tried, next);
        any = false;
        for (int l = 0; l < lanes; ++l) {
            if (!searching[l]) continue;
            if (next.value[l] >= level.value[l] - slack * (1 + math::magnitude(level.value[l])) && next.finite(l)) {
                double most = 0;
                level.value[l] = next.value[l];
                for (int a = 0; a < d; ++a) {
                    u[a][l] = tried[a][l], level.gradient[a][l] = next.gradient[a][l];
                    most = std::max(most, math::magnitude(step[a][l]));
                    for (int b = 0; b <= a; ++b) level.curve[pair(a, b)][l] = next.curve[pair(a, b)][l];
                }
                if (most < Some::near_enough) {
                    found[l] = true, searching[l] = false;
                    for (int a = 0; a < d; ++a) step[a][l] = 0;
                    continue;
                }
                newton(l);
            } else {
                for (int a = 0; a < d; ++a) step[a][l] *= 0.5;
            }
            any = true;
        }
    }
    for (int l = 0; l < lanes; ++l)
        if (!found[l]) // numbers that do no harm
            for (int a = 0; a < d; ++a) {
                u[a][l] = 0;
                for (int b = 0; b <= a; ++b) level.curve[pair(a, b)][l] = a == b;
            }
    factor<d>(level.curve, lanes);
}

/// S = T C^-T and C^-T itself (upper triangles, element a, b of (d, d)).
template <int d> void backward(const Points& points, const Lane* C, Lane (*S)[d], Lane (*inverse)[d]) {
    for (int l = 0; l < points.lanes; ++l) {
        double lower[d][d] = {}; // C^-1
        for (int a = 0; a < d; ++a)
            for (int b = 0; b <= a; ++b) {
                double sum = a == b;
                for (int c = b; c < a; ++c) sum -= C[pair(a, c)][l] * lower[c][b];
                lower[a][b] = sum / C[pair(a, a)][l];
            }
        for (int a = 0; a < d; ++a)
            for (int b = 0; b < d; ++b) {
                double sum = 0;
                for (int c = 0; c <= a; ++c) sum += points.T[pair(a, c)][l] * lower[b][c];
                S[a][b][l] = sum, inverse[a][b][l] = lower[b][a];
            }
    }
}

} // namespace mixed
} // namespace FEDKERN_ISA
} // namespace fedkern
