// The kernels of mixed models for the families of families.hpp: every row at every node. Pinheiro and Bates (1995), section 2.4; where
// there may be several modes, panels.hpp; gradient and Hessian by Louis (1982).
#pragma once
#include "curvature.hpp"
#include "declared.hpp"
#include "panels.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {
namespace mixed {

inline std::unique_ptr<Family> family_of(const Rows& rows, const MixedRows& given, const MixedTimes& times, int m) {
    switch (given.family) {
    case MixedFamily::student: return std::make_unique<Student>(rows);
    case MixedFamily::gamma: return std::make_unique<Gamma>(rows);
    case MixedFamily::beta: return std::make_unique<Beta>(rows);
    case MixedFamily::zero_inflated_poisson: return std::make_unique<WithZeros<false, false>>(rows, given);
    case MixedFamily::zero_inflated_negative_binomial: return std::make_unique<WithZeros<true, false>>(rows, given);
    case MixedFamily::hurdle_poisson: return std::make_unique<WithZeros<false, true>>(rows, given);
    case MixedFamily::hurdle_negative_binomial: return std::make_unique<WithZeros<true, true>>(rows, given);
    case MixedFamily::poisson_lognormal: return std::make_unique<PoissonLognormal>(rows);
    case MixedFamily::ordinal: return std::make_unique<Ordinal<false>>(rows, m);
    case MixedFamily::ordinal_probit: return std::make_unique<Ordinal<true>>(rows, m);
    case MixedFamily::probit: return std::make_unique<Chances<true>>(rows);
    case MixedFamily::cloglog: return std::make_unique<Chances<false>>(rows);
    case MixedFamily::beta_binomial: return std::make_unique<Declared<BetaBinomial>>(rows, times);
    case MixedFamily::lognormal: return std::make_unique<Declared<LogNormal>>(rows, times);
    case MixedFamily::inverse_gaussian: return std::make_unique<Declared<InverseGaussian>>(rows, times);
    case MixedFamily::lognormal_aft: return std::make_unique<Declared<Accelerated<NormalLaw>>>(rows, times);
    case MixedFamily::loglogistic_aft: return std::make_unique<Declared<Accelerated<LogisticLaw>>>(rows, times);
    case MixedFamily::weibull: return std::make_unique<Times<MixedFamily::weibull>>(rows, times);
    case MixedFamily::exponential: return std::make_unique<Times<MixedFamily::exponential>>(rows, times);
    default: return std::make_unique<Times<MixedFamily::piecewise>>(rows, times);
    }
}

/// The rows of one group at some points, or at nodes of one.
class Group {
  public:
    Group(const Rows& rows, const Family& family) : rows_(rows), family_(family) {}

    void take(const Points& points, const Shapes& shapes, Index begin, Index end) {
        points_ = &points, shapes_ = &shapes, begin_ = begin, end_ = end;
        const int kept = family_.kept();
        if (kept == 0) return;
        kept_.resize(std::max<std::size_t>(kept_.size(), (end - begin) * kept));
        for (Index i = begin; i < end; ++i) family_.keep(i, shapes, points.lanes, &kept_[(i - begin) * kept]);
    }

    /// Sums of values of the rows at the effects v.
    void values(const Lane* v, int d, Lane& sum) {
        const int L = points_->lanes;
        for (Index i = begin_; i < end_; ++i) {
            predictor(i, v, d);
            family_.value(i, *shapes_, kept(i), eta_, L, one_);
            for (int l = 0; l < L; ++l) sum[l] += one_[l];
        }
    }

    static constexpr double near_enough = 1e-8; // an error of its square

    template <int d> void find_modes(Lane* u, Level<d>& level, bool* found) const {
        mixed::find_modes<MixedFamily::piecewise, d>(*this, *points_, begin_, end_, u, level, found);
    }

