// BLAS and LAPACK from the capsules of scipy.linalg.cython_blas and cython_lapack. A capsule's name is the C signature of its
// function: one that is not exactly what this file was compiled for is refused.
#include "blas.hpp"

#include <pybind11/pybind11.h>
#include <pybind11/typing.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace fedkern {
namespace py = pybind11;

namespace {

// A whole table or none, for all threads. One that was replaced is not freed: a kernel may still call its routines.
std::atomic<const Blas*> table{nullptr};

template <class T> std::string type_name(bool lapack) {
    if (std::is_same_v<T, char>) return "char";
    if (std::is_same_v<T, int>) return "int";
    return std::string("__pyx_t_5scipy_6linalg_") + (lapack ? "13cython_lapack_" : "11cython_blas_") +
           (std::is_same_v<T, double> ? "d" : "s");
}

template <class... P> std::string signature(void (*)(P*...), bool lapack) {
    std::string arguments;
    ((arguments += (arguments.empty() ? "" : ", ") + type_name<P>(lapack) + " *"), ...);
    return "void (" + arguments + ")";
}

using Capsules = py::typing::Dict<py::str, py::object>;

void load(const Capsules& blas_capsules, const Capsules& lapack_capsules) {
    Blas fresh{};
    fresh.for_each([&](const char* name, bool lapack, auto& routine) {
        const std::string where = std::string("scipy.linalg.cython_") + (lapack ? "lapack." : "blas.") + name;
        const py::dict& capsules = lapack ? lapack_capsules : blas_capsules;
        if (!capsules.contains(name)) throw py::import_error(where + ": SciPy does not have it; install scipy >= 1.13");
        const auto capsule = py::reinterpret_borrow<py::object>(capsules[name]);
        if (!PyCapsule_CheckExact(capsule.ptr())) throw py::import_error(where + ": is no capsule; install scipy >= 1.13");
        const char* got = PyCapsule_GetName(capsule.ptr());
        const std::string want = signature(routine, lapack);
        if (!got || want != got)
            throw py::import_error(where + ": has the C signature " + (got ? got : "(none)") + ", fedkern calls " + want +
                                   "; install a SciPy with 32-bit BLAS integers");
        routine = reinterpret_cast<std::remove_reference_t<decltype(routine)>>(PyCapsule_GetPointer(capsule.ptr(), got));
    });
    table.store(new Blas(fresh), std::memory_order_release);
}

py::typing::Dict<py::str, std::uintptr_t> addresses() {
    py::typing::Dict<py::str, std::uintptr_t> all;
    const Blas* loaded = table.load(std::memory_order_acquire);
    Blas now = loaded ? *loaded : Blas{};
    now.for_each([&](const char* name, bool, auto& routine) { all[name] = reinterpret_cast<std::uintptr_t>(routine); });
    return all;
}

} // namespace

const Blas& blas() {
    const Blas* loaded = table.load(std::memory_order_acquire);
    if (!loaded) throw py::import_error("BLAS is not loaded: call fedkern.kernels, which does it, and not fedkern._core");
    return *loaded;
}

void bind_blas(py::module_& m) {
    m.def("load", &load, py::arg("blas"), py::arg("lapack"), "Takes the routines out of two dictionaries of capsules.");
    m.def("addresses", &addresses, "Where the routines are; 0: not loaded.");
}

} // namespace fedkern
