// Log-likelihoods of a mixed model at many points. Specification: Pinheiro and Bates (1995), section 2.4.
//
// Eta of a row at a node is c + A t, with c at the mode: its exponential is a product of one exponential a row and one a node and
// dimension. Logistic rows need one logarithm a node: of the product of their (1 + e^eta), each divided by its larger term at the
// mode. Where there is an intercept alone, four rows are one polynomial in e^(A t), for the search and for the nodes.
#pragma once
#include <memory>

#include "fedkern/blocks.hpp"
#include "modes.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {
namespace mixed {

inline constexpr double log_2 = 0.69314718055994531;
inline constexpr double widest = 170; // of A t: the product of four factors stays within the range of exponents

/// All nodes of one group, whatever its family and effects.
template <MixedFamily family, int d> class Nodes {
  public:
    Nodes(const Rows& rows, const Rule& rule, int lanes)
        : rows_(rows), rule_(rule), lanes_(lanes), Q_(int(rule.t.size())), count_(d == 1   ? Q_
                                                                                  : d == 2 ? Q_ * Q_
                                                                                           : Q_ * Q_ * Q_),
          sum_(Index(count_) * lanes), product_(binomial ? Index(count_) * lanes : 0), exponent_(binomial ? Index(count_) * lanes : 0),
          table_(Index(d) * Q_ * lanes) {}

    /// The logarithm of each lane's integral.
    void integrate(const Points& points, Index begin, Index end, Lane& out) {
        const int L = lanes_;
        Lane u[d], S[d][d], inverse[d][d], A[d], c, alpha, linear[d], constant;
        bool found[width], wide[width] = {};
        find_modes<family, d>(rows_, points, begin, end, u, level_, found);
        backward<d>(points, level_.curve, S, inverse);
        Lane v[d];
        for (int a = 0; a < d; ++a)
            for (int l = 0; l < L; ++l) {
                double sum = 0;
                for (int b = 0; b <= a; ++b) sum += points.T[pair(a, b)][l] * u[b][l];
                v[a][l] = sum, linear[a][l] = 0;
            }
        constant.fill(0, L);
        std::fill_n(+sum_, Index(count_) * L, 0.0);
        if constexpr (binomial) std::fill_n(+product_, Index(count_) * L, 1.0), std::fill_n(+exponent_, Index(count_) * L, 0.0);
        const double *last = nullptr, most = rule_.t.back();
        int factors = 0;
        for (Index i = begin; i < end; ++i) {
            const double y = rows_.y[i], trials = rows_.trials[i], *z = rows_.Z.data() + i * d;
            for (int l = 0; l < L; ++l) c[l] = points.base[i - begin][l];
            for (int a = 0; a < d; ++a)
                for (int l = 0; l < L; ++l) c[l] += z[a] * v[a][l];
            if (!last || !std::equal(z, z + d, last)) {
                for (int l = 0; l < L; ++l) {
                    double reach = 0;
                    for (int a = 0; a < d; ++a) {
                        double sum = 0;
                        for (int b = 0; b < d; ++b) sum += z[b] * S[b][a][l];
                        A[a][l] = sum, reach += math::magnitude(sum) * most;
                    }
                    wide[l] |= !(reach < widest);
                }
                tables(A);
                last = z;
            }
            for (int a = 0; a < d; ++a)
                for (int l = 0; l < L; ++l) linear[a][l] += y * A[a][l];
            if constexpr (binomial) {
                for (int l = 0; l < L; ++l) {
                    const double decay = math::exp_decay(c[l]);
                    alpha[l] = c[l] > 0 ? decay : 1.0;
                    constant[l] += y * c[l] - (c[l] > 0 ? trials * c[l] : 0.0);
                    c[l] = c[l] > 0 ? 1.0 : decay;
                }
                if (trials == 1) {
                    each([&](Index at, int l, double power) { product_[at] *= alpha[l] + c[l] * power; });
                    if (++factors == 4) rescale(), factors = 0;
                } else {
                    each([&](Index at, int l, double power) { sum_[at] += trials * math::log(alpha[l] + c[l] * power); });
                }
            } else {
                for (int l = 0; l < L; ++l) {
                    constant[l] += y * c[l];
                    c[l] = math::exp(c[l] < most_eta ? c[l] : most_eta);
                }
                if constexpr (family == MixedFamily::poisson) {
                    each([&](Index at, int l, double power) { sum_[at] += c[l] * power; });
                } else {
                    const Lane& square = points.square;
                    each([&](Index at, int l, double power) {
                        const double mean = c[l] * power, a = square[l];
                        const double x = a * mean;
                        sum_[at] += a > least_square ? (y + 1 / a) * math::log1p(x < 1e300 ? x : 1e300) : mean;
                    });
                }
            }
        }
        Lane total;
        total.fill(0, L);
        for (int k = 0; k < count_; ++k) {
            int at[3] = {k, 0, 0};
            if (d == 2) at[0] = k / Q_, at[1] = k % Q_;
            if (d == 3) at[0] = k / (Q_ * Q_), at[1] = k / Q_ % Q_, at[2] = k % Q_;
            double t[d], weight = 0;
            for (int a = 0; a < d; ++a) t[a] = rule_.t[at[a]], weight += rule_.log_w[at[a]] + 0.5 * t[a] * t[a];
            const double* penalty = +sum_ + Index(k) * L;
            for (int l = 0; l < L; ++l) {
                double x = weight + constant[l] - penalty[l] - level_.value[l];
                if constexpr (binomial) x -= math::log(product_[Index(k) * L + l]) + log_2 * exponent_[Index(k) * L + l];
                for (int a = 0; a < d; ++a) {
                    double place = u[a][l];
                    for (int b = a; b < d; ++b) place += inverse[a][b][l] * t[b];
                    x += linear[a][l] * t[a] - 0.5 * place * place;
                }
                total[l] += quick_exp(x > -700 ? x < 700 ? x : 700 : -700);
            }
        }
        for (int l = 0; l < L; ++l) {
            double value = level_.value[l] + math::log(total[l]);
            if (binomial && wide[l] && found[l]) value = level_.value[l] + directly(points, begin, end, u, S, inverse, l);
            for (int a = 0; a < d; ++a) value -= math::log(level_.curve[pair(a, a)][l]);
            out[l] = found[l] ? value : math::not_a_number<double>();
        }
    }

  private:
    static constexpr bool binomial = family == MixedFamily::binomial;

    void tables(const Lane* A) {
        for (int a = 0; a < d; ++a)
            for (int k = 0; k < Q_; ++k) {
                double* row = +table_ + (Index(a) * Q_ + k) * lanes_;
                const double t = rule_.t[k];
                for (int l = 0; l < lanes_; ++l) {
                    const double x = A[a][l] * t;
                    row[l] = quick_exp(x > -600 ? x < 600 ? x : 600 : -600);
                }
            }
    }

    /// work(element, lane, e^(A t)) at all nodes.
    template <class Work> FEDKERN_INLINE void each(const Work& work) const {
        const int L = lanes_;
        const double* table = table_;
        if constexpr (d == 1) {
            for (int k = 0; k < Q_; ++k)
                for (int l = 0; l < L; ++l) work(Index(k) * L + l, l, table[Index(k) * L + l]);
        } else if constexpr (d == 2) {
            for (int k = 0; k < count_; ++k) {
                const double *first = table + Index(k / Q_) * L, *second = table + Index(Q_ + k % Q_) * L;
                for (int l = 0; l < L; ++l) work(Index(k) * L + l, l, first[l] * second[l]);
            }
        } else {
            for (int k = 0; k < count_; ++k) {
                const double *first = table + Index(k / (Q_ * Q_)) * L, *second = table + Index(Q_ + k / Q_ % Q_) * L;
                const double* third = table + Index(2 * Q_ + k % Q_) * L;
                for (int l = 0; l < L; ++l) work(Index(k) * L + l, l, first[l] * second[l] * third[l]);
            }
        }
    }

    /// product = 2^exponent product, 1 <= product < 2.
    void rescale() {
        using F = math::Format<double>;
        constexpr auto mask = (F::Bits(1) << F::fraction) - 1, one = F::Bits(F::bias) << F::fraction;
        double *product = product_, *exponent = exponent_;
        for (Index i = 0; i < Index(count_) * lanes_; ++i) {
            const auto bits = math::to_bits(product[i]);
            exponent[i] += math::from_bits<double>(math::to_bits(F::round) + (bits >> F::fraction)) - (F::round + F::bias);
            product[i] = math::from_bits<double>((bits & mask) | one);
        }
    }

    /// Of one lane, whose nodes lie too far apart for products: every row at every node.
    double directly(const Points& points, Index begin, Index end, const Lane* u, Lane (*S)[d], Lane (*inverse)[d], int l) const {
        double v[d], total = 0;
        for (int a = 0; a < d; ++a) {
            v[a] = 0;
            for (int b = 0; b <= a; ++b) v[a] += points.T[pair(a, b)][l] * u[b][l];
        }
        for (int k = 0; k < count_; ++k) {
            int at[3] = {k, 0, 0};
            if (d == 2) at[0] = k / Q_, at[1] = k % Q_;
            if (d == 3) at[0] = k / (Q_ * Q_), at[1] = k / Q_ % Q_, at[2] = k % Q_;
            double x = -level_.value[l], effect[d];
            for (int a = 0; a < d; ++a) {
                double place = u[a][l];
                effect[a] = v[a];
                for (int b = 0; b < d; ++b) effect[a] += S[a][b][l] * rule_.t[at[b]], place += inverse[a][b][l] * rule_.t[at[b]];
                x += rule_.log_w[at[a]] + 0.5 * rule_.t[at[a]] * rule_.t[at[a]] - 0.5 * place * place;
            }
            for (Index i = begin; i < end; ++i) {
                double eta = points.base[i - begin][l];
                for (int a = 0; a < d; ++a) eta += rows_.Z[i * d + a] * effect[a];
                x += Row<family>(eta, rows_.y[i], rows_.trials[i], points.square[l]).value;
            }
            total += math::exp(x);
        }
        return math::log(total);
    }

    const Rows& rows_;
    const Rule& rule_;
    int lanes_, Q_, count_;
    Scratch<double> sum_, product_, exponent_, table_;
    Level<d> level_;
};

/// Logistic rows of one trial with an intercept of the group.
class LogisticIntercept {
  public:
    explicit LogisticIntercept(const Rows& rows, const Rule& rule) : rows_(rows), rule_(rule) {
        Index most = 0;
        for (Index g = 0; g < rows.groups; ++g) most = std::max(most, rows.begin[g + 1] - rows.begin[g]);
        polynomials_.resize((most + 3) / 4);
        nothing_.fill(-120, width);
    }

