// The rule for integrands that may have several modes, of one effect: panels of Gauss and Legendre, found without a mode.
//
// l(u) = sum_i l_i(eta_i(u)) - u^2 / 2, where each l_i rises to one mode and falls beyond it. So on a panel l is at most the sum of: of
// each row its mode's value if that is inside, else the larger of the ends'; less the least u^2 / 2. Beyond the reach l is 50 below
// l(0). Panels are halved until l is smooth there and a row's mode stands out nowhere unseen at the ends or in the middle; those
// whose bound is 50 below the largest value seen are left out: less than e^-50 of the integrand's top is there.
#pragma once
#include "families.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {
namespace mixed {

inline constexpr int first_panels = 8, most_halvings = 50, most_panels = 4096;
inline constexpr double far_below = 50, most_bent = 3, most_tilted = 8, most_misfit = 0.03, most_hidden = 0.3;

/// Nodes in [-1, 1] and logarithms of weights that add up to 2.
struct Legendre {
    std::vector<double> t, log_w;
    explicit Legendre(int n) : t(n), log_w(n) {
        for (int i = 0; i < n; ++i) {
            double x = std::cos(3.14159265358979323846 * (i + 0.75) / (n + 0.5)), slope = 1;
            for (int step = 0; step < 20; ++step) { // Newton's
                double before = 1, p = x;
                for (int j = 2; j <= n; ++j) {
                    const double next = ((2 * j - 1) * x * p - (j - 1) * before) / j;
                    before = p, p = next;
                }
                slope = n * (x * p - before) / (x * x - 1);
                if (n == 1) slope = 1;
                x -= p / slope;
            }
            t[i] = 2 * i + 1 == n ? 0 : x;
            log_w[i] = std::log(2 / ((1 - t[i] * t[i]) * slope * slope));
        }
    }
};

class Panels {
  public:
    Panels(const Rows& rows, const Family& family, const Legendre& rule) : rows_(rows), family_(family), rule_(rule) {}

    std::vector<double> u, term; // places, and logarithms of the terms that add up to the integral of exp(l) / sqrt(2 pi)

    /// Of the rows of a group at a point: the fixed parts of their predictors, T, the largest values of rows. False: too many panels,
    /// a number that is not finite, or numbers so large that by rounding no panel's bound reaches the largest value.
    bool integrate(const Shapes& s, Index begin, Index end, const double* base, double T, const double* tops) {
        u.clear(), term.clear();
        Lane place, zero;
        place.fill(0, 8);
        double gain = 0;
        for (Index i = begin; i < end; ++i) {
            zero.fill(base[i - begin], 8);
            family_.value(i, s, nullptr, zero, 8, place);
            gain += tops[i - begin] - place[0];
        }
        if (!is_finite(gain)) return false;
        const double reach = std::sqrt(2 * ((gain > 0 ? gain : 0) + far_below));
        low_.clear(), high_.clear();
        for (int j = 0; j < first_panels; ++j)
            low_.push_back(reach * (2.0 * j / first_panels - 1)), high_.push_back(reach * (2.0 * (j + 1) / first_panels - 1));
        double best = -math::infinity<double>();
        Index made = 0;
        for (int depth = 0; depth <= most_halvings && !low_.empty(); ++depth) {
            const Index count = Index(low_.size());
            bound_.resize(count), rough_.resize(count);
            for (Index from = 0; from < count; from += width)
                if (!look(s, begin, end, base, T, tops, from, std::min<Index>(width, count - from), best)) return false;
            more_low_.clear(), more_high_.clear();
            for (Index j = 0; j < count; ++j) {
                if (!(bound_[j] > best - far_below)) continue;
                if (rough_[j] && depth < most_halvings) {
                    const double middle = 0.5 * (low_[j] + high_[j]);
                    more_low_.push_back(low_[j]), more_high_.push_back(middle), more_low_.push_back(middle), more_high_.push_back(high_[j]);
                } else {
                    const double half = 0.5 * (high_[j] - low_[j]), middle = 0.5 * (low_[j] + high_[j]),
                                 log = std::log(half) - half_log_2pi;
                    for (std::size_t k = 0; k < rule_.t.size(); ++k)
                        u.push_back(middle + half * rule_.t[k]), term.push_back(log + rule_.log_w[k]);
                    ++made;
                }
            }
            if (made + Index(more_low_.size()) > most_panels) return false;
            low_.swap(more_low_), high_.swap(more_high_);
        }
        for (std::size_t from = 0; from < u.size(); from += width) {
            const int some = int(std::min<std::size_t>(width, u.size() - from)), L = (some + 7) / 8 * 8;
            Lane eta, sum, one;
            for (int l = 0; l < L; ++l) place[l] = u[from + std::min(l, some - 1)], sum[l] = -0.5 * place[l] * place[l];
            for (Index i = begin; i < end; ++i) {
                const double by = T * rows_.Z[i], c = base[i - begin];
                for (int l = 0; l < L; ++l) eta[l] = c + by * place[l];
                family_.value(i, s, nullptr, eta, L, one);
                for (int l = 0; l < L; ++l) sum[l] += one[l];
            }
            for (int l = 0; l < some; ++l) term[from + l] += sum[l];
        }
        return !term.empty();
    }

