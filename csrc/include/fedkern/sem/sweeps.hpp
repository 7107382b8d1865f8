// Cyclic structural equation model of one site, y = Theta y + e with Laplace errors: docs/spec/sparse.md, sections 9 and 10.
//
// Counters, p variables and n rows. Streams: scales, element (j, h): item j p + h. proposals: item j p + h, block 0 the normal of an
// element's proposal, block 1 its acceptance, block 2 its normal in a proposal of the whole row; item j p + j, block 1 the acceptance
// of that row; blocks 2 and 3 of it are the determinant's of row Gibbs (component and acceptance, normal); item p p, block 0 the
// swap (pair, acceptance). coefficients: normal of (j, h): half h % 2 of item j p + h / 2. augmentation: s_ij, item j n + i.
// variances: b_j, item j.
#pragma once
#include "fedkern/shrinkage/scales.hpp"
#include "linear.hpp"
#include "scalar.hpp"
#include "views.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {
namespace sem {

/// One chain during a call. Rows of Y and of the residuals are contiguous, row_ doubles apart; k = j p + h counts elements.
class Chain {
  public:
    Chain(const SemData& data, const SemState<const double>& before, const SemOptions& options, Index c, Vector<std::int64_t> events)
        : options_(options), events_(events), p_(data.Y.shape[1]), n_(data.Y.shape[2]), row_(padded(n_)), power_(data.temperature[c]),
          e_(p_), pivots_(p_) {
        const auto key = [&](Stream stream) { return stream_key(options.seed, stream, options.chain + U64(c)); };
        scales_key_ = key(Stream::scales), coefficients_key_ = key(Stream::coefficients), variances_key_ = key(Stream::variances);
        proposals_key_ = key(Stream::proposals), augmentation_key_ = key(Stream::augmentation);
        lay_out();
        memory_.allocate();
        lay_out();
        copy(before.b[c], b_);
        for (Index j = 0; j < p_; ++j) {
            copy(data.Y[c][j], Y_ + j * row_);
            dots(Y_ + j * row_, Y_ + j * row_, 1, row_, square_ + j);
            copy(data.theta[c][j], theta_ + j * p_);
            copy(data.tau_sq[c][j], tau_sq_ + j * p_);
            copy(before.deviation[c][j], d_ + j * p_);
            copy(before.lambda_sq[c][j], lambda_sq_ + j * p_);
            copy(before.log_step[c][j], log_step_ + j * p_);
        }
    }

    void store(const SemState<double>& after, Index c) const {
        copy(b_, after.b[c]);
        for (Index j = 0; j < p_; ++j) {
            copy(d_ + j * p_, after.deviation[c][j]);
            copy(lambda_sq_ + j * p_, after.lambda_sq[c][j]);
            copy(log_step_ + j * p_, after.log_step[c][j]);
        }
    }

    double loglik() const {
        double value = double(n_) * log_det_;
        for (Index j = 0; j < p_; ++j) value -= double(n_) * math::log(2 * b_[j]) + sums_[j] / b_[j];
        return value;
    }

    /// Returns a quantity that is at fault, or -1.
    int sweep(U32 step) {
        step_ = step;
        gain_ = options_.adapt ? math::exp(-0.6 * math::log(step + 1.)) : 0;
        start();
        if (fault_ < 0) draw_scales();
        if (fault_ < 0) {
            if (options_.update == SemUpdate::row_gibbs)
                for (Index j = 0; j < p_; ++j) gibbs_row(j);
            else if (options_.update == SemUpdate::element) elements();
            else rows();
            if (options_.swap) swap();
            if (options_.update == SemUpdate::row_gibbs) elements();
            draw_b();
        }
        return fault_;
    }

  private:
    void lay_out() {
        const Index square = p_ * p_, width = padded(p_), tiled = (square + tile_size - 1) / tile_size * tile_size;
        Y_ = memory_.take(p_ * row_);
        spare_ = memory_.take(row_);
        for (double*& e : e_) e = memory_.take(row_);
        for (Square* matrix : {&W_, &T_, &first_, &second_}) *matrix = {memory_.take(p_ * width), p_, width};
        for (double** array : {&theta_, &tau_sq_, &d_, &lambda_sq_, &log_step_, &half_precision_, &sd_}) *array = memory_.take(square);
        for (double** array : {&normal_, &log_u_}) *array = memory_.take(tiled);
        for (double** array : {&b_, &sums_, &square_, &delta_, &pivot_row_, &scale_, &centre_, &direction_, &noise_})
            *array = memory_.take(p_);
        for (double** array : {&weight_, &weighted_, &rest_}) *array = memory_.take(row_);
    }

