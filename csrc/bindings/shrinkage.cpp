#include "blas.hpp"
#include "checks.hpp"
#include "units/table.hpp"

namespace fedkern {
namespace {

/// What a call's arrays have in common: (c, ...) or, with several regressions, (c, g, ...).
struct SweepShape {
    Index chains, regressions;
    bool several;

    template <class T> Rows<T> rows(const py::array& a, const char* name, Index cols) const { return read<T>(a, name, cols, true); }
    template <class T> Rows<T> numbers(const py::array& a, const char* name) const { return read<T>(a, name, 1, false); }

  private:
    template <class T> Rows<T> read(const py::array& a, const char* name, Index cols, bool columns) const {
        T* data = checked_data<T>(a, name, 1 + several + columns);
        const auto stride = [&](int d) { return a.strides(d) / Index(sizeof(T)); };
        if (a.shape(0) != chains || (several && a.shape(1) != regressions) || (columns && a.shape(1 + several) != cols))
            throw py::value_error(std::string(name) + ": wrong shape");
        return {data, chains, regressions, cols, stride(0), several ? stride(1) : 0, columns ? stride(1 + several) : 0};
    }
};

Factor factor(const py::array& R, const py::object& gram) {
    const auto triangle = matrix<const double>(R, "R");
    if (triangle.rows > triangle.cols) throw py::value_error("R: more rows than columns");
    Matrix<const double> whole{};
    if (!gram.is_none()) {
        whole = matrix<const double>(py::cast<py::array>(gram), "gram");
        if (whole.rows != triangle.cols || whole.cols != triangle.cols) throw py::value_error("gram: wrong shape");
    }
    return {&blas(), triangle, whole};
}

template <class T> Matrix<T> sized(const py::array& a, const char* name, Index rows, Index cols) {
    const auto m = matrix<T>(a, name);
    if (m.rows != rows || m.cols != cols) throw py::value_error(std::string(name) + ": wrong shape");
    return m;
}

/// What the two kernels of sweeps share.
struct Sweeps {
    Rows<const double> theta, tau_sq;
    LocalState<const double> from;
    LocalState<double> to;
    Rows<long> events;

