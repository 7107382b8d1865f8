// Log-likelihood of a mixed model with its gradient and minus its Hessian, by the nodes of the value: Louis (1982). With d the
// derivative of log p(y, u | xi) at fixed u, the gradient is E d and minus the Hessian E[-d'] - cov(d), in each group.
#pragma once
#include "louis.hpp"
#include "summed.hpp"
#include "values.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {
namespace mixed {

/// All nodes in d dimensions, by coordinate.
struct Grid {
    int count = 1;
    std::vector<double> t[mixed_effects], weight; // log w + t't / 2
    Grid(const Rule& rule, int d) {
        const int Q = int(rule.t.size());
        for (int a = 0; a < d; ++a) count *= Q;
        weight.assign(count, 0);
        for (int a = 0, stride = count; a < d; ++a) {
            stride /= Q;
            for (int k = 0; k < count; ++k) {
                const int q = k / stride % Q;
                t[a].push_back(rule.t[q]);
                weight[k] += rule.log_w[q] + 0.5 * rule.t[q] * rule.t[q];
            }
        }
    }
};

/// value, gradient, lower triangle of minus the Hessian, one after the other, of one point: what each group adds.
template <MixedFamily family> class Information {
  public:
    Information(const Rows& rows, const Grid& grid)
        : rows_(rows), grid_(grid), K_(grid.count), P_(int(rows.size())), p_(int(rows.p)), d_(rows.d), places_(Index(d_) * K_),
          weights_(K_), slopes_(K_), curves_(K_), linear_(Index(d_) * K_), D_(Index(P_) * K_), mean_(P_), weighted_(K_) {}

    /// A group of one lane; u, v = T u, S = T C^-T, C^-T, l at the mode and log|C| are the lane's.
    void add(const Points& points, Index begin, Index end, int lane, const double* u, const double* v, const double (*S)[3],
             const double (*inverse)[3], double level, double log_det, double* sum) {
        double *w = weights_.data(), *D = D_.data();
        for (int k = 0; k < K_; ++k) w[k] = grid_.weight[k] - level;
        for (int b = 0; b < d_; ++b) {
            double* place = &places_[Index(b) * K_];
            for (int k = 0; k < K_; ++k) {
                double x = u[b];
                for (int c = b; c < d_; ++c) x += inverse[b][c] * grid_.t[c][k];
                place[k] = x, w[k] -= 0.5 * x * x;
            }
        }
        const double square = points.square[lane], last = points.last[lane];
        const auto predictor = [&](Index i, double* A) {
            double c = points.base[i - begin][lane];
            for (int a = 0; a < d_; ++a) {
                c += rows_.Z[i * d_ + a] * v[a], A[a] = 0;
                for (int b = 0; b < d_; ++b) A[a] += rows_.Z[i * d_ + b] * S[b][a];
            }
            return c;
        };
        double A[3];
        const auto eta = [&](double c, int k) {
            for (int a = 0; a < d_; ++a) c += A[a] * grid_.t[a][k];
            return c;
        };
        for (Index i = begin; i < end; ++i) {
            const double c = predictor(i, A), y = rows_.y[i], trials = rows_.trials[i];
            for (int k = 0; k < K_; ++k) slopes_[k] = eta(c, k);
            for (int k = 0; k < K_; ++k) w[k] += Row<family>(slopes_[k], y, trials, square).value;
        }
        double total = 0;
        for (int k = 0; k < K_; ++k) total += w[k] = math::exp(w[k]);
        for (int k = 0; k < K_; ++k) w[k] /= total;
        sum[0] += level + math::log(total) - log_det;
        std::fill(D_.begin(), D_.end(), 0.0);
        std::fill(linear_.begin(), linear_.end(), 0.0);
        double *gradient = sum + 1, *information = sum + 1 + P_;
        const auto at = [&](int i, int j) -> double& { return information[i * (i + 1) / 2 + j]; };
        for (Index i = begin; i < end; ++i) {
            const double c = predictor(i, A), y = rows_.y[i], trials = rows_.trials[i];
            const double *x = &rows_.X[i * p_], *z = rows_.Z.data() + i * d_;
            for (int k = 0; k < K_; ++k) slopes_[k] = eta(c, k);
            for (int k = 0; k < K_; ++k) {
                const Row<family> row(slopes_[k], y, trials, square);
                if constexpr (has_dispersion) own_[k] = slopes_[k];
                slopes_[k] = row.slope, curves_[k] = w[k] * row.curve;
            }
            for (int j = 0; j < p_; ++j)
                for (int k = 0; k < K_; ++k) D[Index(j) * K_ + k] += x[j] * slopes_[k];
            for (int a = 0; a < d_; ++a)
                for (int k = 0; k < K_; ++k) linear_[Index(a) * K_ + k] += z[a] * slopes_[k];
            outer(x, z, points, lane, at);
            if constexpr (has_dispersion) {
                double* own = D + Index(P_ - 1) * K_;
                double second = 0;
                for (int k = 0; k < K_; ++k) {
                    const Dispersion<family> row(own_[k], y, last, square);
                    own[k] += row.slope, second += w[k] * row.second, curves_[k] = -w[k] * row.mixed;
                }
                at(P_ - 1, P_ - 1) -= second;
                double m[4] = {};
                for (int k = 0; k < K_; ++k) m[0] += curves_[k];
                for (int b = 0; b < d_; ++b)
                    for (int k = 0; k < K_; ++k) m[1 + b] += curves_[k] * places_[Index(b) * K_ + k];
                for (int j = 0; j < p_; ++j) at(P_ - 1, j) += m[0] * x[j];
                for (int a = 0; a < d_; ++a)
                    for (int b = 0; b <= a; ++b) at(P_ - 1, p_ + pair(a, b)) += m[1 + b] * z[a] * unit(points, a, b, lane);
            }
        }
        const auto units = [&](int a, int b) { return unit(points, a, b, lane); };
        finish(D, linear_.data(), places_.data(), w, K_, P_, p_, d_, units, at, gradient, weighted_.data(), mean_.data());
    }

  private:
    static constexpr bool has_dispersion = family == MixedFamily::gaussian || family == MixedFamily::negative_binomial;

    /// d eta / d xi is z_a u_b times this.
    static double unit(const Points& points, int a, int b, int lane) { return a == b ? points.T[pair(a, a)][lane] : 1.0; }

    /// E[curve q q'] of a row, q = d eta / d xi.
    template <class At> void outer(const double* x, const double* z, const Points& points, int lane, const At& at) {
        double m0 = 0, m1[3] = {}, m2[6] = {};
        for (int k = 0; k < K_; ++k) m0 += curves_[k];
        for (int b = 0; b < d_; ++b) {
            const double* place = &places_[Index(b) * K_];
            for (int k = 0; k < K_; ++k) weighted_[k] = curves_[k] * place[k];
            for (int k = 0; k < K_; ++k) m1[b] += weighted_[k];
            for (int c = 0; c <= b; ++c)
                for (int k = 0; k < K_; ++k) m2[pair(b, c)] += weighted_[k] * places_[Index(c) * K_ + k];
        }
        spread(x, z, p_, d_, m0, m1, m2, [&](int a, int b) { return unit(points, a, b, lane); }, at);
    }

    const Rows& rows_;
    const Grid& grid_;
    int K_, P_, p_, d_;
    std::vector<double> places_, weights_, slopes_, curves_, linear_, D_, mean_, weighted_, own_ = std::vector<double>(K_);
};

template <MixedFamily family, int d>
void curvature_of(const Rows& rows, Information<family>& information, Points& points, Index first, Index last, double* sums, Index size) {
    for (Index g = first; g < last; ++g) {
        const Index begin = rows.begin[g], end = rows.begin[g + 1];
        points.take(rows, begin, end);
        Lane u[d], S[d][d], inverse[d][d];
        Level<d> level;
        bool found[width];
        find_modes<family, d>(rows, points, begin, end, u, level, found);
        backward<d>(points, level.curve, S, inverse);
        for (int l = 0; l < points.used; ++l) {
            double at[3], v[3] = {}, of[3][3] = {}, back[3][3] = {}, log_det = 0;
            for (int a = 0; a < d; ++a) {
                at[a] = u[a][l], log_det += math::log(level.curve[pair(a, a)][l]);
                for (int b = 0; b < d; ++b) of[a][b] = S[a][b][l], back[a][b] = inverse[a][b][l];
                for (int b = 0; b <= a; ++b) v[a] += points.T[pair(a, b)][l] * u[b][l];
            }
            const double value = found[l] ? level.value[l] : math::not_a_number<double>();
            information.add(points, begin, end, l, at, v, of, back, value, log_det, sums + l * size);
        }
    }
}

template <MixedFamily family>
void curvature_of(const Rows& rows, const Grid& grid, Points& points, Index first, Index last, double* sums, Index size) {
    Information<family> information(rows, grid);
    switch (rows.d) {
    case 1: return curvature_of<family, 1>(rows, information, points, first, last, sums, size);
    case 2: return curvature_of<family, 2>(rows, information, points, first, last, sums, size);
    default: return curvature_of<family, 3>(rows, information, points, first, last, sums, size);
    }
}

/// Sums over groups at each point, (points, 1 + P + P (P + 1) / 2).
inline std::vector<double> sums_of_groups(Matrix<const double> points, const MixedRows& given, int n_threads) {
    const Rows rows(given);
    const Rule rule(given.family == MixedFamily::gaussian ? 3 : given.nodes); // 3 are exact there
    const Grid grid(rule, rows.d);
    const Index S = points.rows, P = rows.size(), size = 1 + P + P * (P + 1) / 2, lanes = 8;
    const Index sets = (S + lanes - 1) / lanes, pieces = block_count(rows.groups, 16);
    std::vector<double> sums(sets * pieces * lanes * size), total(S * size);
    const double work = double(S) * double(rows.n) * 30 * grid.count;
    for_blocks(sets * pieces, sets * pieces, worthwhile(n_threads, work), [&](Index, Index first, Index last) {
        for (Index task = first; task < last; ++task) {
            const Index begin = task / pieces * lanes, piece = task % pieces;
            Points some(rows, points, begin, std::min(S, begin + lanes));
            double* sum = sums.data() + task * lanes * size;
            const Index from = rows.groups * piece / pieces, to = rows.groups * (piece + 1) / pieces;
            switch (rows.family) {
            case MixedFamily::binomial: curvature_of<MixedFamily::binomial>(rows, grid, some, from, to, sum, size); break;
            case MixedFamily::poisson: curvature_of<MixedFamily::poisson>(rows, grid, some, from, to, sum, size); break;
            case MixedFamily::gaussian: curvature_of<MixedFamily::gaussian>(rows, grid, some, from, to, sum, size); break;
            default: curvature_of<MixedFamily::negative_binomial>(rows, grid, some, from, to, sum, size);
            }
        }
    });
    for (Index i = 0; i < S; ++i)
        for (Index piece = 0; piece < pieces; ++piece)
            for (Index j = 0; j < size; ++j) total[i * size + j] += sums[((i / lanes * pieces + piece) * lanes + i % lanes) * size + j];
    return total;
}

/// The same of rows without effects.
inline std::vector<double> sums_without_effects(Matrix<const double> points, const MixedRows& rows, bool dispersed, int n_threads) {
    return sums_of_all(points, rows, dispersed, n_threads, [&](Index s) {
        const bool one = !rows.trials.data;
        const double last = dispersed ? points.row(s)[points.cols - 1] : 0;
        return [&rows, one, last](const RowsAtOnce& some, const Derivatives& out) {
            switch (rows.family) {
            case MixedFamily::binomial: return row_derivatives<MixedFamily::binomial>(some, one, last, out);
            case MixedFamily::poisson: return row_derivatives<MixedFamily::poisson>(some, one, last, out);
            case MixedFamily::gaussian: return row_derivatives<MixedFamily::gaussian>(some, one, last, out);
            default: return row_derivatives<MixedFamily::negative_binomial>(some, one, last, out);
            }
        };
    });
}

/// Writes sums, or NaN where a coordinate or a sum is not finite.
inline void write_sums(const double* sums, Vector<const double> point, double& value, Vector<double> gradient,
                       Vector<double> minus_hessian) {
    const Index P = point.size, size = 1 + P + P * (P + 1) / 2;
    bool finite = true;
    for (Index j = 0; j < P; ++j) finite &= is_finite(point[j]);
    for (Index j = 0; j < size; ++j) finite &= is_finite(sums[j]);
    const double bad = math::not_a_number<double>();
    value = finite ? sums[0] : bad;
    for (Index j = 0; j < P; ++j) gradient[j] = finite ? sums[1 + j] : bad;
    for (Index j = 0; j < P * (P + 1) / 2; ++j) minus_hessian[j] = finite ? sums[1 + P + j] : bad;
}

} // namespace mixed

inline void mixed_curvature(Matrix<const double> points, const MixedRows& given, Vector<double> value, Matrix<double> gradient,
                            Matrix<double> minus_hessian, int n_threads) {
    using namespace mixed;
    const Constants constants(given);
    const Index P = points.cols, size = 1 + P + P * (P + 1) / 2;
    auto sums =
        given.Z.cols ? sums_of_groups(points, given, n_threads) : sums_without_effects(points, given, constants.dispersed(), n_threads);
    for (Index i = 0; i < points.rows; ++i) {
        double* total = sums.data() + i * size;
        const double last = constants.dispersed() ? points.row(i)[P - 1] : 0;
        total[0] += constants.at(last);
        if (given.family == MixedFamily::negative_binomial && total[0] == total[0]) {
            double first, second;
            constants.rising_slopes(last * last, first, second);
            total[P] += 2 * last * first;
            total[size - 1] -= 2 * first + 4 * last * last * second;
        }
        write_sums(total, points.row(i), value[i], gradient.row(i), minus_hessian.row(i));
    }
}

} // namespace FEDKERN_ISA
} // namespace fedkern
