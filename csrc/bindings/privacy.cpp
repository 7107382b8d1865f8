#include "checks.hpp"
#include "units/table.hpp"

namespace fedkern {
namespace {

Index clip_sum(const py::array& rows, double bound, const py::array& out, int n_threads) {
    const auto total = vector<double>(out, "out", rows.ndim() == 2 ? rows.shape(1) : 0);
    if (py::isinstance<py::array_t<float>>(rows)) {
        const auto x = matrix<const float>(rows, "rows");
        const py::gil_scoped_release unlocked;
        return kernels().clip_sum_f32(x, bound, total, n_threads);
    }
    const auto x = matrix<const double>(rows, "rows");
    const py::gil_scoped_release unlocked;
    return kernels().clip_sum_f64(x, bound, total, n_threads);
}

} // namespace

void bind_privacy(py::module_& m) {
    m.def("clip_sum", &clip_sum, py::arg("rows").noconvert(), py::arg("bound"), py::arg("out").noconvert(), py::arg("n_threads"));
}

} // namespace fedkern
