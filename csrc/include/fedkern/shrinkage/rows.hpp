// Local sweeps of the sparse models that touch rows: logistic response and missing covariates. sparse.md, section 11.
//
// Counters (client and step as given). scales: item j, as in scales.hpp. coefficients: normal e of (theta_k, alpha_k), the
// intercept last, half e % 2 of item e / 2. augmentation: the Polya-Gamma variable of row i, item i. variances: sigma^2, item 0.
// imputation: normal e of row i, half e % 2 of item i (p / 2 + 1) + e / 2; e = j for missing column j, e = p for the response.
#pragma once
#include <vector>

#include "fedkern/polya_gamma.hpp"
#include "local.hpp"
#include "rows_views.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

inline constexpr Quantity no_quantity = Quantity(-1);

/// u ~ N(A^-1 W'a, A^-1), A = diag(prior) + W'W: the draw of section 3 with rows. W (n, k) by columns, the last one the intercept's.
class RowDraw {
  public:
    const Index n, k;
    std::vector<double> W, a, prior, u;

    RowDraw(Index rows, Index coefficients, const Blas& blas)
        : n(rows), k(coefficients), W(n * k), a(n), prior(k, 1.), u(k), blas_(blas), A_(k * k), z_(k) {}

    /// Whether W and a were factorised by QR, because A had no Cholesky factor.
    bool draw(Counter counter, U64 key) {
        if (k == 0) return false;
        fill_normal({z_.data(), k}, counter, key);
        std::fill(A_.begin(), A_.end(), 0.), std::fill(u.begin(), u.end(), 0.); // BLAS leaves them as they are where there is no row
        call(blas_.dsyrk, 'L', 'T', k, n, 1.0, W.data(), std::max<Index>(n, 1), 0.0, A_.data(), k);
        for (Index j = 0; j < k; ++j) A_[j * k + j] += prior[j];
        int info = 0;
        call(blas_.dpotrf, 'L', k, A_.data(), k, &info);
        if (info) {
            by_orthogonal_factor();
            return true;
        }
        call(blas_.dgemv, 'T', n, k, 1.0, W.data(), std::max<Index>(n, 1), a.data(), 1, 0.0, u.data(), 1);
        call(blas_.dtrsv, 'L', 'N', 'N', k, A_.data(), k, u.data(), 1);
        for (Index j = 0; j < k; ++j) u[j] += z_[j];
        call(blas_.dtrsv, 'L', 'T', 'N', k, A_.data(), k, u.data(), 1);
        return false;
    }

  private:
    const Blas& blas_;
    std::vector<double> A_, z_;

    /// The same from the QR factorisation of [W; sqrt(prior)] beside [a; 0], whose triangle is L' but for signs.
    void by_orthogonal_factor() {
        const Index rows = n + k;
        std::vector<double> M(rows * (k + 1)), tau(k + 1), work(64 * (k + 1));
        for (Index j = 0; j < k; ++j) {
            std::copy_n(&W[j * n], n, &M[j * rows]);
            M[j * rows + n + j] = math::sqrt(prior[j]);
        }
        std::copy_n(a.data(), n, &M[k * rows]);
        int info = 0;
        call(blas_.dgeqrf, rows, k + 1, M.data(), rows, tau.data(), work.data(), Index(work.size()), &info);
        for (Index j = 0; j < k; ++j) u[j] = M[k * rows + j] + (M[j * rows + j] < 0 ? -z_[j] : z_[j]);
        call(blas_.dtrsv, 'U', 'N', 'N', k, M.data(), rows, u.data(), 1);
    }
};

/// One chain's coefficients, in memory of its own.
struct RowChain {
    Index p;
    std::vector<double> theta, tau_sq, d, lambda_sq, m, t;

    RowChain(const RowState<const double>& from, Index chain)
        : p(from.theta.shape[1]), theta(p), tau_sq(p), d(p), lambda_sq(p), m(p), t(p) {
        copy(from.theta[chain], theta.data()), copy(from.tau_sq[chain], tau_sq.data());
        copy(from.deviation[chain], d.data()), copy(from.lambda_sq[chain], lambda_sq.data());
    }

    /// lambda^2 given d and tau, and the prior's standard deviations. False where one is not a number.
    bool draw_scales(const RowModel& model, Counter counter, U64 key, std::int64_t& clips) {
        for (Index j = 0; j < p; ++j) m[j] = 0.5 * d[j] * d[j] / tau_sq[j];
        clips += draw_local_variances(p, m.data(), lambda_sq.data(), model.lambda, counter, key);
        bool known = true;
        for (Index j = 0; j < p; ++j) {
            known &= lambda_sq[j] > 0;
            t[j] = prior_deviation(math::sqrt(lambda_sq[j] * tau_sq[j]), model.slab);
        }
        return known;
    }

    /// d = t u; false where it is not finite.
    bool take(const std::vector<double>& u) {
        bool finite = true;
        for (Index j = 0; j < p; ++j) d[j] = t[j] * u[j], finite &= math::magnitude(d[j]) < math::infinity<double>();
        return finite;
    }

