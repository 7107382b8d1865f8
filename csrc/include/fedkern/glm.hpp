// Generalised linear models: log-likelihood and ELBO with their gradients, expectations under a Gaussian posterior, predictions.
// One pass over X in blocks of rows that stay in cache. Specification: dp-pvi.md, sections 2 and 3.
#pragma once
#include <vector>

#include "blocks.hpp"
#include "glm_families.hpp"
#include "glm_rows.hpp"

namespace fedkern {

inline namespace FEDKERN_ISA {

/// A contiguous copy, followed by zeros up to a multiple of eight.
inline std::vector<double> copy_padded(Vector<const double> x) {
    std::vector<double> copy((x.size + 7) / 8 * 8);
    for (Index j = 0; j < x.size; ++j) copy[j] = x[j];
    return copy;
}

/// What the mean-field kernels need of a row x: x'mu, sum x^2 sigma^2 and, for norms, sum x^2 and sum x^4 sigma^4.
template <bool norms, class T>
FEDKERN_INLINE void row_sums(const T* x, const double* mu, const double* variance, Index d, double* m, double* v, double* n2, double* n4) {
    using V = Lanes<double>;
    V sum_m = V::all(0), sum_v = V::all(0), sum_2 = V::all(0), sum_4 = V::all(0);
    const auto add = [&](const V& value, Index j) {
        const V square = value * value, scaled = square * V::load(variance + j);
        sum_m = sum_m + value * V::load(mu + j);
        sum_v = sum_v + scaled;
        if constexpr (norms) {
            sum_2 = sum_2 + square;
            sum_4 = sum_4 + scaled * scaled;
        }
    };
    Index j = 0;
    for (; j + 8 <= d; j += 8) add(V::load(x + j), j);
    if (j < d) add(V::load(x + j, int(d - j)), j);
    *m = sum_m.sum();
    *v = sum_v.sum();
    if constexpr (norms) {
        *n2 = sum_2.sum();
        *n4 = sum_4.sum();
    }
}

/// The mean and the standard deviation of a_i = x_i'theta + offset_i for the rows of a block.
class Activations {
  public:
    explicit Activations(const Posterior& q) : d_(q.mu.size), full_(q.full()), mu_(copy_padded(q.mu)) {
        if (full_) {
            factor_.resize(d_ * d_);
            for (Index i = 0; i < d_; ++i)
                for (Index j = 0; j <= i; ++j) factor_[i * d_ + j] = q.factor.data[i * q.factor.row_stride + j * q.factor.col_stride];
        } else {
            variance_ = copy_padded(q.log_sigma);
            for (double& v : variance_) v = math::exp(2 * v);
        }
    }

    const double* mu() const { return mu_.data(); }
    const double* variance() const { return variance_.data(); }
    const double* factor() const { return factor_.data(); }

    /// u = L'x for a row x; u has room for d numbers.
    template <class T> void rotate(const T* x, double* u) const {
        std::fill_n(u, d_, 0.0);
        for (Index i = 0; i < d_; ++i) {
            const double value = double(x[i]), *row = factor_.data() + i * d_;
            for (Index j = 0; j <= i; ++j) u[j] += value * row[j];
        }
    }

    /// Fills m and s for block.padded rows (harmless numbers behind block.size).
    template <class T> void of(const RowBlock<T>& block, double* m, double* s) const {
        std::vector<double> u(full_ ? d_ : 0);
        for (Index i = 0; i < block.size; ++i) {
            if (full_) {
                rotate(block.x[i], u.data());
                m[i] = s[i] = 0;
                for (Index j = 0; j < d_; ++j) {
                    m[i] += double(block.x[i][j]) * mu_[j];
                    s[i] += u[j] * u[j];
                }
            } else {
                row_sums<false>(block.x[i], mu(), variance(), d_, m + i, s + i, nullptr, nullptr);
            }
        }
        for (Index i = block.size; i < block.padded; ++i) m[i] = s[i] = 0;
        for (Index i = 0; i < block.padded; ++i) {
            m[i] += block.offset[i];
            s[i] = std::sqrt(s[i]);
        }
    }

  private:
    Index d_;
    bool full_;
    std::vector<double> mu_, variance_, factor_;
};

/// Calls work(chunk, block, begin) for every block of rows, chunks of blocks on several threads.
template <class T, class Family, class Work>
void for_row_blocks(const Regression<T>& data, const Family& family, Index chunks, int n_threads, const Work& work) {
    for_blocks(data.n, chunks, n_threads, [&](Index chunk, Index begin, Index end) {
        RowBlock<T> block(data);
        const Index length = RowBlock<T>::length(data);
        for (Index i = begin; i < end; i += length) {
            block.load(i, std::min(length, end - i), family);
            work(chunk, block, i);
        }
    });
}

/// value, slope, curvature: w_i E l, w_i E l', w_i E l'' for every row.
template <class T>
void glm_expectations(const Regression<T>& data, const Posterior& q, Likelihood likelihood, Vector<double> value,
                      Vector<double> slope, Vector<double> curvature, int n_threads) {
    const Activations activations(q);
    with_family(likelihood, [&](const auto& family) {
        for_row_blocks(data, family, block_count(data.n), n_threads, [&](Index, const RowBlock<T>& block, Index begin) {
            alignas(64) double m[64], s[64], e0[64], e1[64], e2[64];
            activations.of(block, m, s);
            family.expect(block.padded, m, s, block.y, e0, e1, e2);
            for (Index i = 0; i < block.size; ++i) {
                value[begin + i] = block.weight[i] * (e0[i] + family.base(block.y[i]));
                slope[begin + i] = block.weight[i] * e1[i];
                curvature[begin + i] = block.weight[i] * e2[i];
            }
        });
    });
}

/// The predictive mean E[y] for every row; `probit`: the usual approximation for the Bernoulli family.
template <class T>
void glm_predict(const Regression<T>& data, const Posterior& q, Likelihood likelihood, bool probit, Vector<double> mean, int n_threads) {
    const Activations activations(q);
    with_family(likelihood, [&](const auto& family) {
        for_row_blocks(data, family, block_count(data.n), n_threads, [&](Index, const RowBlock<T>& block, Index begin) {
            alignas(64) double m[64], s[64], p[64];
            activations.of(block, m, s);
            family.predict(block.padded, m, s, probit, p);
            for (Index i = 0; i < block.size; ++i) mean[begin + i] = p[i];
        });
    });
}

/// loglik_s = sum_i w_i l(x_i'theta_s + offset_i) and its gradient, for S parameter vectors at once.
template <class T>
void glm_logliks(const Regression<T>& data, Matrix<const double> thetas, Likelihood likelihood, double* loglik,
                 Matrix<double> grads, int n_threads) {
    const Index d = data.x.cols, S = thetas.rows, chunks = block_count(data.n);
    std::vector<T> theta(S * d);
    for (Index s = 0; s < S; ++s)
        for (Index j = 0; j < d; ++j) theta[s * d + j] = T(thetas.row(s)[j]);
    std::vector<double> partial(chunks * S * (d + 1));
    with_family(likelihood, [&](const auto& family) {
        for_row_blocks(data, family, chunks, n_threads, [&](Index chunk, const RowBlock<T>& block, Index) {
            double* sums = partial.data() + chunk * S * (d + 1);
            std::vector<T> gradient(d);
            double base = 0;
            for (Index i = 0; i < block.size; ++i) base += block.weight[i] * family.base(block.y[i]);
            for (Index s = 0; s < S; ++s) {
                std::fill(gradient.begin(), gradient.end(), T(0));
                double total = base;
                for (Index i = 0; i < block.size; ++i) {
                    using V = Lanes<T>;
                    V sum = V::all(0);
                    const T *x = block.x[i], *t = theta.data() + s * d;
                    Index j = 0;
                    for (; j + V::count <= d; j += V::count) sum = sum + V::load(x + j) * V::load(t + j);
                    if (j < d) sum = sum + V::load(x + j, int(d - j)) * V::load(t + j, int(d - j));
                    const T a = T(block.offset[i]) + sum.sum(), y = T(block.y[i]);
                    total += block.weight[i] * double(family.value(a, y));
                    const T r = T(block.weight[i]) * family.slope(a, y);
                    for (j = 0; j < d; ++j) gradient[j] += r * x[j];
                }
                sums[s * (d + 1) + d] += total;
                for (Index j = 0; j < d; ++j) sums[s * (d + 1) + j] += double(gradient[j]);
            }
        });
    });
    for (Index s = 0; s < S; ++s) {
        for (Index j = 0; j <= d; ++j) {
            double total = 0;
            for (Index c = 0; c < chunks; ++c) total += partial[(c * S + s) * (d + 1) + j];
            if (j < d)
                grads.row(s)[j] = total;
            else
                loglik[s] = total;
        }
    }
}

} // namespace FEDKERN_ISA
} // namespace fedkern