    // ---- What follows from the coefficients.

    /// Theta, the inverse of I - Theta and the residuals.
    void start() {
        for (Index j = 0; j < p_; ++j) {
            for (Index h = 0; h < p_; ++h) T_[j][h] = h == j ? 0 : theta_[j * p_ + h] + d_[j * p_ + h];
            sums_[j] = combine(Y_ + j * row_, T_[j], Y_, p_, row_, e_[j]);
        }
        refactorise();
    }

    void refactorise() {
        for (Index j = 0; j < p_; ++j)
            for (Index h = 0; h < p_; ++h) W_[j][h] = (h == j) - T_[j][h];
        log_det_ = invert(W_, pivots_);
        if (!(math::magnitude(log_det_) < math::infinity<double>())) fault_ = sem_determinant;
    }

    /// Whether the spectral radius of first_ is below 1; that of Theta is, and so its determinant must keep its sign.
    bool is_stable(double ratio) { return ratio > 0 && is_contraction(first_, second_); }

    bool is_stable_with(Index j, const double* delta, double ratio) {
        std::copy_n(T_.data, p_ * T_.width, first_.data);
        for (Index h = 0; h < p_; ++h) first_[j][h] += delta[h];
        return is_stable(ratio);
    }

    /// The inverse after theta_j += delta_, whose determinant ratio has the given inverse; pivot_row_ is delta' W.
    void update_inverse(Index j, double inverse_ratio) {
        for (Index i = 0; i < p_; ++i) add(W_[i][j] * inverse_ratio, pivot_row_, W_[i], 0, W_.width);
    }

    /// Residuals of row j are those in spare_.
    void take_residuals(Index j, double sum) {
        std::swap(e_[j], spare_);
        sums_[j] = sum;
    }

    // ---- Scales: section 2.

    void draw_scales() {
        double* m = sd_; // not yet in use
        for (Index k = 0; k < p_ * p_; ++k) m[k] = 0.5 * d_[k] * d_[k] / tau_sq_[k];
        for (Index j = 0; j < p_; ++j) { // the diagonal goes along as a number that is never clipped, and is put back
            m[j * p_ + j] = 1;
            delta_[j] = std::exchange(lambda_sq_[j * p_ + j], 1);
        }
        events_[sem_clipped] += draw_local_variances(p_ * p_, m, lambda_sq_, options_.lambda, {0, 0, options_.client, step_}, scales_key_);
        for (Index j = 0; j < p_; ++j) lambda_sq_[j * p_ + j] = delta_[j];
        for (Index j = 0; j < p_; ++j)
            for (Index h = 0; h < p_; ++h) {
                const double variance = h == j ? 1 : lambda_sq_[j * p_ + h] * tau_sq_[j * p_ + h];
                half_precision_[j * p_ + h] = 0.5 / variance;
                if (!positive(variance)) fault_ = sem_lambda;
            }
    }

    // ---- Metropolis moves: section 9.

    /// normal_: the first normal of a block of each element. log_u_: the logarithm of the first uniform of block 1.
    void draw_proposals(U32 block) {
        for (Index begin = 0; begin < p_ * p_; begin += tile_size) {
            const Tile normals({U32(begin), block, options_.client, step_}, proposals_key_);
            first_normals(normals.first, normals.second, tile_size, normal_ + begin);
            const Tile uniforms({U32(begin), 1, options_.client, step_}, proposals_key_);
            for (Index i = 0; i < tile_size; ++i) log_u_[begin + i] = log_uniform(uniform(uniforms.first[i]));
        }
    }

    /// Standard deviations of the proposals: of a normal with the likelihood's curvature and the prior's. Neither these nor what
    /// they depend on moves with the coefficients.
    void set_sd() {
        for (Index j = 0; j < p_; ++j) {
            const double likelihood = power_ / (b_[j] * b_[j]);
            for (Index h = 0; h < p_; ++h) sd_[j * p_ + h] = math::sqrt(1 / (2 * half_precision_[j * p_ + h] + likelihood * square_[h]));
        }
    }

