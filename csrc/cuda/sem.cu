// Cyclic structural equation models: a warp is a chain, many chains at once. Numbers that decide a move are the same on all lanes; what
// one lane writes and others read has a warp's barrier between. docs/methods/sparse.md, sections 2, 9 and 10; counters: sem/sweeps.hpp.
#include "grid.hpp"
#include "fedkern/sem/scalar.hpp"
#include "fedkern/sem/views.hpp"
#include "fedkern/shrinkage/scales.hpp"

namespace fedkern {
namespace cuda {

using sem::least_ratio;
using sem::least_residual;
using sem::refactorise_below;
using sem::target_acceptance;

FEDKERN_INLINE double warp_max(double x) {
#pragma unroll
    for (int bit = 16; bit > 0; bit /= 2) {
        const double other = __shfl_xor_sync(all_lanes, x, bit);
        x = other > x ? other : x;
    }
    return x;
}

// ---- Dense matrices of p x p, by rows without gaps.

/// Replaces W by its inverse (Gauss-Jordan, pivots by column). log|det|; -inf or NaN if there is no inverse.
FEDKERN_DEVICE double invert(double* W, Index p, Index* pivots) {
    double product = 1, log_det = 0;
    for (Index k = 0; k < p; ++k) {
        double most = -1;
        Index best = p;
        for (Index i = k + lane(); i < p; i += 32) {
            const double size = math::magnitude(W[i * p + k]);
            if (size > most) most = size, best = i;
        }
#pragma unroll
        for (int bit = 16; bit > 0; bit /= 2) {
            const double other = __shfl_xor_sync(all_lanes, most, bit);
            const Index where = __shfl_xor_sync(all_lanes, best, bit);
            if (other > most || (other == most && where < best)) most = other, best = where;
        }
        if (best == p) best = k;
        if (lane() == 0) pivots[k] = best;
        if (best != k)
            for (Index i = lane(); i < p; i += 32) {
                const double upper = W[k * p + i];
                W[k * p + i] = W[best * p + i], W[best * p + i] = upper;
            }
        __syncwarp();
        const double pivot = W[k * p + k];
        product *= math::magnitude(pivot);
        if (!(product > 1e-200 && product < 1e200 && k + 1 < p)) log_det += math::log(product), product = 1;
        if (!(math::magnitude(pivot) > 0)) return log_det;
        const double inverse = 1 / pivot;
        __syncwarp();
        for (Index i = lane(); i < p; i += 32) W[k * p + i] = i == k ? inverse : W[k * p + i] * inverse;
        __syncwarp();
        for (Index i = lane(); i < p; i += 32) {
            if (i == k) continue;
            const double factor = W[i * p + k];
            for (Index h = 0; h < p; ++h)
                if (h != k) W[i * p + h] -= factor * W[k * p + h];
            W[i * p + k] = -factor * inverse;
        }
        __syncwarp();
    }
    for (Index k = p; k-- > 0;)
        if (const Index other = pivots[k]; other != k) {
            for (Index i = lane(); i < p; i += 32) {
                const double left = W[i * p + k];
                W[i * p + k] = W[i * p + other], W[i * p + other] = left;
            }
            __syncwarp();
        }
    return log_det;
}

/// Whether the spectral radius of T is below 1; `T` and `spare` are overwritten.
FEDKERN_DEVICE bool is_contraction(double* T, double* spare, Index p) {
    for (int squaring = 0; squaring < 64; ++squaring) {
        double rows = 0, columns = 0, trace = 0;
        for (Index i = lane(); i < p; i += 32) {
            double row = 0, column = 0;
            for (Index k = 0; k < p; ++k) row += math::magnitude(T[i * p + k]), column += math::magnitude(T[k * p + i]);
            rows = row > rows ? row : rows, columns = column > columns ? column : columns;
            trace += T[i * p + i];
        }
        rows = warp_max(rows), columns = warp_max(columns), trace = warp_sum(trace);
        const double bound = rows < columns ? rows : columns;
        if (bound < 1) return true;
        if (!(math::magnitude(trace) <= double(p) && bound < 1e150)) return false;
        for (Index e = lane(); e < p * p; e += 32) {
            double sum = 0;
            for (Index k = 0; k < p; ++k) sum += T[e / p * p + k] * T[k * p + e % p];
            spare[e] = sum;
        }
        __syncwarp();
        double* const squared = spare;
        spare = T, T = squared;
    }
    return false;
}

/// Replaces the upper triangle of A by U, A = U'U; A - I is positive semidefinite.
FEDKERN_DEVICE void factorise(double* A, Index p) {
    for (Index k = 0; k < p; ++k) {
        const double pivot = A[k * p + k], root = math::sqrt(pivot > 1 ? pivot : 1);
        __syncwarp();
        for (Index i = k + lane(); i < p; i += 32) A[k * p + i] = i == k ? root : A[k * p + i] / root;
        __syncwarp();
        for (Index i = k + 1 + lane(); i < p; i += 32) {
            const double factor = A[k * p + i];
            for (Index h = i; h < p; ++h) A[i * p + h] -= factor * A[k * p + h];
        }
        __syncwarp();
    }
}

/// x = U'^-1 x.
FEDKERN_DEVICE void solve_lower(const double* U, Index p, double* x) {
    for (Index k = 0; k < p; ++k) {
        const double value = x[k] / U[k * p + k];
        __syncwarp();
        for (Index i = k + lane(); i < p; i += 32) x[i] = i == k ? value : x[i] - value * U[k * p + i];
        __syncwarp();
    }
}

/// x = U^-1 x.
FEDKERN_DEVICE void solve_upper(const double* U, Index p, double* x) {
    for (Index k = p; k-- > 0;) {
        double rest = 0;
        for (Index i = k + 1 + lane(); i < p; i += 32) rest += U[k * p + i] * x[i];
        rest = warp_sum(rest);
        if (lane() == 0) x[k] = (x[k] - rest) / U[k * p + k];
        __syncwarp();
    }
}

FEDKERN_INLINE double dot(const double* x, const double* y, Index n) {
    double sum = 0;
    for (Index i = lane(); i < n; i += 32) sum += x[i] * y[i];
    return warp_sum(sum);
}

// ---- One chain.

inline constexpr int squares = 13, vectors = 10, rows_of_numbers = 3;
FEDKERN_INLINE Index chain_size(Index p, Index n) { return squares * p * p + vectors * p + (p + rows_of_numbers) * n; }

/// One chain during a call; k = j p + h counts elements. `Chain` of sem/sweeps.hpp says what each step is.
class WarpChain {
  public:
    FEDKERN_INLINE WarpChain(const SemData& data, const SemState<const double>& before, const SemOptions& options, Index c, double* memory)
        : o(options), Y(data.Y[c]), p(data.Y.shape[1]), n(data.Y.shape[2]), power(data.temperature[c]) {
        const auto key = [&](Stream stream) { return stream_key(o.seed, stream, o.chain + U64(c)); };
        scales_key = key(Stream::scales), coefficients_key = key(Stream::coefficients), variances_key = key(Stream::variances);
        proposals_key = key(Stream::proposals), augmentation_key = key(Stream::augmentation);
        for (double** matrix : {&W, &T, &first, &second, &theta, &tau_sq, &d, &lambda_sq, &log_step, &half_precision, &sd, &normal, &log_u})
            *matrix = memory, memory += p * p;
        for (double** vector : {&b, &sums, &square, &delta, &pivot_row, &scale, &centre, &direction, &noise})
            *vector = memory, memory += p;
        pivots = reinterpret_cast<Index*>(memory), memory += p;
        e = memory, memory += p * n;
        for (double** row : {&spare, &weight, &rest}) *row = memory, memory += n;
        for (Index k = lane(); k < p * p; k += 32) {
            const Index j = k / p, h = k % p;
            theta[k] = data.theta[c][j][h], tau_sq[k] = data.tau_sq[c][j][h];
            d[k] = before.deviation[c][j][h], lambda_sq[k] = before.lambda_sq[c][j][h], log_step[k] = before.log_step[c][j][h];
        }
        for (Index j = lane(); j < p; j += 32) b[j] = before.b[c][j];
        for (Index j = 0; j < p; ++j) {
            double sum = 0;
            for (Index i = lane(); i < n; i += 32) sum += Y[j][i] * Y[j][i];
            sum = warp_sum(sum);
            if (lane() == 0) square[j] = sum;
        }
        __syncwarp();
    }

