// Arrays of more than two dimensions, checked for memory safety.
#pragma once
#include "checks.hpp"
#include "fedkern/tensor.hpp"

#include <cstdint>
#include <vector>

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

/// Numbers that serve as indices: a copy, because another thread may write into the array after they were checked. Lives as long as
/// its view is in use.
template <int D> class Indices {
  public:
    Indices(const py::array& a, const char* name, const Index (&shape)[D]) : view(tensor<const std::int64_t, D>(a, name, shape)) {
        own_.reserve(std::size_t(a.size()));
        append(view);
        view.data = own_.data();
        Index stride = 1;
        for (int d = D; d-- > 0; stride *= shape[d]) view.stride[d] = stride;
    }
    Indices(const Indices&) = delete;

    /// The place of the first that is not in [least, end), -1 if all are.
    Index outside(Index least, Index end) const {
        for (std::size_t i = 0; i < own_.size(); ++i)
            if (own_[i] < least || own_[i] >= end) return Index(i);
        return -1;
    }
    Index size() const { return Index(own_.size()); }

    Tensor<const std::int64_t, D> view;

  private:
    template <int E> void append(Tensor<const std::int64_t, E> from) {
        for (Index i = 0; i < from.shape[0]; ++i)
            if constexpr (E == 1) own_.push_back(from[i]);
            else append(from[i]);
    }

    std::vector<std::int64_t> own_;
};

} // namespace fedkern
