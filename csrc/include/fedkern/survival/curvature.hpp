// Cox's partial log-likelihood with its gradient and minus its Hessian, one coefficient vector (point) at a time.
//
// A set is the risk set of one event time in one stratum. A step is a row that joins the sums or, with its weight below 0, leaves
// them; steps go from a stratum's last time to its first, as rows do. Without late entry step i is row i.
//
// With S the sum of w e^eta over the rows at risk, m their mean of x with these weights, and c = w / S of each event, minus the
// Hessian is sum over rows of a x x' less sum over events of w m m', where a = w e^eta times the sum of c over the sets at which the
// row is at risk: two Gram matrices. The gradient is the sum over rows of (w - a) x, where w is taken as 0 for rows without the event.
//
// Ties are Efron's: of d rows with the event at one time, the j-th term (j = 0 .. d - 1) has their mean weight as w, and its S counts
// them by the share (d - j) / d only. So a set has two sums of c: of the tied rows, where each c counts by its share, and of the rest.
//
// The first pass goes through a stratum's steps in their order, and moves S and first moments. Sums that have fallen far since rows
// left them are mostly rounding: they are recomputed from the rows at risk (`values.hpp`).
//
// The second pass goes through the steps backwards. With C(step) the sum of c over the sets that end with this step or a later one,
//
//     a = w e^eta (C(step at which the row joins) - C(step at which it leaves)). The second is 0 if it never leaves.
//
// That could be a difference of large numbers, so C does not run on past a set at which sums were recomputed:
//  1. just there, the rows from which the sums were recomputed get w e^eta C, for all the sets of later steps;
//  2. C begins again at 0 for the steps before, whose sums are no part of the recomputed ones.
// Between two such sets S stays above `fallen` (1 / 16) times its peak, so w e^eta c of a row in the sums is at most 1 / `fallen` times
// the event's weight at every set, however large c is at sets at which the row is not at risk: no difference is one of far larger numbers.
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

/// How far, in log scale, predictors of one run of steps may rise. Sums relative to its largest are then as small as e^-300 = 1e-130,
/// and products of two of them are numbers with all digits yet.
inline constexpr double most_rise = 300;

class Curvature {
    /// Steps from `step` on, up to the next segment, have sums relative to e^top.
    struct Segment {
        Index step;
        double top;
        Index recomputed; // the set before which sums were recomputed at this step; -1 if none
    };

    const SurvivalRows& rows_;
    const Steps& steps_;
    const Index p_, width_;                  // columns; and rounded up to whole vectors
    Index next_set_, end_set_, block_begin_; // the next set, the one behind the stratum's last, the first step of the block
    bool is_recomputed_ = false;             // sums were just recomputed: go on at another step
    double top_, sum_rest_, sum_tied_;       // S by parts, relative to e^top: rows tied at the next set, and the rest
    double peak_, tied_value_;               // the largest S since it was recomputed; sum of w eta over the tied rows
    std::vector<Segment> segments_;
    Index n_waiting_ = 0; // terms whose logarithms and means wait for others, up to a block of them
    alignas(64) double sums_[block], weights_[block], eta_[block]; // S and w of the terms that wait; predictors of the rows read last
    Scratch<double> e_;                  // of each step w e^(eta - top), below 0 of a row that leaves; after the second pass times C
    Scratch<double> c_rest_, c_tied_;    // of each set the sums of c, relative to e^-top
    Scratch<double> a_;                  // of each row, where steps are not rows
    Scratch<double> x_, mean_, beta_;    // rows of the block, means of the terms that wait, the point: all padded to `width_`
    Scratch<double> M_rest_, M_tied_;    // first moments: sums of w e^(eta - top) x
    Scratch<double> of_rows_, of_means_; // the two Gram matrices

  public:
    double value = 0;
    Scratch<double> gradient;

    Curvature(const SurvivalRows& rows, const Steps& steps)
        : rows_(rows), steps_(steps), p_(rows.X.cols), width_((rows.X.cols + pack - 1) / pack * pack), e_(steps.size()),
          c_rest_(rows.ends.size), c_tied_(rows.ends.size), a_(steps.leave ? rows.X.rows : 0), x_(block * width_),
          mean_((block + 1) * width_), beta_(width_), M_rest_(width_), M_tied_(width_), of_rows_(p_ * width_), of_means_(p_ * width_),
          gradient(width_) {}

