// Cox's partial log-likelihood with its gradient and minus its Hessian, one point at a time.
//
// With S the sum over who is at risk, m their weighted mean of x, and c = w / S of each event, minus the Hessian is
// sum over rows of a x x' less sum over events of w m m', where a = w e^eta times the sum of c over the sets at which the row is at
// risk: two Gram matrices. The gradient is the sum over rows of (w - a) x, where w counts for who has the event.
//
// The first pass goes through a stratum from the last time backwards, and moves S and first moments: rows join, and leave again if
// they enter late. What has fallen far is made anew (`values.hpp`).
//
// The second pass is the first in reverse. Where S took a row, a takes the sum of c over all sets from there on; where the row left, a
// gives back what it took there. Where S was made anew the sum of c begins again at 0, for what went before is no part of what came
// behind: who was in the new sums takes the sum up to there. So no difference is one of far larger numbers, however large c is at sets
// at which the row is not at risk: between two places where S is made anew, w e^eta c of a row in the sums is at most 1 / `fallen`
// times the event's weight, at all sets.
//
// The third pass reads X again, with a.
#pragma once
#include <algorithm>
#include <memory>

#include "padded.hpp"
#include "steps.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {
namespace survival {

/// How far the largest predictor may rise above that of who was at risk before, until sums are made relative to it.
inline constexpr double most_rise = 300;

class Curvature {
  public:
    Curvature(const SurvivalRows& rows, const Steps& steps)
        : rows_(rows), steps_(steps), p_(rows.X.cols), width_((rows.X.cols + pack - 1) / pack * pack), e_(steps.size()),
          others_(rows.ends.size), own_(rows.ends.size), a_(steps.leave ? rows.X.rows : 0), x_(block * width_), mean_((block + 1) * width_),
          beta_(width_), M_(width_), MD_(width_), of_rows_(p_ * width_), of_means_(p_ * width_), gradient(width_) {}

    void at(Vector<const double> point) {
        value = 0, waiting_ = 0;
        for (Index j = 0; j < p_; ++j) beta_[j] = point[j], value += 0 * point[j];
        std::fill(beta_ + p_, beta_ + width_, 0.0);
        for (double* sums : {+gradient, +M_, +MD_}) std::fill(sums, sums + width_, 0.0);
        for (double* sums : {+of_rows_, +of_means_}) std::fill(sums, sums + p_ * width_, 0.0);
        for (Index k = 0, stop; k < rows_.ends.size; k = stop) {
            stop = end_of_stratum(rows_, k);
            sums(k, stop);
            hazards(k, stop);
            add_rows_of(k, stop);
        }
        flush();
    }
    double information(Index i, Index j) const { return of_rows_[i * width_ + j] - of_means_[i * width_ + j]; }

  private:
    /// Steps from here on have sums relative to e^top. Before set `anew`, if it is one, sums were made anew.
    struct Segment {
        Index step;
        double top;
        Index anew;
    };

    /// The first pass: of all steps e_, and of sets k .. stop - 1 their terms and c.
    void sums(Index k, Index stop) {
        set_ = k, stop_ = stop, seen_ = 0;
        segments_.clear(), clear();
        const Index end = steps_.end(stop - 1);
        for (Index step = steps_.begin(k); step < end;) {
            from_ = step;
            step = take(std::min(end, from_ + block));
        }
    }

    void clear() {
        high_ = -math::infinity<double>(), rest_ = dying_ = most_ = 0;
        for (double* moments : {+M_, +MD_}) std::fill(moments, moments + width_, 0.0);
    }

    /// Steps from_ .. to - 1, and the step to go on with.
    Index take(Index to) {
        alignas(64) double weight[block];
        read(to, weight);
        for (Index at = from_; at < to;) {
            const Index stop = raise(at, to, weight);
            for (Index j = at; j < stop; ++j) {
                const double below = eta_[j - from_] - high_;
                e_[j] = below < 0 ? below : 0.0;
            }
            for (Index j = at; j < stop; ++j) e_[j] = weight[j - from_] * math::exp(e_[j]);
            while (at < stop) {
                const bool dies = rows_.deaths[set_] > 1 && at >= steps_.end(set_) - rows_.deaths[set_];
                at = dies ? tied(at, stop) : joined(at, stop);
                if (anew_) return anew_ = false, at;
            }
        }
        return to;
    }