    FEDKERN_DEVICE void store(const SemState<double>& after, Index c, Vector<double> loglik, Vector<Index> events, Index fault) {
        for (Index k = lane(); k < p * p; k += 32) {
            const Index j = k / p, h = k % p;
            after.deviation[c][j][h] = d[k], after.lambda_sq[c][j][h] = lambda_sq[k], after.log_step[c][j][h] = log_step[k];
        }
        double value = 0;
        for (Index j = lane(); j < p; j += 32) {
            after.b[c][j] = b[j];
            value -= double(n) * math::log(2 * b[j]) + sums[j] / b[j];
        }
        value = warp_sum(value) + double(n) * log_det;
        if (lane() != 0) return;
        loglik[c] = fault < 0 ? value : math::not_a_number<double>();
        events[sem_clipped] = clipped_scales, events[sem_accepted] = accepted, events[sem_proposed] = proposed;
        events[sem_swaps] = swaps, events[sem_refactorised] = refactorised, events[sem_fault] = fault;
    }

    /// A quantity that is at fault, or -1.
    FEDKERN_DEVICE int sweep(U32 number) {
        step = number;
        gain = o.adapt ? math::exp(-0.6 * math::log(step + 1.)) : 0;
        start();
        if (fault < 0) draw_scales();
        if (fault < 0) {
            if (o.update == SemUpdate::row_gibbs)
                for (Index j = 0; j < p; ++j) gibbs_row(j);
            else if (o.update == SemUpdate::row)
                rows();
            if (o.update == SemUpdate::element) elements();
            if (o.swap) swap();
            __syncwarp(); // a swap that is refused ends early
            if (o.update == SemUpdate::row_gibbs) elements();
            draw_b();
        }
        return fault;
    }