    /// Computes `value`, `gradient` and `information` at a point.
    void evaluate(Vector<const double> point) {
        value = 0, n_waiting_ = 0;
        for (Index j = 0; j < p_; ++j) beta_[j] = point[j], value += 0 * point[j]; // NaN where the point is not finite
        std::fill(beta_ + p_, beta_ + width_, 0.0);
        for (double* sums : {+gradient, +M_rest_, +M_tied_}) std::fill(sums, sums + width_, 0.0); // unary plus: a scratch's pointer
        for (double* sums : {+of_rows_, +of_means_}) std::fill(sums, sums + p_ * width_, 0.0);
        for (Index k = 0, stop; k < rows_.ends.size; k = stop) {
            stop = end_of_stratum(rows_, k);
            move_sums(k, stop);
            accumulate_c(k, stop);
            add_stratum(k, stop);
        }
        flush();
    }
    /// An entry of minus the Hessian, j <= i.
    double information(Index i, Index j) const { return of_rows_[i * width_ + j] - of_means_[i * width_ + j]; }

  private:
    /// The first pass: computes e_ of all steps of the stratum, and of its sets k .. stop - 1 the terms and the sums of c.
    void move_sums(Index k, Index stop) {
        next_set_ = k, end_set_ = stop, tied_value_ = 0;
        segments_.clear(), clear();
        const Index end = steps_.end(stop - 1);
        for (Index step = steps_.begin(k); step < end;) {
            block_begin_ = step;
            step = take_block(std::min(end, block_begin_ + block));
        }
    }

    /// Empties the sums. The first row that joins makes them relative to its predictor: e^-inf = 0 keeps them at 0 then.
    void clear() {
        top_ = -math::infinity<double>(), sum_rest_ = sum_tied_ = peak_ = 0;
        for (double* moments : {+M_rest_, +M_tied_}) std::fill(moments, moments + width_, 0.0);
    }

    /// Takes the steps block_begin_ .. to - 1 into the sums; returns the step to go on with.
    Index take_block(Index to) {
        alignas(64) double weight[block];
        read_block(to, weight);
        for (Index step = block_begin_; step < to;) {
            const Index stop = choose_top(step, to, weight);
            for (Index j = step; j < stop; ++j) {
                // Only a row of weight 0 may lie above top, where e^.. could be infinite: 0 times 1 is 0.
                const double below = eta_[j - block_begin_] - top_;
                e_[j] = below < 0 ? below : 0.0;
            }
            for (Index j = step; j < stop; ++j) e_[j] = weight[j - block_begin_] * math::exp(e_[j]);
            while (step < stop) {
                // The last steps of a set are the rows with its event.
                const bool is_tied = rows_.deaths[next_set_] > 1 && step >= steps_.end(next_set_) - rows_.deaths[next_set_];
                step = is_tied ? add_tied(step, stop) : add_untied(step, stop);
                if (is_recomputed_) return is_recomputed_ = false, step;
            }
        }
        return to;
    }

    /// Reads the rows of the steps block_begin_ .. to - 1, their weights and their predictors.
    void read_block(Index to, double* weight) {
        for (Index j = block_begin_; j < to; ++j) {
            if (j + ahead < steps_.size()) fetch(rows_.X.row(steps_.row(j + ahead)));
            pad(rows_.X.row(steps_.row(j)), width_, x_ + (j - block_begin_) * width_);
            weight[j - block_begin_] = steps_.weight(j);
        }
        predict(to - block_begin_, [&](Index r) { return steps_.row(block_begin_ + r); });
        double poison = 0; // NaN where a predictor is not finite
        for (Index j = block_begin_; j < to; ++j) poison += 0 * eta_[j - block_begin_];
        value += poison;
    }

    /// Computes the predictors of the `count` rows in x_; row(r) is the number of the r-th.
    template <class Row> void predict(Index count, const Row& row) {
        multiply(x_, width_, count, width_, beta_, eta_);
        if (rows_.offset.data)
            for (Index r = 0; r < count; ++r) eta_[r] += rows_.offset[row(r)];
    }