    void read(Index to, double* weight) {
        for (Index j = from_; j < to; ++j) {
            if (j + ahead < steps_.size()) fetch(rows_.X.row(steps_.row(j + ahead)));
            pad(rows_.X.row(steps_.row(j)), width_, x_ + (j - from_) * width_);
            weight[j - from_] = steps_.weight(j);
        }
        predict(to - from_, [&](Index r) { return steps_.row(from_ + r); });
        double poison = 0;
        for (Index j = from_; j < to; ++j) poison += 0 * eta_[j - from_];
        value += poison;
    }

    /// Predictors of rows that were read.
    template <class Row> void predict(Index count, const Row& row) {
        multiply(x_, count, width_, beta_, eta_);
        if (rows_.offset.data)
            for (Index r = 0; r < count; ++r) eta_[r] += rows_.offset[row(r)];
    }

    /// Makes sums relative to the largest predictor of steps at .. to - 1, or of the first of them, up to where it rises so far that
    /// sums before would be too small numbers. The step behind them.
    Index raise(Index at, Index to, const double* weight) {
        double most = high_;
        for (Index r = at - from_; r < to - from_; ++r)
            if (weight[r] != 0 && eta_[r] > most) most = eta_[r];
        if (!(most > high_)) return to;
        double least = most = high_;
        for (Index j = at; j < to; ++j) {
            const double eta = eta_[j - from_];
            if (weight[j - from_] == 0 || !(eta > most)) continue;
            if (j == at || least == -math::infinity<double>()) least = eta;
            if (eta > least + most_rise) {
                to = j;
                break;
            }
            most = eta;
        }
        if (!(most > high_)) return to;
        make_relative(most);
        segments_.push_back({at, high_, -1});
        return to;
    }

    void make_relative(double top) {
        const double by = math::exp(high_ - top);
        rest_ *= by, dying_ *= by, most_ *= by, high_ = top;
        for (Index j = 0; j < width_; ++j) M_[j] *= by, MD_[j] *= by;
    }

    /// Steps at .. stop - 1, up to who has the event together with others: moments of who is at risk, and a term of each event.
    /// The step to go on with.
    Index joined(Index at, Index stop) {
        alignas(64) double sum[block];
        Index place[block], hops[block], events = 0, k = set_, anew = -1;
        for (; k < stop_ && rows_.deaths[k] == 1 && steps_.end(k) <= stop; ++k) place[events++] = steps_.end(k) - 1 - at;
        if (k < stop_ && rows_.deaths[k] > 1) stop = std::min(stop, steps_.end(k) - rows_.deaths[k]);
        double total = rest_;
        for (Index j = at; j < stop; ++j) sum[j - at] = total += e_[j];
        for (Index m = 0; steps_.leave && m < events && anew < 0; ++m)
            if (has_fallen(sum[place[m]])) anew = set_ + m, events = m, stop = std::max(at, steps_.begin(anew));
        if (waiting_ + events > block) flush();
        const Index count = stop - at;
        std::fill(hops, hops + count, 0);
        for (Index m = 0; m < events; ++m) hops[place[m]] = width_;
        running_sums(x_ + (at - from_) * width_, e_ + at, hops, count, width_, M_, mean_ + waiting_ * width_);
        if (count) rest_ = sum[count - 1];
        for (Index m = 0; m < events; ++m, ++waiting_, ++set_) {
            const Index j = at + place[m];
            const double w = weight_of(rows_, steps_.row(j)), by = 1 / sum[place[m]];
            double* mean = mean_ + waiting_ * width_;
            for (Index l = 0; l < width_; ++l) mean[l] *= by;
            sums_[waiting_] = sum[place[m]], weights_[waiting_] = w, others_[set_] = w * by;
            value += w * (eta_[j - from_] - high_);
        }
        return anew < 0 ? stop : make_anew(anew);
    }

