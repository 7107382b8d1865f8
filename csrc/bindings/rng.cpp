#include <cstdint>
#include <memory>
#include <tuple>

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

void counts(const py::array& u, const py::array& most, const py::array& first, const py::array& a, const py::array& b, Index terms,
            const py::array& count, const py::array& sum, int n_threads) {
    const Index n = u.size();
    const auto given = [n](const py::array& values, const char* name) { return vector<const double>(values, name, n); };
    const Counts vectors{given(u, "u"),
                         given(most, "most"),
                         given(first, "first"),
                         given(a, "a"),
                         given(b, "b"),
                         vector<double>(count, "count", n),
                         vector<double>(sum, "sum", n)};
    const py::gil_scoped_release unlocked;
    kernels().rng.counts(vectors, terms, n_threads);
}

// ---- A NumPy BitGenerator on the words of a key.

/// NumPy's `bitgen_t` (numpy/random/bitgen.h), by which its Generator calls any bit generator: a part of its stable C API.
struct Bitgen {
    void* state;
    std::uint64_t (*next_uint64)(void*);
    std::uint32_t (*next_uint32)(void*);
    double (*next_double)(void*);
    std::uint64_t (*next_raw)(void*);
};

/// The blocks of one (key, client, step) as a row of 64-bit numbers. Block b has item b % 2^32 and draw b / 2^32.
class BitState {
  public:
    BitState(U64 key, U32 client, U32 step) : key_(key), client_(client), step_(step) { go(0, 0, false, 0); }

    /// Goes to number `half` of a block; where `kept`, `upper` is the next 32-bit number.
    void go(U64 block, int half, bool kept, U32 upper) {
        fill(block - block % tile_size);
        at_ = int(2 * (block % tile_size)) + half, kept_ = kept, upper_ = upper;
    }
    std::tuple<U64, int, bool, U32> place() const { return {begin_ + U64(at_ / 2), at_ % 2, kept_, upper_}; }

    U64 next() {
        if (at_ == 2 * tile_size) fill(begin_ + tile_size), at_ = 0;
        return bits_[at_++];
    }
    /// The lower half of a number, then its upper one: the words of a block in their order.
    U32 next_word() {
        if (kept_) return kept_ = false, upper_;
        const U64 bits = next();
        return kept_ = true, upper_ = U32(bits >> 32), U32(bits);
    }

  private:
    /// A multiple of `tile_size` divides 2^32: no carry from item to draw comes within a tile.
    void fill(U64 begin) {
        U32 words[4 * tile_size];
        kernels().rng.words({words, tile_size, 4, 4}, {U32(begin), U32(begin >> 32), client_, step_}, key_, 1);
        for (Index i = 0; i < 2 * tile_size; ++i) bits_[i] = words[2 * i] | U64(words[2 * i + 1]) << 32;
        begin_ = begin;
    }

    U64 key_;
    U32 client_, step_;
    U64 begin_ = 0, bits_[2 * tile_size];
    int at_ = 0; // in [0, 2 tile_size]
    bool kept_ = false;
    U32 upper_ = 0;
};

void free_bit_state(PyObject* capsule) { delete static_cast<BitState*>(PyCapsule_GetContext(capsule)); }

Bitgen& bitgen_of(const py::object& capsule) {
    auto* bitgen = static_cast<Bitgen*>(PyCapsule_GetPointer(capsule.ptr(), "BitGenerator"));
    if (!bitgen) throw py::error_already_set();
    return *bitgen;
}

/// Has a new BitGenerator call our functions. The capsule is its own, and the state lives as long as the capsule.
void bit_generator(const py::object& capsule, U64 key, U32 client, U32 step) {
    auto& bitgen = bitgen_of(capsule);
    if (bitgen.state || PyCapsule_GetDestructor(capsule.ptr())) throw py::value_error("capsule: the bit generator has a state already");
    auto state = std::make_unique<BitState>(key, client, step);
    if (PyCapsule_SetContext(capsule.ptr(), state.get())) throw py::error_already_set();
    if (PyCapsule_SetDestructor(capsule.ptr(), &free_bit_state)) throw py::error_already_set();
    bitgen = {state.release(), [](void* s) -> std::uint64_t { return static_cast<BitState*>(s)->next(); },
              [](void* s) -> std::uint32_t { return static_cast<BitState*>(s)->next_word(); },
              [](void* s) { return uniform(static_cast<BitState*>(s)->next()); },
              [](void* s) -> std::uint64_t { return static_cast<BitState*>(s)->next(); }};
}

BitState& bit_state_of(const py::object& capsule) {
    auto& bitgen = bitgen_of(capsule);
    if (PyCapsule_GetDestructor(capsule.ptr()) != &free_bit_state) throw py::value_error("capsule: not of rng.bit_generator");
    return *static_cast<BitState*>(bitgen.state);
}

void go(const py::object& capsule, U64 block, int half, bool kept, U32 upper) {
    if (half < 0 || half > 1) throw py::value_error("half: must be 0 or 1");
    bit_state_of(capsule).go(block, half, kept, upper);
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
    m.def("bit_generator", &binding::bit_generator, "capsule"_a, "key"_a, "client"_a, "step"_a);
    m.def("place", [](const py::object& capsule) { return binding::bit_state_of(capsule).place(); }, "capsule"_a);
    m.def("go", &binding::go, "capsule"_a, "block"_a, "half"_a, "kept"_a, "upper"_a);
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
    m.def("counts", &binding::counts, "u"_a.noconvert(), "most"_a.noconvert(), "first"_a.noconvert(), "a"_a.noconvert(), "b"_a.noconvert(),
          "terms"_a, "count"_a.noconvert(), "sum"_a.noconvert(), "n_threads"_a);
    m.def("inverse_gaussian", &binding::inverse_gaussian, "mean"_a.noconvert(), "shape"_a.noconvert(), "key"_a, "client"_a, "step"_a,
          "first_item"_a, "out"_a.noconvert(), "n_threads"_a);
}

} // namespace fedkern
