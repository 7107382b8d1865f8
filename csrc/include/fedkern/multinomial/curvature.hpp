// Multinomial log-likelihood with its gradient and minus its Hessian, one point at a time: the block of two levels is a Gram matrix of
// the rows, weighted by p_k (1 - p_k), or by -p_k p_l. That 1 - p_k is a sum of the others' chances, and no difference.
#pragma once
#include <memory>

#include "fedkern/survival/gram.hpp"
#include "values.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {
namespace multinomial {

using survival::add_gram, survival::block, survival::pack;

class Curvature {
  public:
    explicit Curvature(const MultinomialRows& rows)
        : rows_(rows), others_(rows.levels - 1), p_(rows.X.cols), width_((p_ + pack - 1) / pack * pack), x_(block * width_),
          beta_(others_ * width_), chance_(rows.levels * block), gradient(others_ * width_),
          gram_(others_ * (others_ + 1) / 2 * p_ * width_) {}

    double value = 0;

    void clear() {
        value = 0;
        std::fill(beta_ + 0, beta_ + others_ * width_, 0.0);
        std::fill(gradient + 0, gradient + others_ * width_, 0.0);
        std::fill(gram_ + 0, gram_ + others_ * (others_ + 1) / 2 * p_ * width_, 0.0);
    }

    void at(Vector<const double> point) {
        clear();
        for (Index k = 0; k < others_; ++k)
            for (Index j = 0; j < p_; ++j) beta_[k * width_ + j] = point[k * p_ + j], value += 0 * point[k * p_ + j];
        for (Index begin = 0; begin < rows_.X.rows; begin += block) add(begin, std::min(rows_.X.rows - begin, block));
    }

    /// Of coefficients i and j of levels k and l <= k, counted from the first that is no reference.
    double information(Index k, Index i, Index l, Index j) const {
        return gram_[((k * (k + 1) / 2 + l) * p_ + std::max(i, j)) * width_ + std::min(i, j)];
    }
    double slope(Index k, Index i) const { return gradient[k * width_ + i]; }
    Index size() const { return others_ * p_; }

  private:
    void add(Index begin, Index count) {
        for (Index r = 0; r < count; ++r) {
            const Vector<const double> x = rows_.X.row(begin + r);
            for (Index j = 0; j < p_; ++j) x_[r * width_ + j] = x[j];
            for (Index j = p_; j < width_; ++j) x_[r * width_ + j] = 0;
        }
        chances(begin, count);
        alignas(64) double weights[block];
        for (Index k = 0; k < others_; ++k) {
            const double* own = chance_ + (k + 1) * block;
            for (Index l = 0; l < k; ++l) {
                const double* other = chance_ + (l + 1) * block;
                for (Index r = 0; r < count; ++r) weights[r] = -own[r] * other[r];
                add_gram(x_, width_, weights, count, p_, width_, gram_ + (k * (k + 1) / 2 + l) * p_ * width_);
            }
            std::fill(weights, weights + count, 0.0);
            for (Index m = 0; m <= others_; ++m)
                if (m != k + 1)
                    for (Index r = 0; r < count; ++r) weights[r] += chance_[m * block + r];
            double* to = gradient + k * width_;
            for (Index r = 0; r < count; ++r) {
                const double by = rows_.y[begin + r] == double(k + 1) ? weights[r] : -own[r], *x = x_ + r * width_;
                for (Index j = 0; j < width_; ++j) to[j] += by * x[j];
                weights[r] *= own[r];
            }
            add_gram(x_, width_, weights, count, p_, width_, gram_ + (k * (k + 1) / 2 + k) * p_ * width_);
        }
    }

    /// (level, row) of a block, and what its rows add to the value.
    void chances(Index begin, Index count) {
        alignas(64) double top[block] = {}, total[block];
        double* const first = chance_;
        std::fill(first, first + block, 0.0);
        double poison = 0;
        for (Index k = 1; k <= others_; ++k) {
            const double* b = beta_ + (k - 1) * width_;
            for (Index r = 0; r < block; ++r) {
                alignas(64) double sum[pack] = {};
                if (r < count)
                    for (Index j = 0; j < width_; j += pack)
                        for (Index l = 0; l < pack; ++l) sum[l] += x_[r * width_ + j + l] * b[j + l];
                const double eta = ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
                chance_[k * block + r] = eta, poison += 0 * eta, top[r] = eta > top[r] ? eta : top[r];
            }
        }
        value += poison;
        for (Index r = 0; r < count; ++r) value += chance_[Index(rows_.y[begin + r]) * block + r] - top[r];
        std::fill(total, total + block, 0.0);
        for (Index k = 0; k <= others_; ++k)
            for (Index r = 0; r < block; ++r) {
                const double e = math::exp(chance_[k * block + r] - top[r]);
                chance_[k * block + r] = e, total[r] += e;
            }
        for (Index r = 0; r < block; ++r) top[r] = math::log(total[r]), total[r] = 1 / total[r];
        for (Index r = 0; r < count; ++r) value -= top[r];
        for (Index k = 0; k <= others_; ++k)
            for (Index r = 0; r < block; ++r) chance_[k * block + r] *= total[r];
    }

    const MultinomialRows& rows_;
    const Index others_, p_, width_;
    Scratch<double> x_, beta_, chance_;

  public:
    Scratch<double> gradient;

  private:
    Scratch<double> gram_; // of each pair of levels
};

} // namespace multinomial

inline void multinomial_curvature(Matrix<const double> points, const MultinomialRows& rows, Vector<double> value, Matrix<double> gradient,
                                  Matrix<double> minus_hessian, int n_threads) {
    const Index S = points.rows, p = rows.X.cols;
    const bool good = multinomial::has_levels(rows);
    const auto write = [&](Index s, const multinomial::Curvature& found) {
        bool finite = good && multinomial::is_finite(found.value);
        const auto entries = [&](const auto& use) {
            Index at = 0;
            for (Index a = 0; a < found.size(); ++a)
                for (Index b = 0; b <= a; ++b, ++at) use(at, found.information(a / p, a % p, b / p, b % p));
        };
        for (Index a = 0; finite && a < found.size(); ++a) finite = multinomial::is_finite(found.slope(a / p, a % p));
        entries([&](Index, double x) { finite &= multinomial::is_finite(x); });
        const double bad = math::not_a_number<double>();
        value[s] = finite ? found.value : bad;
        for (Index a = 0; a < found.size(); ++a) gradient.row(s)[a] = finite ? found.slope(a / p, a % p) : bad;
        entries([&](Index at, double x) { minus_hessian.row(s)[at] = finite ? x : bad; });
    };
    const double work = double(S) * double(rows.X.rows) * double(rows.levels * rows.levels) * double(20 + p * (p + 1) / 2);
    for_blocks(S, std::min(S, max_blocks), worthwhile(n_threads, work), [&](Index, Index first, Index last) {
        const auto found = std::make_unique<multinomial::Curvature>(rows);
        found->clear();
        for (Index s = first; s < last; ++s) {
            if (good) found->at(points.row(s));
            write(s, *found);
        }
    });
}

} // namespace FEDKERN_ISA
} // namespace fedkern