    /// Where a search begins: 0, or weighted least squares, as a mean that is far too large is left by one in each step of Newton's.
    template <int d> void start(Lane* u) const {
        const int L = points_->lanes;
        for (int a = 0; a < d; ++a) u[a].fill(0, L);
        if (!family_.counted) return;
        Level<d> level;
        Lane G[d], M[d * (d + 1) / 2], weight, target;
        for (Lane& lane : G) lane.fill(0, L);
        for (Lane& lane : M) lane.fill(0, L);
        for (Index i = begin_; i < end_; ++i) {
            const double* z = rows_.Z.data() + i * d;
            const Lane& base = points_->base[i - begin_];
            family_.start(i, *shapes_, kept(i), L, weight, target);
            for (int a = 0; a < d; ++a) {
                for (int l = 0; l < L; ++l) G[a][l] += weight[l] * (target[l] - base[l]) * z[a];
                for (int b = 0; b <= a; ++b)
                    for (int l = 0; l < L; ++l) M[pair(a, b)][l] += weight[l] * z[a] * z[b];
            }
        }
        level.value.fill(0, L);
        level.finish(*points_, u, G, M);
        factor<d>(level.curve, L);
        solve<d>(level.curve, level.gradient, L);
        for (int a = 0; a < d; ++a)
            for (int l = 0; l < L; ++l) u[a][l] = level.finite(l) ? level.gradient[a][l] : 0;
    }

    /// T u at lanes.
    template <int d> void effects(const Lane* u, Lane* v) const {
        for (int a = 0; a < d; ++a)
            for (int l = 0; l < points_->lanes; ++l) {
                double sum = 0;
                for (int b = 0; b <= a; ++b) sum += points_->T[pair(a, b)][l] * u[b][l];
                v[a][l] = sum;
            }
    }

    const Lane* kept(Index i) const { return family_.kept() ? &kept_[(i - begin_) * family_.kept()] : nullptr; }

    template <int d> void level_at(const Lane* u, Level<d>& at) const {
        const int L = points_->lanes;
        Lane v[d], G[d], M[d * (d + 1) / 2];
        effects<d>(u, v);
        at.value.fill(0, L);
        for (Lane& lane : G) lane.fill(0, L);
        for (Lane& lane : M) lane.fill(0, L);
        for (int a = 0; a < d; ++a)
            for (int l = 0; l < L; ++l) at.value[l] -= 0.5 * u[a][l] * u[a][l];
        for (Index i = begin_; i < end_; ++i) {
            const double* z = rows_.Z.data() + i * d;
            predictor(i, v, d);
            family_.row(i, *shapes_, kept(i), eta_, L, row_);
            if (family_.counted)
                for (int l = 0; l < L; ++l) {
                    const double most = most_curve * (1 + family_.size(i, *shapes_, l));
                    const double less = row_.curve[l] > most ? most / row_.curve[l] : 1.0;
                    row_.slope[l] *= less, row_.curve[l] *= less;
                }
            for (int l = 0; l < L; ++l) at.value[l] += row_.value[l];
            for (int a = 0; a < d; ++a) {
                for (int l = 0; l < L; ++l) G[a][l] += row_.slope[l] * z[a];
                for (int b = 0; b <= a; ++b)
                    for (int l = 0; l < L; ++l) M[pair(a, b)][l] += row_.curve[l] * z[a] * z[b];
            }
        }
        at.finish(*points_, u, G, M);
    }

  private:
    void predictor(Index i, const Lane* v, int d) const {
        const int L = points_->lanes;
        const Lane& base = points_->base[i - begin_];
        for (int l = 0; l < L; ++l) eta_[l] = base[l];
        for (int a = 0; a < d; ++a) {
            const double z = rows_.Z[i * rows_.d + a];
            for (int l = 0; l < L; ++l) eta_[l] += z * v[a][l];
        }
    }