  private:
    FEDKERN_INLINE Counter at(Index item, U32 draw) const { return {U32(item), draw, o.client, step}; }

    /// out = base - sum_h coefficient_h y_h. sum |out|.
    template <class Base> FEDKERN_DEVICE double combine(const Base& base, const double* coefficient, double* out) const {
        double total = 0;
        for (Index i = lane(); i < n; i += 32) {
            double x = base(i);
            for (Index h = 0; h < p; ++h) x -= coefficient[h] * Y[h][i];
            out[i] = x;
            total += math::magnitude(x);
        }
        total = warp_sum(total);
        __syncwarp();
        return total;
    }

    FEDKERN_DEVICE void start() {
        for (Index k = lane(); k < p * p; k += 32) T[k] = k / p == k % p ? 0 : theta[k] + d[k];
        __syncwarp();
        for (Index j = 0; j < p; ++j) {
            const double sum = combine([&](Index i) { return Y[j][i]; }, T + j * p, e + j * n);
            if (lane() == 0) sums[j] = sum;
        }
        refactorise();
    }

    FEDKERN_DEVICE void refactorise() {
        for (Index k = lane(); k < p * p; k += 32) W[k] = (k / p == k % p) - T[k];
        __syncwarp();
        log_det = invert(W, p, pivots);
        if (!(math::magnitude(log_det) < math::infinity<double>())) fault = sem_determinant;
    }

    /// Whether Theta is stable with `change` added to row j.
    template <class Change> FEDKERN_DEVICE bool is_stable(Index j, const Change& change, double ratio) {
        if (!(ratio > 0)) return false;
        for (Index k = lane(); k < p * p; k += 32) first[k] = T[k] + (k / p == j ? change(k % p) : 0);
        __syncwarp();
        return is_contraction(first, second, p);
    }

    /// pivot_row = delta' W: theta_j += delta multiplies the determinant by 1 - pivot_row_j.
    FEDKERN_DEVICE void set_pivot_row() {
        for (Index i = lane(); i < p; i += 32) {
            double sum = 0;
            for (Index h = 0; h < p; ++h) sum += delta[h] * W[h * p + i];
            pivot_row[i] = sum;
        }
        __syncwarp();
    }

