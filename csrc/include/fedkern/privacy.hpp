// Clipping of per-example vectors, and noise. Specification: dp-pvi.md, section 4.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

#include "blocks.hpp"
#include "rng.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

/// ||x||^2 in float64. A sum has eight partial sums on every machine, whatever its vector registers hold.
template <class T> double squared_norm(const T* x, Index size) {
    constexpr Index lanes = 8;
    double partial[lanes] = {};
    Index j = 0;
    for (; j + lanes <= size; j += lanes)
        for (Index l = 0; l < lanes; ++l) partial[l] += double(x[j + l]) * double(x[j + l]);
    for (; j < size; ++j) partial[j % lanes] += double(x[j]) * double(x[j]);
    return ((partial[0] + partial[4]) + (partial[2] + partial[6])) + ((partial[1] + partial[5]) + (partial[3] + partial[7]));
}

/// w = min(1, bound (1 - 1e-9) / norm): rounding can't carry a row over the bound. 0 for a row whose norm is not finite, which the
/// caller skips (0 x inf would be NaN).
inline double clip_weight(double squared_norm, double bound) {
    if (!std::isfinite(squared_norm)) return 0;
    const double norm = std::sqrt(squared_norm), most = bound * (1 - 1e-9);
    return norm > most ? most / norm : 1;
}

/// total_j = sum_i w_i x_ij, w_i = clip_weight(||x_i||^2, bound). Each row is read from memory once; extra memory is
/// O(blocks x cols). Returns the number of rows skipped because they are not finite.
template <class T> Index clip_sum(Matrix<const T> x, double bound, Vector<double> total, int n_threads) {
    const Index blocks = block_count(x.rows);
    std::vector<double> partial(blocks * x.cols);
    std::vector<Index> skipped(blocks);
    for_blocks(x.rows, blocks, n_threads, [&](Index block, Index begin, Index end) {
        double* sum = partial.data() + block * x.cols;
        std::vector<T> copy(x.col_stride == 1 ? 0 : x.cols);
        for (Index i = begin; i < end; ++i) {
            const T* row = contiguous(x.row(i), copy.data());
            const double w = clip_weight(squared_norm(row, x.cols), bound);
            if (w > 0)
                for (Index j = 0; j < x.cols; ++j) sum[j] += w * double(row[j]);
            else
                ++skipped[block];
        }
    });
    Index all_skipped = 0;
    for (Index j = 0; j < x.cols; ++j) total[j] = 0;
    for (Index b = 0; b < blocks; ++b) {
        for (Index j = 0; j < x.cols; ++j) total[j] += partial[b * x.cols + j];
        all_skipped += skipped[b];
    }
    return all_skipped;
}

/// out_j = total_j + sigma z_j, z the normals of rng.normal at draw 0. For experiments: whoever has the key can take it off again.
inline void add_noise(Vector<const double> total, double sigma, U64 key, U32 client, U32 step, Vector<double> out, int n_threads) {
    fill_pairs_in_parts<fill_normal>(out, {0, 0, client, step}, key, n_threads);
    for (Index j = 0; j < out.size; ++j) out[j] = total[j] + sigma * out[j];
}

/// Given uniform words, one after the other. When they have run out every further word is the largest, which ends every loop below;
/// what was drawn from it is thrown away.
struct WordStream {
    Vector<const std::uint32_t> given;
    Index used = 0;

    std::uint32_t next() {
        const std::uint32_t word = used < given.size ? given[used] : ~std::uint32_t{0};
        ++used;
        return word;
    }
    bool ran_out() const { return used > given.size; }

    /// Uniform on 0 .. n - 1 (Lemire 2019).
    std::uint32_t below(std::uint32_t n) {
        std::uint64_t product = std::uint64_t{next()} * n;
        if (std::uint32_t(product) < n)
            for (const std::uint32_t uneven = -n % n; std::uint32_t(product) < uneven;) product = std::uint64_t{next()} * n;
        return std::uint32_t(product >> 32);
    }

