// Where the networks of the hierarchical autoencoder stand in the vector of their parameters, and how a tile of rows goes through
// them, forth and back. sigma.md, section 1.
#pragma once
#include <vector>

#include "vae_products.hpp"
#include "vae_views.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

/// W (out, in) by rows, and behind it the bias, where there is one.
struct Affine {
    Index at = 0, in = 0, out = 0;
    bool bias = true;

    Index end() const { return at + out * (in + bias); }
};

/// Affine layers, with an activation behind the first of several.
struct Chain {
    Affine layer[3];
    int layers = 0;

    Index end() const { return layer[layers - 1].end(); }
    Index inputs() const { return layer[0].in; }
    Index outputs() const { return layer[layers - 1].out; }
    Index units() const {
        Index sum = 0;
        for (int l = 0; l < layers; ++l) sum += layer[l].out;
        return sum;
    }
    /// Units of a hidden layer, at most.
    Index hidden() const {
        Index most = 0;
        for (int l = 0; l + 1 < layers; ++l) most = std::max(most, layer[l].out);
        return most;
    }
};

template <class... Sizes> Chain chain(Index at, Index in, Sizes... out) {
    Chain c;
    for (const Index n : {Index(out)...}) c.layer[c.layers++] = {at, in, n}, at = c.layer[c.layers - 1].end(), in = n;
    return c;
}

/// out_o = sum_k s_k (M_ok . x): M (out, rank, in) is an affine layer of out * rank units without bias, which s mixes.
struct Mixture {
    Affine products;
    Index rank = 0;

    Index outputs() const { return products.out / rank; }
};

inline Mixture mixture(Index at, Index in, Index out, Index rank) { return {{at, in, out * rank, false}, rank}; }

struct VaePlan {
    struct Client {
        Index values, locals, first_value, first_local;
        Chain prior, posterior, decoder; // posterior of `amended`; of `multiplicative`: the log variances
        Mixture posterior_mean, decoder_mean;
    };

    Variant variant;
    Index values, conditions, global, latents;
    Chain encoder, decoder, encoder_weights, decoder_weights; // of `multiplicative`, encoder: the log variances
    Mixture encoder_mean;
    std::vector<Client> clients;
    Index parameters = 0;

    explicit VaePlan(const Autoencoder& a)
        : variant(a.variant), values(a.n_values()), conditions(a.conditions), global(a.global), latents(a.n_latents()) {
        const bool mixed = variant == Variant::multiplicative;
        const Index p = global, c = conditions;
        Index at = 0;
        const auto add_chain = [&](auto... sizes) {
            const Chain made = chain(at, sizes...);
            return at = made.end(), made;
        };
        const auto add_mixture = [&](Index in, Index out) {
            const Mixture made = mixture(at, in, out, a.rank);
            return at = made.products.end(), made;
        };
        if (mixed) {
            encoder_mean = add_mixture(values, p);
            encoder = add_chain(a.rank, p);
            encoder_weights = add_chain(c, a.width, a.rank);
            decoder_weights = add_chain(c, a.width, a.rank);
        } else {
            encoder = add_chain(values + c, a.hidden, a.hidden, 2 * p);
            decoder = add_chain(p + c, a.hidden, a.hidden);
        }
        Index first_value = 0, first_local = p;
        for (Index j = 0; j < a.clients; ++j) {
            const Index d = a.values[j], q = a.locals[j];
            Client k{d, q, first_value, first_local, {}, {}, {}, {}, {}};
            if (mixed) {
                k.posterior_mean = add_mixture(d + p, q);
                k.posterior = add_chain(a.rank, q);
                k.decoder_mean = add_mixture(p + q, d);
            } else {
                k.prior = add_chain(p + c, a.local_hidden, a.local_hidden, 2 * q);
                if (variant == Variant::amended) {
                    k.posterior = add_chain(d + p + c, a.local_hidden, a.local_hidden, 2 * q);
                    k.decoder = add_chain(a.hidden + q + c, a.local_hidden, d);
                } else {
                    k.decoder = add_chain(a.hidden + q + c, d);
                }
            }
            clients.push_back(k);
            first_value += d, first_local += q;
        }
        parameters = at;
    }

    template <class Use> void for_each_layer(const Use& use) const {
        const auto all = [&](const Chain& c) {
            for (int l = 0; l < c.layers; ++l) use(c.layer[l]);
        };
        const auto mixed = [&](const Mixture& m) {
            if (m.rank) use(m.products);
        };
        all(encoder), all(decoder), all(encoder_weights), all(decoder_weights), mixed(encoder_mean);
        for (const Client& k : clients) all(k.prior), all(k.posterior), all(k.decoder), mixed(k.posterior_mean), mixed(k.decoder_mean);
    }
};