    /// All elements, one after the other: theta_jh += delta changes the determinant by 1 - delta W_hj, e_j by -delta y_h. Of W only
    /// column j is needed while row j moves, and a move divides it by its ratio: W itself follows at the end of the row.
    void elements() {
        draw_proposals(0);
        set_sd();
        for (Index k = 0; k < p_ * p_; ++k) normal_[k] *= math::exp(log_step_[k]) * sd_[k];
        const double per_row = double(n_) * power_;
        Index accepted = 0;
        for (Index j = 0; j < p_; ++j) {
            const double per_unit = power_ / b_[j];
            double inverse = 1; // of the determinant's ratio to that of W
            std::fill_n(delta_, p_, 0.0);
            for (Index h = 0; h < p_; ++h) {
                if (h == j) continue;
                const Index k = j * p_ + h;
                const double delta = normal_[k], ratio = 1 - delta * (W_[h][j] * inverse), size = math::magnitude(ratio);
                const double log_ratio = math::log_plus(size, -0.0, -0.0); // for a ratio that is not refused below
                const double needed = log_u_[k] + delta * (2 * d_[k] + delta) * half_precision_[k] - per_row * log_ratio;
                const double sum = shift(e_[j], Y_ + h * row_, delta, spare_, row_);
                const bool taken = needed < per_unit * (sums_[j] - sum) && size >= least_ratio &&
                                   (!options_.stable || element_is_stable(j, h, delta, ratio));
                if (taken) {
                    ++accepted;
                    d_[k] += delta, T_[j][h] += delta, delta_[h] = delta;
                    take_residuals(j, sum);
                    log_det_ += log_ratio, inverse /= ratio;
                    if (size < refactorise_below) {
                        ++events_[sem_refactorised];
                        refactorise();
                        std::fill_n(delta_, p_, 0.0);
                        inverse = 1;
                    }
                }
                log_step_[k] += gain_ * ((taken ? 1 : 0) - target_acceptance);
            }
            row_ratio(j);
            update_inverse(j, inverse);
        }
        events_[sem_accepted] += accepted, events_[sem_proposed] += p_ * (p_ - 1);
    }

    bool element_is_stable(Index j, Index h, double delta, double ratio) {
        if (!(ratio > 0)) return false;
        std::copy_n(T_.data, p_ * T_.width, first_.data);
        first_[j][h] += delta;
        return is_contraction(first_, second_);
    }

    /// theta_j += delta_: its determinant ratio, and with it delta' W in pivot_row_.
    double row_ratio(Index j) {
        std::fill_n(pivot_row_, W_.width, 0.0);
        for (Index h = 0; h < p_; ++h) add(delta_[h], W_[h], pivot_row_, 0, W_.width);
        return 1 - pivot_row_[j];
    }

    void move_row(Index j, double ratio, double sum) {
        for (Index h = 0; h < p_; ++h) d_[j * p_ + h] += delta_[h], T_[j][h] += delta_[h];
        take_residuals(j, sum);
        if (math::magnitude(ratio) < refactorise_below) {
            ++events_[sem_refactorised];
            refactorise();
        } else {
            log_det_ += math::log(math::magnitude(ratio));
            update_inverse(j, 1 / ratio);
        }
    }

    /// All rows: theta_j += delta.
    void rows() {
        draw_proposals(2);
        set_sd();
        for (Index j = 0; j < p_; ++j) {
            const Index diagonal = j * p_ + j;
            const double step = math::exp(log_step_[diagonal]);
            double prior = 0;
            for (Index h = 0; h < p_; ++h) {
                const Index k = j * p_ + h;
                delta_[h] = h == j ? 0 : step * sd_[k] * normal_[k];
                prior += h == j ? 0 : delta_[h] * (2 * d_[k] + delta_[h]) * half_precision_[k];
            }
            const double ratio = row_ratio(j), sum = combine(e_[j], delta_, Y_, p_, row_, spare_);
            const double fit = double(n_) * math::log(math::magnitude(ratio)) - (sum - sums_[j]) / b_[j];
            const bool taken = log_u_[diagonal] < power_ * fit - prior && math::magnitude(ratio) >= least_ratio &&
                               (!options_.stable || is_stable_with(j, delta_, ratio));
            if (taken) move_row(j, ratio, sum);
            log_step_[diagonal] += gain_ * ((taken ? 1 : 0) - target_acceptance);
            events_[sem_accepted] += taken, ++events_[sem_proposed];
        }
    }

