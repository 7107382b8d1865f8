// What a client of the augmented models does between two messages: a gradient of all its parameters, a step of Adam, the next draw.
// w = theta ~ q(theta) = N(mu, L L'), L diagonal or a full triangle. docs/spec/vertical.md, sections 4 to 6.
#pragma once
#include "fedkern/mlp/networks.hpp"
#include "fedkern/optim/adaptive.hpp"
#include "fedkern/rng.hpp"
#include "gradients.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

inline constexpr double least_log_sd = -18.420680743952367; // of q(theta): log 1e-8

FEDKERN_INLINE double coefficient_sd(double log_sd) { return math::exp(log_sd < least_log_sd ? least_log_sd : log_sd); }

inline Vector<const double> constant(Vector<double> x) { return {x.data, x.size, x.stride}; }

inline constexpr Index largest_block = 64; // coordinates up to which a step of all numbers of L moves L by little

/// L of a full q(theta), row by row: of each row the diagonal element is kept by its logarithm, the others are relative to it, in
/// units that shrink beyond `largest_block` coordinates.
struct Triangle {
    Index p;
    double unit;
    Scratch<double> L;

    explicit Triangle(Index p_) : p(p_), unit(1), L(p_ * (p_ + 1) / 2) {
        if (p > largest_block) unit = double(largest_block) / double(p), unit *= unit;
    }
    Triangle(Vector<const double> kept, Index p_) : Triangle(p_) {
        const Scratch<double> flat(kept); // without strides, of which no bit may depend
        for (Index j = 0; j < p; ++j) {
            const double s = coefficient_sd(flat[start(j) + j]);
            for (Index i = 0; i < j; ++i) row(j)[i] = unit * flat[start(j) + i] * s;
            row(j)[j] = s;
        }
    }
    static Index start(Index j) { return j * (j + 1) / 2; }
    double* row(Index j) const { return L + start(j); }

    /// (L eps)_j.
    double product(Index j, const double* eps) const { return dot(row(j), eps, j + 1); }
    /// x <- L'^-1 x.
    void solve_transposed(double* x) const {
        for (Index j = p; j-- > 0;) {
            x[j] /= row(j)[j];
            for (Index i = 0; i < j; ++i) x[i] -= row(j)[i] * x[j];
        }
    }
};

/// The gradient of (mu, log sd) or of (mu, triangle), given that of the coefficients without their prior.
inline void coefficients_gradient(const ClientState<const double>& from, const Iteration& x, const double* grad_w, double* gradient) {
    const Index p = from.theta.size;
    const double precision = 1 / (x.prior_sd * x.prior_sd);
    const auto pull = [&](Index j) { return grad_w[j] + (x.prior_mean - from.theta[j]) * precision; };
    if (!x.full) {
        for (Index j = 0; j < p; ++j) {
            const auto d = normal_gradient(x.path, pull(j), from.eps[j], coefficient_sd(from.parameters[p + j]));
            gradient[j] = d.mean, gradient[p + j] = d.log_sd;
        }
        return;
    }
    const Triangle L(from.parameters.part(p, coefficient_parameters(p, true)), p);
    const Scratch<double> of_q(p), eps(from.eps);
    for (Index j = 0; j < p; ++j) of_q[j] = x.path ? eps[j] : 0.;
    if (x.path) L.solve_transposed(of_q);
    for (Index j = 0; j < p; ++j) {
        const double total = pull(j) + of_q[j], *row = L.row(j);
        double* d = gradient + p + Triangle::start(j);
        gradient[j] = total;
        for (Index i = 0; i < j; ++i) d[i] = L.unit * (total * row[j]) * eps[i];
        d[j] = total * L.product(j, eps) + (x.path ? 0 : 1);
    }
}

/// theta = mu + L eps.
inline void coefficients(Vector<const double> mu, Vector<const double> scale, Vector<const double> eps, bool full, Vector<double> theta,
                         int) {
    const Index p = theta.size;
    if (!full) {
        for (Index j = 0; j < p; ++j) theta[j] = mu[j] + coefficient_sd(scale[j]) * eps[j];
        return;
    }
    const Triangle L(scale, p);
    const Scratch<double> normals(eps);
    for (Index j = 0; j < p; ++j) theta[j] = mu[j] + L.product(j, normals);
}

/// The parameters after a step uphill, and the normals and the coefficients of the next draw.
inline void stepped(const ClientState<const double>& from, Vector<const double> gradient, const Iteration& x, const ClientState<double>& to,
                    int n_threads) {
    const Index p = to.theta.size, n = to.z.size;
    adam(from.moments, gradient, x.adam, to.moments, to.parameters, n_threads);
    for (Index j = 0; j < gradient.size; ++j) to.parameters[j] += from.parameters[j];
    const Scratch<double> normals(p + n);
    fill_pairs_in_parts<fill_normal>({normals, p + n}, x.counter, x.key, worthwhile(n_threads, 60 * double(p + n)));
    for (Index j = 0; j < p; ++j) to.eps[j] = normals[j];
    for (Index i = 0; i < n; ++i) to.tau[i] = normals[p + i];
    const auto seen = constant(to.parameters);
    coefficients(seen.part(0, p), seen.part(p, coefficient_parameters(p, x.full)), constant(to.eps), x.full, to.theta, n_threads);
}

