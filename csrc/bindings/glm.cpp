#include "checks.hpp"
#include "units/table.hpp"

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

template <class T>
Regression<T> regression(const py::array& X, const py::object& y, const py::object& offset, const py::object& weights) {
    const auto x = matrix<const T>(X, "X");
    return {x, column(y, "y", x.rows, 0), column(offset, "offset", x.rows, 0), column(weights, "weights", x.rows, 1), nullptr, x.rows};
}

/// The chosen rows, none of which may lie outside X. Keeps a contiguous copy if they are strided.
template <class T> void pick(Regression<T>& data, const py::object& rows, std::vector<Index>& copy) {
    if (rows.is_none()) return;
    const auto a = py::cast<py::array>(rows);
    const auto index = vector<const Index>(a, "rows", a.ndim() == 1 ? a.shape(0) : 0);
    for (Index i = 0; i < index.size; ++i)
        if (index[i] < 0 || index[i] >= data.x.rows)
            throw py::index_error("rows: rows[" + std::to_string(i) + "] = " + std::to_string(index[i]) + " is no row of X, which has " +
                                  std::to_string(data.x.rows));
    data.picked = index.data, data.n = index.size;
    if (index.stride == 1) return;
    copy.resize(index.size);
    for (Index i = 0; i < index.size; ++i) copy[i] = index[i];
    data.picked = copy.data();
}

/// log_sigma (d,), or a (d, d) factor of the covariance.
Posterior posterior(const py::array& mu, const py::array& spread, Index d) {
    Posterior q{vector<const double>(mu, "mu", d), {}, {}};
    if (spread.ndim() == 1) {
        q.log_sigma = vector<const double>(spread, "log_sigma", d);
    } else {
        q.factor = matrix<const double>(spread, "log_sigma");
        if (q.factor.rows != d || q.factor.cols != d) throw py::value_error("log_sigma: needs shape (d, d)");
    }
    return q;
}

/// Calls work(T{}) with the element type of X.
template <class Work> auto with_type_of(const py::array& X, const Work& work) {
    return py::isinstance<py::array_t<float>>(X) ? work(float{}) : work(double{});
}

template <class T> const GlmTable<T>& table() {
    if constexpr (sizeof(T) == 4)
        return kernels().glm_f32;
    else
        return kernels().glm_f64;
}

double loglik_grad(const py::array& X, const py::object& y, const py::array& theta, const py::object& offset, const py::object& weights,
                   int family, double scale, const py::array& grad, int n_threads) {
    return with_type_of(X, [&]<class T>(T) {
        const auto data = regression<T>(X, y, offset, weights);
        const Index d = data.x.cols;
        const auto t = vector<const double>(theta, "theta", d);
        const auto g = vector<double>(grad, "grad", d);
        double loglik = 0;
        const py::gil_scoped_release unlocked;
        table<T>().logliks(data, {t.data, 1, d, 0, t.stride}, {family, scale}, &loglik, {g.data, 1, d, 0, g.stride}, n_threads);
        return loglik;
    });
}

double elbo_grad(const py::array& X, const py::object& y, const py::array& mu, const py::array& log_sigma, const py::array& prior_shift,
                 const py::array& prior_precision, const py::object& offset, const py::object& weights, int family, double scale,
                 int estimator, Index draws, unsigned long key, unsigned client, unsigned step, const py::array& grad_mu,
                 const py::array& grad_log_sigma, int n_threads) {
    return with_type_of(X, [&]<class T>(T) {
        const auto data = regression<T>(X, y, offset, weights);
        const Index d = data.x.cols;
        const auto q = posterior(mu, log_sigma, d);
        static_cast<void>(estimator), static_cast<void>(draws), static_cast<void>(key), static_cast<void>(client), static_cast<void>(step);
        const Cavity prior{vector<const double>(prior_shift, "prior_shift", d), vector<const double>(prior_precision, "prior_precision", d), {}};
        const auto g_mu = vector<double>(grad_mu, "grad_mu", d), g_omega = vector<double>(grad_log_sigma, "grad_log_sigma", d);
        const py::gil_scoped_release unlocked;
        return table<T>().elbo_grad(data, q, prior, {family, scale}, g_mu, g_omega, n_threads);
    });
}

