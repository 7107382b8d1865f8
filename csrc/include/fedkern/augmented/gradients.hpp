// One client's side of the augmented models: draws of z, and gradients given the server's message. vertical.md, sections 4 and 5.
#pragma once
#include <cmath>
#include <vector>

#include "fedkern/mlp/rows.hpp"
#include "views.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

inline constexpr Index augmented_rows = rows_of_tile<double>;
using RowPiece = Piece<double, augmented_rows>;
inline Tiles augmented_tiles(Index n) { return {n, augmented_rows, tiles_of_a_block}; }

/// g = H w of one tile; H of the tile stays in `h`.
FEDKERN_INLINE void predictor(Matrix<const double> H, const double* w, Index begin, Index count, double* h, double* g) {
    load_tile(H, begin, count, h);
    multiply(w, H.cols, 1, nullptr, h, H.cols, 1, g);
}

struct NormalGradient {
    double mean, log_sd;
};

/// The gradient of F(m + s t) in (m, log s), c being F's derivative at that draw, and of minus log q: on the path, or of the entropy.
template <class Path> FEDKERN_INLINE NormalGradient normal_gradient(Path path, double c, double t, double s) {
    const double a = path ? c + t / s : c;
    return {a, a * t * s + (path ? 0 : 1)};
}

/// z = mean + exp(log_sd) tau.
inline void mean_field_draw(Matrix<const double> H, Vector<const double> w, Vector<const double> tau, Vector<const double> mean,
                            Vector<const double> log_sd, Vector<double> g, Vector<double> z, int n_threads) {
    const Scratch<double> coefficients(w);
    augmented_tiles(H.rows).for_blocks(worthwhile(n_threads, double(H.rows) * double(40 + 2 * H.cols)), [&](Index, const auto& each) {
        const Scratch<double> h(H.cols * augmented_rows);
        each([&](Index begin, Index count) {
            RowPiece in[3], out[2];
            const double *t = in[0].read(tau, begin, count), *m = in[1].read(mean, begin, count), *l = in[2].read(log_sd, begin, count);
            double *gi = out[0].write(g, begin, count), *zi = out[1].write(z, begin, count);
            predictor(H, coefficients, begin, count, h, gi);
#pragma GCC ivdep
            for (Index r = 0; r < augmented_rows; ++r) zi[r] = m[r] + math::exp(l[r]) * t[r];
            out[0].finish(g, begin, count), out[1].finish(z, begin, count);
        });
    });
}

/// a = message - (z - g) / rho^2 + [path] tau / s; the gradient of (m, log s) is (a, a tau s + [not path] 1), and what stands beside
/// H in that of w is own + (z - g) / rho^2.
inline void mean_field_gradient(const Augmented& x, Vector<const double> log_sd, Vector<double> grad_w, Vector<double> cotangent,
                                Vector<double> grad_mean, Vector<double> grad_log_sd, int n_threads) {
    const Index n = x.H.rows, p = x.H.cols, blocks = augmented_tiles(n).blocks();
    const double precision = 1 / (x.rho * x.rho);
    const Scratch<double> sums(blocks * p);
    augmented_tiles(n).for_blocks(worthwhile(n_threads, double(n) * double(60 + 2 * p)), [&](Index block, const auto& each) {
        const Scratch<double> h(p * augmented_rows);
        double* sum = sums + block * p;
        std::fill_n(sum, p, 0.);
        each([&](Index begin, Index count) {
            RowPiece in[6], out[3];
            const double *g = in[0].read(x.g, begin, count), *z = in[1].read(x.z, begin, count), *t = in[2].read(x.tau, begin, count),
                         *l = in[3].read(log_sd, begin, count), *message = in[4].read(x.message, begin, count),
                         *own = in[5].read(x.own, begin, x.own.data ? count : 0);
            double *c = out[0].write(cotangent, begin, count), *dm = out[1].write(grad_mean, begin, count),
                   *dl = out[2].write(grad_log_sd, begin, count);
            const auto fill = [&](auto path) {
#pragma GCC ivdep
                for (Index r = 0; r < augmented_rows; ++r) {
                    const double pull = (z[r] - g[r]) * precision;
                    const auto d = normal_gradient(path, message[r] - pull, t[r], math::exp(l[r]));
                    c[r] = own[r] + pull, dm[r] = d.mean, dl[r] = d.log_sd;
                }
            };
            x.path ? fill(std::true_type{}) : fill(std::false_type{});
            load_tile(x.H, begin, count, h);
            add_products(c, 1, h, p, sum);
            out[0].finish(cotangent, begin, count), out[1].finish(grad_mean, begin, count), out[2].finish(grad_log_sd, begin, count);
        });
    });
    add_blocks(sums, blocks, p, grad_w);
}

// ---- Amortised: m = g + o_1, log s = log rho + clamp(o_2), o the network's output at (g, extra).

