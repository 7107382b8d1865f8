// Cox's partial log-likelihood with gradient and minus Hessian where rows enter late: sums, first and second moments of who is at
// risk, which rows join and leave. As of `values.hpp`, what has fallen far is made anew.
#pragma once
#include "values.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {
namespace survival {

/// A weighted sum, with first and second moments (lower triangle by rows).
struct Moments {
    double sum = 0;
    std::vector<double> first, second;

    explicit Moments(Index p) : first(p), second(p * (p + 1) / 2) {}

    void clear() { scale(0); }
    void scale(double by) { // a 0 clears what is not finite, too
        const auto scaled = [by](double& x) { x = by == 0 ? 0 : x * by; };
        scaled(sum);
        for (double& x : first) scaled(x);
        for (double& x : second) scaled(x);
    }
    void add(const Moments& other) {
        sum += other.sum;
        for (std::size_t j = 0; j < first.size(); ++j) first[j] += other.first[j];
        for (std::size_t j = 0; j < second.size(); ++j) second[j] += other.second[j];
    }
    void add(double weight, Vector<const double> x) {
        sum += weight;
        double* to = second.data();
        for (Index i = 0; i < x.size; to += ++i) {
            const double own = weight * x[i];
            first[i] += own;
            for (Index j = 0; j <= i; ++j) to[j] += own * x[j];
        }
    }
};

class Moving {
  public:
    Moving(const SurvivalRows& rows, const Leaving& leaving)
        : gradient(rows.X.cols), rows_(rows), leaving_(leaving), p_(rows.X.cols), eta_(rows.X.rows), rest_(p_), dying_(p_),
          information_(p_ * (p_ + 1) / 2) {}

    double value = 0;
    std::vector<double> gradient;

    double information(Index i, Index j) const { return information_[i * (i + 1) / 2 + j]; }

    void at(Vector<const double> point) {
        value = 0;
        for (Index j = 0; j < p_; ++j) value += 0 * point[j];
        gradient.assign(p_, 0), information_.assign(p_ * (p_ + 1) / 2, 0);
        Index to = 0;
        for (Index k = 0; k < rows_.ends.size; ++k) {
            const Index first = rows_.first[k], end = rows_.ends[k], middle = end - rows_.deaths[k];
            if (k == 0 || first != rows_.first[k - 1]) rest_.clear(), dying_.clear(), high_ = -math::infinity<double>(), most_ = 0, to = first;
            leaving_.for_each(k, first, to, [&](Index i) { rest_.add(-weight_of(rows_, i) * math::exp(eta_[i] - high_), rows_.X.row(i)); });
            double weight = 0;
            for (Index i = to; i < end; ++i) {
                const Vector<const double> x = rows_.X.row(i);
                double eta = rows_.offset.data ? rows_.offset[i] : 0.0;
                for (Index j = 0; j < p_; ++j) eta += x[j] * point[j];
                eta_[i] = eta, value += 0 * eta;
                const double w = weight_of(rows_, i);
                if (i >= middle) {
                    value += w * eta, weight += w;
                    for (Index j = 0; j < p_; ++j) gradient[j] += w * x[j];
                }
                if (!stays(rows_, i, k)) continue;
                if (eta > high_) {
                    const double by = math::exp(high_ - eta);
                    rest_.scale(by), dying_.scale(by), most_ *= by, high_ = eta;
                }
                (i < middle ? rest_ : dying_).add(w * math::exp(eta - high_), x);
            }
            refresh(k);
            event(rows_.deaths[k], weight);
            to = end;
        }
    }

  private:
    void refresh(Index k) {
        const double now = rest_.sum + dying_.sum;
        if (now >= fallen * most_) {
            most_ = now > most_ ? now : most_;
            return;
        }
        if (!(now < fallen * most_)) return;
        const Index end = rows_.ends[k], middle = end - rows_.deaths[k];
        high_ = -math::infinity<double>();
        for (Index i = rows_.first[k]; i < end; ++i)
            if (stays(rows_, i, k) && eta_[i] > high_) high_ = eta_[i];
        rest_.clear(), dying_.clear();
        for (Index i = rows_.first[k]; i < end; ++i)
            if (stays(rows_, i, k)) (i < middle ? rest_ : dying_).add(weight_of(rows_, i) * math::exp(eta_[i] - high_), rows_.X.row(i));
        most_ = rest_.sum + dying_.sum;
    }

    void event(Index deaths, double weight) {
        const double each = weight / double(deaths);
        std::vector<double>& mean = mean_;
        mean.resize(p_);
        for (Index m = 0; m < deaths; ++m) {
            const double share = double(deaths - m) / double(deaths), sum = rest_.sum + share * dying_.sum, by = 1 / sum;
            value -= each * (math::log(sum) + high_);
            for (Index i = 0, at = 0; i < p_; ++i) {
                mean[i] = (rest_.first[i] + share * dying_.first[i]) * by;
                gradient[i] -= each * mean[i];
                for (Index j = 0; j <= i; ++j, ++at)
                    information_[at] += each * ((rest_.second[at] + share * dying_.second[at]) * by - mean[i] * mean[j]);
            }
        }
        rest_.add(dying_), dying_.clear();
    }

    const SurvivalRows& rows_;
    const Leaving& leaving_;
    const Index p_;
    double high_, most_;
    std::vector<double> eta_, mean_;
    Moments rest_, dying_;
    std::vector<double> information_;
};

} // namespace survival
} // namespace FEDKERN_ISA
} // namespace fedkern