    /// The logarithm of each lane's integral where it is `good`; elsewhere numbers lie outside of what products can hold.
    void integrate(const Points& points, Index begin, Index end, Lane& out, Lane& good) {
        const int L = points.lanes, blocks = int((end - begin + 3) / 4);
        const double n = double(end - begin);
        double Y = 0;
        Lane fixed, far;
        fixed.fill(0, L), far.fill(0, L);
        for (Index i = begin; i < end; ++i) {
            const double y = rows_.y[i];
            const Lane& base = points.base[i - begin];
            Y += y;
            for (int l = 0; l < L; ++l) {
                const double size = math::magnitude(base[l]);
                fixed[l] += y * base[l], far[l] = far[l] > size ? far[l] : size;
            }
        }
        for (int b = 0; b < blocks; ++b) expand(points, begin, begin + 4 * b, std::min(begin + 4 * b + 4, end), polynomials_[b]);
        const Lane& T = points.T[0];
        search(T, Y, n, blocks, L);
        const double reach = rule_.t.back() * (blocks == 2 ? 2 : 1), most = blocks <= 2 ? 40 : 80;
        for (int l = 0; l < L; ++l) {
            const double inverse = 1 / math::sqrt(curve_[l]), scale = T[l] * inverse, slope = Y * scale - u_[l] * inverse;
            const bool holds = (far[l] <= 120) & (math::magnitude(T[l] * u_[l]) <= 50) & (done_[l] != 0) & (scale * reach <= most);
            good[l] = holds ? 1.0 : 0.0;
            scale_[l] = holds ? scale : 0.0, slope_[l] = holds ? slope : 0.0; // numbers that do no harm
            square_[l] = 0.5 * (1 - inverse * inverse), inverse_[l] = inverse;
        }
        Lane total;
        const int Q = int(rule_.t.size());
        total.fill(Q % 2 ? std::exp(rule_.log_w[Q / 2]) : 0, L);
        if (blocks <= 2)
            for (int k = (Q + 1) / 2; k < Q; ++k) blocks == 1 ? both_signs<1>(k, L, total) : both_signs<2>(k, L, total);
        else
            for (int k = 0; k < Q; ++k)
                if (2 * k + 1 != Q) one_node(k, blocks, L, total);
        for (int l = 0; l < L; ++l)
            out[l] = fixed[l] + Y * T[l] * u_[l] - 0.5 * u_[l] * u_[l] - at_mode_[l] + math::log(total[l] * inverse_[l]);
    }