    const Rows& rows_;
    const Family& family_;
    const Points* points_ = nullptr;
    const Shapes* shapes_ = nullptr;
    Index begin_ = 0, end_ = 0;
    std::vector<Lane> kept_;
    mutable Lane eta_, one_; // room
    mutable RowLanes row_;
};

/// Shape numbers of points: those of a lane, or of one lane in all.
inline Shapes shapes_of(const Family& family, const Points& some, Matrix<const double> points, Index begin, Index end, int one = -1) {
    Shapes shapes(family.numbers());
    std::vector<double> w(family.m);
    for (int l = 0; l < width; ++l) {
        const int from = one < 0 ? std::min(l, some.lanes - 1) : one;
        const Index i = std::min(begin + from, end - 1);
        for (int j = 0; j < family.m; ++j) w[j] = some.bad[from] ? 0 : points.row(i)[points.cols - family.m + j];
        family.shapes(w.data(), l, shapes);
    }
    return shapes;
}

/// The largest value of each row at each point: (n, points) where there may be several modes.
inline std::vector<double> tops_of(const Rows& rows, const Family& family, const Shapes& shapes, const double* w) {
    std::vector<double> tops(rows.n);
    Lane eta, value;
    for (Index i = 0; i < rows.n; ++i) {
        eta.fill(family.mode(i, w), 8);
        family.value(i, shapes, nullptr, eta, 8, value);
        tops[i] = value[0];
    }
    return tops;
}

/// Sums over groups of the logarithms of integrals, at some points.
template <int d>
void general_values(const Rows& rows, const Family& family, const Grid& grid, Points& points, const Shapes& shapes, Lane& total) {
    const int L = points.lanes;
    Group group(rows, family);
    Lane u[3], v[3], place[3], sum, of_group;
    for (Index g = 0; g < rows.groups; ++g) {
        const Index begin = rows.begin[g], end = rows.begin[g + 1];
        points.take(rows, begin, end);
        group.take(points, shapes, begin, end);
        if constexpr (d == 0) {
            of_group.fill(0, L);
            group.values(v, 0, of_group);
        } else {
            Level<d> level;
            bool found[width];
            Lane to_node[d][d], back[d][d];
            group.template find_modes<d>(u, level, found);
            backward<d>(points, level.curve, to_node, back);
            of_group.fill(0, L);
            for (int k = 0; k < grid.count; ++k) {
                for (int l = 0; l < L; ++l) sum[l] = grid.weight[k] - level.value[l];
                for (int a = 0; a < d; ++a)
                    for (int l = 0; l < L; ++l) {
                        double x = u[a][l];
                        for (int b = a; b < d; ++b) x += back[a][b][l] * grid.t[b][k];
                        place[a][l] = x, sum[l] -= 0.5 * x * x;
                    }
                group.template effects<d>(place, v);
                group.values(v, d, sum);
                for (int l = 0; l < L; ++l) of_group[l] += math::exp(sum[l]);
            }
            for (int l = 0; l < L; ++l) {
                double value = level.value[l] + math::log(of_group[l]);
                for (int a = 0; a < d; ++a) value -= math::log(level.curve[pair(a, a)][l]);
                of_group[l] = found[l] ? value : math::not_a_number<double>();
            }
        }
        for (int l = 0; l < L; ++l) total[l] += of_group[l];
    }
}

/// One point of a family that may have several modes.
struct Alone {
    Shapes shapes;
    std::vector<double> w, base, tops;
    Alone(const Rows& rows, const Family& family, const Points& some, Matrix<const double> points, Index begin, Index end, int l)
        : shapes(shapes_of(family, some, points, begin, end, l)), w(family.m) {
        const Index i = std::min(begin + l, end - 1);
        for (int j = 0; j < family.m; ++j) w[j] = some.bad[l] ? 0 : points.row(i)[points.cols - family.m + j];
        if (!family.concave && rows.d) tops = tops_of(rows, family, shapes, w.data());
    }
    const double* rows_of(const Points& some, Index count, int l) {
        base.resize(std::max<std::size_t>(base.size(), count));
        for (Index i = 0; i < count; ++i) base[i] = some.base[i][l];
        return base.data();
    }
};

inline void values_by_panels(const Rows& rows, const Family& family, const Legendre& rule, Points& some, Matrix<const double> points,
                             Index begin, Index end, Lane& total) {
    Panels panels(rows, family, rule);
    std::vector<Alone> alone;
    for (int l = 0; l < some.used; ++l) alone.emplace_back(rows, family, some, points, begin, end, l);
    for (Index g = 0; g < rows.groups; ++g) {
        const Index first = rows.begin[g], last = rows.begin[g + 1];
        some.take(rows, first, last);
        for (int l = 0; l < some.used; ++l) {
            Alone& one = alone[l];
            const bool good = panels.integrate(one.shapes, first, last, one.rows_of(some, last - first, l), some.T[0][l], &one.tops[first]);
            total[l] += good ? panels.log_sum() : math::not_a_number<double>();
        }
    }
}

/// value, gradient, lower triangle of minus the Hessian, one after the other, of one point: what each group adds.
class GeneralInformation {
  public:
    GeneralInformation(const Rows& rows, const Family& family)
        : rows_(rows), family_(family), P_(int(rows.size()) + family.m), p_(int(rows.p)), d_(rows.d), own_(family.m), mean_(P_),
          kept_(family.kept()) {}

