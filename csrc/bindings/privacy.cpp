#include "checks.hpp"
#include "units/table.hpp"

namespace fedkern {
namespace {

Index clip_sum(const py::array& rows, double bound, const py::array& out, int n_threads) {
    const auto total = vector<double>(out, "out", rows.ndim() == 2 ? rows.shape(1) : 0);
    if (py::isinstance<py::array_t<float>>(rows)) {
        const auto x = matrix<const float>(rows, "rows");
        const py::gil_scoped_release unlocked;
        return kernels().privacy.clip_sum_f32(x, bound, total, n_threads);
    }
    const auto x = matrix<const double>(rows, "rows");
    const py::gil_scoped_release unlocked;
    return kernels().privacy.clip_sum_f64(x, bound, total, n_threads);
}

void add_noise(const py::array& total, double sigma, U64 key, U32 client, U32 step, const py::array& out, int n_threads) {
    const auto x = vector<const double>(total, "total", total.size());
    const auto y = vector<double>(out, "out", x.size);
    const py::gil_scoped_release unlocked;
    kernels().privacy.add_noise(x, sigma, key, client, step, y, n_threads);
}

std::pair<Index, Index> discrete_gaussian(const py::array& words, std::int64_t sigma, const py::array& out) {
    const auto given = vector<const std::uint32_t>(words, "words", words.size());
    const auto draws = vector<std::int64_t>(out, "out", out.size());
    const py::gil_scoped_release unlocked;
    Index used;
    const Index done = kernels().privacy.discrete_gaussian(given, sigma, draws, &used);
    return {done, used};
}

} // namespace

void bind_privacy(py::module_& m) {
    m.def("clip_sum", &clip_sum, py::arg("rows").noconvert(), py::arg("bound"), py::arg("out").noconvert(), py::arg("n_threads"));
    m.def("add_noise", &add_noise, py::arg("total").noconvert(), py::arg("sigma"), py::arg("key"), py::arg("client"), py::arg("step"),
          py::arg("out").noconvert(), py::arg("n_threads"));
    m.def("discrete_gaussian", &discrete_gaussian, py::arg("words").noconvert(), py::arg("sigma"), py::arg("out").noconvert());
}

} // namespace fedkern
