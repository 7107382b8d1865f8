// Whether the numbers of an array are what they may be, in one pass.
#include "units/table.hpp"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstddef>

namespace fedkern {
namespace py = pybind11;

namespace {

struct Numbers {
    const double* data;
    std::size_t size;
};

Numbers numbers(const py::object& array) {
    if (!py::isinstance<py::array_t<double, py::array::c_style>>(array)) throw py::type_error("array: needs one of float64 in C order");
    const auto* a = py::detail::array_proxy(array.ptr());
    std::size_t size = 1;
    for (int d = 0; d < a->nd; ++d) size *= static_cast<std::size_t>(a->dimensions[d]);
    return {reinterpret_cast<const double*>(a->data), size};
}

bool finite(const py::object& array) {
    const auto [data, size] = numbers(array);
    return kernels().frames.check(data, size, 0).finite;
}

// Whether all are from `least` to `most`; none that is no number.
bool within(const py::object& array, double least, double most) {
    const auto [data, size] = numbers(array);
    std::size_t outside = 0;
    for (std::size_t i = 0; i < size; ++i) outside += !(data[i] >= least) | !(data[i] <= most);
    return outside == 0;
}

} // namespace

void bind_ranges(py::module_& m) {
    m.doc() = "Whether the numbers of an array are what they may be.";
    m.def("finite", &finite, py::arg("array"));
    m.def("within", &within, py::arg("array"), py::arg("least"), py::arg("most"));
}

} // namespace fedkern