  private:
    using Bits = math::Format<double>::Bits; // of whether some lane has a number: a sum of doubles would be made one after the other

    struct Polynomial {
        Lane c[5];    // of the product of (1 + e^(base + v)) in e^v; at the end c[j] e^(j v) divided by the value at the mode
        Lane inverse; // of the value at the last v
    };

    void expand(const Points& points, Index first, Index begin, Index end, Polynomial& out) {
        const Lane* base[4]; // a row that is not there has a predictor so low that it adds nothing
        for (Index r = 0; r < 4; ++r) base[r] = begin + r < end ? &points.base[begin + r - first] : &nothing_;
        Lane E[4];
        for (int r = 0; r < 4; ++r) {
            const Lane& row = *base[r];
            for (int l = 0; l < points.lanes; ++l) {
                const double x = row[l] > -120 ? row[l] : -120.0;
                E[r][l] = quick_exp(x < 120 ? x : 120.0);
            }
        }
        for (int l = 0; l < points.lanes; ++l) {
            const double s1 = E[0][l] + E[1][l], p1 = E[0][l] * E[1][l], s2 = E[2][l] + E[3][l], p2 = E[2][l] * E[3][l];
            out.c[1][l] = s1 + s2, out.c[2][l] = p1 + p2 + s1 * s2, out.c[3][l] = p1 * s2 + p2 * s1, out.c[4][l] = p1 * p2;
        }
    }

