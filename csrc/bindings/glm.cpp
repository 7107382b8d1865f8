#include "tensors.hpp"
#include "units/table.hpp"

#include <optional>

namespace fedkern {
namespace {

using Type = Column::Type;

/// A column of n numbers of any plain type, or None: `fill` everywhere.
Column column(const py::object& values, const char* name, Index n, double fill) {
    if (values.is_none()) return {nullptr, 0, Type::f64, fill};
    const auto a = py::cast<py::array>(values);
    const auto read = [&]<class T>(Type type) -> Column { return {vector<const T>(a, name, n).data, a.strides(0), type, fill}; };
    if (py::isinstance<py::array_t<double>>(a)) return read.operator()<double>(Type::f64);
    if (py::isinstance<py::array_t<float>>(a)) return read.operator()<float>(Type::f32);
    if (py::isinstance<py::array_t<long>>(a)) return read.operator()<long>(Type::i64);
    if (py::isinstance<py::array_t<int>>(a)) return read.operator()<int>(Type::i32);
    if (py::isinstance<py::array_t<signed char>>(a)) return read.operator()<signed char>(Type::i8);
    if (py::isinstance<py::array_t<bool>>(a)) return read.operator()<bool>(Type::u8);
    return read.operator()<unsigned char>(Type::u8);
}

Regression regression(const py::array& X, const py::object& y, const py::object& offset, const py::object& weights) {
    const bool single = py::isinstance<py::array_t<float>>(X);
    const auto fill = [&](const auto& x) -> Regression {
        return {x.data,
                single,
                x.rows,
                x.cols,
                x.row_stride,
                x.col_stride,
                column(y, "y", x.rows, 0),
                column(offset, "offset", x.rows, 0),
                column(weights, "weights", x.rows, 1),
                nullptr,
                x.rows};
    };
    return single ? fill(matrix<const float>(X, "X")) : fill(matrix<const double>(X, "X"));
}

/// The chosen rows, none of which may lie outside X.
void pick(Regression& data, const py::object& rows, std::optional<Indices<1>>& chosen) {
    if (rows.is_none()) return;
    const auto a = py::cast<py::array>(rows);
    const Index n[] = {a.ndim() == 1 ? a.shape(0) : 0};
    chosen.emplace(a, "rows", n);
    data.picked = chosen->view.data, data.n = chosen->size();
    if (const Index i = chosen->outside(0, data.rows); i >= 0)
        throw py::index_error("rows: rows[" + std::to_string(i) + "] = " + std::to_string(data.picked[i]) + " is no row of X, which has " +
                              std::to_string(data.rows));
}

template <class T> Matrix<T> square(const py::array& a, const char* name, Index d) {
    const auto m = matrix<T>(a, name);
    if (m.rows != d || m.cols != d)
        throw py::value_error(std::string(name) + ": needs shape (" + std::to_string(d) + ", " + std::to_string(d) + ")");
    return m;
}

/// `spread` is log_sigma (d,) or, full rank, a (d, d) factor of the covariance.
Posterior posterior(const py::array& mu, const py::array& spread, Index d, bool full) {
    const auto centre = vector<const double>(mu, "mu", d);
    if (full) return {centre, {}, square<const double>(spread, "log_sigma", d)};
    return {centre, vector<const double>(spread, "log_sigma", d), {}};
}

/// The draws of a posterior, of which there is one at least: memory is taken by their number, and sums are divided by it.
Draws draws_of(Draws::Kind kind, Index draws, U64 key, unsigned client, unsigned step) {
    if (draws < 1 || draws >= Index(1) << 31) throw py::value_error("draws: must be in [1, 2^31), got " + std::to_string(draws));
    return {kind, draws, key, client, step};
}

double loglik_grad(const py::array& X, const py::object& y, const py::array& theta, const py::object& offset, const py::object& weights,
                   int family, double scale, const py::array& grad, int n_threads) {
    const auto data = regression(X, y, offset, weights);
    const auto t = vector<const double>(theta, "theta", data.d);
    const auto g = vector<double>(grad, "grad", data.d);
    double loglik = 0;
    const py::gil_scoped_release unlocked;
    kernels().glm.logliks(data, {t.data, 1, data.d, 0, t.stride}, {family, scale}, &loglik, {g.data, 1, data.d, 0, g.stride}, n_threads);
    return loglik;
}

double elbo_grad(const py::array& X, const py::object& y, const py::array& mu, const py::array& log_sigma, const py::array& prior_shift,
                 const py::array& prior_precision, const py::object& offset, const py::object& weights, int family, double scale,
                 int estimator, Index draws, U64 key, unsigned client, unsigned step, const py::array& grad_mu,
                 const py::array& grad_log_sigma, int n_threads) {
    const auto data = regression(X, y, offset, weights);
    const Index d = data.d;
    const auto q = posterior(mu, log_sigma, d, false);
    const Cavity prior{vector<const double>(prior_shift, "prior_shift", d),
                       vector<const double>(prior_precision, "prior_precision", d),
                       {}};
    const auto g_mu = vector<double>(grad_mu, "grad_mu", d), g_omega = vector<double>(grad_log_sigma, "grad_log_sigma", d);
    const auto from = draws_of(Draws::Kind::weights, draws, key, client, step);
    const py::gil_scoped_release unlocked;
    return kernels().glm.elbo_grad(data, q, prior, {family, scale}, ElboEstimator(estimator), from, g_mu, g_omega, n_threads);
}

double elbo_grad_full(const py::array& X, const py::object& y, const py::array& mu, const py::array& factor, const py::array& prior_shift,
                      const py::array& prior_precision, const py::object& offset, const py::object& weights, double normaliser, int family,
                      double scale, int estimator, Index draws, U64 key, unsigned client, unsigned step, const py::array& grad_mu,
                      const py::array& grad_factor, int n_threads) {
    const auto data = regression(X, y, offset, weights);
    const Index d = data.d;
    const auto q = posterior(mu, factor, d, true);
    const Cavity prior{vector<const double>(prior_shift, "prior_shift", d),
                       {},
                       square<const double>(prior_precision, "prior_precision", d)};
    const auto g_mu = vector<double>(grad_mu, "grad_mu", d);
    const auto g_L = square<double>(grad_factor, "grad_log_sigma", d);
    const auto from = draws_of(Draws::Kind::weights, draws, key, client, step);
    const py::gil_scoped_release unlocked;
    return kernels().glm.elbo_grad_full(data, q, prior, normaliser, {family, scale}, ElboEstimator(estimator), from, g_mu, g_L, n_threads);
}

template <bool full> Index clipped_grad_sum(const py::array& X, const py::object& y, const py::array& mu, const py::array& log_sigma,
                                            const py::object& rows, const py::object& offset, const py::object& weights, int family,
                                            double scale, double clip, int estimator, Index draws, U64 key, unsigned client, unsigned step,
                                            double noise_multiplier, double grid, const py::array& total, int n_threads) {
    auto data = regression(X, y, offset, weights);
    std::optional<Indices<1>> chosen;
    pick(data, rows, chosen);
    const Index d = data.d, size = full ? d + d * (d + 1) / 2 : 2 * d;
    const auto q = posterior(mu, log_sigma, d, full);
    const auto from = draws_of(Draws::Kind(estimator), draws, key, client, step);
    const Clipping clipping{clip, grid, noise_multiplier};
    const GlmTable& glm = kernels().glm;
    if (grid > 0) {
        const auto out = vector<long>(total, "total", size);
        const py::gil_scoped_release unlocked;
        return (full ? glm.clipped_grid_sum_full : glm.clipped_grid_sum)(data, q, {family, scale}, from, clipping, out, n_threads);
    }
    const auto out = vector<double>(total, "total", size);
    const py::gil_scoped_release unlocked;
    return (full ? glm.clipped_sum_full : glm.clipped_sum)(data, q, {family, scale}, from, clipping, out, n_threads);
}

template <bool full> void expectations(const py::array& X, const py::object& y, const py::array& mu, const py::array& log_sigma,
                                       const py::object& offset, const py::object& weights, int family, double scale,
                                       const py::array& value, const py::array& slope, const py::array& curvature, int n_threads) {
    const auto data = regression(X, y, offset, weights);
    const auto q = posterior(mu, log_sigma, data.d, full);
    const auto e0 = vector<double>(value, "value", data.n), e1 = vector<double>(slope, "slope", data.n),
               e2 = vector<double>(curvature, "curvature", data.n);
    const py::gil_scoped_release unlocked;
    kernels().glm.expectations(data, q, {family, scale}, e0, e1, e2, n_threads);
}

template <bool full> void predict(const py::array& X, const py::array& mu, const py::array& log_sigma, const py::object& offset, int family,
                                  int method, const py::array& mean, int n_threads) {
    const auto data = regression(X, py::none(), offset, py::none());
    const auto q = posterior(mu, log_sigma, data.d, full);
    const auto p = vector<double>(mean, "mean", data.n);
    const py::gil_scoped_release unlocked;
    kernels().glm.predict(data, q, {family, 1}, method == 0, p, n_threads);
}

} // namespace

void bind_glm(py::module_& m) {
    using namespace py::literals;
    m.def("loglik_grad", &loglik_grad, "X"_a.noconvert(), "y"_a, "theta"_a.noconvert(), "offset"_a, "weights"_a, "family"_a, "scale"_a,
          "grad"_a.noconvert(), "n_threads"_a);
    m.def("elbo_grad", &elbo_grad, "X"_a.noconvert(), "y"_a, "mu"_a.noconvert(), "log_sigma"_a.noconvert(), "prior_shift"_a.noconvert(),
          "prior_precision"_a.noconvert(), "offset"_a, "weights"_a, "family"_a, "scale"_a, "estimator"_a, "draws"_a, "key"_a, "client"_a,
          "step"_a, "grad_mu"_a.noconvert(), "grad_log_sigma"_a.noconvert(), "n_threads"_a);
    m.def("elbo_grad_full", &elbo_grad_full, "X"_a.noconvert(), "y"_a, "mu"_a.noconvert(), "log_sigma"_a.noconvert(),
          "prior_shift"_a.noconvert(), "prior_precision"_a.noconvert(), "offset"_a, "weights"_a, "normaliser"_a, "family"_a, "scale"_a,
          "estimator"_a, "draws"_a, "key"_a, "client"_a, "step"_a, "grad_mu"_a.noconvert(), "grad_log_sigma"_a.noconvert(), "n_threads"_a);
    const auto both = [&](const char* name, const char* name_full, auto diagonal, auto full, const auto&... arguments) {
        m.def(name, diagonal, arguments...);
        m.def(name_full, full, arguments...);
    };
    both("clipped_grad_sum", "clipped_grad_sum_full", &clipped_grad_sum<false>, &clipped_grad_sum<true>, "X"_a.noconvert(), "y"_a,
         "mu"_a.noconvert(), "log_sigma"_a.noconvert(), "rows"_a, "offset"_a, "weights"_a, "family"_a, "scale"_a, "clip"_a, "estimator"_a,
         "draws"_a, "key"_a, "client"_a, "step"_a, "noise_multiplier"_a, "grid"_a, "total"_a.noconvert(), "n_threads"_a);
    both("expectations", "expectations_full", &expectations<false>, &expectations<true>, "X"_a.noconvert(), "y"_a, "mu"_a.noconvert(),
         "log_sigma"_a.noconvert(), "offset"_a, "weights"_a, "family"_a, "scale"_a, "value"_a.noconvert(), "slope"_a.noconvert(),
         "curvature"_a.noconvert(), "n_threads"_a);
    both("predict", "predict_full", &predict<false>, &predict<true>, "X"_a.noconvert(), "mu"_a.noconvert(), "log_sigma"_a.noconvert(),
         "offset"_a, "family"_a, "method"_a, "mean"_a.noconvert(), "n_threads"_a);
}

} // namespace fedkern
