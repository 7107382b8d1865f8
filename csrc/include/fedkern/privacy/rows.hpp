// Sums of weighted rows in the rows' own type, and asking the memory for the rows that come next.
#pragma once
#include <algorithm>

#include "fedkern/pack.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

FEDKERN_INLINE void ask(const char* address) { __builtin_prefetch(address, 0, 1); } // into the second-level cache

/// Rows of up to so many bytes in all stay in a core's own caches, or so near to them that it takes longer to ask for a line than to
/// wait for it. They are read by whole registers; see `Streamed` for the others.
inline constexpr Index cached_bytes = Index{register_bytes == 64 ? 8 : 2} << 20;

/// Room in the first-level cache for a block of rows, which is read twice.
inline constexpr Index block_bytes = 28 * 1024;

/// Of rows so short that eight fit here, the processor reads the next ones ahead best by itself: one row after the other, each block
/// of eight twice. Asked for them besides, it takes up to 1.9 times as long; for longer rows it has to be asked.
inline constexpr Index short_bytes = 7 * 1024;

enum class Reading { cached, flowing, asked };

/// How n rows of so many bytes are read, which lie `beside` each other or anywhere.
inline Reading reading(Index n, Index row_bytes, bool beside) {
    if (row_bytes == 0 || n <= cached_bytes / row_bytes) return Reading::cached;
    return beside && row_bytes <= short_bytes / 8 ? Reading::flowing : Reading::asked;
}
template <Reading how, class T, int size = 64 / sizeof(T)> using PackOf =
    Pack<T, size, how == Reading::cached ? register_bytes : std::min(register_bytes, 32)>;

/// Calls work() as a function of its own. Beside the loop before it, in the same few registers, it made float32 rows of 2,000 columns
/// take a quarter longer at the baseline.
template <class Work> [[gnu::noinline]] void apart(const Work& work) { work(); }

/// sum_j += sum_i w_i x_ij over n rows, n a multiple of eight; the sum is padded to 64 bytes. Eight rows at a time: the first four and
/// the last four are added up before they meet the sum. Where rows are `asked` for, asks the memory for what is at `at`, four times
/// for eight packs that it reads.
template <Reading how, class T> void add_eights(const T* const* x, const T* w, Index n, Index d, const char* at, Index pace, T* sum) {
    constexpr int bytes = register_bytes == 16 ? 32 : 64; // of a pack: there are few registers
    using V = PackOf<how, T, bytes / sizeof(T)>;
    for (Index i = 0; i < n; i += 8) {
        V wi[8];
        for (int r = 0; r < 8; ++r) wi[r] = V::all(w[i + r]);
        const auto add = [&](Index j, const auto& load) {
            V first = wi[0] * load(x[i] + j), last = wi[4] * load(x[i + 4] + j);
            for (int r = 1; r < 4; ++r) {
                first = first + wi[r] * load(x[i + r] + j);
                last = last + wi[4 + r] * load(x[i + 4 + r] + j);
            }
            for (int k = 0; how == Reading::asked && k < 4; ++k) ask(at), at += pace;
            (V::load(sum + j) + (first + last)).store(sum + j);
        };
        Index j = 0;
        for (; j + V::size <= d; j += V::size) add(j, [](const T* p) { return V::load(p); });
        if constexpr (register_bytes == 16) {
            if (j < d) apart([&] { add(j, [&](const T* p) { return V::load(p, int(d - j)); }); });
        } else {
            if (j < d) add(j, [&](const T* p) { return V::load(p, int(d - j)); });
        }
    }
}

} // namespace FEDKERN_ISA
} // namespace fedkern
