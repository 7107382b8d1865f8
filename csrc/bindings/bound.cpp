// Calls whose arguments have been checked once: what varies from call to call is compared with what was there then, outputs are new.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fedkern/view.hpp"

namespace py = pybind11;

namespace fedkern {
namespace {

/// Type and shape of an array, and where it lies.
struct Seen {
    PyTypeObject* kind; // of the array itself: one that was bound may be a memory map
    py::object type;    // NumPy has one object for each of its types
    std::vector<py::ssize_t> shape, strides;
    const void* data;

    explicit Seen(const py::array& a) : kind(Py_TYPE(a.ptr())), type(a.dtype()), data(a.data()) {
        for (py::ssize_t d = 0; d < a.ndim(); ++d) shape.push_back(a.shape(d)), strides.push_back(a.strides(d));
    }

    /// Whether x is an array of this type and shape; a length of -1 is any.
    bool fits(PyObject* x) const {
        if (Py_TYPE(x) != kind) return false;
        const auto* a = py::detail::array_proxy(x);
        if (a->descr != type.ptr() || std::size_t(a->nd) != shape.size()) return false;
        for (std::size_t d = 0; d < shape.size(); ++d)
            if (shape[d] >= 0 && a->dimensions[d] != shape[d]) return false;
        return true;
    }

    /// Whether the array that was seen is as it was.
    bool is_still(PyObject* x) const {
        if (!fits(x)) return false;
        const auto* a = py::detail::array_proxy(x);
        if (a->data != data) return false;
        for (std::size_t d = 0; d < shape.size(); ++d)
            if (a->strides[d] != strides[d]) return false;
        return true;
    }
};

/// A whole number from `least` to `most`; without them a float that is positive and finite.
struct Number {
    std::optional<std::pair<long long, long long>> range;

    bool fits(PyObject* x) const {
        if (!range) return PyFloat_CheckExact(x) && PyFloat_AS_DOUBLE(x) > 0 && std::isfinite(PyFloat_AS_DOUBLE(x));
        if (!PyLong_CheckExact(x)) return false;
        int overflow = 0;
        const long long value = PyLong_AsLongLongAndOverflow(x, &overflow);
        return !overflow && value >= range->first && value <= range->second;
    }
};

class Bound {
  public:
    template <class T> using Placed = std::vector<std::pair<std::size_t, T>>;
    using Ranges = Placed<std::optional<std::pair<long long, long long>>>;
    using Places = std::vector<std::size_t>;
    using Lengths = Placed<std::size_t>; // of arrays, by place and dimension

    Bound(py::object function, const py::list& arguments, const py::list& names, const Places& arrays, const Ranges& numbers,
          const Lengths& lengths, const Places& outputs, bool returns, py::object otherwise)
        : function_(std::move(function)), otherwise_(std::move(otherwise)), returns_(returns) {
        for (const auto& argument : arguments) arguments_.push_back(py::reinterpret_borrow<py::object>(argument));
        for (const auto& name : names) names_.push_back(py::cast<std::string>(name));
        const auto at = [&](std::size_t place) { return py::cast<py::array>(arguments_.at(place)); };
        for (const auto place : arrays) arrays_.emplace_back(place, Seen(at(place)));
        for (const auto& [place, dimension] : lengths)
            for (auto& [at, seen] : arrays_)
                if (at == place) seen.shape.at(dimension) = -1;
        for (const auto& [place, range] : numbers) arguments_.at(place), numbers_.emplace_back(place, Number{range});
        for (const auto place : outputs) outputs_.emplace_back(place, Seen(at(place)));
        for (std::size_t i = 0; i < arguments_.size(); ++i)
            if (!varies(i) && py::isinstance<py::array>(arguments_[i])) fixed_.emplace_back(i, Seen(at(i)));
        for (const auto& [place, seen] : outputs_) arguments_[place] = py::none();
    }

    /// What varies, in the order of `arrays` and then of `numbers` -> what the function returns, if that is wanted, and the outputs.
    py::tuple call(const py::args& given) const {
        std::vector<PyObject*> arguments(arguments_.size());
        for (std::size_t i = 0; i < arguments.size(); ++i) arguments[i] = arguments_[i].ptr();
        for (const auto& [place, seen] : fixed_)
            if (!seen.is_still(arguments[place]))
                throw py::value_error(names_[place] + " has changed its memory, shape or type since it was bound; bind anew");
        if (given.size() != arrays_.size() + numbers_.size()) return otherwise_(*given);
        std::size_t next = 0;
        const auto take = [&](std::size_t place, const auto& needs) {
            arguments[place] = PyTuple_GET_ITEM(given.ptr(), py::ssize_t(next++));
            return needs.fits(arguments[place]);
        };
        for (const auto& [place, seen] : arrays_)
            if (!take(place, seen)) return otherwise_(*given);
        for (const auto& [place, number] : numbers_)
            if (!take(place, number)) return otherwise_(*given);
        py::tuple found(outputs_.size() + returns_);
        for (std::size_t i = 0; i < outputs_.size(); ++i) {
            const auto& [place, seen] = outputs_[i];
            py::array made(py::reinterpret_borrow<py::dtype>(seen.type), seen.shape);
            arguments[place] = made.ptr();
            found[i + returns_] = std::move(made);
        }
        auto returned =
            py::reinterpret_steal<py::object>(PyObject_Vectorcall(function_.ptr(), arguments.data(), arguments.size(), nullptr));
        if (!returned) {
            // What a binding refuses, as a view that is not aligned, is told there with the kernel's name.
            if (!PyErr_ExceptionMatches(PyExc_ValueError)) throw py::error_already_set();
            PyErr_Clear();
            return otherwise_(*given);
        }
        if (returns_) found[0] = std::move(returned);
        return found;
    }

  private:
    bool varies(std::size_t place) const {
        const auto holds = [&](const auto& placed) {
            for (const auto& [at, what] : placed)
                if (at == place) return true;
            return false;
        };
        return holds(arrays_) || holds(numbers_) || holds(outputs_);
    }

    py::object function_, otherwise_;
    bool returns_;
    std::vector<py::object> arguments_;
    std::vector<std::string> names_;
    Placed<Seen> arrays_, outputs_, fixed_;
    Placed<Number> numbers_;
};

} // namespace

void bind_bound(py::module_& m) {
    py::class_<Bound>(m, "_Bound").def("__call__", &Bound::call);
    m.def(
        "bind",
        [](py::object function, const py::object& arguments, const py::object& names, const py::object& arrays, const py::object& numbers,
           const py::object& lengths, const py::object& outputs, bool returns, py::object otherwise) -> py::object {
            return py::cast(Bound(std::move(function), arguments, names, py::cast<Bound::Places>(arrays), py::cast<Bound::Ranges>(numbers),
                                  py::cast<Bound::Lengths>(lengths), py::cast<Bound::Places>(outputs), returns, std::move(otherwise)));
        },
        py::arg("function"), py::arg("arguments"), py::arg("names"), py::arg("arrays"), py::arg("numbers"), py::arg("lengths"),
        py::arg("outputs"), py::arg("returns"), py::arg("otherwise"));
}

} // namespace fedkern