    /// Halley's steps within bounds, T (Y - sum p) - u = 0: from the mode of the last group with as many rows and ones.
    void search(const Lane& T, double Y, double n, int blocks, int L) {
        const int of = n <= most_kept && Y >= 0 && Y <= n ? int(n * (n - 1) / 2 + n + Y) : -1;
        if (of >= 0 && kept_[of].known) u_ = kept_[of].u;
        else u_.fill(0, L);
        Lane low, high;
        for (int l = 0; l < L; ++l) done_[l] = 0, low[l] = T[l] * (Y - n), high[l] = T[l] * Y;
        // The step's error is its cube, of which the nodes make up for most, unless there are few.
        const double enough = rule_.t.size() < 7 ? 1e-4 : 1e-3;
        Bits moved = 0;
        for (int count = 0; count < 60; ++count) {
            moments(T, blocks, L);
            Bits left = 0;
            moved = 0;
            for (int l = 0; l < L; ++l) { // without a branch, so that lanes are worked on together
                const double t = T[l], u = u_[l], f = t * (Y - first_[l]) - u, H = 1 + t * t * second_[l], K = t * t * t * third_[l];
                const double below = 2 * H * H + f * K, lowest = H * H, bottom = below > lowest ? below : lowest;
                const double least = f > 0 ? u : low[l], most = f > 0 ? high[l] : u, middle = 0.5 * (least + most);
                double next = u + 2 * f * H / bottom;
                next = (next >= least) & (next <= most) ? next : middle;
                const double size = math::magnitude(next - u) * (1 + t), step = done_[l] != 0 ? 0.0 : size;
                low[l] = least, high[l] = most, curve_[l] = H;
                u_[l] = step > 1e-11 ? next : u;
                done_[l] = step < enough ? 1.0 : 0.0;
                left |= math::to_bits(step < enough ? 0.0 : 1.0), moved |= math::to_bits(step > 1e-11 ? 1.0 : 0.0);
            }
            if (left == 0) break;
        }
        if (moved != 0) {
            moments(T, blocks, L);
            for (int l = 0; l < L; ++l) curve_[l] = 1 + T[l] * T[l] * second_[l];
        }
        if (of >= 0) kept_[of].u = u_, kept_[of].known = true;
        at_mode_.fill(0, L);
        for (int b = 0; b < blocks; ++b) {
            Polynomial& of_rows = polynomials_[b];
            Lane* c = of_rows.c;
            for (int l = 0; l < L; ++l) {
                const double w1 = w_[l], w2 = w1 * w1, inverse = of_rows.inverse[l], by1 = w1 * inverse, by2 = w2 * inverse;
                c[0][l] = inverse, c[1][l] *= by1, c[2][l] *= by2, c[3][l] *= by2 * w1, c[4][l] *= by2 * w2;
                at_mode_[l] -= math::log(inverse);
            }
        }
    }

