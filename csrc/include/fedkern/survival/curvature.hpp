// Cox's partial log-likelihood with its gradient and minus its Hessian, one point at a time.
//
// With S the sum over who is at risk, m their weighted mean of x, and c = w / S of each event, minus the Hessian is
// sum over rows of a x x' less sum over events of w m m', where a = e^eta times the sum of c over the sets at which the row is at
// risk: two Gram matrices. The first pass makes S and m from the last time backwards; the second one reads X again, with a.
#pragma once
#include <algorithm>
#include <memory>

#include "gram.hpp"
#include "moving.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {
namespace survival {

/// `vectors`: of eight columns; 0: more than the compiler need know of.
template <int vectors> class Fixed {
  public:
    explicit Fixed(const SurvivalRows& rows)
        : rows_(rows), p_(rows.X.cols), padded_((rows.X.cols + pack - 1) / pack * pack), sets_(rows.ends.size), eta_(rows.X.rows),
          top_(sets_), rest_hazard_(sets_), dying_hazard_(sets_), x_(block * width()), mean_(block * width()), beta_(width()), gradient(width()), of_rows_(p_ * width()), of_means_(p_ * width()), M_(width()),
          MD_(width()) {}

    double value = 0;

    void at(Vector<const double> point) {
        value = 0, waiting_ = 0;
        for (Index j = 0; j < p_; ++j) beta_[j] = point[j], value += 0 * point[j];
        std::fill(beta_ + p_, beta_ + width(), 0.0);
        std::fill(gradient + 0, gradient + width(), 0.0);
        std::fill(of_rows_ + 0, of_rows_ + p_ * width(), 0.0);
        std::fill(of_means_ + 0, of_means_ + p_ * width(), 0.0);
        for (Index k = 0; k < sets_;) k = backwards(k);
        flush();
        hazards();
        for (Index k = 0; k < sets_;) k = again(k);
    }
    double information(Index i, Index j) const { return of_rows_[i * width() + j] - of_means_[i * width() + j]; }

  private:
    FEDKERN_INLINE Index width() const { return vectors ? vectors * pack : padded_; }

    /// use(j) for every column, padding too.
    template <class Use> FEDKERN_INLINE void for_columns(const Use& use) const {
        for (Index j = 0; j < width(); j += pack)
            for (Index l = 0; l < pack; ++l) use(j + l);
    }

    Index end_of_stratum(Index k) const {
        Index last = k;
        while (last + 1 < sets_ && rows_.first[last + 1] == rows_.first[k]) ++last;
        return last + 1;
    }

    /// Rows begin .. end - 1 as neighbours, padded with zeros: whole vectors, of which those of a row's end reach into rows behind
    /// it, that are masked.
    void read(Index begin, Index end) {
        const auto& X = rows_.X;
        const bool near = X.col_stride == 1 && X.row_stride >= p_ && p_ > 0;
        const Index whole = width() - pack, safe = near ? std::min(end, X.rows - pack) : begin;
        math::Format<double>::Bits mask[pack];
        for (Index l = 0; l < pack; ++l) mask[l] = whole + l < p_ ? ~0ULL : 0;
        Index i = begin;
        for (; i < safe; ++i) {
            const double* x = X.data + i * X.row_stride;
            double* to = x_ + (i - begin) * width();
            for (Index j = 0; j < whole; j += pack)
                for (Index l = 0; l < pack; ++l) to[j + l] = x[j + l];
            for (Index l = 0; l < pack; ++l) to[whole + l] = math::from_bits<double>(math::to_bits(x[whole + l]) & mask[l]);
        }
        for (; i < end; ++i)
            for (Index j = 0; j < width(); ++j) x_[(i - begin) * width() + j] = j < p_ ? X.row(i)[j] : 0.0;
    }

    /// The first pass through the stratum that begins with set k, and the set behind its last.
    Index backwards(Index k) {
        const Index stop = end_of_stratum(k), begin = rows_.first[k], end = rows_.ends[stop - 1];
        high_ = -math::infinity<double>(), rest_ = dying_ = weight_ = 0;
        std::fill(M_ + 0, M_ + width(), 0.0);
        std::fill(MD_ + 0, MD_ + width(), 0.0);
        for (Index from = begin; from < end; from += block) {
            const Index to = std::min(end, from + block);
            read(from, to);
            predict(from, to);
            for (Index i = from; i < to; i += pack) k = chunk(from, i, std::min(to, i + pack), k);
        }
        return stop;
    }

    void predict(Index from, Index to) {
        double poison = 0;
        for (Index i = from; i < to; ++i) {
            const double* x = x_ + (i - from) * width();
            alignas(64) double sum[pack] = {};
            for (Index j = 0; j < width(); j += pack)
                for (Index l = 0; l < pack; ++l) sum[l] += x[j + l] * beta_[j + l];
            const double own = ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
            eta_[i] = own + (rows_.offset.data ? rows_.offset[i] : 0.0);
            poison += 0 * eta_[i];
        }
        value += poison;
    }

    /// At most eight rows. Few of them are above all before: then their exponentials are made one by one. Who alone has an event at
    /// a time is at risk as all others are; of several the sums are kept apart.
    Index chunk(Index from, Index begin, Index end, Index k) {
        alignas(64) double e[pack];
        double most = -math::infinity<double>();
        for (Index r = 0; r < pack; ++r) e[r] = begin + r < end ? eta_[begin + r] : high_;
        for (Index r = 0; r < pack; ++r) most = e[r] > most ? e[r] : most;
        const bool higher = !(most <= high_);
        if (!higher)
            for (Index r = 0; r < pack; ++r) e[r] = math::exp(e[r] - high_);
        for (Index i = begin; i < end; ++i) {
            if (higher) {
                if (eta_[i] > high_) raise(eta_[i]);
                e[i - begin] = math::exp(eta_[i] - high_);
            }
            const double w = weight_of(rows_, i), own = w * e[i - begin], *x = x_ + (i - from) * width();
            const Index deaths = rows_.deaths[k];
            if (deaths > 1 && i >= rows_.ends[k] - deaths) {
                dying_ += own, value += w * eta_[i], weight_ += w;
                for_columns([&](Index j) { MD_[j] += own * x[j], gradient[j] += w * x[j]; });
            } else {
                rest_ += own;
                for_columns([&](Index j) { M_[j] += own * x[j]; });
            }
            if (i + 1 != rows_.ends[k]) continue;
            if (deaths == 1) {
                value += w * eta_[i];
                for_columns([&](Index j) { gradient[j] += w * x[j]; });
                term(w, rest_, 0), top_[k] = high_, rest_hazard_[k] = dying_hazard_[k] = w / rest_;
            } else {
                event(k);
            }
            ++k;
        }
        return k;
    }

    void raise(double eta) {
        const double by = math::exp(high_ - eta);
        rest_ *= by, dying_ *= by, high_ = eta;
        for_columns([&](Index j) { M_[j] *= by, MD_[j] *= by; });
    }

    /// What one who has the event adds, where the weighted sum over who is at risk is `sum`, in which the dying count by a share.
    FEDKERN_INLINE void term(double weight, double sum, double share) {
        if (waiting_ == block) flush();
        value -= weight * high_;
        sums_[waiting_] = sum, weights_[waiting_] = weight;
        const double by = 1 / sum;
        double* mean = mean_ + waiting_ * width();
        for_columns([&](Index j) {
            const double x = (M_[j] + share * MD_[j]) * by;
            mean[j] = x, gradient[j] -= weight * x;
        });
        ++waiting_;
    }

    /// Logarithms of the sums that wait, and the Gram matrix of their means.
    void flush() {
        for (Index r = waiting_; r < block; ++r) sums_[r] = 1, weights_[r] = 0;
        alignas(64) double total[pack] = {};
        for (Index r = 0; r < block; r += pack)
            for (Index l = 0; l < pack; ++l) total[l] += weights_[r + l] * math::log(sums_[r + l]);
        for (const double one : total) value -= one;
        add_gram(mean_, weights_, waiting_, p_, width(), of_means_);
        waiting_ = 0;
    }

    /// What a set of several who have their event at once adds, once all its rows are in the sums.
    void event(Index k) {
        const Index deaths = rows_.deaths[k];
        const double each = weight_ / double(deaths);
        double all = 0, own = 0;
        for (Index m = 0; m < deaths; ++m) {
            const double share = double(deaths - m) / double(deaths), sum = rest_ + share * dying_;
            all += each / sum, own += each / sum * share;
            term(each, sum, share);
        }
        top_[k] = high_, rest_hazard_[k] = all, dying_hazard_[k] = own;
        rest_ += dying_, dying_ = weight_ = 0;
        for_columns([&](Index j) { M_[j] += MD_[j], MD_[j] = 0; });
    }

    /// Cumulative hazards, relative to e^-top: of a row that has no event at set k over this and all earlier times' sets, and of
    /// one that has.
    void hazards() {
        for (Index k = sets_ - 1; k >= 0; --k) {
            const bool more = k + 1 < sets_ && rows_.first[k + 1] == rows_.first[k];
            double before = more ? rest_hazard_[k + 1] : 0.0;
            if (more && top_[k] != top_[k + 1]) before *= math::exp(top_[k] - top_[k + 1]);
            rest_hazard_[k] += before, dying_hazard_[k] += before;
        }
    }

    /// The second pass through a stratum.
    Index again(Index k) {
        const Index stop = end_of_stratum(k), begin = rows_.first[k], end = rows_.ends[stop - 1];
        alignas(64) double exponent[block], hazard[block];
        for (Index from = begin; from < end; from += block) {
            const Index to = std::min(end, from + block), count = to - from;
            read(from, to);
            for (Index i = from; i < to; ++i) {
                const bool dies = i >= rows_.ends[k] - rows_.deaths[k];
                exponent[i - from] = eta_[i] - top_[k];
                hazard[i - from] = weight_of(rows_, i) * (dies ? dying_hazard_ : rest_hazard_)[k];
                k += i + 1 == rows_.ends[k];
            }
            for (Index r = count; r < block; ++r) exponent[r] = hazard[r] = 0;
            for (Index r = 0; r < block; ++r) hazard[r] *= math::exp(exponent[r]);
            add_gram(x_, hazard, count, p_, width(), of_rows_);
        }
        return stop;
    }

    const SurvivalRows& rows_;
    const Index p_, padded_, sets_;
    Index waiting_ = 0; // means that are not yet in their Gram matrix
    double high_, rest_, dying_, weight_;
    alignas(64) double sums_[block], weights_[block];
    Scratch<double> eta_, top_, rest_hazard_, dying_hazard_, x_, mean_, beta_;

  public:
    Scratch<double> gradient;

  private:
    Scratch<double> of_rows_, of_means_, M_, MD_;
};

} // namespace survival

