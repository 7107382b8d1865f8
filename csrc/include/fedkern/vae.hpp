// The ELBO of a hierarchical autoencoder and its gradient: client after client, forth and back, for a tile of rows. sigma.md, sections
// 1 and 2.
#pragma once
#include <cmath>

#include "vae_layers.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

/// Sums over rows of |theta - mu|^2, KL_G and sum_j KL_j.
struct VaeTerms {
    double squares = 0, global = 0, local = 0;

    void operator+=(const VaeTerms& b) { squares += b.squares, global += b.global, local += b.local; }
};

/// A batch in neighbouring elements, each array with a register more than it needs.
template <class T> struct VaeRows {
    const T *theta, *t, *noise;
};

template <class T> class VaeTile {
  public:
    VaeTile(const VaePlan& plan, Index rows, const Blas& blas)
        : plan_(plan), layers_{{blas, rows, widest(plan)}}, rows_(rows), memory_(units(plan, nullptr), rows) {
        units(plan, this);
    }

    Index rows() const { return rows_; }

    /// The gradient of the sum over `count` rows of (ELBO, its divergences weighted) / batch, into `gradient` or added to it.
    VaeTerms run(const T* parameters, const VaeRows<T>& batch, Index begin, Index count, Index of, VaeObjective objective, T* gradient,
                 bool add) {
        layers_.parameters = parameters, layers_.gradient = gradient, layers_.add = add;
        precision_ = T(1 / (objective.gamma * objective.gamma)), kl_weight_ = T(objective.kl_weight);
        load(batch.theta + begin * plan_.values, plan_.values, count, theta_);
        load(batch.t + begin * plan_.conditions, plan_.conditions, count, theta_ + plan_.values * rows_);
        load(batch.noise + begin * plan_.latents, plan_.latents, count, noise_);
        for (Index r = 0; r < rows_; ++r) weight_[r] = r < count ? T(1) / T(of) : T(0);
        std::fill_n(squares_, 3 * rows_, T(0));
        t_ = theta_ + plan_.values * rows_;
        if (plan_.variant == Variant::multiplicative)
            mixtures();
        else
            networks();
        VaeTerms terms;
        for (Index r = 0; r < count; ++r)
            terms.squares += double(squares_[r]), terms.global += double(squares_[rows_ + r]), terms.local += double(squares_[2 * rows_ + r]);
        return terms;
    }

  private:
    using Client = typename VaePlan::Client;
    static constexpr Activation relu = Activation::relu;

    const VaePlan& plan_;
    TileLayers<T> layers_;
    const Index rows_;
    Units<T> memory_;
    T precision_ = 0, kl_weight_ = 0;
    const T* t_ = nullptr;
    // Units of the tile, taken in `units`.
    T *theta_, *noise_, *weight_, *squares_;        // [theta; t]; of three terms a sum for every row
    T *encoder_, *global_, *decoder_, *h_;          // values of the encoder; [z_G; t]; of the decoder but the last; [h; z_j; t]
    T *log_G_, *sd_G_, *to_G_, *to_h_, *to_head_;   // cotangents of z_G, h, and a head's
    T *prior_, *posterior_, *values_, *in_;         // of one client
    T *log_0_, *log_v_, *sd_, *to_z_, *to_prior_, *spare_;
    T *s_E_, *s_D_, *to_s_E_, *to_s_D_, *y_G_, *y_E_, *y_D_; // of `multiplicative`

    static Index widest(const VaePlan& plan) {
        Index most = 1;
        plan.for_each_layer([&](const Affine& a) {
            if (!TileProducts<T>::is_large(a.in, a.out)) most = std::max(most, a.in);
        });
        return most;
    }

    /// Counts the units, and with a tile takes them.
    static Index units(const VaePlan& plan, VaeTile* tile) {
        Index total = 0;
        const auto take = [&](T* VaeTile::*where, Index n) {
            total += n;
            if (tile) tile->*where = tile->memory_.take(n);
        };
        Index q = 1, d = 1, prior = 0, posterior = 0, decoder = 0, hidden = 0, y_E = 0, y_D = 0;
        const auto chain_of = [&](const Chain& c, Index& n) {
            if (c.layers) n = std::max(n, c.units()), hidden = std::max(hidden, c.hidden());
        };
        Index ignored = 0;
        for (const Chain* c : {&plan.encoder, &plan.decoder, &plan.encoder_weights, &plan.decoder_weights}) chain_of(*c, ignored);
        for (const Client& k : plan.clients) {
            q = std::max(q, k.locals), d = std::max(d, k.values);
            chain_of(k.prior, prior), chain_of(k.posterior, posterior), chain_of(k.decoder, decoder);
            y_E = std::max(y_E, k.posterior_mean.products.out), y_D = std::max(y_D, k.decoder_mean.products.out);
        }
        const Index p = plan.global, c = plan.conditions;
        const bool mixed = plan.variant == Variant::multiplicative;
        const Index h = mixed ? 0 : plan.decoder.outputs();
        const Index register_more = Native<T>::size; // units that an exchange of rows and columns may write
        take(&VaeTile::theta_, plan.values + c + register_more), take(&VaeTile::noise_, plan.latents + register_more);
        take(&VaeTile::weight_, 1), take(&VaeTile::squares_, 3);
        take(&VaeTile::encoder_, plan.encoder.units() + (mixed ? p : 0)), take(&VaeTile::global_, p + std::max(c, q));
        take(&VaeTile::decoder_, mixed ? 0 : plan.decoder.units()), take(&VaeTile::h_, h + q + c);
        take(&VaeTile::log_G_, p), take(&VaeTile::sd_G_, p), take(&VaeTile::to_G_, p), take(&VaeTile::to_h_, h);
        take(&VaeTile::to_head_, 2 * std::max(p, q));
        take(&VaeTile::prior_, prior), take(&VaeTile::posterior_, posterior + (mixed ? q : 0)), take(&VaeTile::values_, mixed ? d : decoder);
        take(&VaeTile::in_, d + p + c);
        take(&VaeTile::log_0_, q), take(&VaeTile::log_v_, q), take(&VaeTile::sd_, q), take(&VaeTile::to_z_, mixed ? p + q : q);
        take(&VaeTile::to_prior_, 2 * q), take(&VaeTile::spare_, 2 * hidden);
        if (mixed) {
            take(&VaeTile::s_E_, plan.encoder_weights.units()), take(&VaeTile::s_D_, plan.decoder_weights.units());
            take(&VaeTile::to_s_E_, plan.encoder_weights.outputs()), take(&VaeTile::to_s_D_, plan.decoder_weights.outputs());
            take(&VaeTile::y_G_, plan.encoder_mean.products.out), take(&VaeTile::y_E_, y_E), take(&VaeTile::y_D_, y_D);
        }
        return total;
    }

    /// to[j][r] = from[r * m + j]; rows from `count` on are copies of the first, so that they are no worse than the others.
    void load(const T* from, Index m, Index count, T* to) const {
        transpose(from, count, m, m, to, rows_);
        if (count < rows_)
            for (Index j = 0; j < m; ++j) std::fill_n(to + j * rows_ + count, rows_ - count, to[j * rows_]);
    }

    void copy(const T* from, Index units, T* to) const { std::copy_n(from, units * rows_, to); }

    /// The log variance between its bounds, the standard deviation, and z = mean + sd e.
    void draw(const T* mean, const T* raw, const T* e, Index units, T* log_v, T* sd, T* z) const {
#pragma GCC ivdep
        for (Index i = 0; i < units * rows_; ++i) {
            const T low = raw[i] < T(-12) ? T(-12) : raw[i], v = low > T(6) ? T(6) : low; // NaN stays
            log_v[i] = v, sd[i] = math::exp(v * T(0.5)), z[i] = mean[i] + sd[i] * e[i];
        }
    }

    /// KL[N(m, v) || N(0, I)] is added to `sums`; from the cotangent of z, those of the mean and of the log variance's raw value.
    void standard_back(const T* mean, const T* raw, const T* log_v, const T* sd, const T* e, const T* to_z, Index units, T* to_mean, T* to_raw,
                       T* sums) const {
        for (Index u = 0; u < units; ++u) {
            const Index at = u * rows_;
#pragma GCC ivdep
            for (Index r = 0; r < rows_; ++r) {
                const Index i = at + r;
                const T v = sd[i] * sd[i], w = weight_[r] * kl_weight_;
                sums[r] += T(0.5) * (v + mean[i] * mean[i] - 1 - log_v[i]);
                const T slope = T(0.5) * to_z[i] * e[i] * sd[i] - w * (T(0.5) * (v - 1));
                to_mean[i] = to_z[i] - w * mean[i];
                to_raw[i] = raw[i] == log_v[i] ? slope : T(0);
            }
        }
    }

    /// theta_j - mu becomes the cotangent of mu; the squares are added up.
    void residuals(const T* theta, Index units, T* mu) const {
        for (Index u = 0; u < units; ++u) {
            const Index at = u * rows_;
#pragma GCC ivdep
            for (Index r = 0; r < rows_; ++r) {
                const T e = theta[at + r] - mu[at + r];
                squares_[r] += e * e;
                mu[at + r] = e * (weight_[r] * precision_);
            }
        }
    }

    void networks() {
        const Index p = plan_.global, c = plan_.conditions, hidden = plan_.decoder.outputs();
        const T* head = layers_.forth(plan_.encoder, relu, theta_, encoder_);
        draw(head, head + p * rows_, noise_, p, log_G_, sd_G_, global_);
        copy(t_, c, global_ + p * rows_);
        copy(layers_.forth(plan_.decoder, relu, global_, decoder_), hidden, h_);
        std::fill_n(to_G_, p * rows_, T(0)), std::fill_n(to_h_, hidden * rows_, T(0));
        for (const Client& k : plan_.clients) client_networks(k, hidden);

        layers_.back(plan_.decoder, relu, global_, decoder_, to_h_, spare_,
                     [&](const Affine& a, const T* d) { layers_.back(a, d, 0, p, to_G_); });
        standard_back(head, head + p * rows_, log_G_, sd_G_, noise_, to_G_, p, to_head_, to_head_ + p * rows_, squares_ + rows_);
        layers_.back(plan_.encoder, relu, theta_, encoder_, to_head_, spare_, [](const Affine&, const T*) {});
    }

    void client_networks(const Client& k, Index hidden) {
        const Index p = plan_.global, c = plan_.conditions, q = k.locals, R = rows_;
        const bool amended = plan_.variant == Variant::amended;
        const T *theta = theta_ + k.first_value * R, *e = noise_ + k.first_local * R;
        T* z = h_ + hidden * R;
        const T* prior = layers_.forth(k.prior, relu, global_, prior_);
        const T* head = prior;
        if (amended) {
            copy(theta, k.values, in_), copy(global_, p + c, in_ + k.values * R);
            head = layers_.forth(k.posterior, relu, in_, posterior_);
        }
        draw(head, head + q * R, e, q, log_v_, sd_, z);
        copy(t_, c, z + q * R);
        T* mu = layers_.forth(k.decoder, relu, h_, values_);
        residuals(theta, k.values, mu);

        std::fill_n(to_z_, q * R, T(0));
        layers_.back(k.decoder, relu, h_, values_, mu, spare_, [&](const Affine& a, const T* d) {
            layers_.back(a, d, 0, hidden, to_h_), layers_.back(a, d, hidden, q, to_z_);
        });
        if (amended) {
            divergence_back(prior, head, e, q);
            layers_.back(k.posterior, relu, in_, posterior_, to_head_, spare_,
                         [&](const Affine& a, const T* d) { layers_.back(a, d, k.values, p, to_G_); });
        } else {
            standard_back(prior, prior + q * R, log_v_, sd_, e, to_z_, q, to_prior_, to_prior_ + q * R, squares_ + 2 * R);
        }
        layers_.back(k.prior, relu, global_, prior_, to_prior_, spare_,
                     [&](const Affine& a, const T* d) { layers_.back(a, d, 0, p, to_G_); });
    }

    /// KL[N(m, v) || N(m0, v0)], and the cotangents of both heads.
    void divergence_back(const T* prior, const T* head, const T* e, Index q) const {
        const Index size = q * rows_;
        T* sums = squares_ + 2 * rows_;
        for (Index u = 0; u < q; ++u) {
            const Index at = u * rows_;
#pragma GCC ivdep
            for (Index r = 0; r < rows_; ++r) {
                const Index i = at + r;
                const T raw0 = prior[size + i], low = raw0 < T(-12) ? T(-12) : raw0, log_v0 = low > T(6) ? T(6) : low;
                const T precision = math::exp(-log_v0), v = sd_[i] * sd_[i], away = head[i] - prior[i], w = weight_[r] * kl_weight_;
                const T distance = (v + away * away) * precision, to_m = w * (away * precision);
                sums[r] += T(0.5) * (log_v0 - log_v_[i] + distance - 1);
                const T slope = T(0.5) * to_z_[i] * e[i] * sd_[i] - w * (T(0.5) * (v * precision - 1));
                to_head_[i] = to_z_[i] - to_m, to_head_[size + i] = head[size + i] == log_v_[i] ? slope : T(0);
                to_prior_[i] = to_m, to_prior_[size + i] = raw0 == log_v0 ? w * (T(0.5) * (distance - 1)) : T(0);
            }
        }
    }

    void mixtures() {
        const Index p = plan_.global, R = rows_;
        const T* s_E = layers_.forth(plan_.encoder_weights, Activation::tanh, t_, s_E_);
        const T* s_D = layers_.forth(plan_.decoder_weights, Activation::tanh, t_, s_D_);
        T *mean = encoder_, *raw = encoder_ + p * R;
        layers_.forth(plan_.encoder_mean, s_E, theta_, y_G_, mean);
        layers_.forth(plan_.encoder, relu, s_E, raw);
        draw(mean, raw, noise_, p, log_G_, sd_G_, global_);
        std::fill_n(to_G_, p * R, T(0));
        std::fill_n(to_s_E_, plan_.encoder_weights.outputs() * R, T(0)), std::fill_n(to_s_D_, plan_.decoder_weights.outputs() * R, T(0));
        for (const Client& k : plan_.clients) client_mixtures(k, s_E, s_D);

        standard_back(mean, raw, log_G_, sd_G_, noise_, to_G_, p, to_head_, to_head_ + p * R, squares_ + R);
        layers_.back(plan_.encoder_mean, s_E, theta_, y_G_, to_head_, to_s_E_);
        back_to_weights(plan_.encoder, s_E, to_head_ + p * R);
        const auto nothing = [](const Affine&, const T*) {};
        layers_.back(plan_.encoder_weights, Activation::tanh, t_, s_E_, to_s_E_, spare_, nothing);
        layers_.back(plan_.decoder_weights, Activation::tanh, t_, s_D_, to_s_D_, spare_, nothing);
    }

    void client_mixtures(const Client& k, const T* s_E, const T* s_D) {
        const Index p = plan_.global, q = k.locals, R = rows_;
        const T *theta = theta_ + k.first_value * R, *e = noise_ + k.first_local * R;
        T *mean = posterior_, *raw = posterior_ + q * R, *z = global_ + p * R;
        copy(theta, k.values, in_), copy(global_, p, in_ + k.values * R);
        layers_.forth(k.posterior_mean, s_E, in_, y_E_, mean);
        layers_.forth(k.posterior, relu, s_E, raw);
        draw(mean, raw, e, q, log_v_, sd_, z);
        layers_.forth(k.decoder_mean, s_D, global_, y_D_, values_);
        residuals(theta, k.values, values_);

        layers_.back(k.decoder_mean, s_D, global_, y_D_, values_, to_s_D_);
        std::fill_n(to_z_, q * R, T(0));
        layers_.back(k.decoder_mean.products, y_D_, 0, p, to_G_), layers_.back(k.decoder_mean.products, y_D_, p, q, to_z_);
        standard_back(mean, raw, log_v_, sd_, e, to_z_, q, to_head_, to_head_ + q * R, squares_ + 2 * R);
        layers_.back(k.posterior_mean, s_E, in_, y_E_, to_head_, to_s_E_);
        layers_.back(k.posterior_mean.products, y_E_, k.values, p, to_G_);
        back_to_weights(k.posterior, s_E, to_head_ + q * R);
    }

    /// The log variances of `multiplicative`: an affine layer of s_E.
    void back_to_weights(const Chain& c, const T* s_E, const T* d) const {
        layers_.gradient_of(c.layer[0], s_E, d), layers_.back(c.layer[0], d, 0, c.inputs(), to_s_E_);
    }
};

} // namespace FEDKERN_ISA
} // namespace fedkern