    // ---- Augmented row Gibbs: section 9, steps 1 to 4.

    /// 1. The errors of row j are normal with variances s, exponential of mean 2 (b / power)^2: weight_ = 1 / s.
    void draw_weights(Index j) {
        const double b = b_[j] / power_, shape = 1 / (b * b), least = least_residual * b;
        for (Index begin = 0; begin < n_; begin += tile_size) {
            const U32 item = U32(j * n_ + begin);
            const Tile block0({item, 0, options_.client, step_}, augmentation_key_),
                block1({item, 1, options_.client, step_}, augmentation_key_);
            const Index size = std::min(tile_size, n_ - begin);
            double mean[tile_size], value[tile_size];
            for (Index i = 0; i < tile_size; ++i) {
                const double e = math::magnitude(i < size ? e_[j][begin + i] : 1.);
                mean[i] = 1 / (b * (e > least ? e : least));
            }
            first_normals(block0.first, block0.second, tile_size, value);
            for (Index i = 0; i < tile_size; ++i) value[i] = inverse_gaussian_of(value[i], mean[i], shape, block1.first[i]);
            std::copy_n(value, size, weight_ + begin);
        }
    }

    /// 2. Given s the row is normal: d = S u, u ~ N(A^-1 r, A^-1), A = I + S G S (section 3). With S_jj = 0 row and column j of A are
    /// those of the identity. first_ = U with A = U'U; centre_ = U'^-1 r, direction_ = U'^-1 w, w = S W[:, j].
    void factorise_row(Index j) {
        for (Index h = 0; h < p_; ++h) scale_[h] = h == j ? 0 : math::sqrt(0.5 / half_precision_[j * p_ + h]);
        combine(Y_ + j * row_, theta_row(j), Y_, p_, row_, rest_);
        double g[tile_size];
        for (Index a = 0; a < p_; ++a) {
            const double* y = Y_ + a * row_;
            for (Index i = 0; i < row_; i += lanes) put(at(weight_, i) * at(y, i), weighted_, i);
            std::fill_n(first_[a], first_.width, 0.0);
            for (Index begin = a; begin < p_ && a != j; begin += tile_size) {
                const Index count = std::min(tile_size, p_ - begin);
                dots(weighted_, Y_ + begin * row_, count, row_, g);
                for (Index k = 0; k < count; ++k) first_[a][begin + k] = scale_[a] * scale_[begin + k] * g[k];
            }
            first_[a][a] += 1;
            dots(weighted_, rest_, 1, row_, g);
            centre_[a] = scale_[a] * g[0];
            direction_[a] = scale_[a] * W_[a][j];
        }
        factorise(first_);
        solve_lower(first_, centre_);
        solve_lower(first_, direction_);
    }

    /// Global coefficients of row j without the diagonal, in a padded row.
    const double* theta_row(Index j) {
        for (Index h = 0; h < p_; ++h) delta_[h] = h == j ? 0 : theta_[j * p_ + h];
        return delta_;
    }

    void gibbs_row(Index j) {
        if (p_ < 2) return;
        draw_weights(j);
        factorise_row(j);
        fill_normal({noise_, p_}, {U32(j * p_), 0, options_.client, step_}, coefficients_key_);
        // 3. The determinant's ratio is 1 + r x, and under the normal x ~ N(a, 1).
        double variance, along, from_centre, from_noise;
        dots(direction_, direction_, 1, W_.width, &variance);
        if (variance >= 1e-200) {
            const double r = math::sqrt(variance);
            along = 0;
            for (Index h = 0; h < p_; ++h) {
                direction_[h] /= r;
                along += h == j ? 0 : d_[j * p_ + h] * W_[h][j];
            }
            noise_[j] = 0;
            dots(direction_, centre_, 1, W_.width, &from_centre);
            dots(direction_, noise_, 1, W_.width, &from_noise);
            const double a = along / r - from_centre, x = draw_ratio(j, r, a);
            // 4. The normal draw, moved along the direction so that its linear form is x.
            for (Index h = 0; h < p_; ++h) noise_[h] += direction_[h] * (a - from_noise - x);
        }
        for (Index h = 0; h < p_; ++h) noise_[h] += centre_[h];
        solve_upper(first_, noise_);
        for (Index h = 0; h < p_; ++h) delta_[h] = h == j ? 0 : scale_[h] * noise_[h] - d_[j * p_ + h];
        const double ratio = row_ratio(j);
        if (options_.stable && !is_stable_with(j, delta_, ratio)) return;
        const double sum = combine(e_[j], delta_, Y_, p_, row_, spare_);
        move_row(j, ratio, sum);
    }