Index clipped_grad_sum(const py::array& X, const py::object& y, const py::array& mu, const py::array& log_sigma, const py::object& rows,
                       const py::object& offset, const py::object& weights, int family, double scale, double clip, int estimator,
                       Index draws, unsigned long key, unsigned client, unsigned step, double noise_multiplier, double grid,
                       const py::array& total, int n_threads) {
    return with_type_of(X, [&]<class T>(T) {
        auto data = regression<T>(X, y, offset, weights);
        std::vector<Index> copy;
        pick(data, rows, copy);
        const auto q = posterior(mu, log_sigma, data.x.cols);
        const Clipping clipping{clip, grid, noise_multiplier};
        static_cast<void>(estimator), static_cast<void>(draws), static_cast<void>(key), static_cast<void>(client), static_cast<void>(step);
        if (grid > 0) {
            const auto out = vector<long>(total, "total", 2 * data.x.cols);
            const py::gil_scoped_release unlocked;
            return table<T>().clipped_grid_sum(data, q, {family, scale}, clipping, out, n_threads);
        }
        const auto out = vector<double>(total, "total", 2 * data.x.cols);
        const py::gil_scoped_release unlocked;
        return table<T>().clipped_sum(data, q, {family, scale}, clipping, out, n_threads);
    });
}

void expectations(const py::array& X, const py::object& y, const py::array& mu, const py::array& log_sigma, const py::object& offset,
                  const py::object& weights, int family, double scale, const py::array& value, const py::array& slope,
                  const py::array& curvature, int n_threads) {
    with_type_of(X, [&]<class T>(T) {
        const auto data = regression<T>(X, y, offset, weights);
        const auto q = posterior(mu, log_sigma, data.x.cols);
        const auto e0 = vector<double>(value, "value", data.n), e1 = vector<double>(slope, "slope", data.n),
                   e2 = vector<double>(curvature, "curvature", data.n);
        const py::gil_scoped_release unlocked;
        table<T>().expectations(data, q, {family, scale}, e0, e1, e2, n_threads);
    });
}

void predict(const py::array& X, const py::array& mu, const py::array& log_sigma, const py::object& offset, int family, int method,
             const py::array& mean, int n_threads) {
    with_type_of(X, [&]<class T>(T) {
        const auto data = regression<T>(X, py::none(), offset, py::none());
        const auto q = posterior(mu, log_sigma, data.x.cols);
        const auto p = vector<double>(mean, "mean", data.n);
        const py::gil_scoped_release unlocked;
        table<T>().predict(data, q, {family, 1}, method == 0, p, n_threads);
    });
}

} // namespace

void bind_glm(py::module_& m) {
    using namespace py::literals;
    m.def("loglik_grad", &loglik_grad, "X"_a.noconvert(), "y"_a, "theta"_a.noconvert(), "offset"_a, "weights"_a, "family"_a, "scale"_a,
          "grad"_a.noconvert(), "n_threads"_a);
    m.def("elbo_grad", &elbo_grad, "X"_a.noconvert(), "y"_a, "mu"_a.noconvert(), "log_sigma"_a.noconvert(), "prior_shift"_a.noconvert(),
          "prior_precision"_a.noconvert(), "offset"_a, "weights"_a, "family"_a, "scale"_a, "estimator"_a,
          "draws"_a, "key"_a, "client"_a, "step"_a, "grad_mu"_a.noconvert(), "grad_log_sigma"_a.noconvert(), "n_threads"_a);
    m.def("clipped_grad_sum", &clipped_grad_sum, "X"_a.noconvert(), "y"_a, "mu"_a.noconvert(), "log_sigma"_a.noconvert(), "rows"_a,
          "offset"_a, "weights"_a, "family"_a, "scale"_a, "clip"_a, "estimator"_a, "draws"_a, "key"_a, "client"_a,
          "step"_a, "noise_multiplier"_a, "grid"_a, "total"_a.noconvert(), "n_threads"_a);
    for (const char* name : {"expectations", "expectations_full"})
        m.def(name, &expectations, "X"_a.noconvert(), "y"_a, "mu"_a.noconvert(), "log_sigma"_a.noconvert(), "offset"_a, "weights"_a,
              "family"_a, "scale"_a, "value"_a.noconvert(), "slope"_a.noconvert(), "curvature"_a.noconvert(), "n_threads"_a);
    for (const char* name : {"predict", "predict_full"})
        m.def(name, &predict, "X"_a.noconvert(), "mu"_a.noconvert(), "log_sigma"_a.noconvert(), "offset"_a, "family"_a, "method"_a,
              "mean"_a.noconvert(), "n_threads"_a);
}

} // namespace fedkern
