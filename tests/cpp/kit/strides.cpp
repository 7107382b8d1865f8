// A pybind11 module that draws into any NumPy array of one dimension. NumPy's strides are in bytes, ours in elements.
#include <fedkern/rng.hpp>
#include <pybind11/numpy.h>
#include <cstdint>

namespace py = pybind11;
using fedkern::Index;

void fill(py::array_t<double> out, unsigned long long key) {
    auto view = out.mutable_unchecked<1>(); // refuses other dimensions, and arrays that are read-only
    const auto start = reinterpret_cast<std::uintptr_t>(view.mutable_data(0));
    if (start % alignof(double) || out.strides(0) % Index(sizeof(double))) throw py::value_error("out: is not aligned to its elements");
    const fedkern::Vector<double> elements{view.mutable_data(0), out.shape(0), out.strides(0) / Index(sizeof(double))};
    const py::gil_scoped_release unlocked;
    fedkern::fill_normal(elements, {}, key);
}

PYBIND11_MODULE(strides, m) { m.def("fill", &fill, py::arg("out").noconvert(), py::arg("key")); }