    void store(const RowState<double>& to, Index chain) const {
        copy(d.data(), to.deviation[chain]), copy(lambda_sq.data(), to.lambda_sq[chain]);
    }
};

/// out += X b, X (n, p) by columns.
inline void add_product(const std::vector<double>& X, const std::vector<double>& b, std::vector<double>& out) {
    const Index n = Index(out.size());
    for (Index j = 0; j < Index(b.size()); ++j)
        for (Index i = 0; i < n; ++i) out[i] += X[j * n + i] * b[j];
}

inline std::vector<double> by_columns(Tensor<const double, 2> X) {
    const Index n = X.shape[0], p = X.shape[1];
    std::vector<double> columns(n * p);
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < p; ++j) columns[j * n + i] = X[i][j];
    return columns;
}

/// Logistic response: scales; omega_i ~ PG(1, x_i'theta_k + alpha_k); (theta_k, alpha_k) with A = I + S Z'Omega Z S, Z = [X, 1],
/// and right-hand side S (Z'(y - 1/2) - Z'Omega Z (theta, 0)).
inline void logistic_sweeps(Tensor<const double, 2> X, Tensor<const double, 2> y, RowState<const double> from, RowModel model,
                            SweepCounter counter, RowState<double> to, Tensor<std::int64_t, 2> events, int n_threads, const Blas& blas) {
    const Index n = X.shape[0], p = X.shape[1], c = from.theta.shape[0];
    const std::vector<double> columns = by_columns(X);
    n_threads = worthwhile(n_threads, double(c * counter.n_sweeps) * double(n) * double(p * p + 500));
    for_blocks(c, c, n_threads, [&](Index chain, Index, Index) {
        const auto key = [&](Stream stream) { return stream_key(counter.seed, stream, counter.chain + U64(chain)); };
        const U64 scale_key = key(Stream::scales), normal_key = key(Stream::coefficients), omega_key = key(Stream::augmentation);
        const auto happened = events[chain];
        for (Index e = 0; e < 4; ++e) happened[e] = e == fault ? -1 : 0;
        RowChain x(from, chain);
        RowDraw coefficients(n, p + model.intercept, blas);
        std::vector<double> base(n), predictor(n), root(n);
        add_product(columns, x.theta, base);
        double alpha = model.intercept ? from.alpha[chain] : 0;

        const auto sweep = [&](U32 step) {
            const Counter at{0, 0, counter.client, step};
            if (!x.draw_scales(model, at, scale_key, happened[scales_clipped])) return of_lambda;
            for (Index i = 0; i < n; ++i) predictor[i] = base[i] + alpha;
            add_product(columns, x.d, predictor);
            for (Index i = 0; i < n; ++i) root[i] = math::sqrt(polya_gamma(predictor[i], plus(at, i), omega_key));
            for (Index i = 0; i < n; ++i) coefficients.a[i] = (y[chain][i] - 0.5) / root[i] - root[i] * base[i];
            for (Index j = 0; j < p; ++j)
                for (Index i = 0; i < n; ++i) coefficients.W[j * n + i] = root[i] * columns[j * n + i] * x.t[j];
            for (Index i = 0; model.intercept && i < n; ++i) coefficients.W[p * n + i] = root[i] * model.scale_intercept;
            happened[orthogonal_factors] += coefficients.draw(at, normal_key);
            if (model.intercept) alpha = model.scale_intercept * coefficients.u[p];
            return x.take(coefficients.u) && math::magnitude(alpha) < math::infinity<double>() ? no_quantity : of_coefficients;
        };
        for (Index s = 0; s < counter.n_sweeps && happened[fault] < 0; ++s)
            if (const Quantity q = sweep(counter.step + U32(s)); q != no_quantity) happened[fault] = 8 * s + q;
        x.store(to, chain);
        to.alpha[chain] = alpha;
    });
}

/// x_U | x_O, y of one row: x* ~ N(shift + K x_O, C), C = L L', then x* + C b (r - b'x* - sigma e) / (b'C b + sigma^2),
/// b = theta_U, r = y - alpha - x_O'theta_O. `row(j)` is x_j; normals e_j, and e_p of the response.
template <class Row> void impute(const Row& row, double residual, const Patterns& patterns, Index pattern, const std::vector<double>& b,
                                 double sigma, const double* normal, std::vector<double>& drawn, std::vector<double>& along) {
    const Index p = Index(b.size());
    const auto K = patterns.K[pattern], L = patterns.L[pattern];
    const auto shift = patterns.shift[pattern];
    const auto missing = [&](Index j) { return L[j][j] > 0; };
    double variance = sigma * sigma, surprise = residual - sigma * normal[p];
    for (Index u = 0; u < p; ++u) {
        along[u] = 0; // L'b
        if (!missing(u)) {
            surprise -= b[u] * row(u);
            continue;
        }
        drawn[u] = shift[u];
        for (Index o = 0; o < p; ++o)
            if (!missing(o)) drawn[u] += K[u][o] * row(o);
        for (Index v = 0; v <= u; ++v) drawn[u] += L[u][v] * normal[v];
        for (Index v = u; v < p; ++v) along[u] += L[v][u] * b[v];
        variance += along[u] * along[u];
        surprise -= b[u] * drawn[u];
    }
    for (Index u = 0; u < p; ++u) {
        if (!missing(u)) continue;
        for (Index v = 0; v <= u; ++v) drawn[u] += L[u][v] * along[v] * (surprise / variance);
        row(u) = drawn[u];
    }
}

