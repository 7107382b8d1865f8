// What the kernels of the augmented models take: plain aggregates, which cross from one instruction-set level to another.
#pragma once
#include "fedkern/mlp/views.hpp"
#include "fedkern/optim/views.hpp"
#include "fedkern/rng.hpp"

namespace fedkern {

/// What one client's gradient is made of. docs/spec/vertical.md, section 5.
struct Augmented {
    Matrix<const double> H;                           // (n, p), the design: g = H w
    Vector<const double> g, z, tau, message, own;     // (n,); `own` without data: zeros
    double rho;
    bool path; // the path estimator: of -log q with its own parameters frozen; otherwise the entropy in closed form
};

/// The amortised family's conditional of z given g and `extra` (n, e): a network (1 + e, .., 2).
struct Amortised {
    Matrix<const double> extra;
    Vector<const double> psi;
    Network net;
};

/// How many parameters q(theta) has.
FEDKERN_INLINE Index coefficient_parameters(Index p, bool full) { return p + (full ? p * (p + 1) / 2 : p); }

/// A client between two messages: the parameters [mu (p), scale | mean, log_sd (n)], [mu (p), scale | psi], or with a network in the
/// predictor [mu (p), scale | phi | psi], Adam's state, and the draw that was made with them. The scale of q(theta) is log sd (p), or a full q(theta)'s triangle (p (p + 1) / 2).
template <class T> struct ClientState {
    Vector<T> parameters;
    Matrix<T> moments;
    Vector<T> eps, tau, theta, g, z;
};

/// The numbers of an iteration; w = theta ~ N(prior_mean, sd prior_sd), and `counter` and `key` name the normals of the next draw.
struct Iteration {
    double rho, prior_mean, prior_sd;
    AdamRule adam;
    bool path, full;
    Counter counter;
    U64 key;
};

/// What the amortised family's network sees beside g, now and at the next draw; with a `centre` in [0, e) this column of the next
/// is H times the new mu, which nobody knows before. `seen` becomes the next with it.
struct IterationInputs {
    Matrix<const double> extra, next;
    Index centre;
    Matrix<double> seen;
    Network net;
};

/// A predictor H w whose design is the values of a network at the rows of X. `precision` (f,) is that of its parameters about 0.
struct Features {
    Matrix<const double> X;
    Vector<const double> precision;
    Network net;
};

} // namespace fedkern
