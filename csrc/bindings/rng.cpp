#include <pybind11/typing.h>

#include "checks.hpp"
#include "fedkern/rng.hpp"
#include "units/table.hpp"

namespace fedkern {
namespace binding {

template <RngTable::FillPairs RngTable::* fill>
void fill_pairs(U64 key, U32 client, U32 step, U32 draw, U32 first_item, const py::array& out, int n_threads) {
    const auto y = vector<double>(out, "out", out.size());
    const py::gil_scoped_release unlocked;
    (kernels().rng.*fill)(y, {first_item, draw, client, step}, key, n_threads);
}

void words(U64 key, U32 client, U32 step, U32 draw, U32 first_item, const py::array& out, int n_threads) {
    const auto y = matrix<U32>(out, "out");
    if (y.cols != 4) throw py::value_error("out: needs 4 columns");
    const py::gil_scoped_release unlocked;
    kernels().rng.words(y, {first_item, draw, client, step}, key, n_threads);
}

void gamma(const py::array& shape, U64 key, U32 client, U32 step, U32 first_item, const py::array& out, int n_threads) {
    const auto a = vector<const double>(shape, "shape", shape.size());
    const auto y = vector<double>(out, "out", a.size);
    const py::gil_scoped_release unlocked;
    kernels().rng.gamma(a, y, {first_item, 0, client, step}, key, n_threads);
}

void inverse_gaussian(const py::array& mean, const py::array& shape, U64 key, U32 client, U32 step, U32 first_item, const py::array& out,
                      int n_threads) {
    const auto m = vector<const double>(mean, "mean", mean.size());
    const auto a = vector<const double>(shape, "shape", m.size);
    const auto y = vector<double>(out, "out", m.size);
    const py::gil_scoped_release unlocked;
    kernels().rng.inverse_gaussian(m, a, y, {first_item, 0, client, step}, key, n_threads);
}

void polya_gamma(const py::array& z, U64 key, U32 client, U32 step, U32 first_item, const py::array& out, int n_threads) {
    const auto tilt = vector<const double>(z, "z", z.size());
    const auto y = vector<double>(out, "out", tilt.size);
    const py::gil_scoped_release unlocked;
    kernels().rng.polya_gamma(tilt, y, {first_item, 0, client, step}, key, n_threads);
}

py::typing::Dict<py::str, int> streams() {
    py::typing::Dict<py::str, int> ids;
#define FEDKERN_STREAM(name, id) ids[#name] = id;
#include "fedkern/streams.def"
#undef FEDKERN_STREAM
    return ids;
}

} // namespace binding

void bind_rng(py::module_& m) {
    using namespace py::literals;
    m.def("streams", &binding::streams, "Name -> id of every random stream.");
    m.def("key", [](U64 seed, U32 stream, U64 chain) { return stream_key(seed, stream, chain); }, "seed"_a, "stream"_a, "chain"_a);
    const auto pairs = [&](const char* name, auto function) {
        m.def(name, function, "key"_a, "client"_a, "step"_a, "draw"_a, "first_item"_a, "out"_a.noconvert(), "n_threads"_a);
    };
    pairs("words", &binding::words);
    pairs("uniform", &binding::fill_pairs<&RngTable::uniform>);
    pairs("normal", &binding::fill_pairs<&RngTable::normal>);
    pairs("exponential", &binding::fill_pairs<&RngTable::exponential>);
    m.def("gamma", &binding::gamma, "shape"_a.noconvert(), "key"_a, "client"_a, "step"_a, "first_item"_a, "out"_a.noconvert(),
          "n_threads"_a);
    m.def("polya_gamma", &binding::polya_gamma, "z"_a.noconvert(), "key"_a, "client"_a, "step"_a, "first_item"_a, "out"_a.noconvert(),
          "n_threads"_a);
    m.def("inverse_gaussian", &binding::inverse_gaussian, "mean"_a.noconvert(), "shape"_a.noconvert(), "key"_a, "client"_a, "step"_a,
          "first_item"_a, "out"_a.noconvert(), "n_threads"_a);
}

} // namespace fedkern