    /// Cumulants of the number of ones at u: the sum of p, of p (1 - p), ..
    void moments(const Lane& T, int blocks, int L) {
        for (int l = 0; l < L; ++l) {
            const double v = T[l] * u_[l];
            w_[l] = quick_exp(v > -50 ? v < 50 ? v : 50 : -50);
            first_[l] = 0, second_[l] = 0, third_[l] = 0;
        }
        for (int b = 0; b < blocks; ++b) {
            Polynomial& of_rows = polynomials_[b];
            const Lane* c = of_rows.c;
            for (int l = 0; l < L; ++l) {
                const double w1 = w_[l], w2 = w1 * w1, b1 = c[1][l] * w1, b2 = c[2][l] * w2, b3 = c[3][l] * (w2 * w1),
                             b4 = c[4][l] * (w2 * w2);
                const double inverse = 1 / (((1 + b1) + b2) + (b3 + b4));
                const double m1 = (b1 + 2 * b2 + (3 * b3 + 4 * b4)) * inverse, m2 = (b1 + 4 * b2 + (9 * b3 + 16 * b4)) * inverse;
                const double m3 = (b1 + 8 * b2 + (27 * b3 + 64 * b4)) * inverse, variance = m2 - m1 * m1;
                of_rows.inverse[l] = inverse;
                first_[l] += m1, second_[l] += variance > 0 ? variance : 0;
                third_[l] += m3 - 3 * m1 * m2 + 2 * m1 * m1 * m1;
            }
        }
    }

    /// The nodes t and -t: e^-x = 1 / e^x, and one division.
    template <int blocks> void both_signs(int k, int L, Lane& total) {
        const double t = rule_.t[k], t2 = t * t, weight = rule_.log_w[k];
        const Lane *c = polynomials_[0].c, *e = polynomials_[blocks - 1].c;
        for (int l = 0; l < L; ++l) {
            const double G = quick_exp(square_[l] * t2 + weight), h = quick_exp(slope_[l] * t), w = quick_exp(scale_[l] * t);
            double D = c[0][l] + w * (c[1][l] + w * (c[2][l] + w * (c[3][l] + w * c[4][l])));
            double R = c[4][l] + w * (c[3][l] + w * (c[2][l] + w * (c[1][l] + w * c[0][l])));
            double power = (w * w) * (w * w);
            if constexpr (blocks == 2) {
                D *= e[0][l] + w * (e[1][l] + w * (e[2][l] + w * (e[3][l] + w * e[4][l])));
                R *= e[4][l] + w * (e[3][l] + w * (e[2][l] + w * (e[1][l] + w * e[0][l])));
                power *= power;
            }
            total[l] += G * (h * h * R + power * D) / (h * D * R);
        }
    }

