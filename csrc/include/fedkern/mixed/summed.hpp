// Value, gradient and minus Hessian of rows without effects, at one point: sums over blocks of rows that stay in the cache.
#pragma once
#include <utility>

#include "fedkern/blocks.hpp"
#include "fedkern/survival/padded.hpp"
#include "rows.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {
namespace mixed {

inline constexpr Index at_once = survival::block; // rows

/// Of some rows that follow each other.
struct RowsAtOnce {
    Index begin, count;
    const double *eta, *y, *trials;
};

/// What families say of them: values, slopes and minus curvatures in eta; and of m shape numbers w d / dw, d2 / dw deta (m, at_once) and
/// d2 / dw2, a lower triangle.
struct Derivatives {
    double *value, *slope, *curve, *first, *cross, *second;
};

/// The sum of some of `at_once` numbers.
inline double total(double* x, Index count) {
    using Eight = survival::Eight;
    for (Index r = count; r < at_once; ++r) x[r] = 0;
    Eight sum[2] = {Eight::all(0), Eight::all(0)};
    for (Index r = 0; r < count; r += 2 * Eight::size)
        for (int l = 0; l < 2; ++l) sum[l] = sum[l] + Eight::load(x + r + l * Eight::size);
    return (sum[0] + sum[1]).sum();
}

class Summed {
  public:
    /// m: shape numbers, the last of a point.
    Summed(const MixedRows& rows, Vector<const double> point, Index m)
        : rows_(rows), p_(rows.X.cols), m_(m), width_((p_ + survival::pack - 1) / survival::pack * survival::pack), x_(at_once * width_),
          beta_(width_), gradient_((m + 1) * width_), gram_(p_ * width_), own_(m * (m + 3) / 2),
          each_(at_once * (6 + 2 * m + m * (m + 1) / 2)) {
        for (Index j = 0; j < width_; ++j) beta_[j] = j < p_ ? point[j] : 0;
        std::fill_n(+gradient_, (m + 1) * width_, 0.0), std::fill_n(+gram_, p_ * width_, 0.0), std::fill_n(+own_, m * (m + 3) / 2, 0.0);
    }

    /// derivatives(rows, out) returns what they add to the value beside each one's.
    template <class Rows> void add(Index begin, Index end, Rows&& derivatives) {
        for (; begin < end; begin += at_once) add_block(begin, std::min(at_once, end - begin), derivatives);
    }

    /// value, gradient, lower triangle of minus the Hessian, one after the other.
    void write(double* to) const {
        *to++ = value_;
        to = std::copy_n(+gradient_, p_, to), to = std::copy_n(+own_, m_, to);
        for (Index i = 0; i < p_; ++i) to = std::copy_n(gram_ + i * width_, i + 1, to);
        const double* second = own_ + m_;
        for (Index j = 0; j < m_; ++j) {
            for (Index h = 0; h < p_; ++h) *to++ = -gradient_[(j + 1) * width_ + h];
            for (Index h = 0; h <= j; ++h) *to++ = -*second++;
        }
    }

  private:
    template <class Rows> void add_block(Index begin, Index count, Rows& derivatives) {
        double* room = each_;
        const auto next = [&](Index columns) { return std::exchange(room, room + columns * at_once); };
        double *eta = next(1), *y = next(1), *trials = next(1);
        const Derivatives out{next(1), next(1), next(1), next(m_), next(m_), next(m_ * (m_ + 1) / 2)};
        // In place where rows are neighbours. What is read behind a row is the next one's: it is multiplied by 0, or its products are
        // not looked at. One that is not finite makes all results NaN anyway.
        const auto& X = rows_.X;
        const bool in_place = X.col_stride == 1 && X.row_stride == p_ && (begin + count - 1) * p_ + width_ <= X.rows * p_;
        const double* x = in_place ? X.data + begin * p_ : x_;
        const Index stride = in_place ? p_ : width_;
        for (Index r = 0; !in_place && r < count; ++r) survival::pad(X.row(begin + r), width_, x_ + r * width_);
        survival::multiply(x, stride, count, width_, beta_, eta);
        for (Index r = 0; rows_.offset.data && r < count; ++r) eta[r] += rows_.offset[begin + r];
        for (Index r = 0; !rows_.trials.data && r < count; ++r) trials[r] = 1;
        const auto column = [&](Vector<const double> all, double* copy) { return contiguous(all.part(begin, begin + count), copy); };
        const double* of_trials = rows_.trials.data ? column(rows_.trials, trials) : trials;
        value_ += derivatives(RowsAtOnce{begin, count, eta, column(rows_.y, y), of_trials}, out);
        value_ += total(out.value, count);
        survival::add_rows(x, stride, out.slope, count, width_, gradient_);
        survival::add_gram(x, stride, out.curve, count, p_, width_, gram_);
        for (Index j = 0; j < m_; ++j) {
            own_[j] += total(out.first + j * at_once, count);
            survival::add_rows(x, stride, out.cross + j * at_once, count, width_, gradient_ + (j + 1) * width_);
        }
        for (Index j = 0; j < m_ * (m_ + 1) / 2; ++j) own_[m_ + j] += total(out.second + j * at_once, count);
    }