    FEDKERN_DEVICE void update_inverse(Index j, double inverse_ratio) {
        for (Index i = lane(); i < p; i += 32) {
            const double factor = W[i * p + j] * inverse_ratio;
            for (Index h = 0; h < p; ++h) W[i * p + h] += factor * pivot_row[h];
        }
        __syncwarp();
    }

    /// Residuals of row j are those in `spare`.
    FEDKERN_DEVICE void take_residuals(Index j, double sum) {
        for (Index i = lane(); i < n; i += 32) e[j * n + i] = spare[i];
        if (lane() == 0) sums[j] = sum;
    }

    FEDKERN_DEVICE void draw_scales() {
        double outside = 0, wrong = 0;
        for (Index k = lane(); k < p * p; k += 32) {
            double variance = 1;
            if (k / p != k % p) {
                const double value = local_variance(0.5 * d[k] * d[k] / tau_sq[k], lambda_sq[k], o.lambda, at(k, 0), scales_key);
                const double kept = clipped(value);
                outside += (kept < value) | (kept > value);
                lambda_sq[k] = kept;
                variance = kept * tau_sq[k];
            }
            half_precision[k] = 0.5 / variance;
            wrong += !positive(variance);
        }
        clipped_scales += Index(warp_sum(outside));
        if (warp_sum(wrong) > 0) fault = sem_lambda;
        __syncwarp();
    }

    // ---- Metropolis moves.

    FEDKERN_DEVICE void draw_proposals(U32 block) {
        for (Index k = lane(); k < p * p; k += 32) {
            normal[k] = normal_pair(philox_bits(at(k, block), proposals_key)).first;
            log_u[k] = log_uniform(uniform(philox_bits(at(k, 1), proposals_key).first));
            const double of_b = b[k / p];
            sd[k] = math::sqrt(1 / (2 * half_precision[k] + power / (of_b * of_b) * square[k % p]));
        }
        __syncwarp();
    }

    FEDKERN_DEVICE void elements() {
        draw_proposals(0);
        for (Index k = lane(); k < p * p; k += 32) normal[k] *= math::exp(log_step[k]) * sd[k];
        const double per_row = double(n) * power;
        for (Index j = 0; j < p; ++j) {
            const double per_unit = power / b[j];
            double inverse = 1;
            for (Index h = lane(); h < p; h += 32) delta[h] = 0;
            __syncwarp();
            for (Index h = 0; h < p; ++h) {
                if (h == j) continue;
                const Index k = j * p + h;
                const double move = normal[k], ratio = 1 - move * (W[h * p + j] * inverse), size = math::magnitude(ratio);
                const double log_ratio = math::log_plus(size, -0.0, -0.0);
                const double needed = log_u[k] + move * (2 * d[k] + move) * half_precision[k] - per_row * log_ratio;
                double sum = 0;
                for (Index i = lane(); i < n; i += 32) {
                    const double shifted = e[j * n + i] - move * Y[h][i];
                    spare[i] = shifted;
                    sum += math::magnitude(shifted);
                }
                sum = warp_sum(sum);
                __syncwarp();
                const bool taken = needed < per_unit * (sums[j] - sum) && size >= least_ratio &&
                                   (!o.stable || is_stable(
                                                     j, [&](Index i) { return i == h ? move : 0; }, ratio));
                __syncwarp();
                if (taken) {
                    ++accepted;
                    take_residuals(j, sum);
                    if (lane() == 0) d[k] += move, T[k] += move, delta[h] = move;
                    __syncwarp();
                    log_det += log_ratio, inverse /= ratio;
                    if (size < refactorise_below) {
                        ++refactorised;
                        refactorise();
                        for (Index i = lane(); i < p; i += 32) delta[i] = 0;
                        __syncwarp();
                        inverse = 1;
                    }
                }
                if (lane() == 0) log_step[k] += gain * ((taken ? 1 : 0) - target_acceptance);
            }
            set_pivot_row();
            update_inverse(j, inverse);
        }
        proposed += p * (p - 1);
    }