inline constexpr double least_log_ratio = -8, most_log_ratio = 4;

FEDKERN_INLINE double clamped(double o) { return o < least_log_ratio ? least_log_ratio : o > most_log_ratio ? most_log_ratio : o; }

inline void amortised_draw(Matrix<const double> H, Vector<const double> w, Vector<const double> tau, const Amortised& q, double rho,
                           Vector<double> g, Vector<double> z, int n_threads) {
    const Scratch<double> coefficients(w), psi(q.psi);
    const double log_rho = std::log(rho), work = double(H.rows) * (2 * double(H.cols) + network_operations(q.net));
    augmented_tiles(H.rows).for_blocks(worthwhile(n_threads, work), [&](Index, const auto& each) {
        const Scratch<double> h(H.cols * augmented_rows);
        const NetworkTile<double> net(q.net, psi);
        each([&](Index begin, Index count) {
            RowPiece in, out[2];
            const double *t = in.read(tau, begin, count), *o = net.output();
            double *gi = out[0].write(g, begin, count), *zi = out[1].write(z, begin, count), *u = net.input();
            predictor(H, coefficients, begin, count, h, u);
            load_tile(q.extra, begin, count, u + augmented_rows);
            net.forward();
#pragma GCC ivdep
            for (Index r = 0; r < augmented_rows; ++r) {
                gi[r] = u[r];
                zi[r] = u[r] + o[r] + math::exp(log_rho + clamped(o[augmented_rows + r])) * t[r];
            }
            out[0].finish(g, begin, count), out[1].finish(z, begin, count);
        });
    });
}

/// With a0 = message - (z - g) / rho^2 the cotangents of (o_1, log s) are (a0, a0 tau s + 1), through which g is pulled, and to them
/// the path estimator adds (tau / s, tau^2 - 1) where psi is concerned. Section 5's lines with tau m' / s cancel. g is pulled by m = g
/// and by the input of the network.
inline void amortised_gradient(const Augmented& x, const Amortised& q, Vector<double> grad_w, Vector<double> cotangent,
                               Vector<double> grad_psi, int n_threads) {
    constexpr Index rows = augmented_rows;
    const Index n = x.H.rows, p = x.H.cols, k = q.psi.size, blocks = augmented_tiles(n).blocks();
    const double precision = 1 / (x.rho * x.rho), log_rho = std::log(x.rho);
    const Scratch<double> psi(q.psi), w_sums(blocks * p), psi_sums(blocks * k);
    const double work = double(n) * (2 * double(p) + 4 * network_operations(q.net));
    augmented_tiles(n).for_blocks(worthwhile(n_threads, work), [&](Index block, const auto& each) {
        const Scratch<double> h(p * rows);
        const NetworkTile<double> net(q.net, psi);
        double *w_sum = w_sums + block * p, *psi_sum = psi_sums + block * k;
        std::fill_n(w_sum, p, 0.), std::fill_n(psi_sum, k, 0.);
        each([&](Index begin, Index count) {
            RowPiece in[5], out;
            alignas(64) double of_g[2 * rows], of_psi[2 * rows], through[rows];
            const double *g = in[0].read(x.g, begin, count), *z = in[1].read(x.z, begin, count), *t = in[2].read(x.tau, begin, count),
                         *message = in[3].read(x.message, begin, count), *own = in[4].read(x.own, begin, x.own.data ? count : 0);
            double *c = out.write(cotangent, begin, count), *u = net.input();
            std::copy_n(g, rows, u);
            load_tile(q.extra, begin, count, u + rows);
            net.forward();
            const double* o = net.output() + rows;
#pragma GCC ivdep
            for (Index r = 0; r < rows; ++r) {
                const double s = math::exp(log_rho + clamped(o[r])), pull = (z[r] - g[r]) * precision, a = message[r] - pull;
                const double along = clamped(o[r]) == o[r] ? 1 : 0, slope = (a * t[r] * s + 1) * along;
                of_g[r] = a, of_g[rows + r] = slope;
                of_psi[r] = a + t[r] / s, of_psi[rows + r] = slope + (t[r] * t[r] - 1) * along;
                c[r] = own[r] + pull + a;
            }
            for (Index r = count; r < rows; ++r) of_g[rows + r] = of_psi[rows + r] = 0;
            if (x.path) net.backward(of_psi, psi_sum, nullptr, 0);
            net.backward(of_g, x.path ? nullptr : psi_sum, through, 1);
            for (Index r = 0; r < rows; ++r) c[r] += through[r];
            load_tile(x.H, begin, count, h);
            add_products(c, 1, h, p, w_sum);
            out.finish(cotangent, begin, count);
        });
    });
    add_blocks(w_sums, blocks, p, grad_w), add_blocks(psi_sums, blocks, k, grad_psi);
}

} // namespace FEDKERN_ISA
} // namespace fedkern