    /// Chooses a run of steps from `begin` on whose predictors rise by at most most_rise over its anchor, the top so far or the first
    /// predictor above it, and makes sums relative to the run's largest predictor. Returns the end of the run, at most `to`.
    /// Beyond, sums of the run's first steps would be too small numbers.
    Index choose_top(Index begin, Index to, const double* weight) {
        double highest = top_;
        for (Index r = begin - block_begin_; r < to - block_begin_; ++r)
            if (weight[r] != 0 && eta_[r] > highest) highest = eta_[r];
        if (!(highest > top_)) return to;
        double anchor = highest = top_;
        for (Index j = begin; j < to; ++j) {
            const double eta = eta_[j - block_begin_];
            if (weight[j - block_begin_] == 0 || !(eta > highest)) continue;
            if (j == begin || anchor == -math::infinity<double>()) anchor = eta;
            if (eta > anchor + most_rise) {
                to = j;
                break;
            }
            highest = eta;
        }
        if (!(highest > top_)) return to;
        make_relative(highest);
        segments_.push_back({begin, top_, -1});
        return to;
    }

    /// Makes sums relative to e^top.
    void make_relative(double top) {
        const double by = math::exp(top_ - top);
        sum_rest_ *= by, sum_tied_ *= by, peak_ *= by, top_ = top;
        for (Index j = 0; j < width_; ++j) M_rest_[j] *= by, M_tied_[j] *= by;
    }

    /// Adds the steps begin .. stop - 1 to the sums, up to the first of tied rows, and a term for each set with one event that ends
    /// within. Returns the step to go on with.
    Index add_untied(Index begin, Index stop) {
        alignas(64) double sum[block];
        Index place[block], hops[block], events = 0, k = next_set_, fallen_set = -1;
        for (; k < end_set_ && rows_.deaths[k] == 1 && steps_.end(k) <= stop; ++k) place[events++] = steps_.end(k) - 1 - begin;
        if (k < end_set_ && rows_.deaths[k] > 1) stop = std::min(stop, steps_.end(k) - rows_.deaths[k]);
        double total = sum_rest_;
        for (Index j = begin; j < stop; ++j) sum[j - begin] = total += e_[j];
        // Sums that have fallen are recomputed before the first such set: only the terms before it are made here.
        for (Index m = 0; steps_.leave && m < events && fallen_set < 0; ++m)
            if (falls_or_peaks(sum[place[m]])) fallen_set = next_set_ + m, events = m, stop = std::max(begin, steps_.begin(fallen_set));
        if (n_waiting_ + events > block) flush();
        const Index count = stop - begin;
        // After an event's row the output goes on by a row, so that the moments of every event stay there.
        std::fill(hops, hops + count, 0);
        for (Index m = 0; m < events; ++m) hops[place[m]] = width_;
        running_sums(x_ + (begin - block_begin_) * width_, e_ + begin, hops, count, width_, M_rest_, mean_ + n_waiting_ * width_);
        if (count) sum_rest_ = sum[count - 1];
        for (Index m = 0; m < events; ++m, ++n_waiting_, ++next_set_) {
            const Index j = begin + place[m];
            const double w = weight_of(rows_, steps_.row(j)), by = 1 / sum[place[m]];
            double* mean = mean_ + n_waiting_ * width_;
            for (Index l = 0; l < width_; ++l) mean[l] *= by;
            sums_[n_waiting_] = sum[place[m]], weights_[n_waiting_] = w, c_rest_[next_set_] = w * by;
            value += w * (eta_[j - block_begin_] - top_);
        }
        return fallen_set < 0 ? stop : recompute(fallen_set);
    }

    /// Adds the steps begin .. stop - 1, of tied rows of the next set, and the set's terms once all its rows are in the sums.
    /// Returns the step to go on with.
    Index add_tied(Index begin, Index stop) {
        const Index end = steps_.end(next_set_), deaths = rows_.deaths[next_set_], to = std::min(stop, end);
        for (Index j = begin; j < to; ++j) {
            sum_tied_ += e_[j];
            tied_value_ += weight_of(rows_, steps_.row(j)) * eta_[j - block_begin_];
        }
        add_rows(x_ + (begin - block_begin_) * width_, width_, e_ + begin, to - begin, width_, M_tied_);
        if (to < end) return to;
        if (steps_.leave && falls_or_peaks(sum_rest_ + sum_tied_)) return recompute(next_set_);
        double each = 0, c_rest = 0, c_tied = 0;
        for (Index i = rows_.ends[next_set_] - deaths; i < rows_.ends[next_set_]; ++i) each += weight_of(rows_, i);
        each /= double(deaths);
        for (Index m = 0; m < deaths; ++m) {
            const double share = double(deaths - m) / double(deaths), sum = sum_rest_ + share * sum_tied_, by = 1 / sum;
            if (n_waiting_ == block) flush();
            double* mean = mean_ + n_waiting_ * width_;
            for (Index j = 0; j < width_; ++j) mean[j] = (M_rest_[j] + share * M_tied_[j]) * by;
            sums_[n_waiting_] = sum, weights_[n_waiting_++] = each;
            c_rest += each * by, c_tied += each * by * share, value -= each * top_;
        }
        c_rest_[next_set_] = c_rest, c_tied_[next_set_] = c_tied, value += tied_value_;
        // At later sets (earlier times) the tied rows are among the rest.
        sum_rest_ += sum_tied_, sum_tied_ = tied_value_ = 0, ++next_set_;
        for (Index j = 0; j < width_; ++j) M_rest_[j] += M_tied_[j], M_tied_[j] = 0;
        return to;
    }

