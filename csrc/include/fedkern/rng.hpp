// Random numbers as a function of (key, counter): Philox4x32-10, Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy
// as 1, 2, 3" (2011).
//
// No generator has a state. The key says seed, stream and chain; the counter says item, draw, client and step. A block is four
// 32-bit words; words 0 and 1 (low word first) make its first uniform, words 2 and 3 the second.
#pragma once
#include "math.hpp"

#ifndef __CUDACC__
#include "blocks.hpp"
#ifdef __x86_64__
#include <immintrin.h>
#endif
#endif

namespace fedkern {

using U32 = unsigned;
using U64 = unsigned long long;

/// The names of streams.def.
enum class Stream : U32 {
#define FEDKERN_STREAM(name, id) name = id,
#include "streams.def"
#undef FEDKERN_STREAM
};

/// Names a block. `item`: row, coordinate; `draw`: several blocks of one item; `client`: 2^32 - 1 is the server; `step`: the
/// party's own count.
struct Counter {
    U32 item = 0, draw = 0, client = 0, step = 0;
};

struct Words {
    U32 word[4];
};

template <class T> struct Pair {
    T first, second;
};

inline namespace FEDKERN_ISA {

/// The finaliser of splitmix64 (Steele, Lea, Flood 2014).
FEDKERN_INLINE U64 mix(U64 z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

FEDKERN_INLINE U64 stream_key(U64 seed, U32 stream, U64 chain = 0) {
    return mix(mix(seed + 0x9E3779B97F4A7C15 * (U64(stream) + 1)) + chain);
}
FEDKERN_INLINE U64 stream_key(U64 seed, Stream stream, U64 chain = 0) { return stream_key(seed, U32(stream), chain); }

// ---- Philox: one text for one block (W = U64) and for eight (W = Octet). A word stands in the lower half of 64 bits; the upper
// half may hold anything.

FEDKERN_INLINE void multiply(const U64& a, U32 b, U64& product) { product = U64(U32(a)) * b; }

#ifndef __CUDACC__
typedef U64 Octet __attribute__((vector_size(64), may_alias));

FEDKERN_INLINE void multiply(const Octet& a, U32 b, Octet& product) {
#if defined(__AVX512F__)
    product = Octet(_mm512_maskz_mul_epu32(0xff, __m512i(a), _mm512_set1_epi64(b)));
#elif defined(__AVX2__)
    const auto* in = reinterpret_cast<const __m256i*>(&a);
    for (int i = 0; i < 2; ++i) reinterpret_cast<__m256i*>(&product)[i] = _mm256_mul_epu32(in[i], _mm256_set1_epi64x(b));
#elif defined(__x86_64__)
    const auto* in = reinterpret_cast<const __m128i*>(&a);
    for (int i = 0; i < 4; ++i) reinterpret_cast<__m128i*>(&product)[i] = _mm_mul_epu32(in[i], _mm_set1_epi64x(b));
#else
    product = (a & 0xffffffff) * b;
#endif
}
#endif

/// Ten rounds on the counter words a, b, c, d.
template <class W> FEDKERN_INLINE void philox_rounds(W& a, W& b, W& c, W& d, U64 key) {
    U32 k0 = U32(key), k1 = U32(key >> 32);
#ifdef __CUDACC__
#pragma unroll
#else
#pragma GCC unroll 10
#endif
    for (int round = 0; round < 10; ++round) {
        W p0, p1;
        multiply(a, 0xD2511F53, p0);
        multiply(c, 0xCD9E8D57, p1);
        a = (p1 >> 32) ^ b ^ U64(k0);
        b = p1;
        c = (p0 >> 32) ^ d ^ U64(k1);
        d = p0;
        k0 += 0x9E3779B9, k1 += 0xBB67AE85;
    }
}

/// The block of a counter.
FEDKERN_INLINE Words philox(Counter counter, U64 key) {
    U64 a = counter.item, b = counter.draw, c = counter.client, d = counter.step;
    philox_rounds(a, b, c, d, key);
    return {{U32(a), U32(b), U32(c), U32(d)}};
}

/// The same as two 64-bit numbers.
FEDKERN_INLINE Pair<U64> philox_bits(Counter counter, U64 key) {
    const auto [w] = philox(counter, key);
    return {w[0] | U64(w[1]) << 32, w[2] | U64(w[3]) << 32};
}

// ---- Distributions of one block.

/// (k + 1/2) 2^-52 for the upper 52 bits k: uniform on (0, 1), never 0 or 1, exact.
FEDKERN_INLINE double uniform(U64 bits) {
    return math::from_bits<double>(bits >> 12 | 0x3ff0000000000000) - 0x1.fffffffffffffp-1;
}

/// log of such a uniform.
FEDKERN_INLINE double log_uniform(double u) { return math::log_plus(u, -0.0, -0.0); }

FEDKERN_INLINE Pair<double> uniform_pair(Pair<U64> bits) { return {uniform(bits.first), uniform(bits.second)}; }

/// Box and Muller (1958): two independent standard normals.
FEDKERN_INLINE Pair<double> normal_pair(Pair<U64> bits) {
    const double radius = math::sqrt(-2 * log_uniform(uniform(bits.first)));
    const auto angle = math::sincos_turns(uniform(bits.second));
    return {radius * angle.cos, radius * angle.sin};
}

FEDKERN_INLINE Pair<double> exponential_pair(Pair<U64> bits) {
    return {-log_uniform(uniform(bits.first)), -log_uniform(uniform(bits.second))};
}

/// The Metropolis rule: a proposal with this log ratio is taken. NaN is refused.
FEDKERN_INLINE bool metropolis_accept(double log_ratio, double u) { return log_uniform(u) < log_ratio; }

// ---- Variates that own several blocks: the draw word is attempt x n_blocks + block.

inline constexpr U32 gamma_blocks = 2, inverse_gaussian_blocks = 2;

FEDKERN_INLINE bool positive(double x) { return x > 0 && x < math::infinity<double>(); }

/// Marsaglia and Tsang (2000), "A simple method for generating gamma variables", for scale 1. Below shape 1 with their boost
/// G(shape) = G(shape + 1) U^(1/shape). Block 0: the normal; block 1: the uniforms of the test and of the boost. -1 is a rejection.
/// Their test log u < x^2/2 + d - d v + d log v, v = (1 + t)^3, is written without its cancelling terms.
FEDKERN_INLINE double gamma_proposal(double shape, Pair<U64> block0, Pair<U64> block1) {
    const double d = (shape < 1 ? shape + 1 : shape) - 1. / 3;
    const double t = normal_pair(block0).first / (3 * math::sqrt(d)), v = 1 + t;
    const double bound = 3 * d * (math::log1p(t) - t * (1 - t * (0.5 - t * (1. / 3))));
    return metropolis_accept(bound, uniform(block1.first)) && positive(shape) ? d * v * v * v : -1;
}

FEDKERN_INLINE double gamma_boost(double shape, Pair<U64> block1) {
    return shape < 1 ? math::exp(log_uniform(uniform(block1.second)) / shape) : 1;
}

/// Gamma(shape, 1) from attempt `attempt` on; NaN for a shape that is not positive and finite.
FEDKERN_INLINE double gamma(double shape, Counter counter, U64 key, U32 attempt = 0) {
    for (; positive(shape); ++attempt) {
        counter.draw = attempt * gamma_blocks;
        const auto block0 = philox_bits(counter, key);
        ++counter.draw;
        const auto block1 = philox_bits(counter, key);
        const double proposal = gamma_proposal(shape, block0, block1);
        if (proposal >= 0) return proposal * gamma_boost(shape, block1);
    }
    return math::not_a_number<double>();
}

/// Inverse Gaussian by Michael, Schucany, Haas (1976): the roots of their quadratic are mean r and mean / r,
/// with r = 1 / (1 + w + sqrt(w (w + 2))), w = mean chi^2 / (2 shape): nothing cancels. Block 0: the normal; block 1: the choice.
FEDKERN_INLINE double inverse_gaussian(double mean, double shape, Pair<U64> block0, Pair<U64> block1) {
    const double x = normal_pair(block0).first, w = x * x * (0.5 * mean / shape);
    const double larger = 1 + w + math::sqrt(w) * math::sqrt(w + 2);
    const double value = uniform(block1.first) * (larger + 1) <= larger ? mean / larger : mean * larger;
    return positive(mean) && positive(shape) ? value : math::not_a_number<double>();
}

FEDKERN_INLINE double inverse_gaussian(double mean, double shape, Counter counter, U64 key) {
    counter.draw = 0;
    const auto block0 = philox_bits(counter, key);
    counter.draw = 1;
    return inverse_gaussian(mean, shape, block0, philox_bits(counter, key));
}

#ifndef __CUDACC__ // what follows is loops for a CPU

// ---- Many blocks at once.

inline constexpr Index tile_size = 64;

/// The blocks of `tile_size` items that follow each other.
struct Tile {
    alignas(64) U64 first[tile_size], second[tile_size];

    FEDKERN_INLINE Tile(Counter counter, U64 key) {
        for (Index i = 0; i < tile_size; i += 8) {
            Octet a = Octet{0, 1, 2, 3, 4, 5, 6, 7} + U64(counter.item + U32(i));
            Octet b = Octet{} + U64(counter.draw), c = Octet{} + U64(counter.client), d = Octet{} + U64(counter.step);
            philox_rounds(a, b, c, d, key);
            *reinterpret_cast<Octet*>(first + i) = (a & 0xffffffff) | b << 32;
            *reinterpret_cast<Octet*>(second + i) = (c & 0xffffffff) | d << 32;
        }
    }
    FEDKERN_INLINE Pair<U64> operator[](Index i) const { return {first[i], second[i]}; }
};

FEDKERN_INLINE Counter plus(Counter counter, Index items) {
    counter.item += U32(items);
    return counter;
}

/// Element e is half e % 2 of the block of item counter.item + e / 2.
template <class Transform> void fill_pairs(Vector<double> out, Counter counter, U64 key, Transform transform) {
    for (Index begin = 0; begin < out.size; begin += 2 * tile_size) {
        const Tile tile(plus(counter, begin / 2), key);
        double value[2 * tile_size];
        for (Index i = 0; i < tile_size; ++i) {
            const Pair<double> pair = transform(tile[i]);
            value[2 * i] = pair.first;
            value[2 * i + 1] = pair.second;
        }
        const Index size = std::min(2 * tile_size, out.size - begin);
        for (Index e = 0; e < size; ++e) out[begin + e] = value[e];
    }
}

inline void fill_uniform(Vector<double> out, Counter counter, U64 key) {
    fill_pairs(out, counter, key, [](Pair<U64> bits) { return uniform_pair(bits); });
}
inline void fill_normal(Vector<double> out, Counter counter, U64 key) {
    fill_pairs(out, counter, key, [](Pair<U64> bits) { return normal_pair(bits); });
}
inline void fill_exponential(Vector<double> out, Counter counter, U64 key) {
    fill_pairs(out, counter, key, [](Pair<U64> bits) { return exponential_pair(bits); });
}

/// Row i is the block of item counter.item + i.
inline void fill_words(Matrix<U32> out, Counter counter, U64 key) {
    for (Index begin = 0; begin < out.rows; begin += tile_size) {
        const Tile tile(plus(counter, begin), key);
        const Index size = std::min(tile_size, out.rows - begin);
        for (Index i = 0; i < size; ++i) {
            const auto row = out.row(begin + i);
            row[0] = U32(tile.first[i]), row[1] = U32(tile.first[i] >> 32);
            row[2] = U32(tile.second[i]), row[3] = U32(tile.second[i] >> 32);
        }
    }
}

/// Element e belongs to item counter.item + e. The first attempt of a whole tile, then those that were rejected one by one.
inline void fill_gamma(Vector<const double> shape, Vector<double> out, Counter counter, U64 key) {
    for (Index begin = 0; begin < out.size; begin += tile_size) {
        const Counter here = plus(counter, begin);
        const Tile block0({here.item, 0, here.client, here.step}, key), block1({here.item, 1, here.client, here.step}, key);
        const Index size = std::min(tile_size, out.size - begin);
        double a[tile_size], value[tile_size];
        Index boosted = 0;
        for (Index i = 0; i < tile_size; ++i) a[i] = i < size ? shape[begin + i] : 1;
        for (Index i = 0; i < tile_size; ++i) value[i] = gamma_proposal(a[i], block0[i], block1[i]);
        for (Index i = 0; i < tile_size; ++i) boosted += a[i] < 1;
        if (boosted)
            for (Index i = 0; i < tile_size; ++i) value[i] *= value[i] < 0 ? 1 : gamma_boost(a[i], block1[i]);
        for (Index i = 0; i < size; ++i) out[begin + i] = value[i] >= 0 ? value[i] : gamma(a[i], plus(here, i), key, 1);
    }
}

/// Element e belongs to item counter.item + e.
inline void fill_inverse_gaussian(Vector<const double> mean, Vector<const double> shape, Vector<double> out, Counter counter,
                                  U64 key) {
    for (Index begin = 0; begin < out.size; begin += tile_size) {
        const Counter here = plus(counter, begin);
        const Tile block0({here.item, 0, here.client, here.step}, key), block1({here.item, 1, here.client, here.step}, key);
        const Index size = std::min(tile_size, out.size - begin);
        double m[tile_size], s[tile_size], value[tile_size];
        for (Index i = 0; i < tile_size; ++i) m[i] = i < size ? mean[begin + i] : 1, s[i] = i < size ? shape[begin + i] : 1;
        for (Index i = 0; i < tile_size; ++i) value[i] = inverse_gaussian(m[i], s[i], block0[i], block1[i]);
        for (Index i = 0; i < size; ++i) out[begin + i] = value[i];
    }
}

// ---- On several threads.

/// fill(begin, end) for parts of [0, size) that begin at multiples of a tile's `elements`.
template <class Fill> void fill_in_parts(Index size, Index elements, int n_threads, const Fill& fill) {
    const Index tiles = (size + elements - 1) / elements;
    for_blocks(tiles, block_count(tiles), n_threads,
               [&](Index, Index begin, Index end) { fill(begin * elements, std::min(end * elements, size)); });
}

template <void (*fill)(Vector<double>, Counter, U64)>
void fill_pairs_in_parts(Vector<double> out, Counter counter, U64 key, int n_threads) {
    fill_in_parts(out.size, 2 * tile_size, n_threads,
                  [&](Index begin, Index end) { fill(out.part(begin, end), plus(counter, begin / 2), key); });
}

inline void fill_words_in_parts(Matrix<U32> out, Counter counter, U64 key, int n_threads) {
    fill_in_parts(out.rows, tile_size, n_threads,
                  [&](Index begin, Index end) { fill_words(out.part(begin, end), plus(counter, begin), key); });
}

inline void fill_gamma_in_parts(Vector<const double> shape, Vector<double> out, Counter counter, U64 key, int n_threads) {
    fill_in_parts(out.size, tile_size, n_threads, [&](Index begin, Index end) {
        fill_gamma(shape.part(begin, end), out.part(begin, end), plus(counter, begin), key);
    });
}

inline void fill_inverse_gaussian_in_parts(Vector<const double> mean, Vector<const double> shape, Vector<double> out,
                                           Counter counter, U64 key, int n_threads) {
    fill_in_parts(out.size, tile_size, n_threads, [&](Index begin, Index end) {
        fill_inverse_gaussian(mean.part(begin, end), shape.part(begin, end), out.part(begin, end), plus(counter, begin), key);
    });
}

#endif

} // namespace FEDKERN_ISA
} // namespace fedkern
