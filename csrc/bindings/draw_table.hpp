// Tables of priors, checked for memory safety.
#pragma once
#include <type_traits>

#include "checks.hpp"
#include "fedkern/spatial/views.hpp"

namespace fedkern {

/// The elements of an array as neighbours: its own memory, or a copy that lives as long as this. Indices are always a copy, made
/// before they are checked: kernels use them without the interpreter's lock, and another thread could change the caller's meanwhile.
template <class T> class Contiguous {
  public:
    Contiguous() = default;
    Contiguous(const py::object& object, const char* name, int ndim) {
        if (!py::isinstance<py::array>(object)) throw py::type_error(std::string(name) + ": needs an array");
        const auto a = py::reinterpret_borrow<py::array>(object);
        checked_data<const T>(a, name, ndim);
        py::object own = a;
        if constexpr (std::is_same_v<T, Index>) own = a.attr("copy")("C");
        array_ = py::array_t<T, py::array::c_style>::ensure(own);
        if (!array_) throw py::error_already_set();
    }
    const T* data() const { return static_cast<const T*>(array_.data()); }
    Index size() const { return array_.size(); }
    Index shape(int d) const { return array_.shape(d); }

  private:
    py::array_t<T, py::array::c_style> array_;
};

/// A table of priors whose arrays live as long as this.
class DrawArrays {
  public:
    DrawArrays(const py::array& values, const py::array& scale, const py::object& indptr, const py::object& indices,
               const py::object& order, int kind, Index rank, Index group)
        : values_(values, "values", 2), scale_(scale, "scale", 1) {
        const Index n = scale_.size(), length = values_.shape(1);
        table = {kind, n, rank, group, values_.shape(0), length, values_.data(), scale_.data(), nullptr, nullptr, nullptr};
        if (table.entries < 1) throw py::value_error("values: needs an entry");
        if (group < 1) throw py::value_error("group: must be positive");
        if (kind == DrawTable::stored || kind == DrawTable::dense) {
            if (rank < 0 || (n > 0 && kind == DrawTable::dense && rank > length) || length != (kind == DrawTable::stored ? n : n * rank))
                throw py::value_error("values: wrong length");
            return;
        }
        if (kind != DrawTable::sparse) throw py::value_error("kind: there are 0, 1 and 2");
        indptr_ = {indptr, "indptr", 1}, indices_ = {indices, "indices", 1}, order_ = {order, "order", 1};
        table.indptr = indptr_.data(), table.indices = indices_.data(), table.order = order_.data();
        if (indptr_.size() != n + 1 || order_.size() != n || indices_.size() != length) throw py::value_error("indptr: wrong length");
        if (table.indptr[0] != 0 || table.indptr[n] != length) throw py::value_error("indptr: must rise from 0 to the length of values");
        for (Index j = 0; j < n; ++j) {
            if (table.indptr[j] >= table.indptr[j + 1]) throw py::value_error("indptr: must rise");
            if (table.order[j] < 0 || table.order[j] >= n) throw py::value_error("order: outside");
        }
        for (Index k = 0; k < length; ++k)
            if (table.indices[k] < 0 || table.indices[k] >= n) throw py::value_error("indices: outside");
    }
    DrawArrays(const DrawArrays&) = delete;

    DrawTable table;

  private:
    Contiguous<double> values_, scale_;
    Contiguous<Index> indptr_, indices_, order_;
};

} // namespace fedkern