    /// Steps at .. stop - 1 of who has the event together with others, and its terms once all its rows are in the sums.
    Index tied(Index at, Index stop) {
        const Index end = steps_.end(set_), deaths = rows_.deaths[set_], to = std::min(stop, end);
        for (Index j = at; j < to; ++j) dying_ += e_[j], seen_ += weight_of(rows_, steps_.row(j)) * eta_[j - from_];
        add_rows(x_ + (at - from_) * width_, e_ + at, to - at, width_, MD_);
        if (to < end) return to;
        if (steps_.leave && has_fallen(rest_ + dying_)) return make_anew(set_);
        double each = 0, others = 0, own = 0;
        for (Index i = rows_.ends[set_] - deaths; i < rows_.ends[set_]; ++i) each += weight_of(rows_, i);
        each /= double(deaths);
        for (Index m = 0; m < deaths; ++m) {
            const double share = double(deaths - m) / double(deaths), sum = rest_ + share * dying_, by = 1 / sum;
            if (waiting_ == block) flush();
            double* mean = mean_ + waiting_ * width_;
            for (Index j = 0; j < width_; ++j) mean[j] = (M_[j] + share * MD_[j]) * by;
            sums_[waiting_] = sum, weights_[waiting_++] = each;
            others += each * by, own += each * by * share, value -= each * high_;
        }
        others_[set_] = others, own_[set_] = own, value += seen_;
        rest_ += dying_, dying_ = seen_ = 0, ++set_;
        for (Index j = 0; j < width_; ++j) M_[j] += MD_[j], MD_[j] = 0;
        return to;
    }

    bool has_fallen(double sum) {
        if (sum < fallen * most_) return true;
        most_ = sum > most_ ? sum : most_;
        return false;
    }

    /// Makes anew the sums over who is at risk at set k and has joined before: the step to go on with. Segments that began behind it have
    /// no steps any more.
    Index make_anew(Index k) {
        const Index step = steps_.begin(k);
        clear();
        for_rows_at_risk(k, [&](const Index* row, Index count) {
            alignas(64) double e[block];
            double most = high_;
            for (Index r = 0; r < count; ++r) most = eta_[r] > most ? eta_[r] : most;
            if (most > high_) make_relative(most);
            for (Index r = 0; r < count; ++r) rest_ += e[r] = weight_of(rows_, row[r]) * math::exp(eta_[r] - high_);
            add_rows(x_, e, count, width_, M_);
        });
        segments_.push_back({step, high_, k}), set_ = k, seen_ = 0, anew_ = true;
        return step;
    }

    /// use(rows, how many) of those who have joined before set k and are at risk there, once a block of them and predictors are read.
    template <class Use> void for_rows_at_risk(Index k, const Use& use) {
        Index row[block], count = 0;
        const Index end = steps_.joined_before(k);
        for (Index i = rows_.first[k]; i < end; ++i) {
            if (stays(rows_, i, k)) row[count++] = i;
            if (count < block && i + 1 < end) continue;
            for (Index r = 0; r < count; ++r) pad(rows_.X.row(row[r]), width_, x_ + r * width_);
            predict(count, [&](Index r) { return row[r]; });
            use(row, count), count = 0;
        }
    }

    /// Logarithms of the sums that wait, and the Gram matrix of their means.
    void flush() {
        for (Index r = waiting_; r < block; ++r) sums_[r] = 1, weights_[r] = 0;
        alignas(64) double total[pack] = {};
        for (Index r = 0; r < block; r += pack)
            for (Index l = 0; l < pack; ++l) total[l] += weights_[r + l] * math::log(sums_[r + l]);
        for (const double one : total) value -= one;
        add_gram(mean_, weights_, waiting_, p_, width_, of_means_);
        waiting_ = 0;
    }

