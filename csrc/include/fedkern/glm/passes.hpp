// Generalised linear models: log-likelihood and ELBO with their gradients, expectations under a Gaussian posterior, predictions.
// One pass over X in blocks of rows that stay in cache. Specification: docs/spec/pvi.md, sections 2 and 3.
#pragma once
#include <vector>

#include "fedkern/rng.hpp"
#include "rows.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

/// Element j of the standard normal vector of draw s: rng's element j of (draw s, client, step).
inline std::vector<double> normal_draws(const Draws& draws, Index d) {
    std::vector<double> e(draws.count * d);
    for (Index s = 0; s < draws.count; ++s) fill_normal({e.data() + s * d, d}, {0, unsigned(s), draws.client, draws.step}, draws.key);
    return e;
}

// ---- Log-likelihood at S parameter vectors at once.

/// The parameters, as the products want them: panels of eight vectors, then one by one what is left if that is less than four.
template <class T> struct Parameters {
    Index d, panels, singles;
    Lines<T> packed;
    Lines<T> single;

    explicit Parameters(Matrix<const double> thetas)
        : d(thetas.cols), panels((thetas.rows + 4) / panel), singles(std::max<Index>(0, thetas.rows - panels * panel)),
          packed(panels * d * panel) {
        for (Index s = 0; s < std::min(thetas.rows, panels * panel); ++s)
            for (Index j = 0; j < d; ++j) packed[(s / panel * d + j) * panel + s % panel] = T(thetas.row(s)[j]);
        for (Index s = panels * panel; s < thetas.rows; ++s) {
            const auto copy = padded_copy<T>(thetas.row(s));
            single.insert(single.end(), copy.begin(), copy.end());
        }
    }
    Index padded() const { return round_up(d, 16); }
    Index count() const { return panels * panel + singles; }
};

/// One thread's sums over blocks of rows: loglik[s] and grad[s][0..d).
template <class T> struct LogLikelihoods {
    const Parameters<T>& parameters;
    double *loglik, *grad; // a gradient has room for parameters.padded() numbers
    Lines<T> gradient = Lines<T>(parameters.padded());

    void add(RowBlock<T>& block, const Family& family) {
        alignas(64) double bases[block_rows], base = 0;
        family.base(block.size, block.y, bases);
        for (Index i = 0; i < block.size; ++i) base += block.weight[i] * bases[i];
        for (Index s = 0; s < parameters.count(); ++s) loglik[s] += base;
        if (parameters.panels) add_panels(block, family);
        for (Index s = 0; s < parameters.singles; ++s) add_single(block, family, s);
    }

    void add_single(RowBlock<T>& block, const Family& family, Index s) {
        const Index d = parameters.d, at = parameters.panels * panel + s;
        const T* theta = parameters.single.data() + s * parameters.padded();
        double* sums = grad + at * parameters.padded();
        alignas(64) T a[block_rows], y[block_rows], w[block_rows], slope[block_rows], value[block_rows];
        for (Index i = 0; i < block.padded; ++i) y[i] = T(block.y[i]), w[i] = T(block.weight[i]);
        for (Index i = block.size; i < block.padded; ++i) a[i] = 0, block.x[i] = block.x[0];
        const Ahead ahead = s == 0 && parameters.panels == 0 ? block.ahead(5) : Ahead{};
        row_dots(block.x, ahead, block.size, theta, d, a);
        for (Index i = 0; i < block.padded; ++i) a[i] += T(block.offset[i]);
        family.weigh(block.padded, a, y, w, value, slope);
        if constexpr (sizeof(T) == 8) add_rows(block.x, ahead.of(block.size), block.padded, slope, d, sums);
        else add_rows(block.x, ahead.of(block.size), block.padded, slope, d, gradient.data());
        auto total = Pack<double>::all(0);
        for (Index i = 0; i < block.padded; i += 8) total = total + Pack<double>::load(value + i);
        loglik[at] += total.sum();
        if constexpr (sizeof(T) == 4)
            for (Index j = 0; j < d; ++j) sums[j] += double(gradient[j]), gradient[j] = 0;
    }

    void add_panels(RowBlock<T>& block, const Family& family) {
        constexpr Index most = block_rows * panel;
        alignas(64) T a[most], y[most], w[most], slope[most], value[most];
        using V = Pack<T, panel>;
        for (Index i = 0; i < block.size; ++i) {
            V::all(T(block.y[i])).store(y + i * panel);
            V::all(T(block.weight[i])).store(w + i * panel);
        }
        for (Index p = 0; p < parameters.panels; ++p) {
            for (Index i = 0; i < block.size; ++i) V::all(T(block.offset[i])).store(a + i * panel);
            row_panel(block.x, p == 0 ? block.ahead() : Ahead{}, block.size, parameters.packed.data() + p * parameters.d * panel, 0,
                      parameters.d, a);
            family.weigh(block.size * panel, a, y, w, value, slope);
            auto total = Pack<double>::load(loglik + p * panel);
            for (Index i = 0; i < block.size; ++i) total = total + Pack<double>::load(value + i * panel);
            total.store(loglik + p * panel);
            add_panel(block.x, block.size, slope, parameters.d, grad + p * panel * parameters.padded(), parameters.padded());
        }
    }
};

