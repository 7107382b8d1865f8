// Cox's partial log-likelihood at many points, ties by Efron's rule. One pass from the last time backwards; sums over who is at risk
// are relative to the largest predictor so far, so that none is 0 or infinite.
//
// Whoever enters late leaves the sums again, going backwards. What is left of a sum that was far larger is rounding: it is made anew
// from the rows where it has fallen below a sixteenth.
#pragma once
#include <vector>

#include "fedkern/blocks.hpp"
#include "fedkern/math.hpp"
#include "fedkern/predictors.hpp"
#include "views.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {
namespace survival {

inline constexpr int lanes = 16;             // points at a time
inline constexpr Index predicted = 48;       // rows, before the first of them is needed
inline constexpr int multiplied = 8;         // sums over who is at risk, of which one logarithm is taken
inline constexpr double fallen = 1.0 / 16;   // of a sum that rows have left

struct alignas(64) Lane {
    double x[lanes];
    FEDKERN_INLINE double& operator[](int l) { return x[l]; }
    FEDKERN_INLINE double operator[](int l) const { return x[l]; }
    FEDKERN_INLINE void fill(double value) {
        for (double& one : x) one = value;
    }
};

FEDKERN_INLINE bool is_finite(double x) { return x - x == 0; }

FEDKERN_INLINE double weight_of(const SurvivalRows& rows, Index i) { return rows.weights.data ? rows.weights[i] : 1.0; }

/// Whether row i, which stands before the end of set k, is at risk there.
FEDKERN_INLINE bool stays(const SurvivalRows& rows, Index i, Index k) { return !rows.until.data || rows.until[i] > k; }

/// Of each set the rows that have left before it, and were at risk at the set before.
class Leaving {
  public:
    explicit Leaving(const SurvivalRows& rows) {
        if (!rows.until.data) return;
        const Index sets = rows.ends.size;
        begin_.assign(sets + 2, 0);
        for (Index i = 0; i < rows.until.size; ++i)
            if (rows.until[i] < sets) ++begin_[rows.until[i] + 2];
        for (Index k = 1; k < sets + 2; ++k) begin_[k] += begin_[k - 1];
        rows_.resize(begin_[sets + 1]);
        for (Index i = 0; i < rows.until.size; ++i)
            if (rows.until[i] < sets) rows_[begin_[rows.until[i] + 1]++] = i;
    }
    /// use(row) for each; `from`, `to`: rows that are in the sums.
    template <class Use> void for_each(Index k, Index from, Index to, const Use& use) const {
        if (begin_.empty()) return;
        for (Index at = begin_[k]; at < begin_[k + 1]; ++at)
            if (rows_[at] >= from && rows_[at] < to) use(rows_[at]);
    }

  private:
    std::vector<Index> begin_, rows_;
};

/// Of `lanes` points: what a stratum's rows add to them.
class Values {
  public:
    Values(const SurvivalRows& rows, const Leaving& leaving, Matrix<const double> points, Index begin, Index count)
        : rows_(rows), leaving_(leaving), beta_(rows.X.cols, lanes), copies_(predicted * rows.X.cols),
          kept_(rows.until.data ? rows.X.rows : 0) {
        value.fill(0), product_.fill(1);
        for (Index j = 0; j < rows.X.cols; ++j)
            for (int l = 0; l < lanes; ++l) {
                const double b = points.row(begin + (l < count ? l : 0))[j];
                beta_.at(j, l) = b;
                value[l] += 0 * b; // NaN where a point is not finite
            }
    }

    Lane value;

    void run() {
        Index at = 0;
        for (Index k = 0; k < rows_.ends.size; ++k) {
            const Index first = rows_.first[k], end = rows_.ends[k], deaths = rows_.deaths[k];
            if (k == 0 || first != rows_.first[k - 1]) clear(), at = first;
            leaving_.for_each(k, first, at, [&](Index i) { leave(i); });
            double weight = 0;
            for (Index i = at; i < end - deaths; ++i) enter(i, k, rest_);
            for (Index i = end - deaths; i < end; ++i) {
                const Lane& eta = enter(i, k, dying_);
                const double w = weight_of(rows_, i);
                weight += w;
                for (int l = 0; l < lanes; ++l) value[l] += w * eta[l];
            }
            if (rows_.until.data) refresh(k);
            for (Index m = 0; m < deaths; ++m) {
                const double share = double(deaths - m) / double(deaths), each = weight / double(deaths);
                if (!rows_.weights.data) {
                    for (int l = 0; l < lanes; ++l) product_[l] *= rest_[l] + share * dying_[l], value[l] -= top_[l];
                    if (++factors_ == multiplied) flush();
                } else {
                    for (int l = 0; l < lanes; ++l) value[l] -= each * (math::log(rest_[l] + share * dying_[l]) + top_[l]);
                }
            }
            for (int l = 0; l < lanes; ++l) rest_[l] += dying_[l], dying_[l] = 0;
            at = end;
        }
        flush();
    }

