// Rows of a mixed model as the kernels read them, the quadrature's rule, and what a family is to them.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "scalar.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {
namespace mixed {

inline constexpr double most_terms = 1e8; // of a negative binomial's count, whose curvature is a sum of so many

/// e^x for |x| <= 700, to 4e-14 of itself within 30 and 1e-13 at the ends: what a sum of such terms needs.
FEDKERN_INLINE double quick_exp(double x) {
    using F = math::Format<double>;
    const double shifted = x * 1.4426950408889634 + F::round, k = shifted - F::round;
    const double r = x - k * 0.69314718055994531; // |r| <= log(2) / 2
    const double q = math::polynomial(r, 0x1.0000000000000p+0, 0x1.fffffffff70abp-2, 0x1.5555555553b48p-3, 0x1.555555745858dp-5,
                                      0x1.1111111c5719ap-7, 0x1.6c164d7dbdce2p-10, 0x1.a019ad55d1aa7p-13, 0x1.a15af3e6562d7p-16,
                                      0x1.72c79824255e0p-19); // (exp(r) - 1) / r
    return math::from_bits<double>(math::to_bits(1 + r * q) + (math::to_bits(shifted) << F::fraction));
}

/// Nodes of the standard normal, rising, and logarithms of weights that add up to 1.
struct Rule {
    std::vector<double> t, log_w;

    /// Nodes are eigenvalues of the Jacobi matrix of the Hermite polynomials, found by bisection (Sturm) and polished.
    explicit Rule(int n) : t(n), log_w(n) {
        for (int i = 0; i < n / 2; ++i) { // the i-th of the positive ones from the largest
            double low = 0, high = 2 * std::sqrt(double(n)) + 1;
            for (int step = 0; step < 80; ++step) {
                const double x = 0.5 * (low + high);
                (above(n, x) > i ? low : high) = x;
            }
            t[n - 1 - i] = 0.5 * (low + high);
            t[i] = -t[n - 1 - i];
        }
        if (n % 2) t[n / 2] = 0;
        double total = 0;
        std::vector<double> w(n);
        for (int i = 0; i < n; ++i) {
            double before = 0, h = 1, squares = 1; // orthonormal polynomials
            for (int j = 1; j < n; ++j) {
                const double next = (t[i] * h - std::sqrt(double(j - 1)) * before) / std::sqrt(double(j));
                before = h, h = next, squares += h * h;
            }
            total += w[i] = 1 / squares;
        }
        for (int i = 0; i < n; ++i) log_w[i] = std::log(w[i] / total);
    }

  private:
    /// How many eigenvalues are above x.
    static int above(int n, double x) {
        int count = 0;
        double q = -x;
        for (int j = 0; j < n; ++j) {
            if (j) q = -x - j / (q == 0 ? 1e-300 : q);
            count += q > 0;
        }
        return count;
    }
};

/// The rows in one piece of memory, without groups that have none: the integral of an empty group is 1.
struct Rows {
    static constexpr double near_enough = near; // the last step of a search
    MixedFamily family;
    Index n, p, groups;
    int d, nodes;
    std::vector<double> X, Z, y, trials, offset;
    std::vector<Index> begin;      // groups + 1
    std::vector<char> unit, ones;  // a group whose Z is a column of ones; whose trials are all 1
    double constant = 0;           // of the value, at all points; NaN: a response that the family does not have
    std::vector<double> large, counts; // for the negative binomial: how many y are above k < least_large; and the y above

    explicit Rows(const MixedRows& r)
        : family(r.family), n(r.X.rows), p(r.X.cols), d(int(r.Z.cols)), nodes(r.nodes), X(n * p), Z(n * d), y(n), trials(n), offset(n) {
        for (Index i = 0; i < n; ++i) {
            for (Index j = 0; j < p; ++j) X[i * p + j] = r.X.row(i)[j];
            for (Index j = 0; j < d; ++j) Z[i * d + j] = r.Z.row(i)[j];
            y[i] = r.y[i];
            trials[i] = r.trials.data ? r.trials[i] : 1;
            offset[i] = r.offset.data ? r.offset[i] : 0;
            constant += row_constant(y[i], trials[i]);
        }
        begin.push_back(0);
        for (Index g = 0; g + 1 < r.starts.size && d > 0; ++g)
            if (r.starts[g + 1] > begin.back()) begin.push_back(r.starts[g + 1]);
        for (Index i = 0; d == 0 && i < n; i += least_large) begin.push_back(std::min(n, i + least_large)); // pieces: it is a sum
        groups = Index(begin.size()) - 1;
        for (Index g = 0; g < groups; ++g) {
            bool same = d == 1, one = true;
            for (Index i = begin[g]; i < begin[g + 1]; ++i) same &= d == 1 && Z[i] == 1, one &= trials[i] == 1;
            unit.push_back(same), ones.push_back(one);
        }
        if (family == MixedFamily::negative_binomial && constant == constant) {
            const double most = n ? *std::max_element(y.begin(), y.end()) : 0;
            counts.assign(Index(std::min<double>(most, double(least_large))), 0);
            for (const double v : y) {
                for (Index k = 0; k < Index(counts.size()) && k < v; ++k) ++counts[k];
                if (v > double(least_large)) large.push_back(v);
            }
            std::sort(large.begin(), large.end());
        }
    }

