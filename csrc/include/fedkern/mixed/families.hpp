// Families of rows that are worked on by lanes: points, or nodes of one point. What they mean is said in fedkern/kernels/mixed.py.
// log p(y | eta, w) is `row`, which depends on eta, and `constant`, the sum over rows of what does not; w are a point's shape numbers.
#pragma once
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "gamma.hpp"
#include "modes.hpp"
#include "normal.hpp"

namespace fedkern {
#define FEDKERN_LANE __attribute__((always_inline)) // of a lambda that a loop over lanes is made of

inline namespace FEDKERN_ISA {
namespace mixed {

/// What lanes have of a family's shape numbers, whatever the row.
using Shapes = std::vector<Lane>;

struct RowLanes {
    Lane value, slope, curve;
};

/// d / dw, d2 / dw deta and d2 / dw2 (a lower triangle) of a row, at lanes.
struct OwnLanes {
    std::vector<Lane> first, cross, second;
    explicit OwnLanes(int m) : first(m), cross(m), second(m * (m + 1) / 2) {}
    void clear(int L) {
        for (auto* some : {&first, &cross, &second})
            for (Lane& lane : *some) lane.fill(0, L);
    }
};

class Family {
  public:
    const int m;           // shape numbers
    const bool concave;    // in eta
    const bool counted;    // a mean that is far too large is left by one in each step
    Family(int m, bool concave, bool counted) : m(m), concave(concave), counted(counted) {}
    virtual ~Family() = default;

    virtual bool good() const = 0;                                              // whether it has all responses
    virtual int numbers() const = 0;                                            // lanes of Shapes
    virtual void shapes(const double* w, int l, Shapes& s) const = 0;           // those of a lane
    virtual int kept() const { return 0; }                                      // lanes that a row has beside
    virtual void keep(Index, const Shapes&, int, Lane*) const {}                // which are these
    virtual void row(Index i, const Shapes& s, const Lane* kept, const Lane& eta, int L, RowLanes& out) const = 0;
    virtual void value(Index i, const Shapes& s, const Lane* kept, const Lane& eta, int L, Lane& out) const = 0;
    virtual void own(Index, const Shapes&, const Lane*, const double*, const Lane&, int, OwnLanes&) const {}
    virtual double constant(const double*) const { return 0; }
    virtual void constant_slopes(const double*, double*, double*) const {}      // added to (m,) and a lower triangle
    /// Of `counted` ones: weight and target of the least squares from which a search begins.
    virtual void start(Index, const Shapes&, const Lane*, int, Lane&, Lane&) const {}
    virtual double size(Index, const Shapes&, int) const { return 0; }          // beside which a curvature is cut off
    virtual double mode(Index, const double*) const { return 0; }               // where a row's density is largest
};

/// The loops over lanes of a family `F` with `F::at<all>(row, numbers of a lane.., eta)`.
template <class F> class ByLanes : public Family {
  public:
    using Family::Family;
    void row(Index i, const Shapes& s, const Lane* kept, const Lane& eta, int L, RowLanes& out) const override {
        static_cast<const F*>(this)->each(i, s, kept, [&](const auto& at) {
            for (int l = 0; l < L; ++l) {
                const auto [value, slope, curve] = at(eta[l], l);
                out.value[l] = value, out.slope[l] = slope, out.curve[l] = curve;
            }
        });
    }
    void value(Index i, const Shapes& s, const Lane* kept, const Lane& eta, int L, Lane& out) const override {
        static_cast<const F*>(this)->each(i, s, kept, [&](const auto& at) {
            for (int l = 0; l < L; ++l) out[l] = at(eta[l], l).value;
        });
    }
};

struct At {
    double value, slope, curve;
};

FEDKERN_INLINE double at_most(double x, double most) { return x > most ? most : x; } // NaN stays
FEDKERN_INLINE double decay_sum(double x, double y) { // log(e^x + e^y)
    return (x > y ? x : y) + math::log1p_unit(math::exp_decay(x - y));
}
FEDKERN_INLINE bool is_count(double y) { return Poisson{}.clean(y) == y; }

/// Where a row's density is largest, of which `at` are the derivatives: it rises at `low` and falls at `high`: Newton's steps that stay there.
template <class Row> double mode_between(double low, double high, double eta, const Row& at) {
    for (int step = 0; step < 60 && high - low > 1e-9; ++step) {
        const At row = at(eta);
        (row.slope > 0 ? low : high) = eta;
        const double next = eta + row.slope / row.curve;
        if (row.curve > 0 && math::magnitude(next - eta) < 1e-7) return next;
        eta = row.curve > 0 && next > low && next < high ? next : 0.5 * (low + high);
    }
    return eta;
}

/// w = log sd, log nu. Numbers: precision, 1 / nu.
class Student : public ByLanes<Student> {
  public:
    explicit Student(const Rows& rows) : ByLanes(2, false, false), y_(rows.y) {}
    bool good() const override {
        for (const double y : y_)
            if (!is_finite(y)) return false;
        return true;
    }
    int numbers() const override { return 2; }
    void shapes(const double* w, int l, Shapes& s) const override { s[0][l] = std::exp(-2 * w[0]), s[1][l] = std::exp(-w[1]); }
    template <class Loop> FEDKERN_INLINE void each(Index i, const Shapes& s, const Lane*, const Loop& loop) const {
        const double y = y_[i];
        const Lane &precision = s[0], &rest = s[1];
        loop([&](double eta, int l) FEDKERN_LANE {
            const double rho = y - eta, a = rest[l], q = precision[l] * rho * rho, z = a * q, by = 1 / (1 + z);
            const double ratio = z > 1e-9 ? math::log1p(z) / z : 1 - 0.5 * z, g = (1 + a) * precision[l];
            return At{-0.5 * (1 + a) * q * ratio, g * rho * by, g * (1 - z) * by * by};
        });
    }
    void own(Index i, const Shapes& s, const Lane*, const double*, const Lane& eta, int L, OwnLanes& out) const override {
        const double y = y_[i], precision = s[0][0], a = s[1][0];
        for (int l = 0; l < L; ++l) {
            const double rho = y - eta[l], q = precision * rho * rho, z = a * q, by = 1 / (1 + z);
            const double log = q * (z > 1e-9 ? math::log1p(z) / z : 1 - 0.5 * z);
            const double change = -a * by + (1 + a) * z * by * by; // of (1 + a) / (1 + z), in log nu
            out.first[0][l] = (1 + a) * q * by, out.first[1][l] = -0.5 * (log - (1 + a) * q * by);
            out.cross[0][l] = precision * rho * -2 * (1 + a) * by * by, out.cross[1][l] = precision * rho * change;
            out.second[0][l] = -2 * (1 + a) * q * by * by, out.second[1][l] = q * change;
            out.second[2][l] = -0.5 * (log - 2 * q * by + (1 + a) * q * by * by);
        }
    }
    double constant(const double* w) const override {
        const double x = 0.5 * std::exp(w[1]);
        return double(y_.size()) * (x * std::log1p(0.5 / x) - 0.5 + stirling(x + 0.5).rest - stirling(x).rest - half_log_2pi - w[0]);
    }
    void constant_slopes(const double* w, double* first, double* second) const override {
        const double n = double(y_.size()), x = 0.5 * std::exp(w[1]), share = x / (x + 0.5);
        const auto [r, f, s] = stirling(x);
        const auto [r_half, f_half, s_half] = stirling(x + 0.5);
        const double slope = x * std::log1p(0.5 / x) + share * f_half - f - 0.5;
        first[0] -= n, first[1] += n * slope;
        second[2] += n * (share * share * s_half - s - 0.5 * share + slope + 0.5);
    }
    double mode(Index i, const double*) const override { return y_[i]; }

  private:
    const std::vector<double>& y_;
};

/// w = log shape s. Numbers: s. value = m s (r - (e^r - 1)), r = log y - eta, where y is a mean of m such numbers (`trials`).
class Gamma : public ByLanes<Gamma> {
  public:
    explicit Gamma(const Rows& rows) : ByLanes(1, true, true), log_(rows.y), means_(rows.trials) {
        for (double& y : log_) good_ &= y > 0 && is_finite(y), y = std::log(y), sum_ += y;
        for (const double m : means_) good_ &= m > 0 && is_finite(m), equal_ &= m == means_[0], logs_ += std::log(m);
    }
    bool good() const override { return good_; }
    int numbers() const override { return 1; }
    void shapes(const double* w, int l, Shapes& s) const override { s[0][l] = std::exp(w[0]); }
    template <class Loop> FEDKERN_INLINE void each(Index i, const Shapes& s, const Lane*, const Loop& loop) const {
        const double log = log_[i], m = means_[i];
        const Lane& shape = s[0];
        loop([&](double eta, int l) FEDKERN_LANE {
            const double r = at_most(log - eta, most_eta), more = math::expm1(r), own = m * shape[l];
            return At{own * (r - more), own * more, own * (1 + more)};
        });
    }
    void own(Index i, const Shapes& s, const Lane*, const double*, const Lane& eta, int L, OwnLanes& out) const override {
        const double shape = means_[i] * s[0][0];
        for (int l = 0; l < L; ++l) {
            const double r = at_most(log_[i] - eta[l], most_eta), more = math::expm1(r);
            out.first[0][l] = out.second[0][l] = shape * (r - more), out.cross[0][l] = shape * more;
        }
    }
    double constant(const double* w) const override {
        return double(log_.size()) * (0.5 * w[0] - half_log_2pi) + 0.5 * logs_ - rests(w).rest - sum_;
    }
    void constant_slopes(const double* w, double* first, double* second) const override {
        const auto [r, f, s] = rests(w);
        first[0] -= f, second[0] -= f + s;
    }
    void start(Index i, const Shapes& s, const Lane*, int L, Lane& weight, Lane& target) const override {
        for (int l = 0; l < L; ++l) weight[l] = means_[i] * s[0][l], target[l] = log_[i];
    }
    double size(Index i, const Shapes& s, int l) const override { return means_[i] * s[0][l]; }

  private:
    /// The sum over rows of Stirling's rests at their shapes, as many times one where these are equal.
    Stirling rests(const double* w) const {
        const Index n = Index(means_.size()), some = equal_ ? std::min<Index>(n, 1) : n;
        Stirling total{0, 0, 0};
        for (Index i = 0; i < some; ++i) {
            const auto [r, f, s] = stirling(means_[i] * std::exp(w[0]));
            total = {total.rest + r, total.first + f, total.second + s};
        }
        const double times = some ? double(n) / double(some) : 0;
        return {times * total.rest, times * total.first, times * total.second};
    }

    std::vector<double> log_;
    const std::vector<double>& means_;
    double sum_ = 0, logs_ = 0;
    bool good_ = true, equal_ = true;
};

/// w = log precision. Numbers: it. The divergence of y from mu, and Stirling's rests, of which nothing cancels.
class Beta : public ByLanes<Beta> {
  public:
    explicit Beta(const Rows& rows) : ByLanes(1, false, false), log_(rows.y), not_(rows.y.size()) {
        for (Index i = 0; i < rows.n; ++i) {
            const double y = log_[i];
            good_ &= y > 0 && y < 1;
            log_[i] = std::log(y), not_[i] = std::log1p(-y), sum_ += log_[i] + not_[i];
        }
    }
    bool good() const override { return good_; }
    int numbers() const override { return 1; }
    void shapes(const double* w, int l, Shapes& s) const override { s[0][l] = std::exp(w[0]); }

    struct Parts {
        double mu, nu, log_mu, log_nu;
        Stirling a, b;
        FEDKERN_INLINE Parts(double eta, double precision) {
            const double decay = math::exp_decay(eta), inverse = 1 / (1 + decay), log = math::log1p_unit(decay);
            mu = (eta < 0 ? decay : 1.0) * inverse, nu = (eta < 0 ? 1.0 : decay) * inverse;
            log_mu = -log - (eta < 0 ? -eta : 0.0), log_nu = -log - (eta < 0 ? 0.0 : eta);
            a = stirling(precision * mu), b = stirling(precision * nu);
        }
        FEDKERN_INLINE double divergence(double log_y, double log_not) const { return mu * (log_y - log_mu) + nu * (log_not - log_nu); }
        FEDKERN_INLINE double slope(double precision, double eta, double logit) const {
            return precision * mu * nu * (logit - eta) - nu * a.first + mu * b.first;
        }
    };
    FEDKERN_INLINE static At at(double eta, double log_y, double log_not, double precision) {
        const Parts p(eta, precision);
        const double slope = p.slope(precision, eta, log_y - log_not);
        return {precision * p.divergence(log_y, log_not) + 0.5 * (p.log_mu + p.log_nu) - p.a.rest - p.b.rest, slope,
                precision * p.mu * p.nu + p.nu * p.nu * p.a.second + p.mu * p.mu * p.b.second - (p.nu - p.mu) * slope};
    }
    template <class Loop> FEDKERN_INLINE void each(Index i, const Shapes& s, const Lane*, const Loop& loop) const {
        const double log_y = log_[i], log_not = not_[i];
        const Lane& precision = s[0];
        loop([&](double eta, int l) FEDKERN_LANE { return at(eta, log_y, log_not, precision[l]); });
    }
    void own(Index i, const Shapes& s, const Lane*, const double*, const Lane& eta, int L, OwnLanes& out) const override {
        const double precision = s[0][0];
        for (int l = 0; l < L; ++l) {
            const Parts p(eta[l], precision);
            const double slope = p.slope(precision, eta[l], log_[i] - not_[i]);
            out.first[0][l] = precision * p.divergence(log_[i], not_[i]) - p.a.first - p.b.first;
            out.cross[0][l] = slope + p.mu * p.b.second - p.nu * p.a.second;
            out.second[0][l] = out.first[0][l] - p.a.second - p.b.second;
        }
    }
    double constant(const double* w) const override {
        return double(log_.size()) * (0.5 * w[0] - half_log_2pi + stirling(std::exp(w[0])).rest) - sum_;
    }
    void constant_slopes(const double* w, double* first, double* second) const override {
        const auto [r, f, s] = stirling(std::exp(w[0]));
        first[0] += double(log_.size()) * f, second[0] += double(log_.size()) * (f + s);
    }
    /// digamma(a) - digamma(b) = logit(y): between 0 and logit(y).
    double mode(Index i, const double* w) const override {
        const double logit = log_[i] - not_[i], precision = std::exp(w[0]);
        return mode_between(std::min(0.0, logit), std::max(0.0, logit), logit,
                            [&](double eta) { return at(eta, log_[i], not_[i], precision); });
    }

  private:
    std::vector<double> log_, not_;
    double sum_ = 0;
    bool good_ = true;
};

/// log(1 - exp(-e^x)) and two derivatives in x.
FEDKERN_INLINE At log_1m_exp(double given) {
    const double x = at_most(given, most_eta), g = math::exp(x), left = math::exp(-g), most = g > 0.5 ? 1 - left : -math::expm1(-g);
    const double whole = g < 1e-300 ? 1.0 : g / most, first = g < 1e-300 ? 1.0 : g * left / most;
    const double log = math::log1p(-left), value = g > 0.5 ? log : math::log(most);
    return {x < -30 ? x - 0.5 * g : value, first, first * (1 - whole)};
}

/// w = (phi,) logit of a probability: that a zero is structural, or of a hurdle that y is 0, above which counts are those above 0.
/// Numbers: phi^2, the logit.
template <bool dispersed, bool hurdle> class WithZeros : public ByLanes<WithZeros<dispersed, hurdle>> {
    static constexpr auto counts = dispersed ? MixedFamily::negative_binomial : MixedFamily::poisson;
    using Base = ByLanes<WithZeros<dispersed, hurdle>>;

  public:
    WithZeros(const Rows& rows, const MixedRows& given)
        : Base(dispersed + 1, hurdle && !dispersed, hurdle && !dispersed), y_(rows.y), rising_(counted(given)) {
        for (const double y : y_) good_ &= is_count(y), factorials_ += is_count(y) ? log_factorial(y) : 0.0;
    }
    bool good() const override { return good_; }
    int numbers() const override { return 2; }
    void shapes(const double* w, int l, Shapes& s) const override { s[0][l] = dispersed ? w[0] * w[0] : 0, s[1][l] = w[dispersed]; }

    /// log P(count > 0) where -log P(count = 0) is t, with derivatives in log t; and those of log t in eta.
    struct Above {
        double by, by_twice, t;
        At log;
        FEDKERN_INLINE Above(const Row<counts>& zero, double eta) : t(-zero.value) {
            const bool some = t > 1e-280;
            by = some ? -zero.slope / t : 1, by_twice = some ? zero.curve / t - by * by : 0;
            log = log_1m_exp(some ? math::log(t) : eta);
        }
    };
    FEDKERN_INLINE static At above_zero(double eta, double y, double square) {
        const Row<counts> row(eta, y, 1, square);
        if constexpr (!hurdle) return {row.value, row.slope, row.curve};
        const Above above(Row<counts>(eta, 0, 1, square), eta);
        return {row.value - above.log.value, row.slope - above.log.slope * above.by,
                row.curve + above.log.curve * above.by * above.by + above.log.slope * above.by_twice};
    }
    template <class Loop> FEDKERN_INLINE void each(Index i, const Shapes& s, const Lane*, const Loop& loop) const {
        const double y = y_[i];
        const Lane &square = s[0], &logit = s[1];
        if (y > 0) loop([&](double eta, int l) FEDKERN_LANE { return above_zero(eta, y, square[l]); });
        else if constexpr (hurdle) loop([&](double, int l) FEDKERN_LANE { return At{logit[l], 0, 0}; });
        else
            loop([&](double eta, int l) FEDKERN_LANE {
                const Row<counts> row(eta, 0, 1, square[l]);
                const double share = math::sigmoid(row.value - logit[l]); // of zeros that are not structural
                const double slope = share * row.slope;
                return At{decay_sum(logit[l], row.value), slope, share * row.curve - slope * ((1 - share) * row.slope)};
            });
    }
    void own(Index i, const Shapes& s, const Lane*, const double* w, const Lane& eta, int L, OwnLanes& out) const override {
        const double y = y_[i];
        out.clear(L);
        for (int l = 0; l < L; ++l) {
            if (hurdle && y == 0) {
                out.first[dispersed][l] = 1;
                continue;
            }
            const Row<counts> row(eta[l], y, 1, s[0][0]);
            const double share = hurdle || y > 0 ? 1.0 : math::sigmoid(row.value - s[1][0]), other = 1 - share;
            out.first[dispersed][l] = other, out.cross[dispersed][l] = -share * (other * row.slope);
            out.second[dispersed ? 2 : 0][l] = share * other;
            if constexpr (dispersed) {
                const Dispersion<counts> d(eta[l], y, w[0], s[0][0]);
                out.first[0][l] = share * d.slope;
                out.cross[0][l] = share * d.mixed + (share * d.slope) * (other * row.slope);
                out.second[0][l] = share * d.second + (share * d.slope) * (other * d.slope);
                out.second[1][l] = -share * (other * d.slope);
                if constexpr (hurdle) {
                    const Above above(Row<counts>(eta[l], 0, 1, s[0][0]), eta[l]);
                    const Dispersion<counts> zero(eta[l], 0, w[0], s[0][0]); // of -t
                    const double t = above.t > 1e-280 ? above.t : 1, by = -zero.slope / t, bent = above.log.curve - above.log.slope;
                    out.first[0][l] -= above.log.slope * by;
                    out.cross[0][l] -= bent * above.by * by - above.log.slope * zero.mixed / t;
                    out.second[0][l] -= bent * by * by - above.log.slope * zero.second / t;
                }
            }
        }
    }
    double constant(const double* w) const override {
        const double rest = -factorials_ - double(y_.size()) * math::softplus(w[dispersed]);
        return dispersed ? rest + rising_.rising(w[0] * w[0]) : rest;
    }
    void constant_slopes(const double* w, double* first, double* second) const override {
        const double n = double(y_.size()), pi = math::sigmoid(w[dispersed]);
        first[dispersed] -= n * pi, second[dispersed ? 2 : 0] -= n * pi * math::sigmoid(-w[dispersed]);
        if constexpr (dispersed) {
            double one, two;
            rising_.rising_slopes(w[0] * w[0], one, two);
            first[0] += 2 * w[0] * one, second[0] += 2 * one + 4 * w[0] * w[0] * two;
        }
    }
    void start(Index i, const Shapes&, const Lane*, int L, Lane& weight, Lane& target) const override {
        weight.fill(y_[i] > 0 ? y_[i] + 0.5 : 0, L), target.fill(std::log(y_[i] + 0.5), L);
    }
    double size(Index i, const Shapes&, int) const override { return y_[i]; }
    double mode(Index i, const double* w) const override {
        const double y = y_[i], square = dispersed ? w[0] * w[0] : 0;
        if (!hurdle || y == 0) return y > 0 ? std::log(y) : -most_eta; // a zero has none
        if (y == 1) return -most_eta;
        // The mean of counts above 0 is between that of all, and that of counts drawn by their size.
        return mode_between(std::log((y - 1) / (1 + square)), std::log(y), std::log(y),
                            [&](double eta) { return above_zero(eta, y, square); });
    }

  private:
    static Constants counted(MixedRows given) { // what the sums over counts are made of
        given.family = MixedFamily::negative_binomial;
        return Constants(given);
    }
    const std::vector<double>& y_;
    Constants rising_;
    double factorials_ = 0;
    bool good_ = true;
};

/// Poisson counts whose rows have effects of their own, e ~ N(0, sd^2), integrated here; w = log sd, at most 3. Numbers: sd^2, log sd.
///
/// About the mode eta + sd^2 (y - A) of t = eta + e, A = e^t, the integrand falls as exp(-A (e^d - 1 - d) - d^2 / (2 sd^2)): entire,
/// and double exponential on one side, so that equal steps are right to e^-36, which is what is left out at both ends.
class PoissonLognormal : public Family {
  public:
    explicit PoissonLognormal(const Rows& rows) : Family(1, true, true), y_(rows.y) {
        for (const double y : y_) good_ &= is_count(y), constant_ -= is_count(y) ? log_factorial(y) + half_log_2pi : 0.0;
    }
    bool good() const override { return good_; }
    int numbers() const override { return 2; }
    void shapes(const double* w, int l, Shapes& s) const override {
        s[1][l] = std::clamp(w[0], -300.0, 3.0), s[0][l] = std::exp(2 * s[1][l]);
    }

    void value(Index i, const Shapes& s, const Lane*, const Lane& eta, int L, Lane& out) const override {
        Places at;
        const int count = at.find(y_[i], s, eta, L);
        Lane total;
        total.fill(0, L);
        for (int k = 0; k <= count; ++k)
            for (int l = 0; l < L; ++l) total[l] += at.term(k, l).weight;
        for (int l = 0; l < L; ++l) out[l] = at.value(y_[i], s, eta, l) + math::log(total[l] * at.step[l]);
    }
    void row(Index i, const Shapes& s, const Lane*, const Lane& eta, int L, RowLanes& out) const override {
        Moments sums(y_[i], s, eta, L);
        for (int l = 0; l < L; ++l) {
            const double by = 1 / sums.total[l], slope = sums.g[l] * by;
            out.value[l] = sums.at.value(y_[i], s, eta, l) + math::log(sums.total[l] * sums.at.step[l]);
            out.slope[l] = slope, out.curve[l] = sums.mean[l] * by - (sums.gg[l] * by - slope * slope);
        }
    }
    void own(Index i, const Shapes& s, const Lane*, const double*, const Lane& eta, int L, OwnLanes& out) const override {
        Moments sums(y_[i], s, eta, L);
        for (int l = 0; l < L; ++l) {
            const double by = 1 / sums.total[l], slope = sums.g[l] * by, first = sums.ge[l] * by;
            out.first[0][l] = first;
            out.cross[0][l] = (sums.gge[l] - sums.mean_e[l]) * by - slope * first;
            out.second[0][l] = first + (sums.ggee[l] - sums.mean_ee[l]) * by - first * first;
        }
    }
    double constant(const double*) const override { return constant_; }
    void start(Index i, const Shapes& s, const Lane*, int L, Lane& weight, Lane& target) const override {
        const double count = y_[i] + 0.5;
        for (int l = 0; l < L; ++l) weight[l] = count / (1 + s[0][l] * count), target[l] = std::log(count);
    }
    double size(Index i, const Shapes&, int) const override { return y_[i]; }

  private:
    static constexpr double left_out = 36;

    struct Term {
        double weight, mean, effect; // of the integrand, beside that at the mode; e^t; t - eta
    };
    struct Places {
        Lane shift, mean, tilt, low, step, half, count; // tilt: of the logarithm where rounding has the mode
        FEDKERN_INLINE Term term(int k, int l) const {
            const double d = low[l] + k * step[l], more = math::expm1(d);
            const double weight = math::exp(tilt[l] * d - (mean[l] * (more - d) + half[l] * d * d));
            return {k <= count[l] ? weight : 0.0, mean[l] * (1 + more), shift[l] + d};
        }
        /// How many steps there are, at most; a lane has its own, whatever the others are.
        int find(double y, const Shapes& s, const Lane& eta, int L) {
            double most = 1;
            for (int l = 0; l < L; ++l) {
                // A sd^2 = e^u, e^u + u = eta + sd^2 y + log sd^2 (Wright's omega function), from the right by Newton's steps
                const double square = s[0][l], log = 2 * s[1][l], sum = at_most(eta[l], most_eta) + square * y + log;
                double u = sum > 1 ? math::log(sum > 1 ? sum : 1.0) : sum;
                for (int step = 0; step < 8; ++step) {
                    const double e = math::exp(u);
                    u -= (e + u - sum) / (1 + e);
                }
                shift[l] = square < 1 ? square * (y - math::exp(u - log)) : u - log - eta[l], mean[l] = math::exp(eta[l] + shift[l]);
                half[l] = 0.5 / square, tilt[l] = y - mean[l] - shift[l] / square;
                // Where the square alone, or A (e^-d - 1 + d), or A (e^d - 1 - d) is as much as is left out, or more.
                const double wide = std::sqrt(2 * left_out * square), below = left_out / mean[l] + std::sqrt(2 * left_out / mean[l]);
                low[l] = -std::min(wide, below), step[l] = std::min(wide, math::log1p(below)) - low[l];
                const double wanted = step[l] / std::min(0.5 * std::sqrt(square / (1 + math::exp(u))), 0.28);
                count[l] = std::ceil(wanted > 1 && wanted < 2000 ? wanted : 2000), step[l] /= count[l], most = std::max(most, count[l]);
            }
            return int(most);
        }
        /// The logarithm of the integrand at the mode.
        FEDKERN_INLINE double value(double y, const Shapes& s, const Lane& eta, int l) const {
            return y * (eta[l] + shift[l]) - mean[l] - half[l] * shift[l] * shift[l] - s[1][l];
        }
    };
    /// Sums of e^t, of g = y - e^t, of products of these and of the effect e.
    struct Moments {
        Places at;
        Lane total, mean, g, gg, ge, gge, ggee, mean_e, mean_ee;
        Moments(double y, const Shapes& s, const Lane& eta, int L) {
            const int count = at.find(y, s, eta, L);
            for (Lane* lane : {&total, &mean, &g, &gg, &ge, &gge, &ggee, &mean_e, &mean_ee}) lane->fill(0, L);
            for (int k = 0; k <= count; ++k)
                for (int l = 0; l < L; ++l) {
                    const Term x = at.term(k, l);
                    const double g_ = y - x.mean, w = x.weight, wm = w * x.mean, wg = w * g_, wge = wg * x.effect;
                    total[l] += w, mean[l] += wm, g[l] += wg, gg[l] += wg * g_, ge[l] += wge, gge[l] += wge * g_;
                    ggee[l] += wge * (g_ * x.effect), mean_e[l] += wm * x.effect, mean_ee[l] += wm * x.effect * x.effect;
                }
        }
    };
    const std::vector<double>& y_;
    double constant_ = 0;
    bool good_ = true;
};

// ---- Levels in an order.

/// w = c_1, log(c_2 - c_1), ... Numbers: m + 2 thresholds, from -inf to inf; then gaps, of which the first and the last are inf.
template <bool probit> class Ordinal : public ByLanes<Ordinal<probit>> {
    using Base = ByLanes<Ordinal<probit>>;

  public:
    using Base::m;
    Ordinal(const Rows& rows, int m) : Base(m, true, false), level_(rows.y.size()), many_(m + 1) {
        for (Index i = 0; i < rows.n; ++i) {
            const double y = rows.y[i];
            if (is_count(y) && y <= m) level_[i] = int(y), many_[level_[i]] += 1;
            else good_ = false;
        }
    }
    bool good() const override { return good_; }
    int numbers() const override { return 2 * m + 3; }
    void shapes(const double* w, int l, Shapes& s) const override {
        const double end = math::infinity<double>();
        double c = w[0];
        s[0][l] = -end, s[1][l] = c, s[m + 1][l] = end, s[m + 2][l] = s[2 * m + 2][l] = end;
        for (int j = 1; j < m; ++j) s[m + 2 + j][l] = std::exp(w[j]), c += s[m + 2 + j][l], s[j + 1][l] = c;
    }
    template <class Loop> FEDKERN_INLINE void each(Index i, const Shapes& s, const Lane*, const Loop& loop) const {
        const Lane &low = s[level_[i]], &high = s[level_[i] + 1];
        [[maybe_unused]] const Lane& gap = s[m + 2 + level_[i]];
        if constexpr (probit) {
            bool narrow = false;
            if (level_[i] > 0 && level_[i] < m)
                for (int l = 0; l < width; ++l) narrow |= gap[l] < 2 * narrow_half;
            if (narrow)
                loop([&](double eta, int l) FEDKERN_LANE {
                    const Interval x = normal_interval<true>(low[l] - eta, high[l] - eta, gap[l]);
                    return At{x.value, x.mean, 1 - x.variance};
                });
            else
                loop([&](double eta, int l) FEDKERN_LANE {
                    const Interval x = normal_interval<false>(low[l] - eta, high[l] - eta, gap[l]);
                    return At{x.value, x.mean, 1 - x.variance};
                });
        } else {
            loop([&](double eta, int l) FEDKERN_LANE {
                const double a = low[l] - eta, b = high[l] - eta, of_a = math::exp_decay(a), of_b = math::exp_decay(b);
                const double by_a = 1 / (1 + of_a), by_b = 1 / (1 + of_b);
                const double below = (a < 0 ? of_a : 1.0) * by_a, above = (b < 0 ? 1.0 : of_b) * by_b; // F(a), F(-b)
                const double value = -math::log1p_unit(of_b) - (b < 0 ? -b : 0.0) - math::log1p_unit(of_a) - (a < 0 ? 0.0 : a);
                return At{value, below - above, of_a * by_a * by_a + of_b * by_b * by_b};
            });
        }
    }
    /// Thresholds that move together move against eta; the gap between a row's own moves the upper one alone.
    void own(Index i, const Shapes& s, const Lane*, const double*, const Lane& eta, int L, OwnLanes& out) const override {
        const int level = level_[i], last = level > 0 ? level - 1 : 0;
        const bool inner = level > 0 && level < m;
        const double gap = s[m + 2 + level][0];
        RowLanes rows;
        this->row(i, s, nullptr, eta, L, rows);
        const auto step = [&](int j) { return j ? s[m + 2 + j][0] : 1.0; };
        const auto at = [](int j, int k) { return j * (j + 1) / 2 + k; };
        out.clear(L);
        for (int l = 0; l < L; ++l) {
            const double slope = rows.slope[l], curve = rows.curve[l];
            for (int j = 0; j <= last; ++j) {
                out.first[j][l] = -step(j) * slope, out.cross[j][l] = step(j) * curve;
                for (int k = 0; k <= j; ++k) out.second[at(j, k)][l] = -step(j) * step(k) * curve;
                if (j) out.second[at(j, j)][l] += out.first[j][l];
            }
            if (!inner) continue;
            const double b = s[level + 1][0] - eta[l];
            double high, with_eta, twice;
            if constexpr (probit) {
                high = math::exp(-0.5 * b * b - half_log_2pi - rows.value[l]);
                with_eta = high * (b - slope), twice = -high * (high + b);
            } else {
                const double decay = math::exp_decay(b), by = 1 / (1 + decay);
                high = (b < 0 ? 1.0 : decay) * by, with_eta = decay * by * by, twice = -with_eta;
            }
            out.first[level][l] = gap * high, out.cross[level][l] = gap * with_eta;
            for (int k = 0; k <= last; ++k) out.second[at(level, k)][l] = -step(k) * gap * with_eta;
            out.second[at(level, level)][l] = gap * (gap * twice) + gap * high;
        }
    }
    double constant(const double* w) const override {
        double total = 0;
        for (int j = 1; !probit && j < m; ++j) total += many_[j] * log_1m_exp(w[j]).value;
        return total;
    }
    void constant_slopes(const double* w, double* first, double* second) const override {
        for (int j = 1; !probit && j < m; ++j) {
            const At x = log_1m_exp(w[j]);
            first[j] += many_[j] * x.slope, second[j * (j + 1) / 2 + j] += many_[j] * x.curve;
        }
    }

  private:
    std::vector<int> level_;
    std::vector<double> many_;
    bool good_ = true;
};

// ---- Successes of trials, by other links than the logit.

/// y log P + (trials - y) log(1 - P): P = Phi(eta), or 1 - exp(-e^eta).
template <bool probit> class Chances : public ByLanes<Chances<probit>> {
  public:
    explicit Chances(const Rows& rows) : ByLanes<Chances<probit>>(0, true, !probit), y_(rows.y), trials_(rows.trials) {
        for (Index i = 0; i < rows.n; ++i) constant_ += row_constant<MixedFamily::binomial>(y_[i], trials_[i]);
    }
    bool good() const override { return is_finite(constant_); }
    int numbers() const override { return 0; }
    void shapes(const double*, int, Shapes&) const override {}
    template <class Loop> FEDKERN_INLINE void each(Index i, const Shapes&, const Lane*, const Loop& loop) const {
        const double y = y_[i], rest = trials_[i] - y;
        if constexpr (!probit)
            loop([&](double eta, int) FEDKERN_LANE {
                const double mean = math::exp(at_most(eta, most_eta));
                const At some = log_1m_exp(eta);
                return At{y * some.value - rest * mean, y * some.slope - rest * mean, rest * mean - y * some.curve};
            });
        else if (y == 0 || rest == 0) { // one tail
            const double sign = y == 0 ? -1 : 1, count = y + rest;
            loop([&](double eta, int) FEDKERN_LANE {
                const Tail tail = normal_tail(-sign * eta);
                return At{count * tail.value, sign * count * tail.mean, count * (1 - tail.variance)};
            });
        } else
            loop([&](double eta, int) FEDKERN_LANE {
                const Tail up = normal_tail(-eta), down = normal_tail(eta);
                return At{y * up.value + rest * down.value, y * up.mean - rest * down.mean,
                          y * (1 - up.variance) + rest * (1 - down.variance)};
            });
    }
    double constant(const double*) const override { return constant_; }
    void start(Index i, const Shapes&, const Lane*, int L, Lane& weight, Lane& target) const override {
        const double p = (y_[i] + 0.5) / (trials_[i] + 1), mean = -std::log1p(-p), count = trials_[i] * mean * mean * (1 - p) / p;
        for (int l = 0; l < L; ++l) weight[l] = count, target[l] = std::log(mean);
    }
    double size(Index i, const Shapes&, int) const override { return trials_[i]; }

  private:
    const std::vector<double>&y_, &trials_;
    double constant_ = 0;
};

// ---- Times.

/// Rows are Poisson of the cumulative hazard, from the entry up to y and from y to `upper`: `kept` are the logarithms of both at eta = 0.
/// Of weibull the first is y^k (1 - (entry / y)^k), whose bracket is -expm1(-k log(y / entry)): of entries near y nothing cancels.
template <MixedFamily kind> class Times : public ByLanes<Times<kind>> {
    static constexpr bool weibull = kind == MixedFamily::weibull, piecewise = kind == MixedFamily::piecewise;
    using Base = ByLanes<Times<kind>>;

  public:
    using Base::m;
    Times(const Rows& rows, const MixedTimes& times)
        : Base(piecewise ? int(times.cuts.size) + 1 : weibull, true, true), y_(rows.y), upper_(rows.y), event_(rows.y.size()),
          within_(rows.y.size()) {
        const double end = math::infinity<double>();
        for (Index j = 0; piecewise && j < times.cuts.size; ++j) cuts_.push_back(times.cuts[j]);
        for (Index i = 0; i < rows.n; ++i) {
            if (times.upper.data) upper_[i] = times.upper[i];
            const double y = y_[i], until = upper_[i], since = times.entry.data ? times.entry[i] : 0;
            event_[i] = y == until, within_[i] = y < until && until < end, begun_.push_back(y > since);
            good_ &= is_finite(y) && since >= 0 && y >= since && until >= y && !(event_[i] && !begun_[i]);
            if (event_[i]) logs_ += std::log(y), ++events_;
            spent_.push_back(y > 0 ? std::log(y) : 0), later_.push_back(within_[i] ? std::log(until) : 0);
            const double grown = (y - since) / since; // y / entry - 1, without what cancels where it is small
            since_.push_back(since > 0 ? grown < 1 ? std::log1p(grown) : std::log(y) - std::log(since) : end);
            if (event_[i] && since > 0) late_.push_back(since_[i]);
        }
        if (!piecewise || !good_) return;
        times_.assign(2 * rows.n * m, 0.0), piece_.assign(rows.n, 0);
        for (Index i = 0; i < rows.n; ++i)
            for (int j = 0; j < m; ++j) {
                const double low = j ? cuts_[j - 1] : 0, high = j + 1 < m ? cuts_[j] : end;
                const double since = times.entry.data ? std::max(times.entry[i], low) : low;
                times_[2 * i * m + j] = std::max(0.0, std::min(y_[i], high) - since);
                if (within_[i]) times_[(2 * i + 1) * m + j] = std::max(0.0, std::min(upper_[i], high) - std::max(y_[i], low));
                if (y_[i] > low) piece_[i] = j;
            }
    }
    bool good() const override { return good_; }
    int numbers() const override { return piecewise ? m : 1; }
    void shapes(const double* w, int l, Shapes& s) const override {
        if constexpr (piecewise)
            for (int j = 0; j < m; ++j) s[j][l] = w[j];
        else s[0][l] = weibull ? std::exp(w[0]) : 1.0;
    }
    int kept() const override { return 2; }
    void keep(Index i, const Shapes& s, int L, Lane* kept) const override {
        const double none = -math::infinity<double>();
        if constexpr (piecewise) {
            for (int part = 0; part < 1 + within_[i]; ++part)
                for (int l = 0; l < L; ++l) kept[part][l] = log_sum(i, part, [&](int j) { return s[j][l]; });
        } else {
            const double y = y_[i], log_y = spent_[i], log_upper = later_[i], since = since_[i];
            for (int l = 0; l < L; ++l) kept[0][l] = y > 0 ? s[0][l] * log_y : none;
            for (int l = 0; within_[i] && l < L; ++l) {
                const double k = s[0][l], ratio = k * (log_upper - log_y);
                const double more = kept[0][l] + math::log(math::expm1(at_most(ratio, 700)));
                kept[1][l] = y > 0 && !(ratio > 700) ? more : k * log_upper;
            }
            if (!begun_[i]) kept[0].fill(none, L);
            else if (since < math::infinity<double>())
                for (int l = 0; l < L; ++l) kept[0][l] += math::log(-math::expm1(-at_most(s[0][l] * since, 700)));
        }
    }
    template <class Loop> FEDKERN_INLINE void each(Index i, const Shapes&, const Lane* kept, const Loop& loop) const {
        const Lane &early = kept[0], &gap = kept[1];
        if (within_[i])
            loop([&](double eta, int l) FEDKERN_LANE {
                const double mean = math::exp(at_most(eta + early[l], most_eta));
                const At more = log_1m_exp(eta + gap[l]);
                return At{more.value - mean, more.slope - mean, mean - more.curve};
            });
        else if (event_[i])
            loop([&](double eta, int l) FEDKERN_LANE {
                const double x = at_most(eta + early[l], most_eta), mean = math::exp(x);
                return At{x - mean, 1 - mean, mean};
            });
        else
            loop([&](double eta, int l) FEDKERN_LANE {
                const double mean = math::exp(at_most(eta + early[l], most_eta));
                return At{-mean, -mean, mean};
            });
    }
    void own(Index i, const Shapes& s, const Lane* kept, const double* w, const Lane& eta, int L, OwnLanes& out) const override {
        if (m == 0) return;
        std::vector<double> a(m), d(m), of_h(m); // A_j / A, D_j / D, and the slope of an event's log hazard
        double aa = 0, dd = 0, hh = 0;           // of weibull: A'' / A, D'' / D, the curvature of the log hazard
        if constexpr (piecewise) {
            for (int j = 0; j < m; ++j) {
                a[j] = share(i, 0, j, w, kept[0][0]), of_h[j] = event_[i] && piece_[i] == j;
                d[j] = within_[i] ? share(i, 1, j, w, kept[1][0]) : 0;
            }
        } else {
            const double k = s[0][0], log_y = spent_[i], log_upper = later_[i], since = since_[i];
            a[0] = begun_[i] ? k * log_y : 0, aa = a[0] + a[0] * a[0];
            if (begun_[i] && since < math::infinity<double>()) {
                const double part = 1 / std::expm1(std::min(k * since, 700.0)); // entry^k / A
                a[0] = k * (log_y + part * since);
                aa = a[0] + k * k * (log_y * log_y + part * since * (2 * log_y - since));
            }
            if (event_[i]) hh = k * log_y, of_h[0] = 1 + hh;
            if (within_[i]) {
                const double part = y_[i] > 0 ? 1 / std::expm1(std::min(k * (log_upper - log_y), 700.0)) : 0; // A / D
                d[0] = k * (log_upper + part * (log_upper - log_y));
                dd = d[0] + k * k * (log_upper * log_upper + part * (log_upper * log_upper - log_y * log_y));
            }
        }
        for (int l = 0; l < L; ++l) {
            const double mean = math::exp(at_most(eta[l] + kept[0][0], most_eta));
            const At more = within_[i] ? log_1m_exp(eta[l] + kept[1][0]) : At{0, 0, 0};
            for (int j = 0; j < m; ++j) {
                out.first[j][l] = of_h[j] - mean * a[j] + more.slope * d[j];
                out.cross[j][l] = more.curve * d[j] - mean * a[j];
                for (int k = 0; k <= j; ++k) {
                    const double of_a = weibull ? aa : j == k ? a[j] : 0, of_d = weibull ? dd : j == k ? d[j] : 0;
                    out.second[j * (j + 1) / 2 + k][l] = hh - mean * of_a + more.curve * d[j] * d[k] + more.slope * (of_d - d[j] * d[k]);
                }
            }
        }
    }
    double constant(const double* w) const override {
        double total = 0;
        if constexpr (!piecewise) {
            const double k = weibull ? std::exp(w[0]) : 1.0;
            for (const double since : late_) total += std::log(-std::expm1(-k * since));
            return (weibull ? double(events_) * w[0] : 0.0) - logs_ - total;
        }
        for (std::size_t i = 0; i < y_.size(); ++i)
            if (event_[i]) total += w[piece_[i]] - log_sum(Index(i), 0, [&](int j) { return w[j]; });
        return total;
    }
    void start(Index i, const Shapes&, const Lane* kept, int L, Lane& weight, Lane& target) const override {
        const double count = event_[i] + within_[i] + 0.5, log = std::log(count);
        const bool known = begun_[i] || within_[i];
        for (int l = 0; l < L; ++l) {
            const double early = begun_[i] ? kept[0][l] : -1e300, last = within_[i] ? decay_sum(early, kept[1][l]) : early;
            weight[l] = known ? count : 0, target[l] = log - (known ? last : 0);
        }
    }
    double size(Index, const Shapes&, int) const override { return 1; }

  private:
    /// log sum_j e^(w_j) time_j.
    template <class W> double log_sum(Index i, int part, const W& w) const {
        const double* time = &times_[(2 * i + part) * m];
        double most = -math::infinity<double>(), total = 0;
        for (int j = 0; j < m; ++j)
            if (time[j] > 0) most = std::max(most, w(j));
        if (!(most > -math::infinity<double>())) return most;
        for (int j = 0; j < m; ++j)
            if (time[j] > 0) total += time[j] * math::exp(w(j) - most);
        return most + math::log(total);
    }
    double share(Index i, int part, int j, const double* w, double total) const {
        const double time = times_[(2 * i + part) * m + j];
        return time > 0 ? time * std::exp(w[j] - total) : 0;
    }

    const std::vector<double>& y_;
    std::vector<double> upper_, cuts_, spent_, later_, times_; // logarithms of y and upper; (n, 2, m) times in each piece
    std::vector<double> since_, late_;                         // log(y / entry), infinite where it is 0; of events that are finite
    std::vector<char> event_, within_, begun_;
    std::vector<int> piece_;
    double logs_ = 0;
    Index events_ = 0;
    bool good_ = true;
};

} // namespace mixed
} // namespace FEDKERN_ISA
} // namespace fedkern