  private:
    void clear() { top_.fill(-math::infinity<double>()), rest_.fill(0), dying_.fill(0), most_.fill(0); }

    /// Sums are from about 1 / deaths to the number of rows: a product of a few stays within the range of exponents.
    void flush() {
        for (int l = 0; l < lanes; ++l) value[l] -= math::log(product_[l]), product_[l] = 1;
        factors_ = 0;
    }

    FEDKERN_INLINE const Lane& enter(Index i, Index k, Lane& sum) {
        const Lane& eta = predictor(i);
        for (int l = 0; l < lanes; ++l) value[l] += 0 * eta[l];
        if (kept_.size()) kept_[i] = eta;
        if (!stays(rows_, i, k)) return eta;
        bool higher = false;
        for (int l = 0; l < lanes; ++l) higher |= eta[l] > top_[l];
        if (higher) raise(eta);
        const double w = weight_of(rows_, i);
        for (int l = 0; l < lanes; ++l) sum[l] += w * math::exp_of_sum<false>(eta[l] - top_[l], -0.0);
        return eta;
    }

    /// Rows come one after the other.
    FEDKERN_INLINE const Lane& predictor(Index i) {
        if (i < from_ || i >= to_) predict(i);
        return eta_[i - from_];
    }

    void predict(Index i) {
        from_ = i, to_ = std::min(i + predicted, rows_.X.rows);
        const double* x[predicted];
        for (Index r = 0; r < to_ - from_; ++r) x[r] = contiguous(rows_.X.row(from_ + r), copies_ + r * rows_.X.cols);
        const auto start = [&](Index r) { return rows_.offset.data ? rows_.offset[from_ + r] : 0.0; };
        beta_.predict(to_ - from_, [&](Index r) { return x[r]; }, start, eta_[0].x, lanes);
    }

    void raise(const Lane& eta) {
        for (int l = 0; l < lanes; ++l) {
            const double now = eta[l] > top_[l] ? eta[l] : top_[l], by = math::exp(top_[l] - now);
            rest_[l] *= by, dying_[l] *= by, most_[l] *= by, top_[l] = now;
        }
    }

    void leave(Index i) {
        const double w = weight_of(rows_, i);
        for (int l = 0; l < lanes; ++l) rest_[l] -= w * math::exp(kept_[i][l] - top_[l]);
    }

    /// Sums that have fallen are made anew.
    void refresh(Index k) {
        for (int l = 0; l < lanes; ++l) {
            const double now = rest_[l] + dying_[l];
            if (now < fallen * most_[l]) {
                const Index end = rows_.ends[k], middle = end - rows_.deaths[k];
                double top = -math::infinity<double>();
                for (Index i = rows_.first[k]; i < end; ++i)
                    if (stays(rows_, i, k) && kept_[i][l] > top) top = kept_[i][l];
                double rest = 0, dying = 0;
                for (Index i = rows_.first[k]; i < end; ++i)
                    if (stays(rows_, i, k)) (i < middle ? rest : dying) += weight_of(rows_, i) * math::exp(kept_[i][l] - top);
                top_[l] = top, rest_[l] = rest, dying_[l] = dying, most_[l] = rest + dying;
            } else if (now > most_[l]) {
                most_[l] = now;
            }
        }
    }

    const SurvivalRows& rows_;
    const Leaving& leaving_;
    PointCoefficients beta_;
    Scratch<double> copies_;
    std::vector<Lane> kept_; // predictors of rows that may leave
    Lane top_, rest_, dying_, most_, product_, eta_[predicted];
    Index from_ = 0, to_ = 0;
    int factors_ = 0;
};

} // namespace survival

inline void survival_cox_values(Matrix<const double> points, const SurvivalRows& rows, Vector<double> value, int n_threads) {
    constexpr Index lanes = survival::lanes; // other families have lanes of their own
    const Index S = points.rows, sets = (S + lanes - 1) / lanes;
    const survival::Leaving leaving(rows);
    const double work = double(S) * double(rows.X.rows) * double(30 + 2 * rows.X.cols);
    for_blocks(sets, sets, worthwhile(n_threads, work), [&](Index, Index first, Index last) {
        for (Index set = first; set < last; ++set) {
            const Index begin = set * lanes, count = S - begin < lanes ? S - begin : lanes;
            survival::Values values(rows, leaving, points, begin, count);
            values.run();
            for (Index l = 0; l < count; ++l) {
                const double v = values.value[int(l)];
                value[begin + l] = survival::is_finite(v) ? v : math::not_a_number<double>();
            }
        }
    });
}

} // namespace FEDKERN_ISA
} // namespace fedkern
