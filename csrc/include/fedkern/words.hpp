// Fixed-point words: whole numbers of units of 2^-fraction, in two's complement, of several 64-bit limbs, the lowest first. They are added
// modulo 2^(64 limbs). An array has the lowest limbs of all words first, then the next ones. `fedkern.privacy.masks` says what for.
#pragma once
#include "view.hpp"

#include <bit>
#include <cmath>
#include <cstdint>

namespace fedkern::words {

using Limb = std::uint64_t;
constexpr int most_limbs = 16;

inline namespace FEDKERN_ISA {

// The nearest whole number to m 2^-shift, shift > 0, ties to even.
inline Limb rounded(Limb m, int shift) {
    if (shift > 54) return 0; // m < 2^53
    const Limb kept = m >> shift, rest = m & ((Limb{1} << shift) - 1), half = Limb{1} << (shift - 1);
    return kept + (rest > half || (rest == half && kept % 2));
}

// Changes the sign of word i of n.
inline void negate(Limb* words, Index i, Index n, int limbs) {
    bool carry = true;
    for (int l = 0; l < limbs; ++l) {
        Limb& limb = words[l * n + i];
        limb = ~limb + carry;
        carry = carry && limb == 0;
    }
}

// Writes the words of n values; 0 for one that is not smaller than `largest` in size, which is marked. How many these are.
// Needs largest <= 2^(64 limbs - 1 - fraction).
inline Index from_values(const double* values, Index n, int limbs, int fraction, double largest, Limb* words, bool* outside) {
    for (Index i = 0; i < limbs * n; ++i) words[i] = 0;
    Index n_outside = 0;
    for (Index i = 0; i < n; ++i) {
        outside[i] = !(std::fabs(values[i]) < largest); // so is what is no number
        n_outside += outside[i];
        if (outside[i] || values[i] == 0) continue;
        const Limb bits = std::bit_cast<Limb>(values[i]), exponent = bits >> 52 & 0x7FF, stored = bits & ((Limb{1} << 52) - 1);
        const Limb m = exponent ? stored | Limb{1} << 52 : stored; // the value is m 2^(exponent - 1075), also where exponent is 0, for 1
        const int shift = int(exponent ? exponent : 1) - 1075 + fraction;
        if (shift <= 0) {
            words[i] = shift ? rounded(m, -shift) : m;
        } else {
            const int l = shift / 64, left = shift % 64;
            words[l * n + i] = m << left;
            if (left && l + 1 < limbs) words[(l + 1) * n + i] = m >> (64 - left);
        }
        if (values[i] < 0) negate(words, i, n, limbs);
    }
    return n_outside;
}

// Writes the numbers that n words are, each rounded once: to the nearest, ties to even.
inline void to_values(const Limb* words, Index n, int limbs, int fraction, double* values) {
    for (Index i = 0; i < n; ++i) {
        Limb size[most_limbs]; // the word without its sign
        const bool negative = words[(limbs - 1) * n + i] >> 63;
        for (int l = 0; l < limbs; ++l) size[l] = words[l * n + i];
        if (negative) negate(size, 0, 1, limbs);
        int l = limbs - 1;
        while (l > 0 && size[l] == 0) --l;
        if (size[l] == 0) {
            values[i] = 0;
            continue;
        }
        // 64 bits from the highest one on, 11 more than a significand has: the last also says whether any lower one is set.
        const int zeros = std::countl_zero(size[l]);
        Limb top = size[l] << zeros, rest = 0;
        if (l > 0 && zeros > 0) top |= size[l - 1] >> (64 - zeros);
        if (l > 0) rest = size[l - 1] << zeros;
        for (int lower = 0; lower < l - 1; ++lower) rest |= size[lower];
        const double value = std::ldexp(double(top | (rest != 0)), 64 * l - zeros - fraction);
        values[i] = negative ? -value : value;
    }
}

// `add`, of a number of limbs that the compiler knows, or of any: 0.
template <int fixed> inline void add_part(Limb* total, const Limb* part, Index n, int limbs, bool negative) {
    if (fixed) limbs = fixed;
    const Limb flip = negative ? ~Limb{0} : 0; // -x is ~x + 1
    for (Index i = 0; i < n; ++i) {
        Limb carry = negative;
        for (int l = 0; l < limbs; ++l) {
            const Limb other = part[l * n + i] ^ flip, sum = total[l * n + i] + other, both = sum + carry;
            carry = (sum < other) | (both < sum);
            total[l * n + i] = both;
        }
    }
}

// Adds n words to n others, or takes them away.
inline void add(Limb* total, const Limb* part, Index n, int limbs, bool negative) {
    if (limbs == 2) return add_part<2>(total, part, n, limbs, negative);
    if (limbs == 8) return add_part<8>(total, part, n, limbs, negative);
    add_part<0>(total, part, n, limbs, negative);
}

} // namespace FEDKERN_ISA
} // namespace fedkern::words