    /// A group whose effects are u (d, K) at nodes whose terms have the logarithms `term` without the rows' values, or with them.
    void add(const Alone& one, const double* T, const double* base, Index begin, Index end, const double* u, const double* term, int K,
             bool with_rows, double shift, double* sum) {
        D_.assign(Index(P_) * K, 0.0), linear_.assign(Index(d_) * K, 0.0), weighted_.resize(K), w_.assign(term, term + K);
        double *gradient = sum + 1, *information = sum + 1 + P_;
        const auto at = [&](int i, int j) -> double& { return information[i * (i + 1) / 2 + j]; };
        const auto units = [&](int a, int b) { return a == b ? T[pair(a, a)] : 1.0; };
        const auto nodes = [&](const auto& work) { // work(first node, how many, lanes), whose effects are v_
            for (int from = 0; from < K; from += width) {
                const int some = std::min(width, K - from), L = (some + 7) / 8 * 8;
                for (int a = 0; a < d_; ++a)
                    for (int l = 0; l < L; ++l) {
                        v_[a][l] = 0;
                        for (int b = 0; b <= a; ++b) v_[a][l] += T[pair(a, b)] * u[Index(b) * K + from + std::min(l, some - 1)];
                    }
                work(from, some, L);
            }
        };
        const auto predictor = [&](Index i, int L) {
            eta_.fill(base[i - begin], L);
            for (int a = 0; a < d_; ++a)
                for (int l = 0; l < L; ++l) eta_[l] += rows_.Z[i * d_ + a] * v_[a][l];
            if (family_.kept()) family_.keep(i, one.shapes, 8, kept_.data()), spread_kept(L);
        };
        if (!with_rows)
            nodes([&](int from, int some, int L) {
                for (Index i = begin; i < end; ++i) {
                    predictor(i, L);
                    family_.value(i, one.shapes, kept_.data(), eta_, L, row_.value);
                    for (int l = 0; l < some; ++l) w_[from + l] += row_.value[l];
                }
            });
        double most = w_[0], total = 0;
        for (const double x : w_) most = std::max(most, x);
        for (double& x : w_) total += x = math::exp(x - most);
        for (double& x : w_) x /= total;
        sum[0] += shift + most + math::log(total);
        nodes([&](int from, int some, int L) {
            const double* w = w_.data() + from;
            for (Index i = begin; i < end; ++i) {
                predictor(i, L);
                family_.row(i, one.shapes, kept_.data(), eta_, L, row_);
                const double *x = &rows_.X[i * p_], *z = rows_.Z.data() + i * d_;
                for (int j = 0; j < p_; ++j) add_to(&D_[Index(j) * K + from], x[j], row_.slope, some);
                for (int a = 0; a < d_; ++a) add_to(&linear_[Index(a) * K + from], z[a], row_.slope, some);
                double m0, m1[3], m2[6];
                moments(row_.curve, w, u, K, from, some, m0, m1, m2);
                spread(x, z, p_, d_, m0, m1, m2, units, at);
                if (family_.m == 0) continue;
                family_.own(i, one.shapes, kept_.data(), one.w.data(), eta_, L, own_);
                for (int j = 0; j < family_.m; ++j) {
                    const int own = P_ - family_.m + j;
                    add_to(&D_[Index(own) * K + from], 1, own_.first[j], some);
                    moments(own_.cross[j], w, u, K, from, some, m0, m1, nullptr);
                    for (int h = 0; h < p_; ++h) at(own, h) -= m0 * x[h];
                    for (int a = 0; a < d_; ++a)
                        for (int b = 0; b <= a; ++b) at(own, p_ + pair(a, b)) -= m1[b] * z[a] * units(a, b);
                    for (int h = 0; h <= j; ++h) {
                        const Lane& second = own_.second[j * (j + 1) / 2 + h];
                        double mean = 0;
                        for (int l = 0; l < some; ++l) mean += w[l] * second[l];
                        at(own, P_ - family_.m + h) -= mean;
                    }
                }
            }
        });
        finish(D_.data(), linear_.data(), u, w_.data(), K, P_, p_, d_, units, at, gradient, weighted_.data(), mean_.data());
    }

