// Fixed-point words, which fedkern.privacy.masks adds: made of numbers, added, and made numbers again.
#include "fedkern/words.hpp"
#include "checks.hpp"

#include <pybind11/typing.h>

namespace fedkern {
namespace {

using words::Limb;

template <class T> struct Words {
    T* data;
    Index n;
    int limbs;
};

// Words (limbs, n) in C order.
template <class T> Words<T> words_of(const py::array& a, const char* name) {
    const auto m = matrix<T>(a, name);
    if (m.rows < 1 || m.rows > words::most_limbs) throw py::value_error(std::string(name) + ": needs 1 to 16 limbs");
    if (m.cols > 0 && (m.col_stride != 1 || (m.rows > 1 && m.row_stride != m.cols)))
        throw py::value_error(std::string(name) + ": is not in C order");
    return {m.data, m.cols, int(m.rows)};
}

template <class T> Vector<T> in_a_row(const py::array& a, const char* name, Index size) {
    const auto v = vector<T>(a, name, size);
    if (size > 1 && v.stride != 1) throw py::value_error(std::string(name) + ": is not in C order");
    return v;
}

void check_fraction(int fraction, int limbs) {
    if (fraction < 0 || fraction > 64 * limbs) throw py::value_error("fraction: needs 0 to 64 limbs");
}

Index from_values(const py::array& values, int fraction, double largest, const py::array& out, const py::array& outside) {
    const auto w = words_of<Limb>(out, "out");
    const auto x = in_a_row<const double>(values, "values", w.n);
    const auto marks = in_a_row<bool>(outside, "outside", w.n);
    check_fraction(fraction, w.limbs);
    if (!(largest <= std::ldexp(1.0, 64 * w.limbs - 1 - fraction))) throw py::value_error("largest: needs a smaller one");
    const py::gil_scoped_release unlocked;
    return words::from_values(x.data, w.n, w.limbs, fraction, largest, w.data, marks.data);
}

void to_values(const py::array& words, int fraction, const py::array& out) {
    const auto w = words_of<const Limb>(words, "words");
    const auto x = in_a_row<double>(out, "out", w.n);
    check_fraction(fraction, w.limbs);
    const py::gil_scoped_release unlocked;
    words::to_values(w.data, w.n, w.limbs, fraction, x.data);
}

// Adds as many words as a buffer has to `total`; the first of them are taken away.
void add(const py::array& total, const py::object& parts, Index n_negative) {
    const auto w = words_of<Limb>(total, "total");
    Py_buffer bytes;
    if (PyObject_GetBuffer(parts.ptr(), &bytes, PyBUF_SIMPLE)) throw py::error_already_set();
    const struct Release {
        Py_buffer* held;
        ~Release() { PyBuffer_Release(held); }
    } release{&bytes};
    const Index size = w.limbs * w.n, all = Index(sizeof(Limb)) * size;
    if (bytes.len && (!all || bytes.len % all)) throw py::value_error("parts: needs whole arrays of words");
    if (reinterpret_cast<std::uintptr_t>(bytes.buf) % alignof(Limb)) throw py::value_error("parts: is not aligned to its elements");
    const auto* part = static_cast<const Limb*>(bytes.buf);
    const py::gil_scoped_release unlocked;
    for (Index k = 0; k * all < bytes.len; ++k) words::add(w.data, part + k * size, w.n, w.limbs, k < n_negative);
}

} // namespace

void bind_words(py::module_& m) {
    m.doc() = "Fixed-point words that are added modulo a power of two.";
    m.def("from_values", &from_values, py::arg("values"), py::arg("fraction"), py::arg("largest"), py::arg("out"), py::arg("outside"));
    m.def("to_values", &to_values, py::arg("words"), py::arg("fraction"), py::arg("out"));
    m.def("add", &add, py::arg("total"), py::arg("parts"), py::arg("n_negative"));
}

} // namespace fedkern
