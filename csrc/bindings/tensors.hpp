// Arrays of more than two dimensions, checked for memory safety.
#pragma once
#include "checks.hpp"
#include "fedkern/tensor.hpp"

namespace fedkern {

/// An array of exactly this shape.
template <class T, int D> Tensor<T, D> tensor(const py::array& a, const char* name, const Index (&shape)[D]) {
    Tensor<T, D> view{checked_data<T>(a, name, D), {}, {}};
    for (int d = 0; d < D; ++d) {
        if (a.shape(d) != shape[d])
            throw py::value_error(std::string(name) + ": needs length " + std::to_string(shape[d]) + " in dimension " + std::to_string(d));
        view.shape[d] = shape[d], view.stride[d] = a.strides(d) / Index(sizeof(T));
    }
    return view;
}

} // namespace fedkern
