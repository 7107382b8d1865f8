// Multinomial log-likelihoods at many points: a few rows and points at a time. A row's largest predictor is taken from all of them,
// so that its sum of exponentials is between 1 and the number of levels: one logarithm does for the product of many rows' sums.
#pragma once
#include <algorithm>

#include "fedkern/blocks.hpp"
#include "fedkern/math.hpp"
#include "fedkern/pack.hpp"
#include "fedkern/pieces.hpp"
#include "views.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {
namespace multinomial {

inline constexpr int lanes = 16, tile = 4; // points and rows at a time
inline constexpr Index multiplied = 32;    // sums in a product: of a million levels it has 192 digits

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
        : rows_(rows), others_(rows.levels - 1), p_(rows.X.cols), beta_(others_ * p_ * lanes), eta_(rows.levels * tile * lanes),
          copies_(tile * p_) {
        for (int l = 0; l < lanes; ++l) value[l] = 0, product_[l] = 1;
        for (Index j = 0; j < others_ * p_; ++j)
            for (int l = 0; l < lanes; ++l) {
                const double b = points.row(begin + (l < count ? l : 0))[j];
                beta_[j * lanes + l] = b;
                value[l] += 0 * b; // NaN where a point is not finite
            }
        std::fill(eta_ + 0, eta_ + tile * lanes, 0.0); // of the reference
    }

    alignas(64) double value[lanes];

    void run() {
        const Index n = rows_.X.rows;
        Index waiting = 0;
        for (Index i = 0; i < n; i += tile) {
            const Index count = std::min(n - i, Index(tile));
            predict(i, count);
            for (Index r = 0; r < count; ++r) add(i + r, eta_ + r * lanes);
            waiting += count;
            if (waiting > multiplied - tile) flush(), waiting = 0;
        }
        flush();
    }

  private:
    /// Of rows begin .. begin + count - 1, in registers; behind them the last again.
    void predict(Index begin, Index count) {
        using Lanes = Pack<double, lanes>;
        const double* x[tile];
        for (int r = 0; r < tile; ++r) x[r] = contiguous(rows_.X.row(begin + std::min<Index>(r, count - 1)), copies_ + r * p_);
        for (Index k = 0; k < others_; ++k) {
            const double* b = beta_ + k * p_ * lanes;
            Lanes sum[tile];
            for (Lanes& one : sum) one = Lanes::all(0);
            for (Index j = 0; j < p_; ++j, b += lanes) {
                const Lanes own = Lanes::load(b);
                for (int r = 0; r < tile; ++r) sum[r] = sum[r] + Lanes::all(x[r][j]) * own;
            }
            for (int r = 0; r < tile; ++r) sum[r].store(eta_ + ((k + 1) * tile + r) * lanes);
        }
    }

    void add(Index i, const double* eta) {
        alignas(64) double top[lanes], sum[lanes];
        const double* seen = eta + Index(rows_.y[i]) * tile * lanes;
        for (int l = 0; l < lanes; ++l) top[l] = 0;
        for (Index k = 1; k <= others_; ++k)
            for (int l = 0; l < lanes; ++l) {
                const double e = eta[k * tile * lanes + l];
                value[l] += 0 * e, top[l] = e > top[l] ? e : top[l];
            }
        for (int l = 0; l < lanes; ++l) sum[l] = math::exp(-top[l]), value[l] += seen[l] - top[l];
        for (Index k = 1; k <= others_; ++k)
            for (int l = 0; l < lanes; ++l) sum[l] += math::exp(eta[k * tile * lanes + l] - top[l]);
        for (int l = 0; l < lanes; ++l) product_[l] *= sum[l];
    }

    void flush() {
        for (int l = 0; l < lanes; ++l) value[l] -= math::log(product_[l]), product_[l] = 1;
    }

    const MultinomialRows& rows_;
    const Index others_, p_;
    alignas(64) double product_[lanes];
    Scratch<double> beta_, eta_, copies_; // eta: (level, row, point)
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
