// Families that are one declaration each: a row's log-density, written once, of numbers that carry their derivatives.
#pragma once
#include <type_traits>

#include "families.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {
namespace mixed {

/// A number with its first and second derivatives in K others.
template <int K> struct Jet {
    double value, first[K] = {}, second[K * (K + 1) / 2] = {};
    FEDKERN_INLINE Jet(double x) : value(x) {}
    FEDKERN_INLINE Jet(double x, int j) : value(x) { first[j] = 1; } // the j-th of the others

    FEDKERN_INLINE friend Jet operator+(Jet a, const Jet& b) {
        a.value += b.value;
        for (int i = 0; i < K; ++i) a.first[i] += b.first[i];
        for (int i = 0; i < pair(K, 0); ++i) a.second[i] += b.second[i];
        return a;
    }
    FEDKERN_INLINE friend Jet operator-(const Jet& a) { return a * Jet(-1.0); }
    FEDKERN_INLINE friend Jet operator-(const Jet& a, const Jet& b) { return a + -b; }
    FEDKERN_INLINE friend Jet operator*(const Jet& a, const Jet& b) {
        Jet c(a.value * b.value);
        for (int i = 0; i < K; ++i) {
            c.first[i] = a.value * b.first[i] + a.first[i] * b.value;
            for (int j = 0; j <= i; ++j)
                c.second[pair(i, j)] =
                    a.value * b.second[pair(i, j)] + a.first[i] * b.first[j] + a.first[j] * b.first[i] + a.second[pair(i, j)] * b.value;
        }
        return c;
    }
};

/// f of x, by f with its first and second derivative there.
FEDKERN_INLINE double chain(double, const At& f) { return f.value; }
template <int K> FEDKERN_INLINE Jet<K> chain(const Jet<K>& x, const At& f) {
    Jet<K> y(f.value);
    for (int i = 0; i < K; ++i) {
        y.first[i] = f.slope * x.first[i];
        for (int j = 0; j <= i; ++j) y.second[pair(i, j)] = f.slope * x.second[pair(i, j)] + f.curve * x.first[i] * x.first[j];
    }
    return y;
}
/// A function of two numbers, with its first derivatives in them and its second ones (in x, in both, in y).
struct OfTwo {
    double value, by_x, by_y, xx, xy, yy;
};
FEDKERN_INLINE double chain(double, double, const OfTwo& f) { return f.value; }
template <int K> FEDKERN_INLINE Jet<K> chain(const Jet<K>& x, const Jet<K>& y, const OfTwo& f) {
    Jet<K> z(f.value);
    for (int i = 0; i < K; ++i) {
        z.first[i] = f.by_x * x.first[i] + f.by_y * y.first[i];
        for (int j = 0; j <= i; ++j)
            z.second[pair(i, j)] = f.by_x * x.second[pair(i, j)] + f.by_y * y.second[pair(i, j)] + f.xx * x.first[i] * x.first[j] +
                                   f.xy * (x.first[i] * y.first[j] + x.first[j] * y.first[i]) + f.yy * y.first[i] * y.first[j];
    }
    return z;
}
FEDKERN_INLINE double value_of(double x) { return x; }
template <int K> FEDKERN_INLINE double value_of(const Jet<K>& x) { return x.value; }

template <class N> FEDKERN_INLINE N exp_of(const N& x) {
    const double e = math::exp(at_most(value_of(x), most_eta));
    return chain(x, {e, e, e});
}
template <class N> FEDKERN_INLINE N expm1_of(const N& x) {
    const double e = math::expm1(at_most(value_of(x), 300)); // it is squared
    return chain(x, {e, e + 1, e + 1});
}
template <class N> FEDKERN_INLINE N softplus_of(const N& x) {
    const double decay = math::exp_decay(value_of(x)), by = 1 / (1 + decay);
    return chain(x, {math::softplus(value_of(x), decay), math::sigmoid(value_of(x), decay), decay * by * by});
}

/// sum over k < y of log(1 + k / a), of the logarithm of a: lgamma(y + a) - lgamma(a) - y log a, of which nothing cancels. Few terms
/// are multiplied.
template <class N> FEDKERN_INLINE N rising_of(double y, const N& log_a) {
    const double x = value_of(log_a), a = math::exp(at_most(x, most_eta));
    if (y <= double(least_large)) {
        const double by = x > 0 ? 1 / a : 1.0;
        double product = 1, slope = 0, curve = 0;
        for (double k = 1; k < y; ++k) {
            product *= (a + k) * by;
            if constexpr (!std::is_same_v<N, double>) {
                const double part = k / (a + k);
                slope -= part, curve += part * (1 - part);
            }
        }
        return chain(log_a, {math::log(product) - (y > 1 && x < 0 ? (y - 1) * x : 0.0), slope, curve});
    }
    const double u = y / a, share = a / (a + y), v = u < 0.1 ? u : 0;
    const double log = x < -30 ? math::log(y) - x : math::log1p(u);
    double bent = 0; // log(1 + u) / u - 1
    for (int j = 17; j >= 1; --j) bent = (bent + (j % 2 ? -1.0 : 1.0) / (j + 1)) * v;
    const double less = u < 0.1 ? y * bent : a * log - y;
    const Stirling high = stirling(a + y), low = stirling(a);
    const double slope = less + share * high.first - low.first;
    return chain(log_a, {less + (y - 0.5) * log + high.rest - low.rest, slope,
                         slope + y * (1 - share) + share * share * high.second - low.second});
}

/// What a row has.
struct Response {
    double y, trials, upper, entry;
};

/// log y ~ N(eta, sd^2); w = log sd.
struct LogNormal {
    static constexpr int shapes = 1;
    static constexpr bool concave = true;
    static bool has(const Response& of) { return of.y > 0 && is_finite(of.y); }
    static double constant(const Response& of) { return -std::log(of.y) - half_log_2pi; }
    static double mode(const Response& of, const double*) { return std::log(of.y); }
    template <class N> FEDKERN_INLINE static N row(const N& eta, const N* w, const Response& of) {
        const N r = (N(math::log(of.y)) - eta) * exp_of(-w[0]);
        return N(-0.5) * r * r - w[0];
    }
};

/// Mean e^eta, variance e^(3 eta) / shape; w = log shape.
struct InverseGaussian : LogNormal {
    static constexpr bool concave = false;
    static double constant(const Response& of) { return -1.5 * std::log(of.y) - half_log_2pi; }
    template <class N> FEDKERN_INLINE static N row(const N& eta, const N* w, const Response& of) {
        const N log_y(math::log(of.y)), r = expm1_of(log_y - eta);
        return N(0.5) * (w[0] - exp_of(w[0] - log_y) * r * r);
    }
};

/// Successes of trials whose chances are beta numbers of mean expit(eta), and of one precision; w = its logarithm.
struct BetaBinomial {
    static constexpr int shapes = 1;
    static constexpr bool concave = false;
    static bool has(const Response& of) { return is_finite(constant(of)); }
    static double constant(const Response& of) { return row_constant<MixedFamily::binomial>(of.y, of.trials); }
    template <class N> FEDKERN_INLINE static N row(const N& eta, const N* w, const Response& of) {
        const double y = of.y, trials = of.trials;
        const N log_p = -softplus_of(-eta), log_q = -softplus_of(eta);
        return N(y) * log_p + N(trials - y) * log_q + rising_of(y, log_p + w[0]) + rising_of(trials - y, log_q + w[0]) -
               rising_of(trials, w[0]);
    }
    static double mode(const Response& given, const double* w) {
        const double y = given.y, trials = given.trials;
        if (y == 0 || y == trials) return y == 0 ? -most_eta : most_eta; // the density rises all the way
        const double logit = std::log(y) - std::log(trials - y);
        return mode_between(std::min(0.0, logit), std::max(0.0, logit), logit, [&](double eta) {
            const Jet<1> of[] = {w[0]}, x = row(Jet<1>(eta, 0), of, given);
            return At{x.value, x.first[0], -x.second[0]};
        });
    }
};

/// Standard numbers e of which logarithms of times are made: log p(e), log P(e > z), log P(a < e < a + gap).
struct NormalLaw {
    template <class N> FEDKERN_INLINE static N density(const N& z) { return N(-0.5) * z * z - N(half_log_2pi); }
    template <class N> FEDKERN_INLINE static N survival(const N& z) {
        const Tail tail = normal_tail(value_of(z));
        return chain(z, At{tail.value, -tail.mean, tail.variance - 1});
    }
    template <class N> FEDKERN_INLINE static N between(const N& a, const N& log_gap) {
        const N gap = exp_of(log_gap);
        const double b = value_of(a) + value_of(gap);
        const Interval in = normal_interval<true>(value_of(a), b, value_of(gap));
        const double rate = math::exp(-0.5 * b * b - half_log_2pi - in.value); // of its end
        return chain(a, gap, {in.value, -in.mean, rate, in.variance - 1, rate * (in.mean - b), -rate * (rate + b)});
    }
};
struct LogisticLaw {
    template <class N> FEDKERN_INLINE static N density(const N& z) { return z - softplus_of(z) - softplus_of(z); }
    template <class N> FEDKERN_INLINE static N survival(const N& z) { return -softplus_of(z); }
    template <class N> FEDKERN_INLINE static N between(const N& a, const N& log_gap) {
        return chain(log_gap, log_1m_exp(value_of(log_gap))) - softplus_of(a) - softplus_of(-(a + exp_of(log_gap)));
    }
};

/// log time = eta + sd e; w = log sd. Given an entry rows are not concave, and have no effects.
template <class Law> struct Accelerated {
    static constexpr int shapes = 1;
    static constexpr bool concave = true;
    static bool is_event(const Response& of) { return of.y == of.upper; }
    static bool has(const Response& of) {
        return is_finite(of.y) && of.entry >= 0 && of.y >= of.entry && of.upper >= of.y && !(is_event(of) && of.y == of.entry);
    }
    static double constant(const Response& of) { return is_event(of) ? -std::log(of.y) : 0; }
    static double mode(const Response&, const double*) { return 0; } // of concave rows it is not asked
    template <class N> FEDKERN_INLINE static N row(const N& eta, const N* w, const Response& of) {
        const N by = exp_of(-w[0]);
        const auto z = [&](double time) { return (N(math::log(time)) - eta) * by; };
        N value(0);
        if (is_event(of)) value = Law::density(z(of.y)) - w[0];
        else if (!is_finite(of.upper)) value = of.y > 0 ? Law::survival(z(of.y)) : N(0);
        else if (of.y == 0) value = Law::survival(-z(of.upper));
        else {
            const double grown = (of.upper - of.y) / of.y, log = grown < 1 ? std::log1p(grown) : std::log(of.upper) - std::log(of.y);
            value = Law::between(z(of.y), N(math::log(log)) - w[0]);
        }
        return of.entry > 0 ? value - Law::survival(z(of.entry)) : value;
    }
};

/// The loops over lanes of a declared family `F`.
template <class F> class Declared : public Family {
  public:
    Declared(const Rows& rows, const MixedTimes& times) : Family(F::shapes, F::concave, false) {
        for (Index i = 0; i < rows.n; ++i) {
            const double y = rows.y[i];
            rows_.push_back({y, rows.trials[i], times.upper.data ? times.upper[i] : y, times.entry.data ? times.entry[i] : 0});
            if (F::has(rows_[i])) constant_ += F::constant(rows_[i]);
            else good_ = false;
        }
    }
    bool good() const override { return good_; }
    int numbers() const override { return m; }
    void shapes(const double* w, int l, Shapes& s) const override {
        for (int j = 0; j < m; ++j) s[j][l] = w[j];
    }
    void row(Index i, const Shapes& s, const Lane*, const Lane& eta, int L, RowLanes& out) const override {
        for (int l = 0; l < L; ++l) {
            const Jet<1> x = F::row(Jet<1>(eta[l], 0), Numbers<Jet<1>>(s, l).w, rows_[i]);
            out.value[l] = x.value, out.slope[l] = x.first[0], out.curve[l] = -x.second[0];
        }
    }
    void value(Index i, const Shapes& s, const Lane*, const Lane& eta, int L, Lane& out) const override {
        for (int l = 0; l < L; ++l) out[l] = F::row(eta[l], Numbers<double>(s, l).w, rows_[i]);
    }
    void own(Index i, const Shapes& s, const Lane*, const double*, const Lane& eta, int L, OwnLanes& out) const override {
        using N = Jet<1 + F::shapes>;
        for (int l = 0; l < L; ++l) {
            Numbers<N> of(s, 0);
            for (int j = 0; j < F::shapes; ++j) of.w[j].first[1 + j] = 1;
            const N x = F::row(N(eta[l], 0), of.w, rows_[i]);
            for (int j = 0; j < F::shapes; ++j) {
                out.first[j][l] = x.first[1 + j], out.cross[j][l] = x.second[pair(1 + j, 0)];
                for (int k = 0; k <= j; ++k) out.second[pair(j, k)][l] = x.second[pair(1 + j, 1 + k)];
            }
        }
    }
    double constant(const double*) const override { return constant_; }
    double mode(Index i, const double* w) const override { return F::mode(rows_[i], w); }

  private:
    template <class N> struct Numbers { // those of a lane
        N w[F::shapes];
        FEDKERN_INLINE Numbers(const Shapes& s, int l) : Numbers(s, l, std::make_integer_sequence<int, F::shapes>()) {}
        template <int... j> FEDKERN_INLINE Numbers(const Shapes& s, int l, std::integer_sequence<int, j...>) : w{N(s[j][l])...} {}
    };
    std::vector<Response> rows_;
    double constant_ = 0;
    bool good_ = true;
};

} // namespace mixed
} // namespace FEDKERN_ISA
} // namespace fedkern