    FEDKERN_DEVICE void move_row(Index j, double ratio, double sum) {
        for (Index h = lane(); h < p; h += 32) d[j * p + h] += delta[h], T[j * p + h] += delta[h];
        take_residuals(j, sum);
        __syncwarp();
        if (math::magnitude(ratio) < refactorise_below) {
            ++refactorised;
            refactorise();
        } else {
            log_det += math::log(math::magnitude(ratio));
            update_inverse(j, 1 / ratio);
        }
    }

    FEDKERN_DEVICE void rows() {
        draw_proposals(2);
        for (Index j = 0; j < p; ++j) {
            const Index diagonal = j * p + j;
            const double wide = math::exp(log_step[diagonal]);
            double prior = 0;
            for (Index h = lane(); h < p; h += 32) {
                const Index k = j * p + h;
                const double move = h == j ? 0 : wide * sd[k] * normal[k];
                prior += h == j ? 0 : move * (2 * d[k] + move) * half_precision[k];
                delta[h] = move;
            }
            prior = warp_sum(prior);
            __syncwarp();
            set_pivot_row();
            const double ratio = 1 - pivot_row[j], sum = combine([&](Index i) { return e[j * n + i]; }, delta, spare);
            const double fit = double(n) * math::log(math::magnitude(ratio)) - (sum - sums[j]) / b[j];
            const bool taken = log_u[diagonal] < power * fit - prior && math::magnitude(ratio) >= least_ratio &&
                               (!o.stable || is_stable(
                                                 j, [&](Index i) { return delta[i]; }, ratio));
            __syncwarp();
            if (taken) move_row(j, ratio, sum);
            if (lane() == 0) log_step[diagonal] += gain * ((taken ? 1 : 0) - target_acceptance);
            accepted += taken, ++proposed;
        }
        __syncwarp();
    }

    // ---- Augmented row Gibbs.

    FEDKERN_DEVICE void draw_weights(Index j) {
        const double wide = b[j] / power, shape = 1 / (wide * wide), least = least_residual * wide;
        for (Index i = lane(); i < n; i += 32) {
            const double size = math::magnitude(e[j * n + i]);
            weight[i] = inverse_gaussian(1 / (wide * (size > least ? size : least)), shape, at(j * n + i, 0), augmentation_key);
        }
        __syncwarp();
    }

    FEDKERN_DEVICE void factorise_row(Index j) {
        for (Index h = lane(); h < p; h += 32) {
            scale[h] = h == j ? 0 : math::sqrt(0.5 / half_precision[j * p + h]);
            delta[h] = h == j ? 0 : theta[j * p + h];
        }
        __syncwarp();
        combine([&](Index i) { return Y[j][i]; }, delta, rest);
        for (Index k = lane(); k < p * p; k += 32) { // a lane has an element of the Gram matrix
            const Index a = k / p, h = k % p;
            if (h < a) continue;
            double g = 0;
            if (a != j && h != j)
                for (Index i = 0; i < n; ++i) g += weight[i] * Y[a][i] * Y[h][i];
            first[k] = scale[a] * scale[h] * g + double(a == h);
        }
        for (Index a = lane(); a < p; a += 32) {
            double g = 0;
            for (Index i = 0; i < n; ++i) g += weight[i] * Y[a][i] * rest[i];
            centre[a] = scale[a] * g;
            direction[a] = scale[a] * W[a * p + j];
        }
        __syncwarp();
        factorise(first, p);
        solve_lower(first, p, centre);
        solve_lower(first, p, direction);
    }