    bool dispersed() const { return family == MixedFamily::gaussian || family == MixedFamily::negative_binomial; }
    Index size() const { return p + d * (d + 1) / 2 + dispersed(); }

    /// What does not depend on u, at a point whose last coordinate is w.
    double constant_at(double w) const {
        if (family == MixedFamily::gaussian) return constant - double(n) * w;
        return family == MixedFamily::negative_binomial ? constant + rising(w * w) : constant;
    }

    /// sum over rows of sum_{k < y} log(1 + k a): beyond some terms by Euler and Maclaurin, the next of which is below 1e-15.
    double rising(double a) const {
        double total = 0;
        for (Index k = 0; k < Index(counts.size()); ++k) total += counts[k] * math::log1p(double(k) * a);
        for (std::size_t i = 0; i < large.size();) {
            std::size_t j = i;
            while (j < large.size() && large[j] == large[i]) ++j;
            total += double(j - i) * (antiderivative(large[i], a) - antiderivative(double(least_large), a));
            i = j;
        }
        return total;
    }

    /// The derivatives of `rising`, term by term; NaN of counts with too many terms.
    void rising_slopes(double a, double& first, double& second) const {
        std::vector<double> sorted(y);
        std::sort(sorted.begin(), sorted.end());
        if (n && !(sorted.back() <= most_terms)) {
            first = second = std::numeric_limits<double>::quiet_NaN();
            return;
        }
        Index below = 0; // rows with y <= k
        first = second = 0;
        for (double k = 0; below < n; ++k) {
            while (below < n && sorted[below] <= k) ++below;
            const double s = k / (1 + k * a);
            first += double(n - below) * s, second -= double(n - below) * s * s;
        }
    }

  private:
    double row_constant(double y, double trials) const {
        switch (family) {
        case MixedFamily::binomial: return mixed::row_constant<MixedFamily::binomial>(y, trials);
        case MixedFamily::poisson: return mixed::row_constant<MixedFamily::poisson>(y, trials);
        case MixedFamily::gaussian: return mixed::row_constant<MixedFamily::gaussian>(y, trials);
        case MixedFamily::negative_binomial: return mixed::row_constant<MixedFamily::negative_binomial>(y, trials);
        default: return 0; // its families.hpp has it
        }
    }

    static double antiderivative(double x, double a) { return rising_before(x, a, std::log1p(a * x)); }
};

/// Of a row, in the last coordinate w of a point (log sd, or phi): dl / dw without what does not depend on eta, and its derivatives.
template <MixedFamily family> struct Dispersion {
    double slope = 0, mixed = 0, second = 0; // d / dw, d2 / dw deta, d2 / dw2
    FEDKERN_INLINE Dispersion(double eta, double y, double w, double square) {
        if constexpr (family == MixedFamily::gaussian) {
            const double r = y - eta, x = square * r;
            slope = x * r - 1, mixed = -2 * x, second = -2 * x * r;
        } else if constexpr (family == MixedFamily::negative_binomial) {
            const double mean = std::exp(std::min(eta, most_eta)), x = square * mean, inverse = 1 / (1 + x), m = mean * inverse;
            double one, two; // derivatives in phi^2 of log(1 + phi^2 mean) / phi^2
            if (x < 0.1) {
                one = two = 0;
                for (int j = 17; j >= 1; --j) one = (j % 2 ? -1.0 : 1.0) * j / (j + 1) + one * x;
                for (int j = 17; j >= 2; --j) two = (j % 2 ? -1.0 : 1.0) * j * (j - 1) / (j + 1) + two * x;
                one *= mean * mean, two *= mean * mean * mean;
            } else {
                one = (m - std::log1p(x) / square) / square;
                two = (-m * m - 2 * one) / square;
            }
            const double first = -y * m - one;
            slope = 2 * w * first, mixed = -2 * w * (y - mean) * inverse * m, second = 2 * first + 4 * square * (y * m * m - two);
        }
    }
};

/// phi^2 or the precision of a point.
FEDKERN_INLINE double square_of(MixedFamily family, double last) {
    if (family == MixedFamily::gaussian) return std::exp(-2 * last);
    return family == MixedFamily::negative_binomial ? last * last : 1.0;
}

} // namespace mixed
} // namespace FEDKERN_ISA
} // namespace fedkern