/// Missing covariates: scales; (theta_k, alpha_k), alpha_k with a flat prior, if there is one; sigma^2 ~ IG(a + n/2, b + RSS/2);
/// missing values by pattern.
inline void imputed_sweeps(Tensor<const double, 2> y, Patterns patterns, RowState<const double> from, Tensor<const double, 1> sigma_sq,
                           Tensor<const double, 3> completed, RowModel model, SweepCounter counter, RowState<double> to,
                           Tensor<double, 1> new_sigma_sq, Tensor<double, 3> new_completed, Tensor<std::int64_t, 2> events, int n_threads,
                           const Blas& blas) {
    const Index n = completed.shape[1], p = completed.shape[2], c = completed.shape[0];
    n_threads = worthwhile(n_threads, double(c * counter.n_sweeps) * double(n) * double(p * p + 100));
    for_blocks(c, c, n_threads, [&](Index chain, Index, Index) {
        const auto key = [&](Stream stream) { return stream_key(counter.seed, stream, counter.chain + U64(chain)); };
        const U64 scale_key = key(Stream::scales), normal_key = key(Stream::coefficients), variance_key = key(Stream::variances);
        const U64 value_key = key(Stream::imputation);
        const auto happened = events[chain];
        for (Index e = 0; e < 4; ++e) happened[e] = e == fault ? -1 : 0;
        RowChain x(from, chain);
        RowDraw coefficients(n, p + model.intercept, blas);
        if (model.intercept) coefficients.prior[p] = 0;
        const Index items = p / 2 + 1; // of a row: its normals are neighbours of the next row's, and are made together
        std::vector<double> X = by_columns(completed[chain]), e(n), b(p), normals(2 * items * n), drawn(p), along(p);
        double alpha = model.intercept ? from.alpha[chain] : 0, variance = sigma_sq[chain];
        const double root_n = math::sqrt(double(n));

        const auto sweep = [&](U32 step) {
            const Counter at{0, 0, counter.client, step};
            if (!x.draw_scales(model, at, scale_key, happened[scales_clipped])) return of_lambda;

            const double sigma = math::sqrt(variance);
            for (Index j = 0; j < p; ++j) b[j] = -x.theta[j];
            copy(y[chain], e.data());
            add_product(X, b, e);
            for (Index i = 0; i < n; ++i) coefficients.a[i] = e[i] / sigma;
            for (Index i = 0; model.intercept && i < n; ++i) coefficients.W[p * n + i] = 1 / root_n;
            for (Index j = 0; j < p; ++j)
                for (Index i = 0; i < n; ++i) coefficients.W[j * n + i] = X[j * n + i] * (x.t[j] / sigma);
            happened[orthogonal_factors] += coefficients.draw(at, normal_key);
            if (model.intercept) alpha = sigma / root_n * coefficients.u[p];
            if (!x.take(coefficients.u) || !(math::magnitude(alpha) < math::infinity<double>())) return of_coefficients;

            for (Index j = 0; j < p; ++j) b[j] = -x.d[j];
            add_product(X, b, e);
            double rss = 0;
            for (Index i = 0; i < n; ++i) rss += (e[i] - alpha) * (e[i] - alpha);
            variance = (model.rate + 0.5 * rss) / gamma(model.shape + 0.5 * double(n), at, variance_key);
            if (!positive(variance)) return of_sigma;

            for (Index j = 0; j < p; ++j) b[j] = x.theta[j] + x.d[j];
            fill_normal({normals.data(), 2 * items * n}, at, value_key);
            bool finite = true;
            for (Index i = 0; i < n; ++i) {
                const Index pattern = patterns.of_row[i];
                if (pattern < 0) continue;
                impute([&](Index j) -> double& { return X[j * n + i]; }, y[chain][i] - alpha, patterns, pattern, b, math::sqrt(variance),
                       normals.data() + 2 * items * i, drawn, along);
                for (Index j = 0; j < p; ++j) finite &= math::magnitude(X[j * n + i]) < math::infinity<double>();
            }
            return finite ? no_quantity : of_others;
        };
        for (Index s = 0; s < counter.n_sweeps && happened[fault] < 0; ++s)
            if (const Quantity q = sweep(counter.step + U32(s)); q != no_quantity) happened[fault] = 8 * s + q;
        x.store(to, chain);
        to.alpha[chain] = alpha, new_sigma_sq[chain] = variance;
        for (Index i = 0; i < n; ++i)
            for (Index j = 0; j < p; ++j) new_completed[chain][i][j] = X[j * n + i];
    });
}

} // namespace FEDKERN_ISA
} // namespace fedkern