    /// The second pass: from the last step of the stratum to the first, of each row a. Sets `first` .. k - 1 are yet to come.
    void hazards(Index first, Index k) {
        if (steps_.leave) std::fill(a_ + rows_.first[first], a_ + rows_.ends[k - 1], 0.0);
        double others = 0, own = 0; // sums of c, relative to e^-top; own: of who has the event together with others
        Index to = steps_.end(k - 1);
        for (std::size_t s = segments_.size(); s-- > 0;) {
            const Segment& segment = segments_[s];
            while (to > segment.step) {
                const Index stop = to;
                if (k > first && rows_.deaths[k - 1] > 1 && stop <= steps_.end(k - 1)) {
                    if (stop == steps_.end(k - 1)) own = others + own_[k - 1], others += others_[k - 1];
                    const Index begin = steps_.end(k - 1) - rows_.deaths[k - 1];
                    to = std::max(segment.step, begin), k -= to == begin;
                    for (Index j = to; j < stop; ++j) e_[j] *= own;
                } else {
                    alignas(64) double c[block] = {};
                    to = std::max(segment.step, stop - block);
                    for (; k > first && steps_.end(k - 1) > to; --k) {
                        const Index end = steps_.end(k - 1);
                        if (rows_.deaths[k - 1] > 1) {
                            to = end;
                            break;
                        }
                        c[stop - end] = others_[k - 1];
                    }
                    for (Index j = stop; j-- > to;) e_[j] *= others += c[stop - 1 - j];
                }
                for (Index j = stop; steps_.leave && j-- > to;) {
                    if (j >= ahead) __builtin_prefetch(a_ + steps_.row(j - ahead));
                    a_[steps_.row(j)] += e_[j];
                }
            }
            if (segment.anew >= 0) {
                for_rows_at_risk(segment.anew, [&](const Index* row, Index count) {
                    for (Index r = 0; r < count; ++r) a_[row[r]] += others * weight_of(rows_, row[r]) * math::exp(eta_[r] - segment.top);
                });
                others = own = 0;
            } else if (s > 0) {
                const double by = math::exp(segments_[s - 1].top - segment.top);
                others *= by, own *= by;
            }
        }
    }

    /// The third pass: gradient and Gram matrix of the stratum's rows.
    void add_rows_of(Index k, Index stop) {
        const Index begin = rows_.first[k], end = rows_.ends[stop - 1];
        const double* hazard = steps_.leave ? a_ : e_;
        alignas(64) double left[block];
        for (Index from = begin; from < end; from += block) {
            const Index to = std::min(end, from + block);
            for (Index i = from; i < to; ++i) {
                if (i + ahead < rows_.X.rows) fetch(rows_.X.row(i + ahead));
                pad(rows_.X.row(i), width_, x_ + (i - from) * width_);
                left[i - from] = -hazard[i];
            }
            for (; k < stop && rows_.ends[k] - rows_.deaths[k] < to; ++k) {
                for (Index i = std::max(from, rows_.ends[k] - rows_.deaths[k]); i < std::min(to, rows_.ends[k]); ++i)
                    left[i - from] += weight_of(rows_, i);
                if (rows_.ends[k] > to) break;
            }
            add_rows(x_, left, to - from, width_, gradient);
            add_gram(x_, hazard + from, to - from, p_, width_, of_rows_);
        }
    }

    const SurvivalRows& rows_;
    const Steps& steps_;
    const Index p_, width_;
    Index set_, stop_, from_;  // the next set, the one behind the stratum's last, the first step of the block
    bool anew_ = false;        // sums were just made anew: go on elsewhere
    double high_, rest_, dying_; // sums of others, and of who has the event together with others, relative to e^high
    double most_, seen_;       // the largest sum since it was made anew; w eta of who has the event together with others
    std::vector<Segment> segments_;
    Index waiting_ = 0; // terms whose logarithms and means wait for others
    alignas(64) double sums_[block], weights_[block], eta_[block];
    Scratch<double> e_;            // of each step w e^(eta - high), below 0 of who leaves; in the end times the sum of c
    Scratch<double> others_, own_; // of each set c, relative to e^-high
    Scratch<double> a_;            // of each row, where steps are not rows
    Scratch<double> x_, mean_, beta_, M_, MD_, of_rows_, of_means_;

  public:
    double value = 0;
    Scratch<double> gradient;
};

} // namespace survival

inline void survival_cox_curvature(Matrix<const double> points, const SurvivalRows& rows, Vector<double> value, Matrix<double> gradient,
                                   Matrix<double> minus_hessian, int n_threads) {
    const Index S = points.rows, p = rows.X.cols;
    const survival::Steps steps(rows);
    const auto write = [&](Index s, const survival::Curvature& found) {
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
        const auto found = std::make_unique<survival::Curvature>(rows, steps);
        for (Index s = first; s < last; ++s) found->at(points.row(s)), write(s, *found);
    });
}

} // namespace FEDKERN_ISA
} // namespace fedkern