    /// True with probability a / b exactly, 0 <= a <= b < 2^63: the digits of a uniform number in base 2^32 are compared with those of
    /// a / b until they differ.
    bool coin(std::uint64_t a, std::uint64_t b) {
        return b < (std::uint64_t{1} << 31) ? compare<std::int64_t>(std::int64_t(a), std::int64_t(b)) : compare<__int128>(a, b);
    }

    /// With u = (w + u') / 2^32, u < a / b if and only if u' < (2^32 a - w b) / b. Wide holds 2^32 b.
    template <class Wide> bool compare(Wide a, Wide b) {
        for (;;) {
            a = (a << 32) - b * next();
            if (a >= b) return true;
            if (a <= 0) return false;
        }
    }

    /// True with probability exp(-a / b) exactly, a <= b: coins of a / b, a / 2b, a / 3b, .. until the first failure, which is odd
    /// (Canonne, Kamath and Steinke 2020, Algorithm 1). The coin 1 / 1 needs no word.
    bool exp_coin(std::uint64_t a, std::uint64_t b) {
        std::uint64_t k = 1;
        if (a == b) k = 2;
        for (;; ++k) {
            const bool small = b <= (std::uint64_t{1} << 62) / k;
            if (!(small ? coin(a, b * k) : coin(1, k) && coin(a, b))) return k % 2;
        }
    }
};

inline constexpr std::int64_t largest_sigma = (std::int64_t{1} << 31) - 1;

/// One draw of the discrete Gaussian on the integers, P(x) ~ exp(-x^2 / (2 sigma^2)), exactly: a discrete Laplace number of scale
/// sigma, accepted by integers only (Canonne, Kamath and Steinke 2020, Algorithms 2 and 3). 1 <= sigma <= largest_sigma.
inline std::int64_t discrete_gaussian(WordStream& words, std::int64_t sigma) {
    const auto scale = std::uint64_t(sigma);
    for (;;) {
        const std::uint32_t signed_part = words.below(std::uint32_t(2 * sigma));
        const std::uint64_t part = signed_part >> 1;
        if (!words.exp_coin(part, scale)) continue;
        std::uint64_t whole = 0;
        while (words.exp_coin(1, 1)) ++whole;
        if (whole == 0 && signed_part == 1) continue; // minus zero, or zero would come twice as often
        // Accept with probability exp(-(size - sigma)^2 / (2 sigma^2)). With |size - sigma| = d + sigma e, 0 <= d <= sigma, the
        // exponent is e^2 / 2 + e d / sigma + d^2 / (2 sigma^2).
        const std::uint64_t d = whole ? part : scale - part, e = whole ? whole - 1 : 0;
        bool accepted = true;
        for (std::uint64_t i = e * e; accepted && i > 0; --i) accepted = words.exp_coin(1, 2);
        for (std::uint64_t i = e; accepted && i > 0; --i) accepted = words.exp_coin(d, scale);
        if (!accepted || !words.exp_coin(d * d, 2 * scale * scale)) continue;
        const auto size = std::int64_t(part + scale * whole);
        return signed_part & 1 ? -size : size;
    }
}

/// Fills `out` from the given words and returns how many draws are complete: fewer than `out` holds if the words run out. `used` is
/// the number of words of the complete draws; the rest must come first in the next call, since to throw them away would favour
/// draws that need few.
inline Index discrete_gaussian(Vector<const std::uint32_t> given, std::int64_t sigma, Vector<std::int64_t> out, Index* used) {
    WordStream words{given};
    *used = 0;
    for (Index i = 0; i < out.size; ++i) {
        const std::int64_t drawn = discrete_gaussian(words, sigma);
        if (words.ran_out()) return i;
        out[i] = drawn;
        *used = words.used;
    }
    return out.size;
}

} // namespace FEDKERN_ISA
} // namespace fedkern