    /// Tells whether a sum has fallen so far below its peak that it is to be recomputed; otherwise it may be the new peak. A sum that
    /// was just recomputed has no peak: of weights below 0 it may be below 0, and would be so again.
    bool falls_or_peaks(double sum) {
        if (sum < fallen * peak_ && peak_ > 0) return true;
        peak_ = sum > peak_ ? sum : peak_;
        return false;
    }

    /// Recomputes the sums before set k, from the rows at risk there that joined earlier sets. Returns the step to go on with: the first
    /// of rows that join at k. It may be a step that was taken: a later segment has no steps any more, which accumulate_c finds.
    Index recompute(Index k) {
        const Index step = steps_.begin(k);
        clear();
        for_rows_at_risk(k, [&](const Index* row, Index count) {
            alignas(64) double e[block];
            double highest = top_;
            for (Index r = 0; r < count; ++r) highest = eta_[r] > highest ? eta_[r] : highest;
            if (highest > top_) make_relative(highest);
            for (Index r = 0; r < count; ++r) sum_rest_ += e[r] = weight_of(rows_, row[r]) * math::exp(eta_[r] - top_);
            add_rows(x_, width_, e, count, width_, M_rest_);
        });
        segments_.push_back({step, top_, k}), next_set_ = k, tied_value_ = 0, is_recomputed_ = true;
        return step;
    }

    /// Calls use(row numbers, how many) for blocks of the rows at risk at set k that joined earlier sets, with the block's rows in x_ and
    /// its predictors in eta_.
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

    /// Adds the terms that wait: the logarithms of their sums to the value, and their means to the Gram matrix.
    void flush() {
        for (Index r = n_waiting_; r < block; ++r) sums_[r] = 1, weights_[r] = 0;
        alignas(64) double total[pack] = {};
        for (Index r = 0; r < block; r += pack)
            for (Index l = 0; l < pack; ++l) total[l] += weights_[r + l] * math::log(sums_[r + l]);
        for (const double one : total) value -= one;
        add_gram(mean_, width_, weights_, n_waiting_, p_, width_, of_means_);
        n_waiting_ = 0;
    }

    /// The second pass: from the stratum's last step to its first, computes a of each row (in e_ where steps are rows, else in a_).
    /// `k` goes down: the c of sets k and later are in the sums, those of `first` .. k - 1 are not yet.
    void accumulate_c(Index first, Index k) {
        if (steps_.leave) std::fill(a_ + rows_.first[first], a_ + rows_.ends[k - 1], 0.0);
        double c_rest = 0, c_tied = 0; // C of steps that are not tied, and of the tied ones of the last set passed; relative to e^-top
        Index to = steps_.end(k - 1);
        for (std::size_t s = segments_.size(); s-- > 0;) {
            const Segment& segment = segments_[s];
            // No turn for a segment all of whose steps were taken again after sums were recomputed.
            while (to > segment.step) {
                const Index stop = to;
                if (k > first && rows_.deaths[k - 1] > 1 && stop <= steps_.end(k - 1)) {
                    // Tied rows of set k - 1: its c count by their shares. The set is done once its first tied row is.
                    if (stop == steps_.end(k - 1)) {
                        c_tied = c_rest + c_tied_[k - 1];
                        c_rest += c_rest_[k - 1];
                    }
                    const Index begin = steps_.end(k - 1) - rows_.deaths[k - 1];
                    to = std::max(segment.step, begin);
                    if (to == begin) --k;
                    for (Index j = to; j < stop; ++j) e_[j] *= c_tied;
                } else {
                    // Up to a block of other steps; c[i] enters with the i-th of them, counted from stop - 1 down.
                    alignas(64) double c[block] = {};
                    to = std::max(segment.step, stop - block);
                    for (; k > first && steps_.end(k - 1) > to; --k) {
                        const Index end = steps_.end(k - 1);
                        if (rows_.deaths[k - 1] > 1) {
                            to = end;
                            break;
                        }
                        c[stop - end] = c_rest_[k - 1];
                    }
                    for (Index j = stop; j-- > to;) {
                        c_rest += c[stop - 1 - j];
                        e_[j] *= c_rest;
                    }
                }
                // A row's a is a sum over its two steps, of which the one that leaves has e_ below 0.
                for (Index j = stop; steps_.leave && j-- > to;) {
                    if (j >= ahead) __builtin_prefetch(a_ + steps_.row(j - ahead));
                    a_[steps_.row(j)] += e_[j];
                }
            }
            if (segment.recomputed >= 0) {
                for_rows_at_risk(segment.recomputed, [&](const Index* row, Index count) {
                    for (Index r = 0; r < count; ++r) a_[row[r]] += c_rest * weight_of(rows_, row[r]) * math::exp(eta_[r] - segment.top);
                });
                c_rest = c_tied = 0;
            } else if (s > 0) {
                const double by = math::exp(segments_[s - 1].top - segment.top);
                c_rest *= by, c_tied *= by;
            }
        }
    }

