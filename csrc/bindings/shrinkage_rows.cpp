#include "blas.hpp"
#include "tensors.hpp"
#include "units/table.hpp"

namespace fedkern {
namespace {

/// What of c chains and p coefficients goes in (T const) or comes out.
template <class T> RowState<T> row_state(const py::array& theta, const py::array& tau_sq, const py::array& deviation,
                                         const py::array& lambda_sq, const py::array& alpha) {
    if (theta.ndim() != 2) throw py::value_error("theta: needs 2 dimensions");
    const Index c = theta.shape(0), p = theta.shape(1);
    return {tensor<const double, 2>(theta, "theta", {c, p}), tensor<const double, 2>(tau_sq, "tau_sq", {c, p}),
            tensor<T, 2>(deviation, "deviation", {c, p}), tensor<T, 2>(lambda_sq, "lambda_sq", {c, p}), tensor<T, 1>(alpha, "alpha", {c})};
}

void logistic_sweeps(const py::array& X, const py::array& y, const py::array& theta, const py::array& tau_sq, const py::array& deviation,
                     const py::array& lambda_sq, const py::array& alpha, U64 seed, U64 chain, U32 client, U32 step, Index n_sweeps,
                     bool expanded, double scale_lambda, double scale_intercept, bool intercept, double slab,
                     const py::array& new_deviation, const py::array& new_lambda_sq, const py::array& new_alpha, const py::array& events,
                     int n_threads) {
    const auto from = row_state<const double>(theta, tau_sq, deviation, lambda_sq, alpha);
    const auto to = row_state<double>(theta, tau_sq, new_deviation, new_lambda_sq, new_alpha);
    const Index c = from.theta.shape[0], p = from.theta.shape[1], n = X.ndim() ? X.shape(0) : 0;
    const auto rows = tensor<const double, 2>(X, "X", {n, p}), response = tensor<const double, 2>(y, "y", {c, n});
    const auto happened = tensor<std::int64_t, 2>(events, "events", {c, 4});
    const RowModel model{{scale_lambda, expanded}, slab, scale_intercept, 0, 0, intercept};
    const Blas& routines = blas();
    const py::gil_scoped_release unlocked;
    kernels().shrinkage_rows.logistic_sweeps(rows, response, from, model, {seed, chain, client, step, n_sweeps}, to, happened, n_threads,
                                             routines);
}

void imputed_sweeps(const py::array& y, const py::array& pattern, const py::array& K, const py::array& L, const py::array& shift,
                    const py::array& theta, const py::array& tau_sq, const py::array& deviation, const py::array& lambda_sq,
                    const py::array& sigma_sq, const py::array& alpha, const py::array& completed, U64 seed, U64 chain, U32 client,
                    U32 step, Index n_sweeps, bool expanded, double scale_lambda, double shape, double rate, double slab, bool intercept,
                    const py::array& new_deviation, const py::array& new_lambda_sq, const py::array& new_sigma_sq,
                    const py::array& new_alpha, const py::array& new_completed, const py::array& events, int n_threads) {
    const auto from = row_state<const double>(theta, tau_sq, deviation, lambda_sq, alpha);
    const auto to = row_state<double>(theta, tau_sq, new_deviation, new_lambda_sq, new_alpha);
    const Index c = from.theta.shape[0], p = from.theta.shape[1], n = pattern.size(), number = K.ndim() ? K.shape(0) : 0;
    const Indices<1> of_row(pattern, "pattern", {n});
    if (of_row.outside(-1, number) >= 0) throw py::index_error("pattern: out of range");
    const Patterns patterns{of_row.view, tensor<const double, 3>(K, "K", {number, p, p}), tensor<const double, 3>(L, "L", {number, p, p}),
                            tensor<const double, 2>(shift, "shift", {number, p})};
    const auto response = tensor<const double, 2>(y, "y", {c, n});
    const auto noise = tensor<const double, 1>(sigma_sq, "sigma_sq", {c});
    const auto filled = tensor<const double, 3>(completed, "completed", {c, n, p});
    const auto new_noise = tensor<double, 1>(new_sigma_sq, "new_sigma_sq", {c});
    const auto new_filled = tensor<double, 3>(new_completed, "new_completed", {c, n, p});
    const auto happened = tensor<std::int64_t, 2>(events, "events", {c, 4});
    const RowModel model{{scale_lambda, expanded}, slab, 0, shape, rate, intercept};
    const Blas& routines = blas();
    const py::gil_scoped_release unlocked;
    kernels().shrinkage_rows.imputed_sweeps(response, patterns, from, noise, filled, model, {seed, chain, client, step, n_sweeps}, to,
                                            new_noise, new_filled, happened, n_threads, routines);
}

} // namespace

void bind_shrinkage_rows(py::module_& m) {
    using py::arg;
    const auto array = [](const char* name) { return py::arg(name).noconvert(); };
    m.def("logistic_sweeps", &logistic_sweeps, array("X"), array("y"), array("theta"), array("tau_sq"), array("deviation"),
          array("lambda_sq"), array("alpha"), arg("seed"), arg("chain"), arg("client"), arg("step"), arg("n_sweeps"), arg("expanded"),
          arg("scale_lambda"), arg("scale_intercept"), arg("intercept"), arg("slab"), array("new_deviation"), array("new_lambda_sq"),
          array("new_alpha"), array("events"), arg("n_threads"));
    m.def("imputed_sweeps", &imputed_sweeps, array("y"), array("pattern"), array("K"), array("L"), array("shift"), array("theta"),
          array("tau_sq"), array("deviation"), array("lambda_sq"), array("sigma_sq"), array("alpha"), array("completed"), arg("seed"),
          arg("chain"), arg("client"), arg("step"), arg("n_sweeps"), arg("expanded"), arg("scale_lambda"), arg("shape"), arg("rate"),
          arg("slab"), arg("intercept"), array("new_deviation"), array("new_lambda_sq"), array("new_sigma_sq"), array("new_alpha"),
          array("new_completed"), array("events"), arg("n_threads"));
}

} // namespace fedkern
