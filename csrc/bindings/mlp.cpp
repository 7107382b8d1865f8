#include "blas.hpp"
#include "networks.hpp"
#include "units/table.hpp"

namespace fedkern {
namespace {

template <class T> void forward_of(const py::array& X, const py::array& parameters, const Network& net, const py::array& Y, int n_threads,
                                   MlpTable::Forward<T>* kernel) {
    const auto x = matrix<const T>(X, "X", X.ndim() == 2 ? X.shape(0) : 0, net.inputs());
    const auto p = vector<const T>(parameters, "parameters", net.first(net.layers));
    const auto y = matrix<T>(Y, "Y", x.rows, net.outputs());
    const Blas& routines = blas();
    const py::gil_scoped_release unlocked;
    kernel(x, p, net, y, n_threads, routines);
}

template <class T> void backward_of(const py::array& X, const py::array& parameters, const py::array& upstream, const Network& net,
                                    const py::array& grad_parameters, const py::array& grad_X, int n_threads,
                                    MlpTable::Backward<T>* kernel) {
    const auto x = matrix<const T>(X, "X", X.ndim() == 2 ? X.shape(0) : 0, net.inputs());
    const auto p = vector<const T>(parameters, "parameters", net.first(net.layers));
    const auto d = matrix<const T>(upstream, "upstream", x.rows, net.outputs());
    const auto g = vector<T>(grad_parameters, "grad_parameters", p.size);
    const auto dx = matrix<T>(grad_X, "grad_X", x.rows, net.inputs());
    const Blas& routines = blas();
    const py::gil_scoped_release unlocked;
    kernel(x, p, d, net, g, dx, n_threads, routines);
}

void forward(const py::array& X, const py::array& parameters, const py::array& sizes, int activation, const py::array& Y, int n_threads) {
    const Sizes all(sizes);
    const MlpTable& mlp = kernels().mlp;
    const Network net = all.network(activation);
    if (has_elements<double>(X)) return forward_of(X, parameters, net, Y, n_threads, mlp.forward_f64);
    forward_of(X, parameters, net, Y, n_threads, mlp.forward_f32);
}

void backward(const py::array& X, const py::array& parameters, const py::array& upstream, const py::array& sizes, int activation,
              const py::array& grad_parameters, const py::array& grad_X, int n_threads) {
    const Sizes all(sizes);
    const Network net = all.network(activation);
    const MlpTable& mlp = kernels().mlp;
    if (has_elements<double>(X)) return backward_of(X, parameters, upstream, net, grad_parameters, grad_X, n_threads, mlp.backward_f64);
    backward_of(X, parameters, upstream, net, grad_parameters, grad_X, n_threads, mlp.backward_f32);
}

} // namespace

void bind_mlp(py::module_& m) {
    using namespace py::literals;
    m.def("forward", &forward, "X"_a.noconvert(), "parameters"_a.noconvert(), "sizes"_a.noconvert(), "activation"_a, "Y"_a.noconvert(),
          "n_threads"_a);
    m.def("backward", &backward, "X"_a.noconvert(), "parameters"_a.noconvert(), "upstream"_a.noconvert(), "sizes"_a.noconvert(),
          "activation"_a, "grad_parameters"_a.noconvert(), "grad_X"_a.noconvert(), "n_threads"_a);
}

} // namespace fedkern