  private:
    static void add_to(double* out, double by, const Lane& x, int some) {
        for (int l = 0; l < some; ++l) out[l] += by * x[l];
    }
    /// E[x], E[x u] and E[x u u'] over some nodes.
    void moments(const Lane& x, const double* w, const double* u, int K, int from, int some, double& m0, double* m1, double* m2) {
        m0 = 0;
        for (int l = 0; l < some; ++l) one_[l] = w[l] * x[l], m0 += one_[l];
        for (int b = 0; b < d_; ++b) {
            const double* place = u + Index(b) * K + from;
            m1[b] = 0;
            for (int l = 0; l < some; ++l) by_[l] = one_[l] * place[l], m1[b] += by_[l];
            for (int c = 0; m2 && c <= b; ++c) {
                const double* other = u + Index(c) * K + from;
                double mean = 0;
                for (int l = 0; l < some; ++l) mean += by_[l] * other[l];
                m2[pair(b, c)] = mean;
            }
        }
    }
    void spread_kept(int L) {
        for (Lane& lane : kept_)
            for (int l = 1; l < L; ++l) lane[l] = lane[0];
    }

    const Rows& rows_;
    const Family& family_;
    int P_, p_, d_;
    OwnLanes own_;
    std::vector<double> D_, linear_, weighted_, w_, mean_;
    std::vector<Lane> kept_;
    Lane eta_, one_, by_, v_[3];
    RowLanes row_;
};

/// One point, some groups: by the nodes of the value.
template <int d> void general_curvature(const Rows& rows, const Family& family, const Grid& grid, const Legendre& legendre,
                                        Matrix<const double> points, Index s, Index from, Index to, double* sum) {
    Points some(rows, points, s, s + 1);
    if (some.bad[0]) return;
    Alone one(rows, family, some, points, s, s + 1, 0);
    Group group(rows, family);
    GeneralInformation information(rows, family);
    Panels panels(rows, family, legendre);
    std::vector<double> places, terms;
    double T[6] = {};
    for (int j = 0; j < d * (d + 1) / 2; ++j) T[j] = some.T[j][0];
    for (Index g = from; g < to; ++g) {
        const Index begin = rows.begin[g], end = rows.begin[g + 1];
        some.take(rows, begin, end);
        const double* base = one.rows_of(some, end - begin, 0);
        if (d == 1 && !family.concave) {
            if (panels.integrate(one.shapes, begin, end, base, T[0], &one.tops[begin]))
                information.add(one, T, base, begin, end, panels.u.data(), panels.term.data(), int(panels.u.size()), true, 0, sum);
            else sum[0] += math::not_a_number<double>();
            continue;
        }
        Lane u[d], S[d][d], back[d][d];
        Level<d> level;
        bool found[width];
        group.take(some, one.shapes, begin, end);
        group.template find_modes<d>(u, level, found);
        if (!found[0]) {
            sum[0] += math::not_a_number<double>();
            continue;
        }
        backward<d>(some, level.curve, S, back);
        const int K = grid.count;
        places.resize(Index(d) * K), terms.resize(K);
        double log_det = 0;
        for (int a = 0; a < d; ++a) log_det += math::log(level.curve[pair(a, a)][0]);
        for (int k = 0; k < K; ++k) {
            terms[k] = grid.weight[k] - level.value[0];
            for (int a = 0; a < d; ++a) {
                double x = u[a][0];
                for (int b = a; b < d; ++b) x += back[a][b][0] * grid.t[b][k];
                places[Index(a) * K + k] = x, terms[k] -= 0.5 * x * x;
            }
        }
        information.add(one, T, base, begin, end, places.data(), terms.data(), K, false, level.value[0] - log_det, sum);
    }
}

/// What a family says of rows without effects at a point: row by row.
class PlainRows {
  public:
    PlainRows(const Family& family, Vector<const double> point)
        : family_(family), shapes_(family.numbers()), kept_(family.kept()), w_(family.m), own_(family.m) {
        for (int j = 0; j < family.m; ++j) w_[j] = point[point.size - family.m + j], good_ &= is_finite(w_[j]);
        for (int l = 0; l < lanes && good_; ++l) family.shapes(w_.data(), l, shapes_);
    }