    /// The logarithm of the integral.
    double log_sum() const {
        double most = -math::infinity<double>(), total = 0;
        for (const double x : term) most = std::max(most, x);
        for (const double x : term) total += math::exp(x - most);
        return most + math::log(total);
    }

  private:
    /// Bounds of some panels, and whether they are rough; `best` rises. False: a number that is not finite.
    bool look(const Shapes& s, Index begin, Index end, const double* base, double T, const double* tops, Index from, Index some,
              double& best) {
        const int L = int((some + 7) / 8 * 8);
        Lane low, high, middle, eta, m, at_low, at_middle, at_high, tilt, bound, hidden;
        RowLanes a, b;
        for (int l = 0; l < L; ++l) {
            const Index j = from + std::min<Index>(l, some - 1);
            low[l] = low_[j], high[l] = high_[j], middle[l] = 0.5 * (low[l] + high[l]);
            const double from_0 = low[l] * high[l] < 0 ? 0.0 : std::min(low[l] * low[l], high[l] * high[l]);
            at_low[l] = -0.5 * low[l] * low[l], at_middle[l] = -0.5 * middle[l] * middle[l], at_high[l] = -0.5 * high[l] * high[l];
            tilt[l] = high[l] - low[l], bound[l] = -0.5 * from_0, hidden[l] = 0;
        }
        for (Index i = begin; i < end; ++i) {
            const double by = T * rows_.Z[i], c = base[i - begin], top = tops[i - begin];
            for (int l = 0; l < L; ++l) eta[l] = c + by * low[l];
            family_.row(i, s, nullptr, eta, L, a);
            for (int l = 0; l < L; ++l) eta[l] = c + by * high[l];
            family_.row(i, s, nullptr, eta, L, b);
            for (int l = 0; l < L; ++l) eta[l] = c + by * middle[l];
            family_.value(i, s, nullptr, eta, L, m);
            for (int l = 0; l < L; ++l) {
                const double ends = a.value[l] > b.value[l] ? a.value[l] : b.value[l], seen = ends > m[l] ? ends : m[l];
                const bool inside = (by * a.slope[l] > 0) & (by * b.slope[l] < 0);
                const double most = inside & (top > seen) ? top : seen, unseen = most - seen;
                hidden[l] = hidden[l] > unseen ? hidden[l] : unseen;
                bound[l] += most, at_low[l] += a.value[l], at_high[l] += b.value[l], at_middle[l] += m[l];
                tilt[l] += by * (a.slope[l] - b.slope[l]);
            }
        }
        for (int l = 0; l < some; ++l) {
            const double bend = at_middle[l] - 0.5 * (at_low[l] + at_high[l]), misfit = bend - 0.125 * (high[l] - low[l]) * tilt[l];
            if (!is_finite(bound[l] + bend)) return false;
            best = std::max({best, at_low[l], at_middle[l], at_high[l]});
            bound_[from + l] = bound[l];
            rough_[from + l] = 2 * math::magnitude(bend) > most_bent || math::magnitude(at_high[l] - at_low[l]) > most_tilted ||
                               hidden[l] > most_hidden || math::magnitude(misfit) > most_misfit;
        }
        return true;
    }

    const Rows& rows_;
    const Family& family_;
    const Legendre& rule_;
    std::vector<double> low_, high_, more_low_, more_high_, bound_;
    std::vector<char> rough_;
};

} // namespace mixed
} // namespace FEDKERN_ISA
} // namespace fedkern
