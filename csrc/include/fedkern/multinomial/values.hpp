// Multinomial log-likelihoods at many points: a few rows and points at a time. A row's largest predictor is taken from all of them,
// so that its sum of exponentials is between 1 and the number of levels: one logarithm does for the product of many rows' sums.
#pragma once
#include <algorithm>

#include "fedkern/blocks.hpp"
#include "fedkern/predictors.hpp"
#include "fedkern/quick.hpp"
#include "views.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {
namespace multinomial {

inline constexpr int lanes = 16;           // points at a time
inline constexpr Index multiplied = 24;    // rows at a time, whose sums make a product: of a million levels it has 144 digits

FEDKERN_INLINE bool is_finite(double x) { return x - x == 0; }

/// Whether each response is the number of a level.
inline bool has_levels(const MultinomialRows& rows) {
    for (Index i = 0; i < rows.y.size; ++i) {
        const double y = rows.y[i];
        if (!(y >= 0 && y < double(rows.levels)) || double(Index(y)) != y) return false;
    }
    return true;
}

/// Of `lanes` points: what rows add to them.
class Values {
  public:
    Values(const MultinomialRows& rows, Matrix<const double> points, Index begin, Index count)
        : rows_(rows), others_(rows.levels - 1), p_(rows.X.cols), beta_(p_, others_ * lanes), eta_(multiplied * rows.levels * lanes),
          copies_(multiplied * p_) {
        for (int l = 0; l < lanes; ++l) value[l] = 0;
        for (Index k = 0; k < others_; ++k)
            for (Index j = 0; j < p_; ++j)
                for (int l = 0; l < lanes; ++l) {
                    const double b = points.row(begin + (l < count ? l : 0))[k * p_ + j];
                    beta_.at(j, k * lanes + l) = b;
                    value[l] += 0 * b; // NaN where a point is not finite
                }
        std::fill_n(+eta_, multiplied * rows.levels * lanes, 0.0); // of the reference
    }

    alignas(64) double value[lanes];

    void run() {
        const Index n = rows_.X.rows, step = rows_.levels * lanes;
        for (Index i = 0; i < n; i += multiplied) {
            const Index count = std::min(n - i, multiplied);
            const double* x[multiplied];
            for (Index r = 0; r < count; ++r) x[r] = contiguous(rows_.X.row(i + r), copies_ + r * p_);
            beta_.predict(count, [&](Index r) { return x[r]; }, [](Index) { return 0.0; }, eta_ + lanes, step);
            alignas(64) double product[lanes];
            for (double& one : product) one = 1;
            for (Index r = 0; r < count; ++r) add(Index(rows_.y[i + r]), eta_ + r * step, product);
            for (int l = 0; l < lanes; ++l) value[l] -= math::log(product[l]);
        }
    }

  private:
    /// A row's predictors (level, point).
    FEDKERN_INLINE void add(Index level, const double* eta, double* product) {
        alignas(64) double top[lanes], sum[lanes];
        for (int l = 0; l < lanes; ++l) top[l] = 0;
        for (Index k = 1; k <= others_; ++k)
            for (int l = 0; l < lanes; ++l) top[l] = eta[k * lanes + l] > top[l] ? eta[k * lanes + l] : top[l];
        for (int l = 0; l < lanes; ++l) sum[l] = quick_decay(top[l]), value[l] += eta[level * lanes + l] - top[l];
        for (Index k = 1; k <= others_; ++k)
            for (int l = 0; l < lanes; ++l) {
                const double below = top[l] - eta[k * lanes + l];
                sum[l] += quick_decay(below) + 0 * below; // NaN stays
            }
        for (int l = 0; l < lanes; ++l) product[l] *= sum[l];
    }

    const MultinomialRows& rows_;
    const Index others_, p_;
    PointCoefficients beta_;
    Scratch<double> eta_, copies_; // eta: (row, level, point)
};

} // namespace multinomial

inline void multinomial_values(Matrix<const double> points, const MultinomialRows& rows, Vector<double> value, int n_threads) {
    constexpr Index lanes = multinomial::lanes; // other families have lanes of their own
    const Index S = points.rows, sets = (S + lanes - 1) / lanes;
    const bool good = multinomial::has_levels(rows);
    const double work = double(S) * double(rows.X.rows) * double(rows.levels) * double(20 + 2 * rows.X.cols);
    for_blocks(sets, sets, worthwhile(n_threads, work), [&](Index, Index first, Index last) {
        for (Index set = first; set < last; ++set) {
            const Index begin = set * lanes, count = S - begin < lanes ? S - begin : lanes;
            multinomial::Values values(rows, points, begin, count);
            if (good) values.run();
            for (Index l = 0; l < count; ++l) {
                const double v = values.value[int(l)];
                value[begin + l] = good && multinomial::is_finite(v) ? v : math::not_a_number<double>();
            }
        }
    });
}

} // namespace FEDKERN_ISA
} // namespace fedkern