    double operator()(const RowsAtOnce& rows, const Derivatives& out) {
        if (!good_) return math::not_a_number<double>();
        const int m = family_.m;
        for (Index r = 0; r < rows.count; ++r) {
            const Index i = rows.begin + r;
            eta_.fill(rows.eta[r], lanes);
            family_.keep(i, shapes_, lanes, kept_.data());
            family_.row(i, shapes_, kept_.data(), eta_, lanes, row_);
            out.value[r] = row_.value[0], out.slope[r] = row_.slope[0], out.curve[r] = row_.curve[0];
            if (m == 0) continue;
            family_.own(i, shapes_, kept_.data(), w_.data(), eta_, lanes, own_);
            for (int j = 0; j < m; ++j) out.first[j * at_once + r] = own_.first[j][0], out.cross[j * at_once + r] = own_.cross[j][0];
            for (int j = 0; j < pair(m, 0); ++j) out.second[j * at_once + r] = own_.second[j][0];
        }
        return 0;
    }

  private:
    static constexpr int lanes = 8;
    const Family& family_;
    Shapes shapes_;
    std::vector<Lane> kept_;
    std::vector<double> w_;
    OwnLanes own_;
    Lane eta_;
    RowLanes row_;
    bool good_ = true;
};

template <class Work> void with_effects(int d, const Work& work) {
    switch (d) {
    case 1: return work(std::integral_constant<int, 1>());
    case 2: return work(std::integral_constant<int, 2>());
    default: return work(std::integral_constant<int, 3>());
    }
}

} // namespace mixed