inline void mean_field_iteration(Matrix<const double> H, const ClientState<const double>& from, Vector<const double> message,
                                 const Iteration& x, const ClientState<double>& to, int n_threads) {
    const Index p = H.cols, n = H.rows, m = coefficient_parameters(p, x.full), l = m + n, k = l + n;
    const Scratch<double> gradient(k), grad_w(p), cotangent(n);
    const Vector<double> all{gradient, k};
    mean_field_gradient({H, from.g, from.z, from.tau, message, {nullptr, n}, x.rho, x.path}, from.parameters.part(l, k), {grad_w, p},
                        {cotangent, n}, all.part(m, l), all.part(l, k), n_threads);
    coefficients_gradient(from, x, grad_w, gradient);
    stepped(from, constant(all), x, to, n_threads);
    const auto seen = constant(to.parameters);
    mean_field_draw(H, constant(to.theta), constant(to.tau), seen.part(m, l), seen.part(l, k), to.g, to.z, n_threads);
}

/// What the network sees at the next draw.
inline void see(Matrix<const double> H, Vector<const double> mu, const IterationInputs& q, int n_threads) {
    const Matrix<double> to = q.seen;
    for (Index i = 0; i < to.rows; ++i)
        for (Index j = 0; j < to.cols; ++j)
            if (j != q.centre) to.row(i)[j] = q.next.row(i)[j];
    if (q.centre < 0) return;
    const Vector<double> column{to.data + q.centre * to.col_stride, to.rows, to.row_stride};
    const Scratch<double> w(mu);
    augmented_tiles(H.rows).for_blocks(worthwhile(n_threads, double(H.rows) * double(2 * H.cols)), [&](Index, const auto& each) {
        const Scratch<double> h(H.cols * augmented_rows);
        each([&](Index begin, Index count) {
            RowPiece out;
            predictor(H, w, begin, count, h, out.write(column, begin, count));
            out.finish(column, begin, count);
        });
    });
}

/// The gradient of q(theta) and of psi, the one in g, and then of what stands between the two: `rest(cotangent, gradient)`. A step.
template <class Rest> void amortised_step(Matrix<const double> H, const ClientState<const double>& from, Vector<const double> message,
                                          const IterationInputs& q, Index psi, const Iteration& x, const ClientState<double>& to,
                                          int n_threads, const Rest& rest) {
    const Index n = H.rows, k = from.parameters.size;
    const Scratch<double> gradient(k), grad_w(H.cols), cotangent(n);
    const Vector<double> all{gradient, k};
    amortised_gradient({H, from.g, from.z, from.tau, message, {nullptr, n}, x.rho, x.path}, {q.extra, from.parameters.part(psi, k), q.net},
                       {grad_w, H.cols}, {cotangent, n}, all.part(psi, k), n_threads);
    coefficients_gradient(from, x, grad_w, gradient);
    rest(static_cast<const double*>(cotangent), all);
    stepped(from, constant(all), x, to, n_threads);
}

/// What the network of z sees at the next draw, and the draw.
inline void amortised_next(Matrix<const double> H, const IterationInputs& q, Index psi, const Iteration& x, const ClientState<double>& to,
                           int n_threads) {
    const auto parameters = constant(to.parameters);
    see(H, parameters.part(0, H.cols), q, n_threads);
    const Matrix<const double> seen{q.seen.data, H.rows, q.seen.cols, q.seen.row_stride, q.seen.col_stride};
    amortised_draw(H, constant(to.theta), constant(to.tau), {seen, parameters.part(psi, parameters.size), q.net}, x.rho, to.g, to.z,
                   n_threads);
}

inline void amortised_iteration(Matrix<const double> H, const ClientState<const double>& from, Vector<const double> message,
                                const IterationInputs& q, const Iteration& x, const ClientState<double>& to, int n_threads) {
    const Index psi = coefficient_parameters(H.cols, x.full);
    amortised_step(H, from, message, q, psi, x, to, n_threads, [](const double*, Vector<double>) {});
    amortised_next(H, q, psi, x, to, n_threads);
}

inline void network_iteration(const Features& f, Matrix<const double> H, const ClientState<const double>& from,
                              Vector<const double> message, const IterationInputs& q, const Iteration& x, Matrix<double> next_H,
                              const ClientState<double>& to, const Blas& blas, int n_threads) {
    const Index n = H.rows, p = H.cols, phi = coefficient_parameters(p, x.full), psi = phi + f.precision.size;
    amortised_step(H, from, message, q, psi, x, to, n_threads, [&](const double* cotangent, Vector<double> gradient) {
        const Scratch<double> upstream(n * p);
        for (Index i = 0; i < n; ++i)
            for (Index j = 0; j < p; ++j) upstream[i * p + j] = cotangent[i] * from.theta[j];
        const auto before = from.parameters.part(phi, psi);
        const auto of_phi = gradient.part(phi, psi);
        mlp_backward<double>(f.X, before, {upstream, n, p, p, 1}, f.net, of_phi, {nullptr, n, 0, 0, 1}, n_threads, blas);
        for (Index j = 0; j < of_phi.size; ++j) of_phi[j] -= f.precision[j] * before[j];
    });
    mlp_forward<double>(f.X, constant(to.parameters).part(phi, psi), f.net, next_H, n_threads, blas);
    amortised_next({next_H.data, n, p, next_H.row_stride, next_H.col_stride}, q, psi, x, to, n_threads);
}

} // namespace FEDKERN_ISA
} // namespace fedkern