template <class T> void add_logliks(const Regression& data, const Family& family, const Parameters<T>& parameters, Index chunks,
                                    double* partial, int n_threads) {
    const Index count = parameters.count();
    for_blocks(data.n, chunks, n_threads, [&](Index chunk, Index begin, Index end) {
        double* sums = partial + chunk * count * (parameters.padded() + 1);
        LogLikelihoods<T> likelihoods{parameters, sums, sums + count};
        const Index bytes = (parameters.panels ? 256 : 26) * 1024; // panels compute more than they read: second-level cache
        for (RowBlock<T> block(data, family, begin, end, bytes); block.next();) likelihoods.add(block, family);
    });
}

/// loglik_s = sum_i w_i log p(y_i | x_i'theta_s + offset_i) and its gradient, s < S.
inline void glm_logliks(const Regression& data, Matrix<const double> thetas, Likelihood likelihood, double* loglik, Matrix<double> grads,
                        int n_threads) {
    const Index d = data.d, count = Parameters<double>(thetas).count(), padded = round_up(d, 16), size = count * (padded + 1);
    const Index chunks = chunk_count(data.n, size);
    const auto family = make_family(likelihood);
    Lines<double> partial(chunks * size);
    if (data.single) add_logliks(data, *family, Parameters<float>(thetas), chunks, partial.data(), n_threads);
    else add_logliks(data, *family, Parameters<double>(thetas), chunks, partial.data(), n_threads);
    for (Index s = 0; s < thetas.rows; ++s) {
        loglik[s] = 0;
        for (Index c = 0; c < chunks; ++c) loglik[s] += partial[c * size + s];
        for (Index j = 0; j < d; ++j) {
            double sum = 0;
            for (Index c = 0; c < chunks; ++c) sum += partial[c * size + count + s * padded + j];
            grads.row(s)[j] = sum;
        }
    }
}

// ---- Under a posterior.

/// What the mean-field kernels need of rows x: x'mu, sum x^2 sigma^2 and, for norms, sum x^2 and sum x^4 sigma^4.
template <bool norms, int R> FEDKERN_INLINE void tile_sums(const double* const* x, Index d, const char* at, Index pace, const double* mu,
                                                           const double* variance, double* m, double* v, double* n2, double* n4) {
    using V = Pack<double>;
    V sum_m[R], sum_v[R], sum_2[R], sum_4[R];
    for (int r = 0; r < R; ++r) sum_m[r] = sum_v[r] = sum_2[r] = sum_4[r] = V::all(0);
    for_packs<V, R>(x, d, at, pace, [&](int r, const V& xj, Index j) {
        const V square = xj * xj, scaled = square * V::load(variance + j);
        sum_m[r] = sum_m[r] + xj * V::load(mu + j);
        sum_v[r] = sum_v[r] + scaled;
        if constexpr (norms) {
            sum_2[r] = sum_2[r] + square;
            sum_4[r] = sum_4[r] + scaled * scaled;
        }
    });
    for (int r = 0; r < R; ++r) {
        m[r] = sum_m[r].sum(), v[r] = sum_v[r].sum();
        if constexpr (norms) n2[r] = sum_2[r].sum(), n4[r] = sum_4[r].sum();
    }
}

template <bool norms> void row_sums(const RowBlock<double>& block, Index d, const double* mu, const double* variance, double* m, double* v,
                                    double* n2, double* n4) {
    const Ahead ahead = block.ahead();
    Index i = 0;
    for (; i + tile_rows <= block.size; i += tile_rows) {
        tile_sums<norms, tile_rows>(block.x + i, d, ahead.of(i), ahead.pace, mu, variance, m + i, v + i, n2 + i, n4 + i);
    }
    for (; i < block.size; ++i) tile_sums<norms, 1>(block.x + i, d, ahead.of(i), ahead.pace, mu, variance, m + i, v + i, n2 + i, n4 + i);
}