    void one_node(int k, int blocks, int L, Lane& total) {
        using F = math::Format<double>;
        constexpr auto mask = (F::Bits(1) << F::fraction) - 1, one = F::Bits(F::bias) << F::fraction;
        const double t = rule_.t[k], t2 = t * t, weight = rule_.log_w[k];
        Lane w, product, exponent;
        for (int l = 0; l < L; ++l) w[l] = quick_exp(scale_[l] * t), product[l] = 1, exponent[l] = 0;
        for (int b = 0; b < blocks; ++b) {
            const Lane* c = polynomials_[b].c;
            for (int l = 0; l < L; ++l) {
                const double x = w[l], D = c[0][l] + x * (c[1][l] + x * (c[2][l] + x * (c[3][l] + x * c[4][l])));
                const auto bits = math::to_bits(product[l] * D);
                exponent[l] += math::from_bits<double>(math::to_bits(F::round) + (bits >> F::fraction)) - (F::round + F::bias);
                product[l] = math::from_bits<double>((bits & mask) | one);
            }
        }
        for (int l = 0; l < L; ++l) {
            const double x = slope_[l] * t + square_[l] * t2 + weight - math::log(product[l]) - log_2 * exponent[l];
            total[l] += quick_exp(x > -700 ? x < 700 ? x : 700 : -700);
        }
    }

    const Rows& rows_;
    const Rule& rule_;
    static constexpr int most_kept = 16;
    struct Kept {
        bool known = false;
        Lane u;
    };
    std::vector<Polynomial> polynomials_;
    std::vector<Kept> kept_ = std::vector<Kept>(most_kept * (most_kept - 1) / 2 + 2 * most_kept + 1);
    Lane nothing_, w_, u_, done_, first_, second_, third_, curve_, scale_, slope_, square_, inverse_, at_mode_;
};

/// Whether no lane is 0.
inline bool all_of(const Lane& good, int lanes) {
    math::Format<double>::Bits worse = 0; // a sum of doubles would be made one after the other
    for (int l = 0; l < lanes; ++l) worse |= math::to_bits(1 - good[l]);
    return worse == 0;
}

/// Gaussian rows: l is quadratic, so that one step leads to its mode.
template <int d> void gaussian_integral(const Rows& rows, const Points& points, Index begin, Index end, Lane& out) {
    const int L = points.lanes;
    Level<d> level;
    Lane u[d], x[d];
    for (Lane& lane : u) lane.fill(0, L);
    level.template at<MixedFamily::gaussian>(rows, points, begin, end, u);
    for (int a = 0; a < d; ++a) x[a] = level.gradient[a];
    factor<d>(level.curve, L);
    solve<d>(level.curve, x, L);
    level.value = [&] { // at the mode itself: nothing cancels
        Level<d> there;
        there.template at<MixedFamily::gaussian>(rows, points, begin, end, x);
        return there.value;
    }();
    for (int l = 0; l < L; ++l) {
        out[l] = level.value[l];
        for (int a = 0; a < d; ++a) out[l] -= math::log(level.curve[pair(a, a)][l]);
    }
}

template <MixedFamily family, int d> void values_of(const Rows& rows, const Rule& rule, Points& points, Lane& total) {
    const int L = points.lanes;
    Lane of_group, other, good;
    constexpr bool logistic = family == MixedFamily::binomial && d == 1;
    LogisticIntercept quick(rows, rule);
    std::unique_ptr<Nodes<family, d>> nodes;
    for (Index g = 0; g < rows.groups; ++g) {
        const Index begin = rows.begin[g], end = rows.begin[g + 1];
        points.take(rows, begin, end);
        if constexpr (family == MixedFamily::gaussian) {
            gaussian_integral<d>(rows, points, begin, end, of_group);
        } else {
            const bool simple = logistic && rows.unit[g] && rows.ones[g];
            if (simple) quick.integrate(points, begin, end, of_group, good);
            bool all = simple;
            if (simple) all = all_of(good, L); // lanes of bad points hold zeros, which are good
            if (!all) {
                if (!nodes) nodes = std::make_unique<Nodes<family, d>>(rows, rule, L);
                nodes->integrate(points, begin, end, other);
                for (int l = 0; l < L; ++l) of_group[l] = simple && good[l] != 0 ? of_group[l] : other[l];
            }
        }
        for (int l = 0; l < L; ++l) total[l] += of_group[l];
    }
}

/// Rows without effects. Of logistic ones with one trial a logarithm is of the product of a piece's 1 + e^-|eta|, which are at most 2.
template <MixedFamily family> void sums_of_rows(const Rows& rows, Points& points, Lane& total) {
    const int L = points.lanes;
    Lane sum, product;
    for (Index g = 0; g < rows.groups; ++g) {
        const Index begin = rows.begin[g], end = rows.begin[g + 1];
        points.take(rows, begin, end);
        sum.fill(0, L);
        if (family == MixedFamily::binomial && rows.ones[g]) {
            product.fill(1, L);
            for (Index i = begin; i < end; ++i) {
                const double y = rows.y[i];
                const Lane& base = points.base[i - begin];
                for (int l = 0; l < L; ++l) {
                    const double eta = base[l], size = math::magnitude(eta);
                    sum[l] += y * eta - (eta > 0 ? eta : 0.0);
                    product[l] += product[l] * quick_decay(size);
                }
            }
            for (int l = 0; l < L; ++l) sum[l] -= math::log(product[l]);
        } else if (family == MixedFamily::poisson) {
            for (Index i = begin; i < end; ++i) {
                const double y = rows.y[i];
                const Lane& base = points.base[i - begin];
                for (int l = 0; l < L; ++l) {
                    const double eta = base[l] > most_eta ? most_eta : base[l]; // NaN stays
                    sum[l] += y * eta - quick_exp(eta > -most_eta ? eta : -most_eta);
                }
            }
        } else {
            for (Index i = begin; i < end; ++i) {
                const double y = rows.y[i], trials = rows.trials[i];
                const Lane& base = points.base[i - begin];
                for (int l = 0; l < L; ++l) sum[l] += Row<family>(base[l], y, trials, points.square[l]).value;
            }
        }
        for (int l = 0; l < L; ++l) total[l] += sum[l];
    }
}

template <MixedFamily family> void values_of(const Rows& rows, const Rule& rule, Points& points, Lane& total) {
    switch (rows.d) {
    case 0: return sums_of_rows<family>(rows, points, total);
    case 1: return values_of<family, 1>(rows, rule, points, total);
    case 2: return values_of<family, 2>(rows, rule, points, total);
    default: return values_of<family, 3>(rows, rule, points, total);
    }
}

inline void values_of(const Rows& rows, const Rule& rule, Points& points, Lane& total) {
    switch (rows.family) {
    case MixedFamily::binomial: return values_of<MixedFamily::binomial>(rows, rule, points, total);
    case MixedFamily::poisson: return values_of<MixedFamily::poisson>(rows, rule, points, total);
    case MixedFamily::gaussian: return values_of<MixedFamily::gaussian>(rows, rule, points, total);
    default: return values_of<MixedFamily::negative_binomial>(rows, rule, points, total);
    }
}

} // namespace mixed