    Sweeps(bool several, Index p, const py::array& theta_, const py::array& tau_sq_, const py::array& d, const py::array& lambda,
           const py::array& sigma, const py::array& new_d, const py::array& new_lambda, const py::array& new_sigma,
           const py::array& events_) {
        const SweepShape of{d.ndim() ? d.shape(0) : 0, several ? p : 1, several};
        theta = of.rows<const double>(theta_, "theta", p), tau_sq = of.rows<const double>(tau_sq_, "tau_sq", p);
        from = {of.rows<const double>(d, "deviation", p), of.rows<const double>(lambda, "lambda_sq", p),
                of.numbers<const double>(sigma, "sigma_sq")};
        to = {of.rows<double>(new_d, "new_deviation", p), of.rows<double>(new_lambda, "new_lambda_sq", p),
              of.numbers<double>(new_sigma, "new_sigma_sq")};
        events = of.rows<long>(events_, "events", 4);
    }
};

void local_sweeps(const py::array& R, const py::array& theta, const py::array& tau_sq, const py::array& deviation,
                  const py::array& lambda_sq, const py::array& sigma_sq, const py::array& q, const py::array& rss, const py::object& gram,
                  double n, U64 seed, U64 chain, U32 client, U32 step, Index n_sweeps, bool expanded, int form, double scale_lambda,
                  double shape, double rate, double slab, const py::array& new_deviation, const py::array& new_lambda_sq,
                  const py::array& new_sigma_sq, const py::array& events, int n_threads) {
    const Factor f = factor(R, gram);
    const Sweeps x(false, f.R.cols, theta, tau_sq, deviation, lambda_sq, sigma_sq, new_deviation, new_lambda_sq, new_sigma_sq, events);
    const auto response = sized<const double>(q, "q", x.theta.chains, f.R.rows);
    const auto squares = vector<const double>(rss, "rss", x.theta.chains);
    const LocalModel model{n, shape, rate, slab, {scale_lambda, expanded}, DrawForm(form)};
    const py::gil_scoped_release unlocked;
    kernels().shrinkage.local_sweeps(f, response, squares, x.theta, x.tau_sq, x.from, model, {seed, chain, client, step, n_sweeps}, x.to,
                                     x.events, n_threads);
}

void local_sweeps_batched(const py::array& R, const py::array& theta, const py::array& tau_sq, const py::array& deviation,
                          const py::array& lambda_sq, const py::array& sigma_sq, const py::object& gram, double n, U64 seed, U64 chain,
                          U32 client, U32 step, Index n_sweeps, bool expanded, int form, double scale_lambda, double shape, double rate,
                          double slab, const py::array& new_deviation, const py::array& new_lambda_sq, const py::array& new_sigma_sq,
                          const py::array& events, int n_threads) {
    const Factor f = factor(R, gram);
    const Sweeps x(true, f.R.cols, theta, tau_sq, deviation, lambda_sq, sigma_sq, new_deviation, new_lambda_sq, new_sigma_sq, events);
    const LocalModel model{n, shape, rate, slab, {scale_lambda, expanded}, DrawForm(form)};
    const py::gil_scoped_release unlocked;
    kernels().shrinkage.local_sweeps_batched(f, x.theta, x.tau_sq, x.from, model, {seed, chain, client, step, n_sweeps}, x.to, x.events,
                                             n_threads);
}

void gaussian_posterior_draw(const py::array& R, const py::array& mean, const py::array& scale, const py::array& sigma_sq,
                             const py::array& q, const py::object& gram, U64 seed, U64 chain, U32 client, U32 step, int form, double slab,
                             const py::array& deviation, int n_threads) {
    const Factor f = factor(R, gram);
    const Index p = f.R.cols, c = mean.ndim() ? mean.shape(0) : 0;
    const auto m = sized<const double>(mean, "mean", c, p), s = sized<const double>(scale, "scale", c, p),
               response = sized<const double>(q, "q", c, f.R.rows);
    const auto variance = vector<const double>(sigma_sq, "sigma_sq", c);
    const auto d = sized<double>(deviation, "deviation", c, p);
    const py::gil_scoped_release unlocked;
    kernels().shrinkage.gaussian_posterior_draw(f, response, m, s, variance, slab, DrawForm(form), {seed, chain, client, step, 1}, d,
                                                n_threads);
}

} // namespace

void bind_shrinkage(py::module_& m) {
    using namespace py::literals;
    const auto sweeps = [&](const char* name, auto function, const auto&... data) {
        m.def(name, function, "R"_a.noconvert(), "theta"_a.noconvert(), "tau_sq"_a.noconvert(), "deviation"_a.noconvert(),
              "lambda_sq"_a.noconvert(), "sigma_sq"_a.noconvert(), data..., "gram"_a, "n"_a, "seed"_a, "chain"_a, "client"_a, "step"_a,
              "n_sweeps"_a, "expanded"_a, "form"_a, "scale_lambda"_a, "shape"_a, "rate"_a, "slab"_a, "new_deviation"_a.noconvert(),
              "new_lambda_sq"_a.noconvert(), "new_sigma_sq"_a.noconvert(), "events"_a.noconvert(), "n_threads"_a);
    };
    sweeps("local_sweeps", &local_sweeps, "q"_a.noconvert(), "rss"_a.noconvert());
    sweeps("local_sweeps_batched", &local_sweeps_batched);
    m.def("gaussian_posterior_draw", &gaussian_posterior_draw, "R"_a.noconvert(), "mean"_a.noconvert(), "scale"_a.noconvert(),
          "sigma_sq"_a.noconvert(), "q"_a.noconvert(), "gram"_a, "seed"_a, "chain"_a, "client"_a, "step"_a, "form"_a, "slab"_a,
          "deviation"_a.noconvert(), "n_threads"_a);
}

} // namespace fedkern
