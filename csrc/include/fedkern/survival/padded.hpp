// Rows as neighbours in whole vectors of eight, and weighted sums of them.
#pragma once
#include <type_traits>

#include "gram.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {
namespace survival {

/// use(how many vectors, first column) until all columns are through: so many sums as registers hold, in a loop over rows.
template <class Use> FEDKERN_INLINE void for_vectors(Index width, const Use& use) {
    Index j = 0;
    for (; j + 4 * pack <= width; j += 4 * pack) use(std::integral_constant<int, 4>{}, j);
    for (; j + 2 * pack <= width; j += 2 * pack) use(std::integral_constant<int, 2>{}, j);
    for (; j < width; j += pack) use(std::integral_constant<int, 1>{}, j);
}

/// Rows that are wanted so many rows later.
inline constexpr Index ahead = 32;

/// Asks for a row's memory: rows that leave stand anywhere.
FEDKERN_INLINE void fetch(Vector<const double> x) {
    if (x.stride != 1) return;
    for (Index j = 0; j < x.size + pack - 1; j += pack) __builtin_prefetch(x.data + (j < x.size ? j : x.size - 1));
}

/// to = x and zeros behind it.
FEDKERN_INLINE void pad(Vector<const double> x, Index width, double* to) {
    if (x.stride == 1 && x.size > 0) {
        const Index whole = width - pack;
        for (Index j = 0; j < whole; j += pack) Eight::load(x.data + j).store(to + j);
        Eight::load(x.data + whole, int(x.size - whole)).store(to + whole);
    } else {
        for (Index j = 0; j < width; ++j) to[j] = j < x.size ? x[j] : 0.0;
    }
}

/// out[r] = x_r'b, of rows at a stride.
inline void multiply(const double* x, Index stride, Index rows, Index width, const double* b, double* out) {
    if (width == 0) std::fill(out, out + rows, 0.0);
    const auto products = [&](auto count, Index r) {
        Eight sums[count];
        for (int l = 0; l < count; ++l) sums[l] = Eight::load(x + (r + l) * stride) * Eight::load(b);
        for (Index j = pack; j < width; j += pack)
            for (int l = 0; l < count; ++l) sums[l] = sums[l] + Eight::load(x + (r + l) * stride + j) * Eight::load(b + j);
        sums_of<count>(sums, out + r);
    };
    const Index all = width ? rows : 0, fours = all / 4 * 4;
    for (Index r = 0; r < fours; r += 4) products(std::integral_constant<int, 4>{}, r);
    for (Index r = fours; r < all; ++r) products(std::integral_constant<int, 1>{}, r);
}

/// sum += weights[r] x_r. After each row the sum so far goes to `to`, which then goes on by hops[r].
inline void running_sums(const double* x, const double* weights, const Index* hops, Index rows, Index width, double* sum, double* to) {
    for_vectors(width, [&](auto vectors, Index from) {
        Eight total[vectors];
        for (int v = 0; v < vectors; ++v) total[v] = Eight::load(sum + from + v * pack);
        double* out = to + from;
        for (Index r = 0; r < rows; ++r) {
            const double* row = x + r * width + from;
            for (int v = 0; v < vectors; ++v) {
                total[v] = total[v] + Eight::all(weights[r]) * Eight::load(row + v * pack);
                total[v].store(out + v * pack);
            }
            out += hops[r];
        }
        for (int v = 0; v < vectors; ++v) total[v].store(sum + from + v * pack);
    });
}

/// sum += weights[r] x_r, of rows at a stride.
inline void add_rows(const double* x, Index stride, const double* weights, Index rows, Index width, double* sum) {
    for_vectors(width, [&](auto vectors, Index from) {
        Eight even[vectors], odd[vectors];
        for (int v = 0; v < vectors; ++v) even[v] = Eight::load(sum + from + v * pack), odd[v] = Eight::all(0);
        const auto add = [&](Eight* total, Index r) {
            for (int v = 0; v < vectors; ++v) total[v] = total[v] + Eight::all(weights[r]) * Eight::load(x + r * stride + from + v * pack);
        };
        const Index pairs = rows - rows % 2;
        for (Index r = 0; r < pairs; r += 2) add(even, r), add(odd, r + 1);
        if (pairs < rows) add(even, pairs);
        for (int v = 0; v < vectors; ++v) (even[v] + odd[v]).store(sum + from + v * pack);
    });
}

} // namespace survival
} // namespace FEDKERN_ISA
} // namespace fedkern