    const MixedRows& rows_;
    const Index p_, m_, width_;
    double value_ = 0;
    Scratch<double> x_, beta_, gradient_, gram_, own_, each_; // gradient: behind it sums of X times the cross derivatives
};

/// Of logistic rows with one trial: a logarithm is of a product of 1 + e^-|eta|, which are at most 2.
inline double one_trial(const RowsAtOnce& rows, const Derivatives& out) {
    using Eight = survival::Eight;
    alignas(64) double decays[at_once];
    for (Index r = 0; r < rows.count; ++r) {
        const double eta = rows.eta[r], y = rows.y[r], size = math::magnitude(eta), decay = quick_decay(size);
        const double inverse = 1 / (1 + decay), part = decay * inverse;
        out.value[r] = y * eta - (eta > 0 ? eta : 0.0), decays[r] = decay;
        out.slope[r] = y - (eta < 0 ? part : inverse), out.curve[r] = part * inverse;
    }
    for (Index r = rows.count; r < at_once; ++r) decays[r] = 0;
    Eight product[2] = {Eight::all(1), Eight::all(1)};
    for (Index r = 0; r < rows.count; r += 2 * Eight::size)
        for (int l = 0; l < 2; ++l) product[l] = product[l] + product[l] * Eight::load(decays + r + l * Eight::size);
    alignas(64) double factors[Eight::size];
    (product[0] * product[1]).store(factors);
    double logs = 0;
    for (double& one : factors) one = math::log(one);
    for (const double one : factors) logs += one;
    return -logs;
}

/// The derivatives of rows at a point whose last number is `last`.
template <MixedFamily family> double row_derivatives(const RowsAtOnce& rows, bool one, double last, const Derivatives& out) {
    constexpr bool dispersed = family == MixedFamily::gaussian || family == MixedFamily::negative_binomial;
    if (family == MixedFamily::binomial && one) return one_trial(rows, out);
    const double square = square_of(family, last);
    for (Index r = 0; r < rows.count; ++r) {
        const Row<family> row(rows.eta[r], rows.y[r], rows.trials[r], square);
        out.value[r] = row.value, out.slope[r] = row.slope, out.curve[r] = row.curve;
    }
    for (Index r = 0; dispersed && r < rows.count; ++r) {
        const Dispersion<family> row(rows.eta[r], rows.y[r], last, square);
        out.first[r] = row.slope, out.cross[r] = row.mixed, out.second[r] = row.second;
    }
    return 0;
}

/// Sums of all rows at each point, (points, 1 + P + P (P + 1) / 2); with(s) is what says derivatives of point s.
template <class With>
std::vector<double> sums_of_all(Matrix<const double> points, const MixedRows& rows, Index m, int n_threads, const With& with) {
    const Index S = points.rows, P = points.cols, n = rows.X.rows, size = 1 + P + P * (P + 1) / 2, pieces = block_count(n, 8 * at_once);
    std::vector<double> sums(S * pieces * size);
    for_blocks(S * pieces, S * pieces, worthwhile(n_threads, double(S) * double(n) * double(30 + P * P)), [&](Index, Index from, Index to) {
        for (Index task = from; task < to; ++task) {
            const Index s = task / pieces, piece = task % pieces;
            Summed some(rows, points.row(s), m);
            some.add(n * piece / pieces, n * (piece + 1) / pieces, with(s));
            some.write(sums.data() + task * size);
        }
    });
    std::vector<double> total(S * size);
    for (Index s = 0; s < S; ++s)
        for (Index piece = 0; piece < pieces; ++piece)
            for (Index j = 0; j < size; ++j) total[s * size + j] += sums[(s * pieces + piece) * size + j];
    return total;
}

} // namespace mixed
} // namespace FEDKERN_ISA
} // namespace fedkern
