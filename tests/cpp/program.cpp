// A program that knows nothing of Python: headers only, nothing linked. Prints what is wrong and fails.
#include <cmath>
#include <cstdio>
#include <vector>

#include "fedkern/privacy.hpp"
#include "fedkern/rng.hpp"

using namespace fedkern;

static int failures = 0;
static void expect(bool good, const char* what) {
    if (!good) std::printf("wrong: %s\n", what), ++failures;
}

int main() {
    const auto known = philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822);
    expect(known.word[0] == 0xd16cfe09 && known.word[3] == 0x24126ea1, "known answer");

    const U64 key = stream_key(1, Stream::draws);
    std::vector<double> one(1001), four(1001);
    fill_pairs_in_parts<fill_normal>({one.data(), 1001}, {}, key, 1);
    fill_pairs_in_parts<fill_normal>({four.data(), 1001}, {}, key, 4);
    expect(one == four, "threads");
    for (Index e = 0; e < 1001; ++e) {
        const auto pair = normal_pair(philox_bits({U32(e / 2)}, key));
        expect(std::fabs((e % 2 ? pair.second : pair.first) - one[e]) <= 1e-15 * std::fabs(one[e]), "one block = many blocks");
    }

    std::vector<double> shape(500, 0.3), draws(500);
    fill_gamma({shape.data(), 500}, {draws.data(), 500}, {}, key);
    for (Index e = 0; e < 500; ++e)
        expect(std::fabs(gamma(0.3, {U32(e)}, key) - draws[e]) <= 1e-13 * draws[e], "one gamma = many gammas");

    expect(uniform(0) == std::ldexp(1, -53) && uniform(~0ULL) == 1 - std::ldexp(1, -53), "ends of the uniform");
    expect(metropolis_accept(std::log(0.31), 0.3) && !metropolis_accept(std::log(0.29), 0.3), "Metropolis rule");
    expect(!metropolis_accept(NAN, 0.5) && !metropolis_accept(-INFINITY, 1e-15), "Metropolis rule, not finite");
    expect(std::isnan(gamma(NAN, {}, key)) && std::isnan(gamma(-1, {}, key)), "gamma of no shape");
    expect(std::isnan(inverse_gaussian(1, NAN, {}, key)), "inverse Gaussian of no shape");

    const double rows[] = {3, 4, 0.3, 0.4};
    double total[2];
    expect(clip_sum<double>({rows, 2, 2, 2}, 1, {total, 2}, 1) == 0 && std::fabs(total[0] - (0.6 * (1 - 1e-9) + 0.3)) < 1e-15, "clip_sum");
    return failures;
}