    /// The third pass: adds the stratum's rows to gradient and Gram matrix.
    void add_stratum(Index k, Index stop) {
        const Index begin = rows_.first[k], end = rows_.ends[stop - 1];
        const double* a = steps_.leave ? a_ : e_; // without late entry step i is row i
        alignas(64) double residual[block];       // w - a, with w = 0 for a row without the event
        for (Index from = begin; from < end; from += block) {
            const Index to = std::min(end, from + block);
            for (Index i = from; i < to; ++i) {
                if (i + ahead < rows_.X.rows) fetch(rows_.X.row(i + ahead));
                pad(rows_.X.row(i), width_, x_ + (i - from) * width_);
                residual[i - from] = -a[i];
            }
            for (; k < stop && rows_.ends[k] - rows_.deaths[k] < to; ++k) {
                for (Index i = std::max(from, rows_.ends[k] - rows_.deaths[k]); i < std::min(to, rows_.ends[k]); ++i)
                    residual[i - from] += weight_of(rows_, i);
                if (rows_.ends[k] > to) break;
            }
            add_rows(x_, width_, residual, to - from, width_, gradient);
            add_gram(x_, width_, a + from, to - from, p_, width_, of_rows_);
        }
    }
};

} // namespace survival

/// Computes value, gradient and minus the Hessian at each point, a row of `points`. A row of minus_hessian is a lower triangle, row by
/// row: (0, 0), (1, 0), (1, 1), .. All numbers of a point are NaN if one of them is not finite.
inline void survival_cox_curvature(Matrix<const double> points, const SurvivalRows& rows, Vector<double> value, Matrix<double> gradient,
                                   Matrix<double> minus_hessian, int n_threads) {
    const Index n_points = points.rows, p = rows.X.cols;
    const survival::Steps steps(rows);
    const auto write = [&](Index s, const survival::Curvature& result) {
        bool finite = survival::is_finite(result.value);
        for (Index i = 0; i < p; ++i) {
            finite &= survival::is_finite(result.gradient[i]);
            for (Index j = 0; j <= i; ++j) finite &= survival::is_finite(result.information(i, j));
        }
        const double bad = math::not_a_number<double>();
        value[s] = finite ? result.value : bad;
        Index entry = 0;
        for (Index i = 0; i < p; ++i) {
            gradient.row(s)[i] = finite ? result.gradient[i] : bad;
            for (Index j = 0; j <= i; ++j) minus_hessian.row(s)[entry++] = finite ? result.information(i, j) : bad;
        }
    };
    // About so many operations a row: exponential, sums and products of three passes, two Gram matrices.
    const double work = double(n_points) * double(rows.X.rows) * double(40 + 2 * p * (p + 1));
    const Index pieces = std::min(n_points, max_blocks);
    for_blocks(n_points, pieces, worthwhile(n_threads, work), [&](Index, Index first, Index last) {
        const auto curvature = std::make_unique<survival::Curvature>(rows, steps);
        for (Index s = first; s < last; ++s) curvature->evaluate(points.row(s)), write(s, *curvature);
    });
}

} // namespace FEDKERN_ISA
} // namespace fedkern
