// A program that knows nothing of Python: headers only, nothing linked. Prints what is wrong and fails.
#include <cmath>
#include <cstdio>
#include <vector>

#include "fedkern/augmented/gradients.hpp"
#include "fedkern/mlp/networks.hpp"
#include "fedkern/optim/adaptive.hpp"
#include "fedkern/privacy/sums.hpp"
#include "fedkern/rng.hpp"

using namespace fedkern;

static int failures = 0;
static void expect(bool good, const char* what) {
    if (!good) std::printf("wrong: %s\n", what), ++failures;
}

/// What BLAS does, without its speed.
template <class T>
void plain_gemm(char* a, char* b, int* m, int* n, int* k, T* alpha, T* A, int* lda, T* B, int* ldb, T* beta, T* C, int* ldc) {
    for (int i = 0; i < *m; ++i)
        for (int j = 0; j < *n; ++j) {
            T sum = 0;
            for (int l = 0; l < *k; ++l)
                sum += (*a == 'T' ? A[l + i * *lda] : A[i + l * *lda]) * (*b == 'T' ? B[j + l * *ldb] : B[l + j * *ldb]);
            T& c = C[i + j * *ldc];
            c = *alpha * sum + (*beta == 0 ? 0 : *beta * c);
        }
}

template <class T> bool near(const std::vector<T>& a, const std::vector<T>& b, double tolerance) {
    double most = 0, difference = 0;
    for (std::size_t i = 0; i < a.size(); ++i) { // no fmax: GCC 12 for ARM ends at the sum of it
        const double size = std::fabs(double(a[i])), apart = std::fabs(double(a[i]) - double(b[i]));
        most = size > most ? size : most, difference = apart > difference ? apart : difference;
    }
    return a.size() == b.size() && most > 0 && difference <= tolerance * most;
}

template <class T> std::vector<T> normals(Index n, U32 client) {
    std::vector<double> z(n);
    fill_pairs_in_parts<fill_normal>({z.data(), n}, {0, 0, client}, stream_key(2, Stream::draws), 1);
    return {z.begin(), z.end()};
}

/// A network by loops and by BLAS, on one thread and on four, and its gradient as a difference of values.
template <class T> void check_network(Activation activation) {
    constexpr bool wide = sizeof(T) == 8;
    constexpr Index n = 1500;
    const Index sizes[] = {3, 9, 6, 2};
    const Network net{sizes, 3, activation};
    const Index k = net.first(3);
    const auto X = normals<T>(n * 3, 1), P = normals<T>(k, 2), U = normals<T>(n * 2, 3);
    Blas blas{};
    blas.dgemm = plain_gemm<double>, blas.sgemm = plain_gemm<float>;
    const Matrix<const T> x{X.data(), n, 3, 3}, u{U.data(), n, 2, 2};
    struct Result {
        std::vector<T> Y, grad, dX;
    };
    const auto run = [&](auto products, const T* parameters, int n_threads) {
        Result r{std::vector<T>(n * 2), std::vector<T>(k), std::vector<T>(n * 3)};
        mlp_forward<T>(x, parameters, net, {r.Y.data(), n, 2, 2}, n_threads, products);
        mlp_backward<T>(x, parameters, u, net, {r.grad.data(), k}, {r.dX.data(), n, 3, 3}, n_threads, products);
        return r;
    };
    const auto one = run(Loops<T>{}, P.data(), 1), four = run(Loops<T>{}, P.data(), 4), by_blas = run(BlasProducts<T>{blas}, P.data(), 1);
    expect(one.Y == four.Y && one.grad == four.grad && one.dX == four.dX, "network: threads");
    const double tolerance = wide ? 1e-13 : 3e-6;
    expect(near(one.Y, by_blas.Y, tolerance) && near(one.grad, by_blas.grad, tolerance) && near(one.dX, by_blas.dX, tolerance),
           "network: loops = BLAS");
    if constexpr (wide)
        for (Index j = 0; j < k; j += 7) {
            const auto objective = [&](double move) {
                auto moved = P;
                moved[j] += move;
                const auto Y = run(Loops<T>{}, moved.data(), 1).Y;
                double sum = 0;
                for (Index e = 0; e < 2 * n; ++e) sum += U[e] * Y[e];
                return sum;
            };
            const double slope = (objective(1e-6) - objective(-1e-6)) / 2e-6;
            expect(std::fabs(slope - one.grad[j]) <= (activation == Activation::relu ? 1e-2 : 1e-5) * std::fabs(slope) + 1e-3,
                   "network: slope");
        }
}

int main() {
    for (const Activation f : {Activation::tanh, Activation::relu, Activation::identity}) check_network<double>(f), check_network<float>(f);

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
    for (Index e = 0; e < 500; ++e) expect(std::fabs(gamma(0.3, {U32(e)}, key) - draws[e]) <= 1e-13 * draws[e], "one gamma = many gammas");

    for (const double a : {0.3, 1., 2.5, 77., 1e6, 1e300}) {
        fill_gamma({&a, 500, 0}, {draws.data(), 500}, {7}, key);
        for (Index e = 0; e < 500; ++e) expect(std::fabs(gamma(a, {U32(7 + e)}, key) - draws[e]) <= 1e-13 * draws[e], "gammas of a shape");
        gammas_of_steps(a, {3, 0, 1, ~0u}, key, 63, draws.data()); // the second is of step 0
        for (Index e = 0; e < 63; ++e)
            expect(std::fabs(gamma(a, {3, 0, 1, U32(e - 1)}, key) - draws[e]) <= 1e-13 * draws[e], "gammas of steps");
        // What is taken for sure, by the uniforms next to the limit, is what the logarithms would take.
        Index sure = 0;
        for (Index e = 0; e < 4000; ++e) {
            const double t = std::pow(10, -double(e % 1000) / 80) * (e < 2000 ? 1 : -0.49999), d = gamma_centre(a);
            const double limit = std::ldexp(std::fmax(1 - d * (2 * (t * t) * (t * t) + 1e-14 * std::fabs(t)), 0), 52);
            const U64 steps = U64(e % 5), k = limit < double(steps) ? 0 : U64(limit) - steps,
                      test = (k < (1ULL << 52) ? k : (1ULL << 52) - 1) << 12;
            if (gamma_is_sure(a, t, test)) ++sure, expect(gamma_if_taken(a, t, gamma_bound(a, t), test) > 0, "a sure gamma");
        }
        expect(sure > 0 || a == 1e300, "there are sure gammas");
    }
    gammas_of_steps(NAN, {}, key, 5, draws.data());
    expect(std::isnan(draws[0]) && std::isnan(draws[4]), "gammas of steps of no shape");

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