/// s_i += ||u_i||^2 over the panel's columns of each row.
inline void add_squares(const double* u, Index rows, double* s) {
    using V = Pack<double, panel>;
    for (Index i = 0; i < rows; ++i) {
        const V ui = V::load(u + i * panel);
        s[i] += (ui * ui).sum();
    }
}

/// The mean and the standard deviation of a_i = x_i'theta + offset_i.
class Activations {
  public:
    explicit Activations(const Posterior& q) : d_(q.mu.size), full_(q.full()), mu_(padded_copy<double>(q.mu)) {
        if (full_) {
            // Panel p holds the columns [8 p, 8 p + 8) of L.
            factor_.resize(round_up(d_, panel) * d_);
            for (Index i = 0; i < d_; ++i)
                for (Index j = 0; j <= i; ++j) factor_[(j / panel * d_ + i) * panel + j % panel] = q.factor.row(i)[j];
        } else {
            variance_ = padded_copy<double>(q.log_sigma);
            for (Index j = 0; j < d_; ++j) variance_[j] = math::exp(2 * variance_[j]);
        }
    }

    Index d() const { return d_; }
    const double* mu() const { return mu_.data(); }
    const double* variance() const { return variance_.data(); }

    /// Columns [8 p, 8 p + 8) of u_i = L'x_i for the rows of a block.
    void rotate(const RowBlock<double>& block, Index p, double* u) const {
        std::fill_n(u, block.size * panel, 0.0);
        row_panel(block.x, p == 0 ? block.ahead() : Ahead{}, block.size, factor_.data() + p * d_ * panel, p * panel, d_, u);
    }
    Index panels() const { return (d_ + panel - 1) / panel; }

    /// Fills m and s for block.padded rows, with harmless numbers behind block.size.
    void of(const RowBlock<double>& block, double* m, double* s) const {
        if (full_) {
            alignas(64) double u[block_rows * panel];
            row_dots(block.x, Ahead{}, block.size, mu(), d_, m);
            std::fill_n(s, block.size, 0.0);
            for (Index p = 0; p < panels(); ++p) {
                rotate(block, p, u);
                add_squares(u, block.size, s);
            }
        } else {
            row_sums<false>(block, d_, mu(), variance(), m, s, m, m);
        }
        finish(block, m, s);
    }

    /// From x'mu and the variance to m and s.
    static void finish(const RowBlock<double>& block, double* m, double* s) {
        for (Index i = block.size; i < block.padded; ++i) m[i] = s[i] = 0;
        for (Index i = 0; i < block.padded; ++i) {
            m[i] += block.offset[i];
            s[i] = std::sqrt(s[i]);
        }
    }

  private:
    Index d_;
    bool full_;
    Lines<double> mu_, variance_, factor_;
};

/// value, slope, curvature: w_i E l, w_i E l', w_i E l'' for every row.
inline void glm_expectations(const Regression& data, const Posterior& q, Likelihood likelihood, Vector<double> value, Vector<double> slope,
                             Vector<double> curvature, int n_threads) {
    const Activations activations(q);
    const auto family = make_family(likelihood);
    for_blocks(data.n, block_count(data.n), n_threads, [&](Index, Index begin, Index end) {
        alignas(64) double m[block_rows], s[block_rows], base[block_rows], e0[block_rows], e1[block_rows], e2[block_rows];
        for (RowBlock<double> block(data, *family, begin, end); block.next();) {
            activations.of(block, m, s);
            family->base(block.size, block.y, base);
            family->expect(block.padded, m, s, block.y, e0, e1, e2);
            for (Index i = 0; i < block.size; ++i) {
                value[block.begin + i] = block.weight[i] * (e0[i] + base[i]);
                slope[block.begin + i] = block.weight[i] * e1[i];
                curvature[block.begin + i] = block.weight[i] * e2[i];
            }
        }
    });
}

/// The predictive mean E[y] for every row; `probit`: the usual approximation for the Bernoulli family.
inline void glm_predict(const Regression& data, const Posterior& q, Likelihood likelihood, bool probit, Vector<double> mean,
                        int n_threads) {
    const Activations activations(q);
    const auto family = make_family(likelihood);
    for_blocks(data.n, block_count(data.n), n_threads, [&](Index, Index begin, Index end) {
        alignas(64) double m[block_rows], s[block_rows], p[block_rows];
        for (RowBlock<double> block(data, *family, begin, end); block.next();) {
            activations.of(block, m, s);
            family->predict(block.padded, m, s, probit, p);
            for (Index i = 0; i < block.size; ++i) mean[block.begin + i] = p[i];
        }
    });
}

} // namespace FEDKERN_ISA
} // namespace fedkern
