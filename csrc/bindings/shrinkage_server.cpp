#include "blas.hpp"
#include "tensors.hpp"
#include "units/table.hpp"

namespace fedkern {
namespace {

void local_sums(const py::array& deviation, const py::array& lambda_sq, double slab, const py::array& sums, int n_threads) {
    if (deviation.ndim() != 3) throw py::value_error("deviation: needs 3 dimensions");
    const Index n = slab < math::infinity<double>() ? 4 : 3, c = deviation.shape(0), g = deviation.shape(1), p = deviation.shape(2);
    const auto d = tensor<const double, 3>(deviation, "deviation", {c, g, p});
    const auto l = tensor<const double, 3>(lambda_sq, "lambda_sq", {c, g, p});
    const auto out = tensor<double, 4>(sums, "sums", {n, c, g, p});
    const py::gil_scoped_release unlocked;
    kernels().shrinkage_server.local_sums(d, l, slab, out, n_threads);
}

/// State and results of c chains and g regressions of p coefficients.
struct ServerShape {
    Index c, g, p;

    ServerShape(const py::array& theta) : c(0), g(0), p(0) {
        if (theta.ndim() != 3) throw py::value_error("theta: needs 3 dimensions");
        c = theta.shape(0), g = theta.shape(1), p = theta.shape(2);
    }
    template <class T> Tensor<T, 3> row(const py::array& a, const char* name) const { return tensor<T, 3>(a, name, {c, g, p}); }
    template <class T> ServerState<T> state(const py::array& theta, const py::array& tau_sq, const py::array& gamma, const py::array& eta,
                                            const py::array& rho) const {
        return {row<T>(theta, "theta"), row<T>(tau_sq, "tau_sq"), row<T>(gamma, "gamma"), row<T>(eta, "eta"),
                tensor<T, 2>(rho, "rho", {c, g})};
    }
    ServerResult result(const ServerState<double>& state, const py::array& inclusion, const py::array& events) const {
        return {state, row<double>(inclusion, "inclusion"), tensor<std::int64_t, 3>(events, "events", {c, g, 4})};
    }
    /// Indicators number themselves below p: they are used as indices.
    void check(const Indices<2>& indicators) const {
        if (indicators.outside(-2, p) >= 0) throw py::index_error("indicators: must be in [-2, p)");
    }
};

void global_sweep(const py::array& deviation, const py::array& lambda_sq, const py::array& indicators, const py::array& theta,
                  const py::array& tau_sq, const py::array& gamma, const py::array& eta, const py::array& rho, U64 seed, U64 chain,
                  U32 step, Index n_passes, bool expanded, bool blocked, bool common, bool shared_rho, double c0, double spike_variance,
                  double scale_tau, double scale_lambda, double shape_eta, double rate_eta, double rho_a, double rho_b, double slab,
                  const py::array& new_theta, const py::array& new_tau_sq, const py::array& new_gamma, const py::array& new_eta,
                  const py::array& new_rho, const py::array& inclusion, const py::array& moved_deviation, const py::array& new_lambda_sq,
                  const py::array& events, int n_threads) {
    const ServerShape rows(theta);
    const Index m = deviation.ndim() ? deviation.shape(0) : 0;
    const auto [c, g, p] = rows;
    const auto d = tensor<const double, 4>(deviation, "deviation", {m, c, g, p});
    const auto l = tensor<const double, 4>(lambda_sq, "lambda_sq", {m, c, g, p});
    const Clients clients{tensor<double, 4>(moved_deviation, "moved_deviation", {m, c, g, p}),
                          tensor<double, 4>(new_lambda_sq, "new_lambda_sq", {m, c, g, p})};
    const Indices<2> kinds(indicators, "indicators", {g, p});
    rows.check(kinds);
    const auto from = rows.state<const double>(theta, tau_sq, gamma, eta, rho);
    const auto to = rows.result(rows.state<double>(new_theta, new_tau_sq, new_gamma, new_eta, new_rho), inclusion, events);
    const ServerOptions options{expanded,  blocked,  common, shared_rho, c0,  spike_variance, scale_tau, scale_lambda,
                                shape_eta, rate_eta, rho_a,  rho_b,      slab};
    const py::gil_scoped_release unlocked;
    kernels().shrinkage_server.global_sweep(d, l, kinds.view, from, options, {seed, chain, step, n_passes}, to, clients, n_threads);
}

void global_sweep_sums(const py::array& sums, Index n_clients, const py::array& indicators, const py::array& theta, const py::array& tau_sq,
                       const py::array& gamma, const py::array& eta, const py::array& rho, U64 seed, U64 chain, U32 step, bool expanded,
                       bool blocked, bool common, bool shared_rho, double c0, double spike_variance, double scale_tau, double scale_lambda,
                       double shape_eta, double rate_eta, double rho_a, double rho_b, double slab, const py::array& new_theta,
                       const py::array& new_tau_sq, const py::array& new_gamma, const py::array& new_eta, const py::array& new_rho,
                       const py::array& inclusion, const py::array& events, int n_threads) {
    const ServerShape rows(theta);
    const auto [c, g, p] = rows;
    const auto given = tensor<const double, 4>(sums, "sums", {slab < math::infinity<double>() ? 4 : 3, c, g, p});
    const Indices<2> kinds(indicators, "indicators", {g, p});
    rows.check(kinds);
    const auto from = rows.state<const double>(theta, tau_sq, gamma, eta, rho);
    const auto to = rows.result(rows.state<double>(new_theta, new_tau_sq, new_gamma, new_eta, new_rho), inclusion, events);
    const ServerOptions options{expanded,  blocked,  common, shared_rho, c0,  spike_variance, scale_tau, scale_lambda,
                                shape_eta, rate_eta, rho_a,  rho_b,      slab};
    const py::gil_scoped_release unlocked;
    kernels().shrinkage_server.global_sweep_sums(given, n_clients, kinds.view, from, options, {seed, chain, step, 1}, to, n_threads);
}

/// A block of the coordinates (theta, t): its numbers are used as indices.
void check_coordinates(const Indices<1>& block, Index p) {
    if (block.outside(0, 2 * p) >= 0) throw py::index_error("block: must be in [0, 2p)");
}

void move_terms(const py::array& R, const py::array& q, const py::array& block, const py::array& theta, const py::array& deviation,
                const py::array& tau_sq, const py::array& sigma_sq, double slab, const py::array& gradient, const py::array& precision,
                int n_threads) {
    if (R.ndim() != 2 || theta.ndim() != 2) throw py::value_error("R, theta: need 2 dimensions");
    const Index r = R.shape(0), p = R.shape(1), c = theta.shape(0), w = block.size();
    const auto factor = tensor<const double, 2>(R, "R", {r, p}), projected = tensor<const double, 2>(q, "q", {c, r});
    const Indices<1> at(block, "block", {w});
    check_coordinates(at, p);
    const MoveState state{tensor<const double, 2>(theta, "theta", {c, p}), tensor<const double, 2>(tau_sq, "tau_sq", {c, p})};
    const auto d = tensor<const double, 2>(deviation, "deviation", {c, p});
    const auto noise = tensor<const double, 1>(sigma_sq, "sigma_sq", {c});
    const auto g = tensor<double, 2>(gradient, "gradient", {c, w});
    const auto Q = tensor<double, 3>(precision, "precision", {c, w, w});
    const py::gil_scoped_release unlocked;
    kernels().shrinkage_server.move_terms(factor, projected, at.view, state, d, noise, slab, g, Q, n_threads);
}

void move(const py::array& gradient, const py::array& precision, const py::array& block, const py::array& theta, const py::array& tau_sq,
          const py::array& gamma, const py::array& eta, U64 seed, U64 chain, U32 step, double scale_tau, double c0, double spike_variance,
          const py::array& new_theta, const py::array& t, int n_threads) {
    if (theta.ndim() != 2) throw py::value_error("theta: needs 2 dimensions");
    const Index c = theta.shape(0), p = theta.shape(1), w = block.size();
    const auto g = tensor<const double, 2>(gradient, "gradient", {c, w});
    const auto Q = tensor<const double, 3>(precision, "precision", {c, w, w});
    const Indices<1> at(block, "block", {w});
    check_coordinates(at, p);
    const MoveState state{tensor<const double, 2>(theta, "theta", {c, p}), tensor<const double, 2>(tau_sq, "tau_sq", {c, p})};
    const MovePrior prior{tensor<const double, 2>(gamma, "gamma", {c, p}), tensor<const double, 2>(eta, "eta", {c, p}), scale_tau, c0,
                          spike_variance};
    const auto moved = tensor<double, 2>(new_theta, "new_theta", {c, p}), signed_tau = tensor<double, 2>(t, "t", {c, p});
    const Blas& routines = blas();
    const py::gil_scoped_release unlocked;
    kernels().shrinkage_server.move(g, Q, at.view, state, prior, seed, chain, step, moved, signed_tau, n_threads, routines);
}

} // namespace

void bind_shrinkage_server(py::module_& m) {
    using py::arg;
    const auto array = [](const char* name) { return py::arg(name).noconvert(); };
    m.def("local_sums", &local_sums, array("deviation"), array("lambda_sq"), arg("slab"), array("sums"), arg("n_threads"));
    m.def("global_sweep", &global_sweep, array("deviation"), array("lambda_sq"), array("indicators"), array("theta"), array("tau_sq"),
          array("gamma"), array("eta"), array("rho"), arg("seed"), arg("chain"), arg("step"), arg("n_passes"), arg("expanded"),
          arg("blocked"), arg("common"), arg("shared_rho"), arg("c0"), arg("spike_variance"), arg("scale_tau"), arg("scale_lambda"),
          arg("shape_eta"), arg("rate_eta"), arg("rho_a"), arg("rho_b"), arg("slab"), array("new_theta"), array("new_tau_sq"),
          array("new_gamma"), array("new_eta"), array("new_rho"), array("inclusion"), array("moved_deviation"), array("new_lambda_sq"),
          array("events"), arg("n_threads"));
    m.def("global_sweep_sums", &global_sweep_sums, array("sums"), arg("n_clients"), array("indicators"), array("theta"), array("tau_sq"),
          array("gamma"), array("eta"), array("rho"), arg("seed"), arg("chain"), arg("step"), arg("expanded"), arg("blocked"),
          arg("common"), arg("shared_rho"), arg("c0"), arg("spike_variance"), arg("scale_tau"), arg("scale_lambda"), arg("shape_eta"),
          arg("rate_eta"), arg("rho_a"), arg("rho_b"), arg("slab"), array("new_theta"), array("new_tau_sq"), array("new_gamma"),
          array("new_eta"), array("new_rho"), array("inclusion"), array("events"), arg("n_threads"));
    m.def("move_terms", &move_terms, array("R"), array("q"), array("block"), array("theta"), array("deviation"), array("tau_sq"),
          array("sigma_sq"), arg("slab"), array("gradient"), array("precision"), arg("n_threads"));
    m.def("move", &move, array("gradient"), array("precision"), array("block"), array("theta"), array("tau_sq"), array("gamma"),
          array("eta"), arg("seed"), arg("chain"), arg("step"), arg("scale_tau"), arg("c0"), arg("spike_variance"), array("new_theta"),
          array("t"), arg("n_threads"));
}

} // namespace fedkern
