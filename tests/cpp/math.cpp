// Prints the largest error of each function of math.hpp in units in the last place, against numbers of 128 bits, and what happens at
// the edges.
#include <cmath>
#include <cstdio>
#include <limits>
#include <vector>

#include "fedkern/math.hpp"

#if __LDBL_MANT_DIG__ == 113 // 64-bit ARM: they are `long double`, and the C library has their functions
using Quad = long double;
#define expq expl
#define expm1q expm1l
#define logq logl
#define log1pq log1pl
#define tanhq tanhl
#define sinq sinl
#define cosq cosl
#define sqrtq sqrtl
#define erfcq erfcl
#define rintq rintl
#define fabsq fabsl
#define M_PIq 3.141592653589793238462643383279502884L
#define HUGE_VALQ HUGE_VALL
#else
#include <quadmath.h>
using Quad = __float128;
#endif

namespace m = fedkern::math;

template <class T> double ulps(T got, Quad want) {
    const T nearest = T(want);
    if (std::isnan(got) || std::isnan(nearest)) return std::isnan(got) && std::isnan(nearest) ? 0 : 1e300;
    if (std::isinf(got) || std::isinf(nearest)) return got == nearest ? 0 : 1e300;
    const T size = std::max(std::fabs(nearest), std::numeric_limits<T>::min());
    const Quad unit = std::ldexp(T(1), std::ilogb(size) - std::numeric_limits<T>::digits + 1);
    return double(fabsq((Quad(got) - want) / unit));
}

const double inf = std::numeric_limits<double>::infinity();
const double edges[] = {0.,   -0.,   1.,     -1.,    5e-324, -5e-324, 1e-310, 2.3e-308, 1e-300, 1e-17,  -1e-17, 0.5,
                        2.,   1e300, -1e300, 709.78, 709.79, -708.3,  -708.5, -744.4,   -745.1, -745.2, -1e5,   37.,
                        -37., 38.4,  -38.4,  88.7,   88.8,   -87.4,   -103.9, -104.,    inf,    -inf,   NAN};

template <class T, class Got, class Want> void check(const char* name, double low, double high, bool logarithmic, Got got, Want want) {
    std::vector<T> x;
    for (double e : edges) x.push_back(T(e));
    const int n = 20'000;
    for (int i = 0; i <= n; ++i) {
        const double t = double(i) / n;
        const double magnitude = logarithmic ? low * std::pow(high / low, t) : low + (high - low) * t;
        x.push_back(T(magnitude));
        if (logarithmic) x.push_back(-x.back());
    }
    std::vector<T> y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = got(x[i]);
    double worst = 0;
    T where = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double error = ulps(y[i], want(Quad(x[i])));
        if (error > worst) worst = error, where = x[i];
    }
    std::printf("%s %.3g %.17g\n", name, worst, double(where));
}

#define FUNCTION(f) [](auto x) { return m::f(x); }

template <class T> void both(const char* type, double range) {
    const auto named = [&](const char* f) {
        static char text[64];
        std::snprintf(text, sizeof text, "%s/%s", f, type);
        return text;
    };
    const double least = std::numeric_limits<T>::min() / 1000, most = std::numeric_limits<T>::max();
    check<T>(named("exp"), -range, range, false, FUNCTION(exp), expq);
    check<T>(named("exp_small"), 1e-20, 1, true, FUNCTION(exp), expq);
    check<T>(named("expm1"), -range, range, false, FUNCTION(expm1), expm1q);
    check<T>(named("expm1_small"), 1e-20, 3, true, FUNCTION(expm1), expm1q);
    check<T>(named("log"), least, most, true, FUNCTION(log), logq);
    check<T>(named("log_near_1"), 0.5, 2, false, FUNCTION(log), logq);
    check<T>(named("log1p"), least, most, true, FUNCTION(log1p), log1pq);
    check<T>(named("log1p_near_0"), -1, 3, false, FUNCTION(log1p), log1pq);
    const auto sigmoid = [](Quad x) { return x < 0 ? expq(x) / (1 + expq(x)) : 1 / (1 + expq(-x)); };
    check<T>(named("sigmoid"), -range, range, false, FUNCTION(sigmoid), sigmoid);
    check<T>(named("sigmoid_small"), 1e-20, 40, true, FUNCTION(sigmoid), sigmoid);
    const auto softplus = [](Quad x) { return x == -HUGE_VALQ ? 0 : x > 0 ? x + log1pq(expq(-x)) : log1pq(expq(x)); };
    check<T>(named("softplus"), -range, range, false, FUNCTION(softplus), softplus);
    check<T>(named("softplus_small"), 1e-20, 40, true, FUNCTION(softplus), softplus);
    check<T>(named("tanh"), -25, 25, false, FUNCTION(tanh), tanhq);
    check<T>(named("tanh_small"), least, 30, true, FUNCTION(tanh), tanhq);
}

int main() {
    both<double>("f64", 750);
    both<float>("f32", 110);
    // The edges of `check` hold arguments outside the domain of the reduction: only moderate ones count here.
    const auto moderate = [](auto f) { return [f](auto x) { return fabsq(Quad(x)) < 0x1p49 ? f(x) : decltype(f(x))(0); }; };
    const auto tau = 2 * M_PIq;
    const auto reduced = [](Quad u) { return u - rintq(4 * u) / 4; };
    const auto quarter = [](Quad u) { return int((long long)(rintq(4 * u)) & 3); };
    const auto sin = [=](Quad u) {
        const Quad a = tau * reduced(u);
        return quarter(u) == 0 ? sinq(a) : quarter(u) == 1 ? cosq(a) : quarter(u) == 2 ? -sinq(a) : -cosq(a);
    };
    const auto cos = [=](Quad u) {
        const Quad a = tau * reduced(u);
        return quarter(u) == 0 ? cosq(a) : quarter(u) == 1 ? -sinq(a) : quarter(u) == 2 ? -cosq(a) : sinq(a);
    };
    check<double>("sin/f64", -3, 3, false, moderate([](double u) { return m::sincos_turns(u).sin; }), moderate(sin));
    check<double>("cos/f64", -3, 3, false, moderate([](double u) { return m::sincos_turns(u).cos; }), moderate(cos));
    check<double>("sin_small/f64", 1e-20, 1e9, true, moderate([](double u) { return m::sincos_turns(u).sin; }), moderate(sin));
    const auto pdf = [](Quad x) { return expq(-x * x / 2) / sqrtq(2 * M_PIq); };
    const auto cdf = [](Quad x) { return x < 0 ? erfcq(-x / sqrtq(2)) / 2 : 1 - erfcq(x / sqrtq(2)) / 2; };
    check<double>("normal_pdf/f64", -45, 45, false, FUNCTION(normal_pdf), pdf);
    check<double>("normal_cdf/f64", -45, 45, false, FUNCTION(normal_cdf), cdf);
    check<double>("normal_cdf_small/f64", 1e-20, 9, true, FUNCTION(normal_cdf), cdf);
}