inline void mixed_values(Matrix<const double> points, const MixedRows& given, Vector<double> value, int n_threads) {
    using namespace mixed;
    const Rows rows(given);
    const Rule rule(given.nodes);
    const Index S = points.rows;
    if (S == 0) return;
    double nodes = 1;
    for (int a = 0; a < rows.d; ++a) nodes *= given.nodes;
    // Lanes whose nodes stay in the cache; few points are still work for several threads.
    const Index most = nodes <= 40 ? width : nodes <= 300 ? 16 : 8;
    const Index lanes = std::min(most, std::max<Index>(8, (S / 16 + 7) / 8 * 8)), blocks = (S + lanes - 1) / lanes;
    const double work = double(S) * double(rows.n) * 20 * nodes;
    for_blocks(blocks, blocks, worthwhile(n_threads, work), [&](Index, Index first, Index last) {
        for (Index block = first; block < last; ++block) {
            const Index begin = block * lanes, end = std::min(S, begin + lanes);
            Points some(rows, points, begin, end);
            Lane total;
            total.fill(0, some.lanes);
            values_of(rows, rule, some, total);
            for (Index i = begin; i < end; ++i) {
                const int l = int(i - begin);
                const double x = total[l] + rows.constant.at(some.last[l]);
                value[i] = some.bad[l] || !is_finite(x) ? math::not_a_number<double>() : x;
            }
        }
    });
}

} // namespace FEDKERN_ISA
} // namespace fedkern
