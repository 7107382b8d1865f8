// Rows of a mixed model as the kernels read them, the quadrature's rule, and what a family is to them.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "fedkern/quick.hpp"
#include "scalar.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {
namespace mixed {

inline constexpr Index summed = 48;       // rows without effects whose predictors at `width` points stay in the cache
inline constexpr double most_terms = 1e8; // of a negative binomial's count, whose curvature is a sum of so many

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

/// What of a value depends on no effect and no coefficient.
class Constants {
  public:
    explicit Constants(const MixedRows& r) : family_(r.family), n_(r.X.rows), y_(r.y) {
        switch (family_) {
        case MixedFamily::binomial: add<MixedFamily::binomial>(r); break;
        case MixedFamily::poisson: add<MixedFamily::poisson>(r); break;
        case MixedFamily::gaussian: add<MixedFamily::gaussian>(r); break;
        case MixedFamily::negative_binomial: add<MixedFamily::negative_binomial>(r), count(); break;
        default: break; // its families.hpp has it
        }
    }

    bool dispersed() const { return family_ == MixedFamily::gaussian || family_ == MixedFamily::negative_binomial; }

    /// At a point whose last coordinate is w; NaN: a response that the family does not have.
    double at(double w) const {
        if (family_ == MixedFamily::gaussian) return constant_ - double(n_) * w;
        return family_ == MixedFamily::negative_binomial ? constant_ + rising(w * w) : constant_;
    }

    /// sum over rows of sum_{k < y} log(1 + k a): beyond some terms by Euler and Maclaurin, the next of which is below 1e-15.
    double rising(double a) const {
        double total = 0;
        for (Index k = 0; k < Index(counts_.size()); ++k) total += counts_[k] * math::log1p(double(k) * a);
        for (std::size_t i = 0; i < large_.size();) {
            std::size_t j = i;
            while (j < large_.size() && large_[j] == large_[i]) ++j;
            total += double(j - i) * (antiderivative(large_[i], a) - antiderivative(double(least_large), a));
            i = j;
        }
        return total;
    }

    /// The derivatives of `rising`, term by term; NaN of counts with too many terms.
    void rising_slopes(double a, double& first, double& second) const {
        std::vector<double> sorted(n_);
        for (Index i = 0; i < n_; ++i) sorted[i] = y_[i];
        std::sort(sorted.begin(), sorted.end());
        if (n_ && !(sorted.back() <= most_terms)) {
            first = second = std::numeric_limits<double>::quiet_NaN();
            return;
        }
        Index below = 0; // rows with y <= k
        first = second = 0;
        for (double k = 0; below < n_; ++k) {
            while (below < n_ && sorted[below] <= k) ++below;
            const double s = k / (1 + k * a);
            first += double(n_ - below) * s, second -= double(n_ - below) * s * s;
        }
    }

  private:
    template <MixedFamily family> void add(const MixedRows& r) {
        if (family == MixedFamily::binomial && !r.trials.data && y_.stride == 1) {
            math::Format<double>::Bits others = 0; // than zeros and ones, without a branch that depends on them
            for (Index i = 0; i < n_; ++i) others |= math::to_bits(y_.data[i] * (1 - y_.data[i]));
            if (others == 0) return;
        }
        double part[4] = {}; // a sum waits for the one before
        for (Index i = 0; i < n_; ++i) part[i % 4] += row_constant<family>(r.y[i], r.trials.data ? r.trials[i] : 1);
        constant_ = (part[0] + part[1]) + (part[2] + part[3]);
    }

    void count() {
        if (!(constant_ == constant_)) return;
        double most = 0;
        for (Index i = 0; i < n_; ++i) most = std::max(most, y_[i]);
        counts_.assign(Index(std::min<double>(most, double(least_large))), 0);
        for (Index i = 0; i < n_; ++i) {
            for (Index k = 0; k < Index(counts_.size()) && k < y_[i]; ++k) ++counts_[k];
            if (y_[i] > double(least_large)) large_.push_back(y_[i]);
        }
        std::sort(large_.begin(), large_.end());
    }

    static double antiderivative(double x, double a) { return rising_before(x, a, std::log1p(a * x)); }

    MixedFamily family_;
    Index n_;
    Vector<const double> y_;
    double constant_ = 0;
    std::vector<double> large_, counts_; // for the negative binomial: the y above least_large, and how many are above k below it
};

/// The rows as neighbours, without groups that have none: the integral of an empty group is 1.
struct Rows {
    static constexpr double near_enough = near; // the last step of a search
    MixedFamily family;
    Index n, p, groups;
    int d, nodes;
    std::vector<double> copy; // of an X whose numbers are no neighbours
    const double* X;
    std::vector<double> Z, y, trials, offset;
    std::vector<Index> begin;     // groups + 1
    std::vector<char> unit, ones; // a group whose Z is a column of ones; whose trials are all 1
    Constants constant;

    explicit Rows(const MixedRows& r)
        : family(r.family), n(r.X.rows), p(r.X.cols), d(int(r.Z.cols)), nodes(r.nodes), X(r.X.data), Z(n * d), y(n), trials(n), offset(n),
          constant(r) {
        if (r.X.col_stride != 1 || r.X.row_stride != p) {
            copy.resize(n * p), X = copy.data();
            for (Index i = 0; i < n; ++i)
                for (Index j = 0; j < p; ++j) copy[i * p + j] = r.X.row(i)[j];
        }
        for (Index i = 0; i < n; ++i) {
            for (Index j = 0; j < d; ++j) Z[i * d + j] = r.Z.row(i)[j];
            y[i] = r.y[i];
            trials[i] = r.trials.data ? r.trials[i] : 1;
            offset[i] = r.offset.data ? r.offset[i] : 0;
        }
        begin.push_back(0);
        for (Index g = 0; g + 1 < r.starts.size && d > 0; ++g)
            if (r.starts[g + 1] > begin.back()) begin.push_back(r.starts[g + 1]);
        for (Index i = 0; d == 0 && i < n; i += summed) begin.push_back(std::min(n, i + summed)); // pieces: it is a sum
        groups = Index(begin.size()) - 1;
        for (Index g = 0; g < groups; ++g) {
            bool same = d == 1, one = true;
            for (Index i = begin[g]; i < begin[g + 1]; ++i) same &= d == 1 && Z[i] == 1, one &= trials[i] == 1;
            unit.push_back(same), ones.push_back(one);
        }
    }

    bool dispersed() const { return constant.dispersed(); }
    Index size() const { return p + d * (d + 1) / 2 + dispersed(); }
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
