#include "blas.hpp"
#include "fedkern/augmented/views.hpp"
#include "networks.hpp"
#include "units/table.hpp"

namespace fedkern {
namespace {

/// The network (1 + e, *hidden, 2) and its arguments.
struct Conditional {
    Sizes sizes;
    Amortised view;

    Conditional(const py::array& extra, const py::array& hidden, Index n) {
        const auto units = integers(hidden, "hidden");
        view.extra = matrix<const double>(extra, "extra");
        if (view.extra.rows != n) throw py::value_error("extra: needs " + std::to_string(n) + " rows");
        sizes.all.reserve(units.size + 2);
        sizes.all.push_back(1 + view.extra.cols), sizes.append(units), sizes.all.push_back(2);
        view.net = sizes.network(Activation::tanh);
    }
    Conditional(const py::array& extra, const py::array& psi, const py::array& hidden, Index n) : Conditional(extra, hidden, n) {
        view.psi = vector<const double>(psi, "psi", parameters());
    }
    Index parameters() const { return view.net.first(view.net.layers); }
};

Augmented augmented(const py::array& H, const py::array& g, const py::array& z, const py::array& tau, const py::array& message,
                    const py::object& own, double rho, bool path) {
    const auto design = matrix<const double>(H, "H");
    const auto rows = [&](const py::array& a, const char* name) { return vector<const double>(a, name, design.rows); };
    const auto kept = own.is_none() ? Vector<const double>{nullptr, design.rows} : rows(py::cast<py::array>(own), "own");
    return {design, rows(g, "g"), rows(z, "z"), rows(tau, "tau"), rows(message, "message"), kept, rho, path};
}

void coefficients(const py::array& mu, const py::array& scale, const py::array& eps, bool full, const py::array& theta, int n_threads) {
    const auto out = vector<double>(theta, "theta", theta.size());
    const auto in = [&](const py::array& a, const char* name) { return vector<const double>(a, name, out.size); };
    const auto of_q = vector<const double>(scale, "scale", coefficient_parameters(out.size, full) - out.size);
    kernels().augmented.coefficients(in(mu, "mu"), of_q, in(eps, "eps"), full, out, n_threads);
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

template <class T> ClientState<T> client_state(Matrix<const double> H, Index k, const py::array& parameters, const py::array& moments,
                                               const py::array& eps, const py::array& tau, const py::array& theta, const py::array& g,
                                               const py::array& z) {
    const Index n = H.rows, p = H.cols;
    return {vector<T>(parameters, "parameters", k),
            matrix<T>(moments, "moments", 3, k),
            vector<T>(eps, "eps", p),
            vector<T>(tau, "tau", n),
            vector<T>(theta, "theta", p),
            vector<T>(g, "g", n),
            vector<T>(z, "z", n)};
}

void mean_field_iteration(const py::array& H, const py::array& parameters, const py::array& moments, const py::array& eps,
                          const py::array& tau, const py::array& theta, const py::array& g, const py::array& z, const py::array& message,
                          double rho, double prior_mean, double prior_sd, double learning_rate, double beta1, double beta2, double epsilon,
                          bool path, bool full, U64 key, U32 client, U32 step, const py::array& new_parameters,
                          const py::array& new_moments, const py::array& new_eps, const py::array& new_tau, const py::array& new_theta,
                          const py::array& new_g, const py::array& new_z, int n_threads) {
    const auto design = matrix<const double>(H, "H");
    const Index k = coefficient_parameters(design.cols, full) + 2 * design.rows;
    const auto from = client_state<const double>(design, k, parameters, moments, eps, tau, theta, g, z);
    const auto to = client_state<double>(design, k, new_parameters, new_moments, new_eps, new_tau, new_theta, new_g, new_z);
    const auto slopes = vector<const double>(message, "message", design.rows);
    const Iteration x{rho, prior_mean, prior_sd, {learning_rate, beta1, beta2, epsilon}, path, full, {0, 0, client, step}, key};
    const py::gil_scoped_release unlocked;
    kernels().augmented.mean_field_iteration(design, from, slopes, x, to, n_threads);
}

void amortised_iteration(const py::array& H, const py::array& parameters, const py::array& moments, const py::array& eps,
                         const py::array& tau, const py::array& theta, const py::array& g, const py::array& z, const py::array& message,
                         const py::array& extra, const py::array& extra_next, double rho, const py::array& hidden, double prior_mean,
                         double prior_sd, double learning_rate, double beta1, double beta2, double epsilon, bool path, bool full,
                         Index centre, U64 key, U32 client, U32 step, const py::array& new_parameters, const py::array& new_moments,
                         const py::array& new_eps, const py::array& new_tau, const py::array& new_theta, const py::array& new_g,
                         const py::array& new_z, const py::array& new_extra, int n_threads) {
    const auto design = matrix<const double>(H, "H");
    const Conditional q(extra, hidden, design.rows);
    const Index k = coefficient_parameters(design.cols, full) + q.parameters();
    const auto from = client_state<const double>(design, k, parameters, moments, eps, tau, theta, g, z);
    const auto to = client_state<double>(design, k, new_parameters, new_moments, new_eps, new_tau, new_theta, new_g, new_z);
    const auto slopes = vector<const double>(message, "message", design.rows);
    const Index e = q.view.extra.cols;
    if (centre >= e) throw py::value_error("centre: no such column of extra");
    const IterationInputs inputs{q.view.extra, matrix<const double>(extra_next, "extra_next", design.rows, e), centre,
                                 matrix<double>(new_extra, "new_extra", design.rows, e), q.view.net};
    const Iteration x{rho, prior_mean, prior_sd, {learning_rate, beta1, beta2, epsilon}, path, full, {0, 0, client, step}, key};
    const py::gil_scoped_release unlocked;
    kernels().augmented.amortised_iteration(design, from, slopes, inputs, x, to, n_threads);
}

void network_iteration(const py::array& X, const py::array& precision, const py::array& H, const py::array& parameters,
                       const py::array& moments, const py::array& eps, const py::array& tau, const py::array& theta, const py::array& g,
                       const py::array& z, const py::array& message, const py::array& extra, const py::array& extra_next, double rho,
                       const py::array& hidden, const py::array& sizes, int activation, double learning_rate, double beta1, double beta2,
                       double epsilon, bool path, bool full, Index centre, U64 key, U32 client, U32 step, const py::array& new_H,
                       const py::array& new_parameters, const py::array& new_moments, const py::array& new_eps, const py::array& new_tau,
                       const py::array& new_theta, const py::array& new_g, const py::array& new_z, const py::array& new_extra,
                       int n_threads) {
    const Sizes layers(sizes);
    const Network net = layers.network(activation);
    const Features f{matrix<const double>(X, "X"), vector<const double>(precision, "precision", net.first(net.layers)), net};
    const Index n = f.X.rows, p = net.outputs();
    if (f.X.cols != net.inputs()) throw py::value_error("X: needs " + std::to_string(net.inputs()) + " columns");
    const auto design = matrix<const double>(H, "H", n, p);
    const Conditional q(extra, hidden, n);
    const Index k = coefficient_parameters(p, full) + f.precision.size + q.parameters(), e = q.view.extra.cols;
    const auto from = client_state<const double>(design, k, parameters, moments, eps, tau, theta, g, z);
    const auto to = client_state<double>(design, k, new_parameters, new_moments, new_eps, new_tau, new_theta, new_g, new_z);
    const auto next_H = matrix<double>(new_H, "new_H", n, p);
    const auto slopes = vector<const double>(message, "message", n);
    if (centre >= e) throw py::value_error("centre: no such column of extra");
    const IterationInputs inputs{q.view.extra, matrix<const double>(extra_next, "extra_next", n, e), centre,
                                 matrix<double>(new_extra, "new_extra", n, e), q.view.net};
    const Iteration x{rho, 0, 1, {learning_rate, beta1, beta2, epsilon}, path, full, {0, 0, client, step}, key};
    const Blas& routines = blas();
    const py::gil_scoped_release unlocked;
    kernels().augmented.network_iteration(f, design, from, slopes, inputs, x, next_H, to, routines, n_threads);
}

} // namespace

void bind_augmented(py::module_& m) {
    using namespace py::literals;
    m.def("coefficients", &coefficients, "mu"_a.noconvert(), "scale"_a.noconvert(), "eps"_a.noconvert(), "full"_a, "theta"_a.noconvert(),
          "n_threads"_a);
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
    m.def("mean_field_iteration", &mean_field_iteration, "H"_a.noconvert(), "parameters"_a.noconvert(), "moments"_a.noconvert(),
          "eps"_a.noconvert(), "tau"_a.noconvert(), "theta"_a.noconvert(), "g"_a.noconvert(), "z"_a.noconvert(), "message"_a.noconvert(),
          "rho"_a, "prior_mean"_a, "prior_sd"_a, "learning_rate"_a, "beta1"_a, "beta2"_a, "epsilon"_a, "path"_a, "full"_a, "key"_a,
          "client"_a, "step"_a, "new_parameters"_a.noconvert(), "new_moments"_a.noconvert(), "new_eps"_a.noconvert(),
          "new_tau"_a.noconvert(), "new_theta"_a.noconvert(), "new_g"_a.noconvert(), "new_z"_a.noconvert(), "n_threads"_a);
    m.def("amortised_iteration", &amortised_iteration, "H"_a.noconvert(), "parameters"_a.noconvert(), "moments"_a.noconvert(),
          "eps"_a.noconvert(), "tau"_a.noconvert(), "theta"_a.noconvert(), "g"_a.noconvert(), "z"_a.noconvert(), "message"_a.noconvert(),
          "extra"_a.noconvert(), "extra_next"_a.noconvert(), "rho"_a, "hidden"_a.noconvert(), "prior_mean"_a, "prior_sd"_a,
          "learning_rate"_a, "beta1"_a, "beta2"_a, "epsilon"_a, "path"_a, "full"_a, "centre"_a, "key"_a, "client"_a, "step"_a,
          "new_parameters"_a.noconvert(), "new_moments"_a.noconvert(), "new_eps"_a.noconvert(), "new_tau"_a.noconvert(),
          "new_theta"_a.noconvert(), "new_g"_a.noconvert(), "new_z"_a.noconvert(), "new_extra"_a.noconvert(), "n_threads"_a);
    m.def("network_iteration", &network_iteration, "X"_a.noconvert(), "precision"_a.noconvert(), "H"_a.noconvert(),
          "parameters"_a.noconvert(), "moments"_a.noconvert(), "eps"_a.noconvert(), "tau"_a.noconvert(), "theta"_a.noconvert(),
          "g"_a.noconvert(), "z"_a.noconvert(), "message"_a.noconvert(), "extra"_a.noconvert(), "extra_next"_a.noconvert(), "rho"_a,
          "hidden"_a.noconvert(), "sizes"_a.noconvert(), "activation"_a, "learning_rate"_a, "beta1"_a, "beta2"_a, "epsilon"_a, "path"_a,
          "full"_a, "centre"_a, "key"_a, "client"_a, "step"_a, "new_H"_a.noconvert(), "new_parameters"_a.noconvert(),
          "new_moments"_a.noconvert(), "new_eps"_a.noconvert(), "new_tau"_a.noconvert(), "new_theta"_a.noconvert(), "new_g"_a.noconvert(),
          "new_z"_a.noconvert(), "new_extra"_a.noconvert(), "n_threads"_a);
}

} // namespace fedkern
