#include "blas.hpp"
#include "draw_table.hpp"
#include "networks.hpp"
#include "units/table.hpp"

namespace fedkern {
namespace {

/// The sizes of an autoencoder: [variant, J, c, p_G, hidden, local_hidden, width, rank, d_1 .. d_J, p_L1 .. p_LJ].
struct AutoencoderCode {
    Sizes all;
    Autoencoder sizes;
    Index parameters;

    explicit AutoencoderCode(const py::array& code) : all(code) {
        constexpr Index head = 8;
        const auto& n = all.all;
        if (Index(n.size()) < head || n[1] < 1 || n[1] > Index(n.size()) || Index(n.size()) != head + 2 * n[1])
            throw py::value_error("code: wrong length");
        if (n[0] < 0 || n[0] > 2) throw py::value_error("code: there are three variants");
        for (std::size_t i = 1; i < n.size(); ++i)
            if (n[i] < 1 || n[i] >= Index{1} << 31) throw py::value_error("code: sizes must be positive and below 2^31");
        sizes = {Variant(n[0]), n[1], n[2], n[3], n[4], n[5], n[6], n[7], n.data() + head, n.data() + head + n[1]};
        parameters = sizes.n_parameters();
    }
    AutoencoderCode(const AutoencoderCode&) = delete;
};

template <class T> void gradient_of(const py::array& parameters, const py::array& theta, const py::array& t, const py::array& noise,
                                    const AutoencoderCode& a, VaeObjective objective, const py::array& gradient, const py::array& terms,
                                    int n_threads, const MlpVaeTable<T>& table) {
    const auto p = vector<const T>(parameters, "parameters", a.parameters);
    const auto values = matrix<const T>(theta, "theta", theta.ndim() == 2 ? theta.shape(0) : 0, a.sizes.n_values());
    if (values.rows < 1) throw py::value_error("theta: needs a row");
    const VaeBatch<T> batch{values, matrix<const T>(t, "t", values.rows, a.sizes.conditions),
                            matrix<const T>(noise, "noise", values.rows, a.sizes.n_latents())};
    const auto g = vector<T>(gradient, "gradient", p.size);
    const auto sums = vector<double>(terms, "terms", 4);
    const Blas& routines = blas();
    const py::gil_scoped_release unlocked;
    table.gradient(p, batch, a.sizes, objective, g, sums, n_threads, routines);
}

void vae_gradient(const py::array& parameters, const py::array& theta, const py::array& t, const py::array& noise, const py::array& code,
                  double gamma, double kl_weight, const py::array& gradient, const py::array& terms, int n_threads) {
    const AutoencoderCode a(code);
    const VaeObjective x{gamma, kl_weight};
    if (has_elements<double>(parameters))
        return gradient_of(parameters, theta, t, noise, a, x, gradient, terms, n_threads, kernels().mlp_vae_f64);
    gradient_of(parameters, theta, t, noise, a, x, gradient, terms, n_threads, kernels().mlp_vae_f32);
}

template <class T> VaeState<T> state(const py::array& parameters, const py::array& moments, Index k) {
    return {vector<T>(parameters, "parameters", k), matrix<T>(moments, "moments", 2, k)};
}

void vae_step(const py::array& parameters, const py::array& moments, const py::array& values, const py::array& phi, const py::array& scale,
              const py::object& indptr, const py::object& indices, const py::object& order, const py::array& rates,
              const py::array& kl_weights, const py::array& code, int kind, Index rank, Index group, Index batch, double gamma, double clip,
              unsigned long long seed, unsigned long long chain, unsigned first, const py::array& new_parameters,
              const py::array& new_moments, const py::array& trace, int n_threads) {
    const AutoencoderCode a(code);
    const DrawArrays arrays(values, scale, indptr, indices, order, kind, rank, group);
    if (arrays.table.n != a.sizes.n_values()) throw py::value_error("scale: needs as many numbers as the networks have values");
    if (batch < 1 || batch >= Index{1} << 32) throw py::value_error("batch: must be positive and below 2^32");
    const auto conditions = matrix<const double>(phi, "phi", arrays.table.entries, a.sizes.conditions);
    const auto learning_rates = vector<const double>(rates, "rates", rates.size());
    const auto weights = vector<const double>(kl_weights, "kl_weights", learning_rates.size);
    const auto rows = matrix<double>(trace, "trace", learning_rates.size, 5);
    const VaeTraining training{conditions, learning_rates, weights, batch, gamma, clip, seed, chain, first};
    const Blas& routines = blas();
    const auto run = [&]<class T>(const MlpVaeTable<T>& table) {
        const auto from = state<const T>(parameters, moments, a.parameters);
        const auto to = state<T>(new_parameters, new_moments, a.parameters);
        const py::gil_scoped_release unlocked;
        table.steps(from, arrays.table, training, a.sizes, to, rows, n_threads, routines);
    };
    if (has_elements<double>(parameters)) return run(kernels().mlp_vae_f64);
    run(kernels().mlp_vae_f32);
}

} // namespace

void bind_mlp_vae(py::module_& m) {
    using namespace py::literals;
    m.def("vae_gradient", &vae_gradient, "parameters"_a.noconvert(), "theta"_a.noconvert(), "t"_a.noconvert(), "noise"_a.noconvert(),
          "code"_a.noconvert(), "gamma"_a, "kl_weight"_a, "gradient"_a.noconvert(), "terms"_a.noconvert(), "n_threads"_a);
    m.def("vae_step", &vae_step, "parameters"_a.noconvert(), "moments"_a.noconvert(), "values"_a.noconvert(), "phi"_a.noconvert(),
          "scale"_a.noconvert(), "indptr"_a, "indices"_a, "order"_a, "rates"_a.noconvert(), "kl_weights"_a.noconvert(),
          "code"_a.noconvert(), "kind"_a, "rank"_a, "group"_a, "batch"_a, "gamma"_a, "clip"_a, "seed"_a, "chain"_a, "first"_a,
          "new_parameters"_a.noconvert(), "new_moments"_a.noconvert(), "trace"_a.noconvert(), "n_threads"_a);
}

} // namespace fedkern
