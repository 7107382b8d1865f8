#include "fedkern/augmented_views.hpp"
#include "networks.hpp"
#include "units/table.hpp"

namespace fedkern {
namespace {

/// The network (1 + e, *hidden, 2) and its arguments.
struct Conditional {
    Sizes sizes;
    Amortised view;

    Conditional(const py::array& extra, const py::array& psi, const py::array& hidden, Index n) {
        const auto units = integers(hidden, "hidden");
        view.extra = matrix<const double>(extra, "extra");
        if (view.extra.rows != n) throw py::value_error("extra: needs " + std::to_string(n) + " rows");
        sizes.all.reserve(units.size + 2);
        sizes.all.push_back(1 + view.extra.cols), sizes.append(units), sizes.all.push_back(2);
        view.net = sizes.network(Activation::tanh);
        view.psi = vector<const double>(psi, "psi", view.net.first(view.net.layers));
    }
};

Augmented augmented(const py::array& H, const py::array& g, const py::array& z, const py::array& tau, const py::array& message,
                    const py::object& own, double rho, bool path) {
    const auto design = matrix<const double>(H, "H");
    const auto rows = [&](const py::array& a, const char* name) { return vector<const double>(a, name, design.rows); };
    const auto kept = own.is_none() ? Vector<const double>{nullptr, design.rows} : rows(py::cast<py::array>(own), "own");
    return {design, rows(g, "g"), rows(z, "z"), rows(tau, "tau"), rows(message, "message"), kept, rho, path};
}

void mean_field_draw(const py::array& H, const py::array& w, const py::array& tau, const py::array& mean, const py::array& log_sd,
                     const py::array& g, const py::array& z, int n_threads) {
    const auto design = matrix<const double>(H, "H");
    const Index n = design.rows;
    const auto coefficients = vector<const double>(w, "w", design.cols), normals = vector<const double>(tau, "tau", n),
               m = vector<const double>(mean, "mean", n), log_s = vector<const double>(log_sd, "log_sd", n);
    const auto predictor = vector<double>(g, "g", n), drawn = vector<double>(z, "z", n);
    const py::gil_scoped_release unlocked;
    kernels().augmented.mean_field_draw(design, coefficients, normals, m, log_s, predictor, drawn, n_threads);
}

void mean_field_gradient(const py::array& H, const py::array& g, const py::array& z, const py::array& tau, const py::array& log_sd,
                         const py::array& message, const py::object& own, double rho, bool path, const py::array& grad_w,
                         const py::array& cotangent, const py::array& grad_mean, const py::array& grad_log_sd, int n_threads) {
    const auto x = augmented(H, g, z, tau, message, own, rho, path);
    const Index n = x.H.rows;
    const auto log_s = vector<const double>(log_sd, "log_sd", n);
    const auto g_w = vector<double>(grad_w, "grad_w", x.H.cols), c = vector<double>(cotangent, "cotangent", n),
               g_mean = vector<double>(grad_mean, "grad_mean", n), g_log_sd = vector<double>(grad_log_sd, "grad_log_sd", n);
    const py::gil_scoped_release unlocked;
    kernels().augmented.mean_field_gradient(x, log_s, g_w, c, g_mean, g_log_sd, n_threads);
}

void amortised_draw(const py::array& H, const py::array& w, const py::array& tau, const py::array& extra, const py::array& psi, double rho,
                    const py::array& hidden, const py::array& g, const py::array& z, int n_threads) {
    const auto design = matrix<const double>(H, "H");
    const Index n = design.rows;
    const auto coefficients = vector<const double>(w, "w", design.cols), normals = vector<const double>(tau, "tau", n);
    const Conditional q(extra, psi, hidden, n);
    const auto predictor = vector<double>(g, "g", n), drawn = vector<double>(z, "z", n);
    const py::gil_scoped_release unlocked;
    kernels().augmented.amortised_draw(design, coefficients, normals, q.view, rho, predictor, drawn, n_threads);
}

void amortised_gradient(const py::array& H, const py::array& g, const py::array& z, const py::array& tau, const py::array& extra,
                        const py::array& psi, const py::array& message, const py::object& own, double rho, const py::array& hidden,
                        bool path, const py::array& grad_w, const py::array& cotangent, const py::array& grad_psi, int n_threads) {
    const auto x = augmented(H, g, z, tau, message, own, rho, path);
    const Conditional q(extra, psi, hidden, x.H.rows);
    const auto g_w = vector<double>(grad_w, "grad_w", x.H.cols), c = vector<double>(cotangent, "cotangent", x.H.rows),
               g_psi = vector<double>(grad_psi, "grad_psi", q.view.psi.size);
    const py::gil_scoped_release unlocked;
    kernels().augmented.amortised_gradient(x, q.view, g_w, c, g_psi, n_threads);
}

} // namespace

void bind_augmented(py::module_& m) {
    using namespace py::literals;
    m.def("mean_field_draw", &mean_field_draw, "H"_a.noconvert(), "w"_a.noconvert(), "tau"_a.noconvert(), "mean"_a.noconvert(),
          "log_sd"_a.noconvert(), "g"_a.noconvert(), "z"_a.noconvert(), "n_threads"_a);
    m.def("mean_field_gradient", &mean_field_gradient, "H"_a.noconvert(), "g"_a.noconvert(), "z"_a.noconvert(), "tau"_a.noconvert(),
          "log_sd"_a.noconvert(), "message"_a.noconvert(), "own"_a, "rho"_a, "path"_a, "grad_w"_a.noconvert(), "cotangent"_a.noconvert(),
          "grad_mean"_a.noconvert(), "grad_log_sd"_a.noconvert(), "n_threads"_a);
    m.def("amortised_draw", &amortised_draw, "H"_a.noconvert(), "w"_a.noconvert(), "tau"_a.noconvert(), "extra"_a.noconvert(),
          "psi"_a.noconvert(), "rho"_a, "hidden"_a.noconvert(), "g"_a.noconvert(), "z"_a.noconvert(), "n_threads"_a);
    m.def("amortised_gradient", &amortised_gradient, "H"_a.noconvert(), "g"_a.noconvert(), "z"_a.noconvert(), "tau"_a.noconvert(),
          "extra"_a.noconvert(), "psi"_a.noconvert(), "message"_a.noconvert(), "own"_a, "rho"_a, "hidden"_a.noconvert(), "path"_a,
          "grad_w"_a.noconvert(), "cotangent"_a.noconvert(), "grad_psi"_a.noconvert(), "n_threads"_a);
}

} // namespace fedkern