    double draw_ratio(Index j, double r, double a) const {
        const Counter at{U32(j * p_ + j), 2, options_.client, step_};
        return sem::draw_ratio(power_ * double(n_), r, a, philox_bits(at, proposals_key_),
                               philox_bits({at.item, 3, at.client, at.step}, proposals_key_));
    }

    // ---- Swap of two rows, and b.

    /// Rows j < h of B = I - Theta exchanged and divided by their new diagonals w = B_hj and u = B_jh, b_j by |w|, b_h by |u|.
    void swap() {
        if (p_ < 2) return;
        const auto [choice, accept] = uniform_pair(philox_bits({U32(p_ * p_), 0, options_.client, step_}, proposals_key_));
        const Index pairs = p_ * (p_ - 1) / 2;
        Index j = 0, rest = std::min(Index(choice * double(pairs)), pairs - 1);
        for (; rest >= p_ - 1 - j; ++j) rest -= p_ - 1 - j;
        const Index h = j + 1 + rest;
        const double u = -T_[j][h], w = -T_[h][j];
        if (u == 0 || w == 0) return;
        std::copy_n(T_.data, p_ * T_.width, first_.data);
        double quadratic = 0;
        for (Index i = 0; i < p_; ++i) {
            first_[j][i] = i == j ? 0 : (T_[h][i] - (i == h)) / w;
            first_[h][i] = i == h ? 0 : (T_[j][i] - (i == j)) / u;
            for (Index row : {j, h}) {
                const Index k = row * p_ + i;
                const double d = first_[row][i] - theta_[k];
                quadratic += i == row ? 0 : (d * d - d_[k] * d_[k]) * half_precision_[k];
            }
        }
        const double b[2] = {b_[h] / math::magnitude(w), b_[j] / math::magnitude(u)}, old[2] = {b_[j], b_[h]};
        const double log_scale = math::log(math::magnitude(u * w));
        double log_ratio = -quadratic - double(p_ + 1) * log_scale;
        for (int k = 0; k < 2; ++k) log_ratio -= (options_.shape + 1) * math::log(b[k] / old[k]) + options_.rate * (1 / b[k] - 1 / old[k]);
        if (!metropolis_accept(log_ratio, accept)) return;
        for (Index i = 0; i < p_; ++i) pivot_row_[i] = first_[j][i], delta_[i] = first_[h][i];
        if (options_.stable && !is_stable(-1 / (u * w))) return;
        ++events_[sem_swaps];
        for (Index i = 0; i < p_; ++i) {
            T_[j][i] = pivot_row_[i], T_[h][i] = delta_[i];
            if (i != j) d_[j * p_ + i] = T_[j][i] - theta_[j * p_ + i];
            if (i != h) d_[h * p_ + i] = T_[h][i] - theta_[h * p_ + i];
            const double inverse = W_[i][j];
            W_[i][j] = W_[i][h] * w, W_[i][h] = inverse * u;
        }
        log_det_ -= log_scale;
        b_[j] = b[0], b_[h] = b[1];
        std::swap(e_[j], e_[h]);
        std::swap(sums_[j], sums_[h]);
        sums_[j] /= math::magnitude(w), sums_[h] /= math::magnitude(u);
        for (Index i = 0; i < row_; i += lanes) {
            put(at(e_[j], i) / Wide::all(w), e_[j], i);
            put(at(e_[h], i) / Wide::all(u), e_[h], i);
        }
    }

