#include "tensors.hpp"
#include "units/table.hpp"

namespace fedkern {
namespace {

template <class T>
SemState<T> state(const py::array& deviation, const py::array& lambda_sq, const py::array& b, const py::array& log_step, Index c, Index p) {
    return {tensor<T>(deviation, "deviation", {c, p, p}), tensor<T>(lambda_sq, "lambda_sq", {c, p, p}), tensor<T>(b, "b", {c, p}),
            tensor<T>(log_step, "log_step", {c, p, p})};
}

Tensor<const double, 3> rows(const py::array& Y) {
    if (Y.ndim() != 3) throw py::value_error("Y: needs 3 dimensions");
    return tensor<const double>(Y, "Y", {Y.shape(0), Y.shape(1), Y.shape(2)});
}

void log_density(const py::array& Y, const py::array& coefficients, const py::array& b, const py::array& loglik, int n_threads) {
    const auto y = rows(Y);
    const Index c = y.shape[0], p = y.shape[1];
    const auto theta = tensor<const double>(coefficients, "coefficients", {c, p, p});
    const auto scales = tensor<const double>(b, "b", {c, p});
    const auto value = vector<double>(loglik, "loglik", c);
    const py::gil_scoped_release unlocked;
    kernels().sem.log_density(y, theta, scales, value, n_threads);
}

void sweeps(const py::array& Y, const py::array& theta, const py::array& tau_sq, const py::array& deviation, const py::array& lambda_sq,
            const py::array& b, const py::array& log_step, const py::array& temperature, U64 seed, U64 chain, U32 client, U32 step,
            Index n_sweeps, int update, bool swap, bool stable, bool adapt, bool expanded, double scale_lambda, double shape, double rate,
            const py::array& deviation_out, const py::array& lambda_sq_out, const py::array& b_out, const py::array& log_step_out,
            const py::array& loglik, const py::array& events, int n_threads) {
    const auto y = rows(Y);
    const Index c = y.shape[0], p = y.shape[1];
    if (p < 1 || y.shape[2] < 1) throw py::value_error("Y: needs a variable and a row");
    const SemData data{y, tensor<const double>(theta, "theta", {c, p, p}), tensor<const double>(tau_sq, "tau_sq", {c, p, p}),
                       vector<const double>(temperature, "temperature", c)};
    const auto before = state<const double>(deviation, lambda_sq, b, log_step, c, p);
    const auto after = state<double>(deviation_out, lambda_sq_out, b_out, log_step_out, c, p);
    const auto value = vector<double>(loglik, "loglik", c);
    const auto counts = matrix<std::int64_t>(events, "events");
    if (counts.rows != c || counts.cols != sem_events) throw py::value_error("events: needs a row of 6 for each chain");
    const SemOptions options{seed,  chain, client, step, n_sweeps, SemUpdate(update), swap, stable, adapt, {scale_lambda, expanded},
                             shape, rate};
    const py::gil_scoped_release unlocked;
    kernels().sem.sweeps(data, before, after, options, value, counts, n_threads);
}

} // namespace

void bind_sem(py::module_& m) {
    using namespace py::literals;
    m.def("log_density", &log_density, "Y"_a, "coefficients"_a, "b"_a, "loglik"_a.noconvert(), "n_threads"_a);
    m.def("sweeps", &sweeps, "Y"_a, "theta"_a, "tau_sq"_a, "deviation"_a, "lambda_sq"_a, "b"_a, "log_step"_a, "temperature"_a, "seed"_a,
          "chain"_a, "client"_a, "step"_a, "n_sweeps"_a, "update"_a, "swap"_a, "stable"_a, "adapt"_a, "expanded"_a, "scale_lambda"_a,
          "shape"_a, "rate"_a, "deviation_out"_a.noconvert(), "lambda_sq_out"_a.noconvert(), "b_out"_a.noconvert(),
          "log_step_out"_a.noconvert(), "loglik"_a.noconvert(), "events"_a.noconvert(), "n_threads"_a);
}

} // namespace fedkern
