// What somebody else may write with fedkern's headers: draws of a random walk, in a library with a C interface.
#include "fedkern/rng.hpp"

extern "C" unsigned long long outsider_key(unsigned long long seed) { return fedkern::stream_key(seed, fedkern::Stream::simulate); }

extern "C" void outsider_walk(unsigned long long key, long n, double* position) {
    fedkern::fill_normal({position, n}, {}, key);
    for (long i = 1; i < n; ++i) position[i] += position[i - 1];
}
