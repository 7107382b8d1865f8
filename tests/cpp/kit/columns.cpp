// Normal draws into the second column of a matrix of three: a view whose elements are three apart.
#include <fedkern/rng.hpp>
#include <fedkern/version.hpp>

#include <cstdio>

static_assert(FEDKERN_VERSION >= 100);

int main() {
    double X[5][3] = {};
    const fedkern::Vector<double> column{&X[0][1], 5, 3}; // first element, size, stride in elements
    const auto key = fedkern::stream_key(7, fedkern::Stream::user);
    fedkern::fill_normal(column, {}, key);
    for (const auto& row : X) std::printf("%.17g %.17g %.17g\n", row[0], row[1], row[2]);
}
