// Random numbers: the blocks of rng.hpp, one a thread.
#include "grid.hpp"
#include "fedkern/polya_gamma.hpp"
#include "fedkern/rng.hpp"

namespace fedkern {
namespace cuda {

FEDKERN_INLINE Counter at_item(Counter counter, Index i) {
    counter.item += U32(i);
    return counter;
}

/// out[i][0..4): the words of item counter.item + i.
FEDKERN_KERNEL words(Matrix<U32> out, U64 key, Counter counter) {
    const bool whole = out.row_stride == 4 && out.col_stride == 1 && aligned(out.data);
    for (Index i = thread_of_grid(); i < out.rows; i += threads_of_grid()) {
        const auto [w] = philox(at_item(counter, i), key);
        if (whole) {
            *reinterpret_cast<uint4*>(out.data + 4 * i) = {w[0], w[1], w[2], w[3]};
        } else {
            for (int k = 0; k < 4; ++k) out.row(i)[k] = w[k];
        }
    }
}

enum class Kind { uniform, normal, exponential };

/// Element e is half e % 2 of the block of item counter.item + e / 2.
template <Kind kind> FEDKERN_KERNEL pairs(Vector<double> out, U64 key, Counter counter) {
    const bool whole = out.stride == 1 && aligned(out.data);
    for (Index i = thread_of_grid(); 2 * i < out.size; i += threads_of_grid()) {
        const auto bits = philox_bits(at_item(counter, i), key);
        Pair<double> x;
        if constexpr (kind == Kind::uniform) x = uniform_pair(bits);
        else if constexpr (kind == Kind::normal) x = normal_pair(bits);
        else x = exponential_pair(bits);
        const bool both = 2 * i + 1 < out.size;
        if (whole && both) {
            *reinterpret_cast<double2*>(out.data + 2 * i) = {x.first, x.second};
        } else {
            out[2 * i] = x.first;
            if (both) out[2 * i + 1] = x.second;
        }
    }
}

// Element e belongs to item counter.item + e, and draws until a proposal is accepted.

FEDKERN_KERNEL gammas(Vector<const double> shape, Vector<double> out, U64 key, Counter counter) {
    for (Index e = thread_of_grid(); e < out.size; e += threads_of_grid()) out[e] = gamma(shape[e], at_item(counter, e), key);
}

FEDKERN_KERNEL inverse_gaussians(Vector<const double> mean, Vector<const double> shape, Vector<double> out, U64 key, Counter counter) {
    for (Index e = thread_of_grid(); e < out.size; e += threads_of_grid())
        out[e] = inverse_gaussian(mean[e], shape[e], at_item(counter, e), key);
}

FEDKERN_KERNEL polya_gammas(Vector<const double> z, Vector<double> out, U64 key, Counter counter) {
    for (Index e = thread_of_grid(); e < out.size; e += threads_of_grid()) out[e] = polya_gamma(z[e], at_item(counter, e), key);
}

FEDKERN_INSTANCE(words)
FEDKERN_INSTANCE(pairs<Kind::uniform>)
FEDKERN_INSTANCE(pairs<Kind::normal>)
FEDKERN_INSTANCE(pairs<Kind::exponential>)
FEDKERN_INSTANCE(gammas)
FEDKERN_INSTANCE(inverse_gaussians)
FEDKERN_INSTANCE(polya_gammas)

} // namespace cuda
} // namespace fedkern
