#include "checks.hpp"
#include "units/table.hpp"

namespace fedkern {
namespace {

template <class Rule> void update(OptimTable::Update<Rule>* OptimTable::* kernel, Index rows, const py::array& before,
                                  const py::array& gradient, Rule rule, const py::array& after, const py::array& step, int n_threads) {
    const auto g = vector<const double>(gradient, "gradient", gradient.size());
    const auto from = matrix<const double>(before, "state", rows, g.size);
    const auto to = matrix<double>(after, "new_state", rows, g.size);
    const auto s = vector<double>(step, "step", g.size);
    const py::gil_scoped_release unlocked;
    (kernels().optim.*kernel)(from, g, rule, to, s, n_threads);
}

void adam(const py::array& before, const py::array& gradient, double learning_rate, double beta1, double beta2, double epsilon,
          const py::array& after, const py::array& step, int n_threads) {
    update(&OptimTable::adam, 3, before, gradient, AdamRule{learning_rate, beta1, beta2, epsilon}, after, step, n_threads);
}

void adagrad(const py::array& before, const py::array& gradient, double learning_rate, double epsilon, const py::array& after,
             const py::array& step, int n_threads) {
    update(&OptimTable::adagrad, 1, before, gradient, AdagradRule{learning_rate, epsilon}, after, step, n_threads);
}

} // namespace

void bind_optim(py::module_& m) {
    using namespace py::literals;
    m.def("adam", &adam, "state"_a.noconvert(), "gradient"_a.noconvert(), "learning_rate"_a, "beta1"_a, "beta2"_a, "epsilon"_a,
          "new_state"_a.noconvert(), "step"_a.noconvert(), "n_threads"_a);
    m.def("adagrad", &adagrad, "state"_a.noconvert(), "gradient"_a.noconvert(), "learning_rate"_a, "epsilon"_a, "new_state"_a.noconvert(),
          "step"_a.noconvert(), "n_threads"_a);
}

} // namespace fedkern
