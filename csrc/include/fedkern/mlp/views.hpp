// What the kernels of small networks take: plain aggregates, which cross from one instruction-set level to another.
#pragma once
#include "fedkern/view.hpp"

namespace fedkern {

enum class Activation { tanh, relu, identity };

/// An affine layer for each pair of neighbouring sizes, the activation between two layers. Its parameters in one vector: for each
/// layer W (out, in) by rows, then the bias (out).
struct Network {
    const Index* sizes; // the inputs first
    int layers;
    Activation activation;

    FEDKERN_INLINE Index inputs() const { return sizes[0]; }
    FEDKERN_INLINE Index outputs() const { return sizes[layers]; }
    FEDKERN_INLINE Index weights(int layer) const { return sizes[layer] * sizes[layer + 1]; }
    /// Where a layer's parameters begin; of the layer behind the last one: how many there are.
    FEDKERN_INLINE Index first(int layer) const {
        Index k = 0;
        for (int l = 0; l < layer; ++l) k += weights(l) + sizes[l + 1];
        return k;
    }
};

} // namespace fedkern
