// Networks, checked for memory safety.
#pragma once
#include <vector>

#include "checks.hpp"
#include "fedkern/mlp/views.hpp"

namespace fedkern {

inline Vector<const std::int64_t> integers(const py::array& a, const char* name) {
    return vector<const std::int64_t>(a, name, a.ndim() == 1 ? a.shape(0) : 0);
}

/// The sizes of a network, which must live as long as it is in use.
struct Sizes {
    std::vector<Index> all;

    Sizes() = default;
    explicit Sizes(const py::array& sizes) { append(integers(sizes, "sizes")); }

    void append(Vector<const std::int64_t> sizes) {
        for (Index l = 0; l < sizes.size; ++l) all.push_back(sizes[l]);
    }

    Network network(Activation activation) const {
        if (all.size() < 2) throw py::value_error("sizes: needs at least two");
        for (const Index size : all)
            if (size < 1 || size >= Index{1} << 31) throw py::value_error("sizes: must be positive and below 2^31");
        return {all.data(), int(all.size()) - 1, activation};
    }
    Network network(int activation) const {
        if (activation < 0 || activation > int(Activation::identity)) throw py::value_error("activation: there are 0, 1 and 2");
        return network(Activation(activation));
    }
};

} // namespace fedkern