/// Memory for units of a tile: pieces of one block.
template <class T> class Units {
  public:
    Units(Index units, Index rows) : rows_(rows), memory_(units * rows), next_(memory_) {}

    T* take(Index units) {
        T* piece = next_;
        next_ += units * rows_;
        return piece;
    }

  private:
    const Index rows_;
    const Scratch<T> memory_;
    T* next_;
};

/// The layers for one tile: values forth, cotangents and gradients back.
template <class T> struct TileLayers {
    const TileProducts<T> products;
    const T* parameters = nullptr;
    T* gradient = nullptr;
    bool add = false; // to the gradient

    Index rows() const { return products.rows(); }

    void forth(const Affine& a, const T* x, T* y) const {
        products.affine(parameters + a.at, a.bias ? parameters + a.at + a.out * a.in : nullptr, x, a.in, a.out, y);
    }
    void gradient_of(const Affine& a, const T* x, const T* d) const {
        products.gradient(d, x, a.in, a.out, gradient + a.at, a.bias ? gradient + a.at + a.out * a.in : nullptr, add);
    }
    /// The cotangent of n inputs from `first` on is added to `dx`.
    void back(const Affine& a, const T* d, Index first, Index n, T* dx) const {
        products.template transposed<true>(parameters + a.at, d, a.in, a.out, first, n, dx);
    }

    /// The outputs of all layers, one behind the other; returns those of the last.
    T* forth(const Chain& c, Activation kind, const T* x, T* values) const {
        T* y = values;
        for (int l = 0; l < c.layers; ++l) {
            if (l) x = y, y += c.layer[l - 1].out * rows();
            const Affine& a = c.layer[l];
            const bool hidden = l == 0 && c.layers > 1;
            if (hidden && kind == Activation::relu) {
                products.template affine<true>(parameters + a.at, parameters + a.at + a.out * a.in, x, a.in, a.out, y);
            } else {
                forth(a, x, y);
                if (hidden) activate(kind, y, a.out * rows());
            }
        }
        return y;
    }

    /// From the cotangent d of the output: the gradients of the parameters, and the cotangent of the first layer's units in front of
    /// the inputs, which `at_inputs(first layer, cotangent)` passes on. `spare`: twice c.hidden() units.
    template <class Inputs>
    void back(const Chain& c, Activation kind, const T* x, const T* values, const T* d, T* spare, const Inputs& at_inputs) const {
        const T* h = values;
        for (int l = 0; l + 2 < c.layers; ++l) h += c.layer[l].out * rows(); // of the last but one layer
        for (int l = c.layers - 1; l > 0; --l) {
            const Affine& a = c.layer[l];
            gradient_of(a, h, d);
            T* to = spare + l % 2 * c.hidden() * rows();
            const T* W = parameters + a.at;
            if (l == 1 && kind == Activation::relu) {
                products.through_relu(W, d, a.in, a.out, h, to);
            } else {
                products.transposed(W, d, a.in, a.out, 0, a.in, to);
                if (l == 1)
                    for (Index e = 0; e < a.in * rows(); ++e) to[e] *= 1 - h[e] * h[e]; // tanh
            }
            d = to;
            if (l > 1) h -= c.layer[l - 2].out * rows();
        }
        gradient_of(c.layer[0], x, d);
        at_inputs(c.layer[0], d);
    }

    /// y: the products M_ok . x; out: their mixtures.
    void forth(const Mixture& m, const T* s, const T* x, T* y, T* out) const {
        using V = Native<T>;
        forth(m.products, x, y);
        for (Index o = 0; o < m.outputs(); ++o)
            for (Index r = 0; r < rows(); r += V::size) {
                V sum = V::all(0);
                for (Index k = 0; k < m.rank; ++k) sum = sum + V::load(s + k * rows() + r) * V::load(y + (o * m.rank + k) * rows() + r);
                sum.store(out + o * rows() + r);
            }
    }

    /// Adds to the cotangent of s, and makes of the products y their cotangents.
    void back(const Mixture& m, const T* s, const T* x, T* y, const T* d, T* ds) const {
        using V = Native<T>;
        for (Index o = 0; o < m.outputs(); ++o)
            for (Index r = 0; r < rows(); r += V::size) {
                const V delta = V::load(d + o * rows() + r);
                for (Index k = 0; k < m.rank; ++k) {
                    T *to = ds + k * rows() + r, *product = y + (o * m.rank + k) * rows() + r;
                    (V::load(to) + delta * V::load(product)).store(to);
                    (delta * V::load(s + k * rows() + r)).store(product);
                }
            }
        gradient_of(m.products, x, y);
    }
};

} // namespace FEDKERN_ISA
} // namespace fedkern