inline void survival_cox_curvature(Matrix<const double> points, const SurvivalRows& rows, Vector<double> value, Matrix<double> gradient,
                                   Matrix<double> minus_hessian, int n_threads) {
    const Index S = points.rows, p = rows.X.cols;
    const survival::Leaving leaving(rows);
    const auto write = [&](Index s, const auto& found) {
        bool finite = survival::is_finite(found.value);
        for (Index i = 0; i < p; ++i) {
            finite &= survival::is_finite(found.gradient[i]);
            for (Index j = 0; j <= i; ++j) finite &= survival::is_finite(found.information(i, j));
        }
        const double bad = math::not_a_number<double>();
        value[s] = finite ? found.value : bad;
        Index at = 0;
        for (Index i = 0; i < p; ++i) {
            gradient.row(s)[i] = finite ? found.gradient[i] : bad;
            for (Index j = 0; j <= i; ++j) minus_hessian.row(s)[at++] = finite ? found.information(i, j) : bad;
        }
    };
    const double work = double(S) * double(rows.X.rows) * double(40 + 2 * p * (p + 1));
    const Index pieces = std::min(S, max_blocks);
    for_blocks(S, pieces, worthwhile(n_threads, work), [&](Index, Index first, Index last) {
        if (rows.until.data) {
            survival::Moving moving(rows, leaving);
            for (Index s = first; s < last; ++s) moving.at(points.row(s)), write(s, moving);
            return;
        }
        const auto all = [&](auto fixed) {
            for (Index s = first; s < last; ++s) fixed->at(points.row(s)), write(s, *fixed);
        };
        switch ((p + survival::pack - 1) / survival::pack) {
        case 1: return all(std::make_unique<survival::Fixed<1>>(rows));
        case 2: return all(std::make_unique<survival::Fixed<2>>(rows));
        default: return all(std::make_unique<survival::Fixed<0>>(rows));
        }
    });
}

} // namespace FEDKERN_ISA
} // namespace fedkern