    FEDKERN_DEVICE void gibbs_row(Index j) {
        if (p < 2) return;
        draw_weights(j);
        factorise_row(j);
        for (Index h = lane(); h < p; h += 32) {
            const auto z = normal_pair(philox_bits(at(j * p + h / 2, 0), coefficients_key));
            noise[h] = h % 2 ? z.second : z.first;
        }
        __syncwarp();
        const double variance = dot(direction, direction, p);
        if (variance >= 1e-200) { // the determinant's ratio is 1 + r x, and under the normal x ~ N(a, 1)
            const double r = math::sqrt(variance);
            double along = 0;
            __syncwarp();
            for (Index h = lane(); h < p; h += 32) {
                direction[h] /= r;
                along += h == j ? 0 : d[j * p + h] * W[h * p + j];
                if (h == j) noise[h] = 0;
            }
            along = warp_sum(along);
            __syncwarp();
            const double a = along / r - dot(direction, centre, p), from_noise = dot(direction, noise, p);
            const double x = sem::draw_ratio(power * double(n), r, a, philox_bits(at(j * p + j, 2), proposals_key),
                                             philox_bits(at(j * p + j, 3), proposals_key));
            __syncwarp();
            for (Index h = lane(); h < p; h += 32) noise[h] += direction[h] * (a - from_noise - x);
        }
        __syncwarp();
        for (Index h = lane(); h < p; h += 32) noise[h] += centre[h];
        __syncwarp();
        solve_upper(first, p, noise);
        for (Index h = lane(); h < p; h += 32) delta[h] = h == j ? 0 : scale[h] * noise[h] - d[j * p + h];
        __syncwarp();
        set_pivot_row();
        const double ratio = 1 - pivot_row[j];
        if (o.stable && !is_stable(
                            j, [&](Index i) { return delta[i]; }, ratio))
            return;
        const double sum = combine([&](Index i) { return e[j * n + i]; }, delta, spare);
        move_row(j, ratio, sum);
    }

    // ---- Swap of two rows, and b.

    FEDKERN_DEVICE void swap() {
        if (p < 2) return;
        const auto [choice, accept] = uniform_pair(philox_bits(at(p * p, 0), proposals_key));
        const Index pairs = p * (p - 1) / 2;
        Index j = 0, left = Index(choice * double(pairs));
        left = left < pairs - 1 ? left : pairs - 1;
        for (; left >= p - 1 - j; ++j) left -= p - 1 - j;
        const Index h = j + 1 + left;
        const double u = -T[j * p + h], w = -T[h * p + j];
        if (u == 0 || w == 0) return;
        double quadratic = 0;
        for (Index k = lane(); k < p * p; k += 32) {
            const Index row = k / p, i = k % p;
            double now = T[k];
            if (row == j) now = i == j ? 0 : (T[h * p + i] - double(i == h)) / w;
            if (row == h) now = i == h ? 0 : (T[j * p + i] - double(i == j)) / u;
            if ((row == j || row == h) && i != row) {
                const double moved = now - theta[k];
                quadratic += (moved * moved - d[k] * d[k]) * half_precision[k];
            }
            first[k] = now;
        }
        quadratic = warp_sum(quadratic);
        __syncwarp();
        const double b_j = b[h] / math::magnitude(w), b_h = b[j] / math::magnitude(u), log_scale = math::log(math::magnitude(u * w));
        double log_ratio = -quadratic - double(p + 1) * log_scale;
        log_ratio -= (o.shape + 1) * math::log(b_j / b[j]) + o.rate * (1 / b_j - 1 / b[j]);
        log_ratio -= (o.shape + 1) * math::log(b_h / b[h]) + o.rate * (1 / b_h - 1 / b[h]);
        if (!metropolis_accept(log_ratio, accept)) return;
        for (Index i = lane(); i < p; i += 32) pivot_row[i] = first[j * p + i], delta[i] = first[h * p + i];
        __syncwarp();
        if (o.stable && !(-1 / (u * w) > 0 && is_contraction(first, second, p))) return;
        ++swaps;
        __syncwarp();
        for (Index i = lane(); i < p; i += 32) {
            T[j * p + i] = pivot_row[i], T[h * p + i] = delta[i];
            if (i != j) d[j * p + i] = pivot_row[i] - theta[j * p + i];
            if (i != h) d[h * p + i] = delta[i] - theta[h * p + i];
            const double inverse = W[i * p + j];
            W[i * p + j] = W[i * p + h] * w, W[i * p + h] = inverse * u;
        }
        log_det -= log_scale;
        for (Index i = lane(); i < n; i += 32) {
            const double other = e[j * n + i];
            e[j * n + i] = e[h * n + i] / w, e[h * n + i] = other / u;
        }
        if (lane() == 0) {
            const double other = sums[j];
            b[j] = b_j, b[h] = b_h;
            sums[j] = sums[h] / math::magnitude(w), sums[h] = other / math::magnitude(u);
        }
        __syncwarp();
    }