inline void mixed_general_values(Matrix<const double> points, const MixedRows& given, const MixedTimes& times, Vector<double> value,
                                 int n_threads) {
    using namespace mixed;
    const Rows rows(given);
    const Index S = points.rows;
    const int m = int(points.cols - rows.size());
    const auto family = family_of(rows, given, times, m);
    if (!family->good()) {
        for (Index i = 0; i < S; ++i) value[i] = math::not_a_number<double>();
        return;
    }
    if (S == 0) return;
    const bool by_panels = !family->concave && rows.d;
    const Grid grid(Rule(given.nodes), by_panels ? 0 : rows.d);
    const Legendre legendre(by_panels ? given.nodes : 1);
    const Index most = by_panels ? 8 : width, lanes = std::min(most, std::max<Index>(8, (S / 16 + 7) / 8 * 8)),
                blocks = (S + lanes - 1) / lanes;
    const double work = double(S) * double(rows.n) * 20 * (by_panels ? 200 : grid.count);
    for_blocks(blocks, blocks, worthwhile(n_threads, work), [&](Index, Index first, Index last) {
        for (Index block = first; block < last; ++block) {
            const Index begin = block * lanes, end = std::min(S, begin + lanes);
            Points some(rows, points, begin, end);
            Lane total;
            total.fill(0, width);
            if (by_panels) {
                values_by_panels(rows, *family, legendre, some, points, begin, end, total);
            } else {
                const Shapes shapes = shapes_of(*family, some, points, begin, end);
                if (rows.d == 0) general_values<0>(rows, *family, grid, some, shapes, total);
                else with_effects(rows.d, [&](auto d) { general_values<d()>(rows, *family, grid, some, shapes, total); });
            }
            std::vector<double> w(m);
            for (Index i = begin; i < end; ++i) {
                const int l = int(i - begin);
                for (int j = 0; j < m; ++j) w[j] = points.row(i)[points.cols - m + j];
                const double x = some.bad[l] ? math::not_a_number<double>() : total[l] + family->constant(w.data());
                value[i] = is_finite(x) ? x : math::not_a_number<double>();
            }
        }
    });
}

inline void mixed_general_curvature(Matrix<const double> points, const MixedRows& given, const MixedTimes& times, Vector<double> value,
                                    Matrix<double> gradient, Matrix<double> minus_hessian, int n_threads) {
    using namespace mixed;
    const Rows rows(given);
    const Index S = points.rows, P = points.cols, size = 1 + P + P * (P + 1) / 2;
    const int m = int(P - rows.size());
    const auto family = family_of(rows, given, times, m);
    const bool good = family->good(), by_panels = !family->concave && rows.d;
    std::vector<double> sums(S * size), w(m), second(m * (m + 1) / 2);
    if (good && rows.d == 0) {
        sums = sums_of_all(points, given, m, n_threads, [&](Index s) { return PlainRows(*family, points.row(s)); });
    } else if (good) {
        const Grid grid(Rule(given.nodes), by_panels ? 0 : rows.d);
        const Legendre legendre(by_panels ? given.nodes : 1);
        const Index pieces = block_count(rows.groups, 16);
        std::vector<double> parts(S * pieces * size);
        const double work = double(S) * double(rows.n) * 30 * (by_panels ? 200 : grid.count);
        for_blocks(S * pieces, S * pieces, worthwhile(n_threads, work), [&](Index, Index first, Index last) {
            for (Index task = first; task < last; ++task) {
                const Index s = task / pieces, piece = task % pieces, from = rows.groups * piece / pieces,
                            to = rows.groups * (piece + 1) / pieces;
                with_effects(rows.d, [&](auto d) {
                    general_curvature<d()>(rows, *family, grid, legendre, points, s, from, to, parts.data() + task * size);
                });
            }
        });
        for (Index task = 0; task < S * pieces; ++task)
            for (Index j = 0; j < size; ++j) sums[task / pieces * size + j] += parts[task * size + j];
    }
    for (Index i = 0; i < S; ++i) {
        double* total = sums.data() + i * size;
        bool finite = good;
        for (Index j = 0; j < P; ++j) finite &= is_finite(points.row(i)[j]);
        if (finite) {
            for (int j = 0; j < m; ++j) w[j] = points.row(i)[P - m + j];
            std::fill(second.begin(), second.end(), 0.0);
            total[0] += family->constant(w.data());
            family->constant_slopes(w.data(), &total[1 + P - m], second.data());
            for (int j = 0; j < m; ++j)
                for (int k = 0; k <= j; ++k) total[1 + P + (P - m + j) * (P - m + j + 1) / 2 + P - m + k] -= second[j * (j + 1) / 2 + k];
        } else {
            total[0] = math::not_a_number<double>();
        }
        write_sums(total, points.row(i), value[i], gradient.row(i), minus_hessian.row(i));
    }
}

} // namespace FEDKERN_ISA
} // namespace fedkern