    /// b_j ~ IG(shape + n, rate + sum |e_j|), both with the power of the likelihood.
    void draw_b() {
        const double shape = options_.shape + power_ * double(n_);
        fill_gamma({&shape, p_, 0}, {b_, p_}, {0, 0, options_.client, step_}, variances_key_);
        for (Index j = 0; j < p_; ++j) {
            b_[j] = (options_.rate + power_ * sums_[j]) / b_[j];
            if (fault_ < 0 && !positive(b_[j]))
                fault_ = math::magnitude(sums_[j]) < math::infinity<double>() ? sem_scale : sem_coefficients;
        }
    }

    const SemOptions& options_;
    Vector<std::int64_t> events_;
    Index p_, n_, row_;
    double power_;
    U64 scales_key_, coefficients_key_, variances_key_, proposals_key_, augmentation_key_;
    U32 step_ = 0;
    double gain_ = 0, log_det_ = 0;
    int fault_ = -1;
    Workspace memory_;
    double *Y_, *spare_;
    std::vector<double*> e_;     // residuals, a row each; a row changes places with spare_ when its proposal is taken
    std::vector<Index> pivots_;
    Square W_, T_, first_, second_; // (I - Theta)^-1, Theta, two to work in
    double *theta_, *tau_sq_, *d_, *lambda_sq_, *log_step_, *half_precision_, *sd_, *normal_, *log_u_;
    double *b_, *sums_, *square_, *delta_, *pivot_row_, *scale_, *centre_, *direction_, *noise_; // sums of |e_j|, of y_j^2
    double *weight_, *weighted_, *rest_;
};

} // namespace sem

inline void sem_sweeps(const SemData& data, const SemState<const double>& before, const SemState<double>& after, const SemOptions& options,
                       Vector<double> loglik, Matrix<std::int64_t> events, int n_threads) {
    const Index chains = loglik.size;
    for_blocks(chains, chains, n_threads, [&](Index, Index begin, Index end) {
        for (Index c = begin; c < end; ++c) {
            const auto row = events.row(c);
            for (Index i = 0; i < sem_events; ++i) row[i] = 0;
            sem::Chain chain(data, before, options, c, row);
            int fault = -1;
            Index t = 0;
            for (; t < options.n_sweeps && fault < 0; ++t) fault = chain.sweep(options.step + U32(t));
            row[sem_fault] = fault < 0 ? -1 : 8 * (t - 1) + fault;
            loglik[c] = fault < 0 ? chain.loglik() : math::not_a_number<double>();
            chain.store(after, c);
        }
    });
}

/// n log|det B| - sum_j (n log(2 b_j) + sum_i |e_ij| / b_j), B = I - Theta, e = B y; -inf where det B = 0.
inline void sem_log_density(Tensor<const double, 3> Y, Tensor<const double, 3> coefficients, Tensor<const double, 2> b,
                            Vector<double> loglik, int n_threads) {
    const Index p = Y.shape[1], n = Y.shape[2], row = sem::padded(n), width = sem::padded(p);
    for_blocks(loglik.size, loglik.size, n_threads, [&](Index, Index begin, Index end) {
        std::vector<Index> pivots(p);
        sem::Workspace memory;
        sem::Square B;
        double *y, *e;
        const auto lay_out = [&] { B = {memory.take(p * width), p, width}, y = memory.take(p * row), e = memory.take(row); };
        lay_out();
        memory.allocate();
        lay_out();
        for (Index c = begin; c < end; ++c) {
            double value = 0;
            for (Index j = 0; j < p; ++j) {
                copy(Y[c][j], y + j * row);
                for (Index h = 0; h < p; ++h) B[j][h] = h == j ? 0 : coefficients[c][j][h];
            }
            for (Index j = 0; j < p; ++j)
                value -= double(n) * math::log(2 * b[c][j]) + sem::combine(y + j * row, B[j], y, p, row, e) / b[c][j];
            for (Index j = 0; j < p; ++j)
                for (Index h = 0; h < p; ++h) B[j][h] = (h == j) - B[j][h];
            loglik[c] = n > 0 ? double(n) * sem::invert(B, pivots) + value : value;
        }
    });
}

} // namespace FEDKERN_ISA
} // namespace fedkern