    /// b_j ~ IG(shape + n, rate + sum |e_j|), both with the power of the likelihood.
    FEDKERN_DEVICE void draw_b() {
        double wrong = double(p), which = 0; // the first that is at fault, and with what
        for (Index j = lane(); j < p; j += 32) {
            const double g = gamma(o.shape + power * double(n), at(j, 0), variances_key), now = (o.rate + power * sums[j]) / g;
            b[j] = now;
            if (!positive(now) && double(j) < wrong)
                wrong = double(j), which = math::magnitude(sums[j]) < math::infinity<double>() ? sem_scale : sem_coefficients;
        }
        const double earliest = -warp_max(-wrong), code = warp_max(wrong == earliest ? which : 0);
        if (fault < 0 && earliest < double(p)) fault = int(code);
        __syncwarp();
    }

    const SemOptions& o;
    const Tensor<const double, 2> Y;
    const Index p, n;
    const double power;
    U64 scales_key, coefficients_key, variances_key, proposals_key, augmentation_key;
    U32 step = 0;
    double gain = 0, log_det = 0;
    int fault = -1;
    Index clipped_scales = 0, accepted = 0, proposed = 0, swaps = 0, refactorised = 0;
    double *W, *T, *first, *second; // (I - Theta)^-1, Theta, two to work in
    double *theta, *tau_sq, *d, *lambda_sq, *log_step, *half_precision, *sd, *normal, *log_u;
    double *b, *sums, *square, *delta, *pivot_row, *scale, *centre, *direction, *noise;
    Index* pivots;
    double *e, *spare, *weight, *rest;
};

/// workspace: chain_size(p, n) numbers a warp of the grid.
FEDKERN_LARGE_KERNEL sweeps_of_chains(SemData data, SemState<const double> before, SemState<double> after, SemOptions options,
                                      Vector<double> loglik, Matrix<Index> events, double* workspace) {
    double* const own = workspace + warp_of_grid() * chain_size(data.Y.shape[1], data.Y.shape[2]);
    for (Index c = warp_of_grid(); c < loglik.size; c += warps_of_grid()) {
        WarpChain chain(data, before, options, c, own);
        int fault = -1;
        Index t = 0;
        for (; t < options.n_sweeps && fault < 0; ++t) fault = chain.sweep(options.step + U32(t));
        chain.store(after, c, loglik, events.row(c), fault < 0 ? -1 : 8 * (t - 1) + fault);
        __syncwarp();
    }
}

/// n log|det B| - sum_j (n log(2 b_j) + sum_i |e_ij| / b_j), B = I - Theta, e = B y. workspace: p (p + 1) numbers a warp.
FEDKERN_KERNEL log_densities(Tensor<const double, 3> Y, Tensor<const double, 3> coefficients, Tensor<const double, 2> b, Vector<double> loglik,
                             double* workspace) {
    const Index p = Y.shape[1], n = Y.shape[2];
    double* const B = workspace + warp_of_grid() * p * (p + 1);
    for (Index c = warp_of_grid(); c < loglik.size; c += warps_of_grid()) {
        for (Index k = lane(); k < p * p; k += 32) B[k] = k / p == k % p ? 1 : -coefficients[c][k / p][k % p];
        __syncwarp();
        double value = 0;
        for (Index j = 0; j < p; ++j) {
            double sum = 0;
            for (Index i = lane(); i < n; i += 32) {
                double x = 0;
                for (Index h = 0; h < p; ++h) x += B[j * p + h] * Y[c][h][i];
                sum += math::magnitude(x);
            }
            value -= double(n) * math::log(2 * b[c][j]) + warp_sum(sum) / b[c][j];
        }
        __syncwarp();
        const double log_det = invert(B, p, reinterpret_cast<Index*>(B + p * p));
        if (lane() == 0) loglik[c] = n > 0 ? double(n) * log_det + value : value;
        __syncwarp();
    }
}

FEDKERN_INSTANCE(sweeps_of_chains)
FEDKERN_INSTANCE(log_densities)

} // namespace cuda
} // namespace fedkern
