// What the kernels of the hierarchical autoencoder take: plain aggregates, which cross from one instruction-set level to another.
#pragma once
#include "fedkern/view.hpp"

namespace fedkern {

enum class Variant { printed, amended, multiplicative };

/// Sizes of the networks. docs/spec/sigma.md, section 1.
struct Autoencoder {
    Variant variant;
    Index clients, conditions, global, hidden, local_hidden, width, rank;
    const Index *values, *locals; // of each client: d_j and p_Lj

    FEDKERN_INLINE Index n_values() const { return sum(values); }
    FEDKERN_INLINE Index n_latents() const { return global + sum(locals); }
    FEDKERN_INLINE Index n_parameters() const {
        const Index p = global, c = conditions;
        if (variant == Variant::multiplicative) {
            Index k = rank * n_values() * p + affine(rank, p) + 2 * (affine(c, width) + affine(width, rank));
            for (Index j = 0; j < clients; ++j) {
                const Index d = values[j], q = locals[j];
                k += q * rank * (d + p) + affine(rank, q) + d * rank * (p + q);
            }
            return k;
        }
        Index k = three(n_values() + c, hidden, 2 * p) + affine(p + c, hidden) + affine(hidden, hidden);
        for (Index j = 0; j < clients; ++j) {
            const Index d = values[j], q = locals[j], in = hidden + q + c;
            k += three(p + c, local_hidden, 2 * q);
            if (variant == Variant::amended)
                k += three(d + p + c, local_hidden, 2 * q) + affine(in, local_hidden) + affine(local_hidden, d);
            else k += affine(in, d);
        }
        return k;
    }

  private:
    FEDKERN_INLINE static Index affine(Index in, Index out) { return out * (in + 1); }
    FEDKERN_INLINE static Index three(Index in, Index hidden, Index out) {
        return affine(in, hidden) + affine(hidden, hidden) + affine(hidden, out);
    }
    FEDKERN_INLINE Index sum(const Index* x) const {
        Index total = 0;
        for (Index j = 0; j < clients; ++j) total += x[j];
        return total;
    }
};

/// What is maximised: the batch mean of the ELBO with a weight on its divergences.
struct VaeObjective {
    double gamma, kl_weight;
};

/// Rows of a batch: values theta, conditions t, standard normal numbers of the latent variables.
template <class T> struct VaeBatch {
    Matrix<const T> theta, t, noise;
};

template <class T> struct VaeState {
    Vector<T> parameters;
    Matrix<T> moments; // two rows
};

/// One call of the optimiser. `step` is the number of the first step.
struct VaeTraining {
    Matrix<const double> phi;
    Vector<const double> rates, kl_weights;
    Index batch;
    double gamma, clip;
    unsigned long long seed, chain;
    unsigned step;
};

} // namespace fedkern
