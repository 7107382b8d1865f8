// Cyclic structural equation models: a warp is a chain, many chains at once. Lanes share the rows of data, or the elements of a matrix
// in their order in memory. Numbers that decide a move are the same on all lanes; what one lane writes and others read has a warp's
// barrier between. docs/spec/sparse.md, sections 2, 9 and 10; counters and steps: sem/sweeps.hpp.
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

/// use(i) for each i below `size`, on lane i % 32. Short code: what is seldom done must not fill the cache of instructions.
template <class I, class Use> FEDKERN_INLINE void each(I size, const Use& use) {
#pragma unroll 1
    for (I i = lane(); i < size; i += 32) use(i);
}

// ---- Dense matrices of p x p, by rows without gaps.

/// The elements of a lane, without a division for each: 32 elements on are `down` rows and `right` columns on.
struct Cells {
    U32 p, row, col, down, right;
    FEDKERN_INLINE explicit Cells(U32 p) : p(p), row(lane() / p), col(lane() % p), down(32 / p), right(32 % p) {}
    /// use(k, i, j) for k = i p + j.
    template <class Use> FEDKERN_INLINE void each(const Use& use) const {
        U32 i = row, j = col;
#pragma unroll 1
        for (U32 k = lane(); k < p * p; k += 32) {
            use(k, i, j);
            i += down, j += right;
            if (j >= p) j -= p, ++i;
        }
    }
};

/// Replaces W by its inverse (Gauss-Jordan, pivots by column). log|det|; -inf or NaN if there is no inverse. room: 3 p numbers.
FEDKERN_CALLED double invert(double* W, Cells cells, double* room) {
    const U32 p = cells.p;
    double *const row = room, *const column = room + p;
    U32* const pivots = reinterpret_cast<U32*>(room + 2 * p);
    double product = 1, log_det = 0;
#pragma unroll 1
    for (U32 k = 0; k < p; ++k) {
        double most = -1;
        U32 best = k;
#pragma unroll 1
        for (U32 i = k + lane(); i < p; i += 32) {
            const double size = math::magnitude(W[i * p + k]);
            if (size > most) most = size, best = i;
        }
#pragma unroll
        for (int bit = 16; bit > 0; bit /= 2) {
            const double other = __shfl_xor_sync(all_lanes, most, bit);
            const U32 where = __shfl_xor_sync(all_lanes, best, bit);
            if (other > most || (other == most && where < best)) most = other, best = where;
        }
        const double pivot = W[best * p + k], inverse = 1 / pivot;
        product *= math::magnitude(pivot);
        if (!(product > 1e-200 && product < 1e200 && k + 1 < p)) log_det += math::log(product), product = 1;
        if (!(math::magnitude(pivot) > 0)) return log_det;
        each(p, [&](U32 i) {
            row[i] = i == k ? inverse : W[best * p + i] * inverse;
            column[i] = W[(i == best ? k : i) * p + k]; // as after the exchange of the two rows
        });
        if (lane() == 0) pivots[k] = best;
        __syncwarp();
        if (best != k) each(p, [&](U32 i) { W[best * p + i] = W[k * p + i]; });
        __syncwarp();
        cells.each([&](U32 at, U32 i, U32 j) {
            const double old = j == k ? 0 : W[at];
            W[at] = i == k ? row[j] : old - column[i] * row[j];
        });
        __syncwarp();
    }
    each(p, [&](U32 i) {
#pragma unroll 1
        for (U32 k = p; k-- > 0;) {
            double &left = W[i * p + k], &right = W[i * p + pivots[k]];
            const double kept = left;
            left = right, right = kept;
        }
    });
    __syncwarp();
    return log_det;
}

/// Whether the spectral radius of T is below 1; `T` and `spare` are overwritten.
FEDKERN_CALLED bool is_contraction(double* T, double* spare, Cells cells) {
    const U32 p = cells.p;
#pragma unroll 1
    for (int squaring = 0; squaring < 64; ++squaring) {
        double rows = 0, columns = 0, trace = 0;
        each(p, [&](U32 i) {
            double row = 0, column = 0;
            for (U32 k = 0; k < p; ++k) row += math::magnitude(T[i * p + k]), column += math::magnitude(T[k * p + i]);
            rows = row > rows ? row : rows, columns = column > columns ? column : columns;
            trace += T[i * p + i];
        });
        rows = warp_max(rows), columns = warp_max(columns), trace = warp_sum(trace);
        const double bound = rows < columns ? rows : columns;
        if (bound < 1) return true;
        if (!(math::magnitude(trace) <= double(p) && bound < 1e150)) return false;
        cells.each([&](U32 at, U32 i, U32 j) {
            double sum = 0;
            for (U32 k = 0; k < p; ++k) sum += T[i * p + k] * T[k * p + j];
            spare[at] = sum;
        });
        __syncwarp();
        double* const squared = spare;
        spare = T, T = squared;
    }
    return false;
}

/// Replaces the upper triangle of A by U, A = U'U; A - I is positive semidefinite.
FEDKERN_INLINE void factorise(double* A, U32 p) {
#pragma unroll 1
    for (U32 k = 0; k < p; ++k) {
        const double pivot = A[k * p + k], root = math::sqrt(pivot > 1 ? pivot : 1), inverse = 1 / root;
        __syncwarp();
        each(p - k, [&](U32 i) { A[k * p + k + i] = i == 0 ? root : A[k * p + k + i] * inverse; });
        __syncwarp();
        each(p - k - 1, [&](U32 i) {
            const U32 j = k + 1 + i;
            const double factor = A[k * p + j];
#pragma unroll 1
            for (U32 h = k + 1; h <= j; ++h) A[h * p + j] -= A[k * p + h] * factor;
        });
        __syncwarp();
    }
}

/// x = U'^-1 x, and y.
FEDKERN_INLINE void solve_lower(const double* U, U32 p, double* x, double* y) {
#pragma unroll 1
    for (U32 k = 0; k < p; ++k) {
        const double inverse = 1 / U[k * p + k], of_x = x[k] * inverse, of_y = y[k] * inverse;
        __syncwarp();
        each(p - k, [&](U32 i) {
            const double factor = U[k * p + k + i];
            x[k + i] = i == 0 ? of_x : x[k + i] - of_x * factor;
            y[k + i] = i == 0 ? of_y : y[k + i] - of_y * factor;
        });
        __syncwarp();
    }
}

/// x = U^-1 x.
FEDKERN_INLINE void solve_upper(const double* U, U32 p, double* x) {
#pragma unroll 1
    for (U32 k = p; k-- > 0;) {
        const double value = x[k] / U[k * p + k];
        __syncwarp();
        each(k + 1, [&](U32 i) { x[i] = i == k ? value : x[i] - U[i * p + k] * value; });
        __syncwarp();
    }
}

FEDKERN_INLINE double dot(const double* x, const double* y, U32 p) {
    double sum = 0;
    each(p, [&](U32 i) { sum += x[i] * y[i]; });
    return warp_sum(sum);
}

/// `named`: block 2 of the row.
FEDKERN_CALLED double ratio_drawn(double N, double r, double a, Counter named, U64 key) {
    const auto chosen = philox_bits(named, key);
    ++named.draw;
    return sem::draw_ratio(N, r, a, chosen, philox_bits(named, key));
}

// ---- One chain.

inline constexpr int squares = 12, vectors = 12, rows_of_numbers = 3;
FEDKERN_INLINE Index chain_size(Index p, Index n) { return squares * p * p + vectors * p + (p + rows_of_numbers) * n; }

/// Where the numbers of a chain lie, and the keys of its streams: in shared memory, because registers are few.
struct Places {
    double *W, *T, *first, *second; // (I - Theta)^-1, Theta, two to work in
    double *theta, *tau_sq, *d, *lambda_sq, *log_step, *half_precision, *moves, *log_u;
    double *b, *sums, *square, *delta, *column, *scale, *centre, *direction, *noise, *pivot_row; // sums of |e_j|, of y_j^2
    double *e, *spare, *weight, *rest; // e: residuals
    const double* Y;
    U64 scales_key, coefficients_key, variances_key, proposals_key, augmentation_key;
    double power, gain;
    Index clipped, accepted, proposed, swaps, refactorised; // counted by lane 0

    FEDKERN_INLINE void lay_out(double* at, Index p, Index n) {
        for (double** matrix : {&W, &T, &first, &second, &theta, &tau_sq, &d, &lambda_sq, &log_step, &half_precision, &moves, &log_u})
            *matrix = at, at += p * p;
        for (double** vector : {&b, &sums, &square, &delta, &column, &scale, &centre, &direction, &noise}) *vector = at, at += p;
        pivot_row = at, at += 3 * p; // and the room of an inversion
        e = at, spare = e + p * n, weight = spare + n, rest = weight + n;
    }
    FEDKERN_INLINE void name(U64 seed, U64 chain) {
        const auto key = [&](Stream stream) { return stream_key(seed, stream, chain); };
        scales_key = key(Stream::scales), coefficients_key = key(Stream::coefficients), variances_key = key(Stream::variances);
        proposals_key = key(Stream::proposals), augmentation_key = key(Stream::augmentation);
    }
};

/// One chain during a call; k = j p + h counts elements.
template <SemUpdate update> class WarpChain {
  public:
    FEDKERN_INLINE WarpChain(const SemData& data, const SemState<const double>& before, const SemOptions& options, Index c, double* memory,
                             Places* places)
        : data(data), o(options), m(*places), cells(U32(data.Y.shape[1])) {
        if (lane() == 0) {
            places->lay_out(memory, p(), n());
            places->Y = data.Y.data + c * data.Y.stride[0];
            places->name(o.seed, o.chain + U64(c));
            places->power = data.temperature[c];
            places->clipped = places->accepted = places->proposed = places->swaps = places->refactorised = 0;
        }
        __syncwarp();
        const auto element = [&](const Tensor<const double, 3>& from, U32 j, U32 h) {
            return from.data[c * from.stride[0] + j * from.stride[1] + h * from.stride[2]];
        };
        cells.each([&](U32 k, U32 j, U32 h) {
            m.theta[k] = element(data.theta, j, h), m.tau_sq[k] = element(data.tau_sq, j, h);
            m.d[k] = element(before.deviation, j, h), m.lambda_sq[k] = element(before.lambda_sq, j, h);
            m.log_step[k] = element(before.log_step, j, h);
        });
        each(p(), [&](U32 j) { m.b[j] = before.b.data[c * before.b.stride[0] + j * before.b.stride[1]]; });
#pragma unroll 1
        for (U32 j = 0; j < p(); ++j) {
            double sum = 0;
            each(n(), [&](Index i) { sum += row(j)[i] * row(j)[i]; });
            sum = warp_sum(sum);
            if (lane() == 0) m.square[j] = sum;
        }
        __syncwarp();
    }

    FEDKERN_INLINE void store(const SemState<double>& after, Index c, Vector<double> loglik, Vector<Index> events, Index fault) {
        const auto element = [&](const Tensor<double, 3>& to, U32 j, U32 h) -> double& {
            return to.data[c * to.stride[0] + j * to.stride[1] + h * to.stride[2]];
        };
        cells.each([&](U32 k, U32 j, U32 h) {
            element(after.deviation, j, h) = m.d[k], element(after.lambda_sq, j, h) = m.lambda_sq[k];
            element(after.log_step, j, h) = m.log_step[k];
        });
        double value = 0;
        each(p(), [&](U32 j) {
            after.b.data[c * after.b.stride[0] + j * after.b.stride[1]] = m.b[j];
            value -= double(n()) * math::log(2 * m.b[j]) + m.sums[j] / m.b[j];
        });
        value = warp_sum(value) + double(n()) * log_det;
        if (lane() != 0) return;
        loglik[c] = fault < 0 ? value : math::not_a_number<double>();
        events[sem_clipped] = m.clipped, events[sem_accepted] = m.accepted, events[sem_proposed] = m.proposed;
        events[sem_swaps] = m.swaps, events[sem_refactorised] = m.refactorised, events[sem_fault] = fault;
    }

    /// A quantity that is at fault, or -1.
    FEDKERN_INLINE int sweep(U32 number) {
        step = number;
        if (lane() == 0) m.gain = o.adapt ? math::exp(-0.6 * math::log(step + 1.)) : 0;
        start();
        if (fault < 0) draw_scales();
        if (fault >= 0) return fault;
        if constexpr (update == SemUpdate::row_gibbs) {
#pragma unroll 1
            for (U32 j = 0; j < p(); ++j) gibbs_row(j);
            if (o.swap) swap();
            elements();
        } else {
            if constexpr (update == SemUpdate::element) elements();
            else rows();
            if (o.swap) swap();
        }
        draw_b();
        return fault;
    }

  private:
    FEDKERN_INLINE U32 p() const { return cells.p; }
    FEDKERN_INLINE Index n() const { return data.Y.shape[2]; }
    FEDKERN_INLINE double* e(U32 j) const { return m.e + j * n(); }
    FEDKERN_INLINE Vector<const double> row(U32 j) const { return {m.Y + j * data.Y.stride[1], n(), data.Y.stride[2]}; }

    FEDKERN_INLINE Counter at(U32 item, U32 draw) const { return {item, draw, o.client, step}; }

    // ---- What follows from the coefficients.

    /// out = base - sum_h coefficient_h y_h. sum |out|.
    FEDKERN_INLINE double combine(Vector<const double> base, const double* coefficient, double* out) const {
        double total = 0;
        each(n(), [&](Index i) {
            double x = base[i];
            const double* y = m.Y + i * data.Y.stride[2];
#pragma unroll 4
            for (U32 h = 0; h < p(); ++h, y += data.Y.stride[1]) x -= coefficient[h] * *y;
            out[i] = x;
            total += math::magnitude(x);
        });
        return warp_sum(total);
    }

    FEDKERN_INLINE void start() {
        cells.each([&](U32 k, U32 j, U32 h) { m.T[k] = j == h ? 0 : m.theta[k] + m.d[k]; });
        __syncwarp();
#pragma unroll 1
        for (U32 j = 0; j < p(); ++j) {
            const double sum = combine(row(j), m.T + j * p(), e(j));
            if (lane() == 0) m.sums[j] = sum;
        }
        refactorise(false);
    }

    FEDKERN_INLINE void refactorise(bool counts) {
        if (counts && lane() == 0) ++m.refactorised;
        cells.each([&](U32 k, U32 i, U32 j) { m.W[k] = double(i == j) - m.T[k]; });
        __syncwarp();
        log_det = invert(m.W, cells, m.pivot_row);
        if (!(math::magnitude(log_det) < math::infinity<double>())) fault = sem_determinant;
    }

    /// Whether Theta is stable with `delta` added to row j.
    FEDKERN_INLINE bool is_stable(U32 j, double ratio) {
        if (!(ratio > 0)) return false;
        cells.each([&](U32 k, U32 i, U32 h) { m.first[k] = m.T[k] + (i == j ? m.delta[h] : 0); });
        __syncwarp();
        return is_contraction(m.first, m.second, cells);
    }

    /// pivot_row = delta' W: theta_j += delta multiplies the determinant by 1 - pivot_row_j.
    FEDKERN_INLINE void set_pivot_row() {
        each(p(), [&](U32 i) {
            double sum = 0;
#pragma unroll 4
            for (U32 h = 0; h < p(); ++h) sum += m.delta[h] * m.W[h * p() + i];
            m.pivot_row[i] = sum;
        });
        __syncwarp();
    }

    FEDKERN_INLINE void set_column(U32 j) {
        each(p(), [&](U32 i) { m.column[i] = m.W[i * p() + j]; });
        __syncwarp();
    }

    /// `column` is that of row j's variable.
    FEDKERN_INLINE void update_inverse(double inverse_ratio) {
        cells.each([&](U32 k, U32 i, U32 h) { m.W[k] += m.column[i] * inverse_ratio * m.pivot_row[h]; });
        __syncwarp();
    }

    FEDKERN_INLINE void draw_scales() {
        double outside = 0, wrong = 0;
        const U64 key = m.scales_key;
        cells.each([&](U32 k, U32 j, U32 h) {
            double variance = 1;
            if (j != h) {
                const double half = 0.5 * m.d[k] * m.d[k] / m.tau_sq[k];
                const double value = local_variance(half, m.lambda_sq[k], o.lambda, at(k, 0), key), kept = clipped(value);
                outside += (kept < value) | (kept > value);
                m.lambda_sq[k] = kept;
                variance = kept * m.tau_sq[k];
            }
            m.half_precision[k] = 0.5 / variance;
            wrong += !positive(variance);
        });
        outside = warp_sum(outside);
        if (lane() == 0) m.clipped += Index(outside);
        if (warp_sum(wrong) > 0) fault = sem_lambda;
        __syncwarp();
    }

    // ---- Metropolis moves.

    /// moves: the normals of `block` in units of the proposals' standard deviations.
    FEDKERN_INLINE void draw_proposals(U32 block) {
        const U64 key = m.proposals_key;
        cells.each([&](U32 k, U32 j, U32 h) {
            const double sd = math::sqrt(1 / (2 * m.half_precision[k] + m.power / (m.b[j] * m.b[j]) * m.square[h]));
            m.moves[k] = normal_pair(philox_bits(at(k, block), key)).first * math::exp(m.log_step[block ? j * p() + j : k]) * sd;
            m.log_u[k] = log_uniform(uniform(philox_bits(at(k, 1), key).first));
        });
        __syncwarp();
    }

    FEDKERN_INLINE void elements() {
        draw_proposals(0);
        const double per_row = double(n()) * m.power;
#pragma unroll 1
        for (U32 j = 0; j < p(); ++j) {
            const double per_unit = m.power / m.b[j];
            double inverse = 1, old = m.sums[j]; // of the determinant's ratio to that of W
            each(p(), [&](U32 i) { m.delta[i] = 0; });
            set_column(j);
            double* const own = e(j);
#pragma unroll 1
            for (U32 h = 0; h < p(); ++h) {
                if (h == j) continue;
                const U32 k = j * p() + h;
                const double move = m.moves[k], ratio = 1 - move * (m.column[h] * inverse), size = math::magnitude(ratio);
                const double log_ratio = math::log_plus(size, -0.0, -0.0); // for a ratio that is not refused below
                const double needed = m.log_u[k] + move * (2 * m.d[k] + move) * m.half_precision[k] - per_row * log_ratio;
                const auto y = row(h);
                double sum = 0;
#pragma unroll 4
                for (Index i = lane(); i < n(); i += 32) sum += math::magnitude(own[i] - move * y[i]);
                sum = warp_sum(sum);
                bool taken = needed < per_unit * (old - sum) && size >= least_ratio;
                if (taken && o.stable) {
                    cells.each([&](U32 q, U32, U32) { m.first[q] = m.T[q] + (q == k ? move : 0); });
                    __syncwarp();
                    taken = ratio > 0 && is_contraction(m.first, m.second, cells);
                }
                __syncwarp();
                if (lane() == 0) {
                    if (taken) m.d[k] += move, m.T[k] += move, m.delta[h] = move, ++m.accepted;
                    m.log_step[k] += m.gain * ((taken ? 1 : 0) - target_acceptance);
                }
                if (!taken) continue;
                old = sum;
                each(n(), [&](Index i) { own[i] -= move * y[i]; });
                log_det += log_ratio, inverse /= ratio;
                if (size < refactorise_below) {
                    __syncwarp();
                    refactorise(true);
                    each(p(), [&](U32 i) { m.delta[i] = 0; });
                    set_column(j);
                    inverse = 1;
                }
            }
            if (lane() == 0) m.sums[j] = old;
            __syncwarp();
            set_pivot_row();
            update_inverse(inverse);
        }
        if (lane() == 0) m.proposed += Index(p()) * (p() - 1);
    }

    /// Takes theta_j += delta, whose residuals are in `spare`.
    FEDKERN_INLINE void move_row(U32 j, double ratio, double sum) {
        each(p(), [&](U32 h) { m.d[j * p() + h] += m.delta[h], m.T[j * p() + h] += m.delta[h]; });
        each(n(), [&](Index i) { e(j)[i] = m.spare[i]; });
        if (lane() == 0) m.sums[j] = sum;
        __syncwarp();
        if (math::magnitude(ratio) < refactorise_below) {
            refactorise(true);
        } else {
            log_det += math::log(math::magnitude(ratio));
            set_column(j);
            update_inverse(1 / ratio);
        }
    }

    FEDKERN_INLINE void rows() {
        draw_proposals(2);
#pragma unroll 1
        for (U32 j = 0; j < p(); ++j) {
            double prior = 0;
            each(p(), [&](U32 h) {
                const U32 k = j * p() + h;
                const double move = h == j ? 0 : m.moves[k];
                prior += h == j ? 0 : move * (2 * m.d[k] + move) * m.half_precision[k];
                m.delta[h] = move;
            });
            prior = warp_sum(prior);
            __syncwarp();
            set_pivot_row();
            const double ratio = 1 - m.pivot_row[j], sum = combine({e(j), n()}, m.delta, m.spare);
            const double fit = double(n()) * math::log(math::magnitude(ratio)) - (sum - m.sums[j]) / m.b[j];
            const bool taken =
                m.log_u[j * p() + j] < m.power * fit - prior && math::magnitude(ratio) >= least_ratio && (!o.stable || is_stable(j, ratio));
            __syncwarp();
            if (taken) move_row(j, ratio, sum);
            if (lane() == 0) {
                m.log_step[j * p() + j] += m.gain * ((taken ? 1 : 0) - target_acceptance);
                m.accepted += taken, ++m.proposed;
            }
        }
        __syncwarp();
    }

    // ---- Augmented row Gibbs.

    FEDKERN_INLINE void draw_weights(U32 j) {
        const double wide = m.b[j] / m.power, shape = 1 / (wide * wide), least = least_residual * wide;
        const U64 key = m.augmentation_key;
        each(n(), [&](Index i) {
            const double size = math::magnitude(e(j)[i]);
            m.weight[i] = inverse_gaussian(1 / (wide * (size > least ? size : least)), shape, at(U32(j * n() + i), 0), key);
        });
    }

    /// first = U with U'U = I + S G S; centre = U'^-1 r, direction = U'^-1 S W[:, j].
    FEDKERN_INLINE void factorise_row(U32 j) {
        each(p(), [&](U32 h) {
            m.scale[h] = h == j ? 0 : math::sqrt(0.5 / m.half_precision[j * p() + h]);
            m.delta[h] = h == j ? 0 : m.theta[j * p() + h];
            m.direction[h] = m.scale[h] * m.W[h * p() + j];
        });
        __syncwarp();
        combine(row(j), m.delta, m.rest);
        // Row a of G from a on, and after the last r: eight products at a time.
#pragma unroll 1
        for (U32 a = 0; a <= p(); ++a) {
            const Vector<const double> x = a < p() ? row(a) : Vector<const double>{m.rest, n()};
#pragma unroll 1
            for (U32 begin = a < p() ? a : 0; begin < p(); begin += 8) {
                double g[8] = {};
#pragma unroll 1
                for (Index i = lane(); i < n(); i += 32) {
                    const double weighted = m.weight[i] * x[i];
#pragma unroll
                    for (U32 r = 0; r < 8; ++r)
                        if (begin + r < p()) g[r] += weighted * row(begin + r)[i];
                }
                const double sum = warp_sums(g);
                const U32 h = begin + U32(row_of<8>(lane()));
                if (lane() % 4 != 0 || h >= p()) continue;
                if (a < p()) m.first[a * p() + h] = m.scale[a] * m.scale[h] * sum + double(a == h);
                else m.centre[h] = m.scale[h] * sum;
            }
        }
        __syncwarp();
        factorise(m.first, p());
        solve_lower(m.first, p(), m.centre, m.direction);
    }

    FEDKERN_INLINE void gibbs_row(U32 j) {
        if (p() < 2) return;
        draw_weights(j);
        factorise_row(j);
        each((p() + 1) / 2, [&](U32 h) {
            const auto z = normal_pair(philox_bits(at(j * p() + h, 0), m.coefficients_key));
            m.noise[2 * h] = z.first;
            if (2 * h + 1 < p()) m.noise[2 * h + 1] = z.second;
        });
        __syncwarp();
        const double variance = dot(m.direction, m.direction, p());
        if (variance >= 1e-200) { // the determinant's ratio is 1 + r x, and under the normal x ~ N(a, 1)
            const double r = math::sqrt(variance);
            double along = 0, from_centre = 0, from_noise = 0;
            each(p(), [&](U32 h) {
                const double unit = m.direction[h] / r, z = h == j ? 0 : m.noise[h];
                along += h == j ? 0 : m.d[j * p() + h] * m.W[h * p() + j];
                from_centre += unit * m.centre[h], from_noise += unit * z;
                m.direction[h] = unit, m.noise[h] = z;
            });
            along = warp_sum(along), from_centre = warp_sum(from_centre), from_noise = warp_sum(from_noise);
            const double a = along / r - from_centre;
            const U64 key = m.proposals_key;
            const double x = ratio_drawn(m.power * double(n()), r, a, at(j * p() + j, 2), key);
            each(p(), [&](U32 h) { m.noise[h] += m.direction[h] * (a - from_noise - x); });
        }
        each(p(), [&](U32 h) { m.noise[h] += m.centre[h]; });
        __syncwarp();
        solve_upper(m.first, p(), m.noise);
        each(p(), [&](U32 h) { m.delta[h] = h == j ? 0 : m.scale[h] * m.noise[h] - m.d[j * p() + h]; });
        __syncwarp();
        set_pivot_row();
        const double ratio = 1 - m.pivot_row[j];
        if (o.stable && !is_stable(j, ratio)) return;
        const double sum = combine({e(j), n()}, m.delta, m.spare);
        move_row(j, ratio, sum);
    }

    // ---- Swap of two rows, and b.

    FEDKERN_INLINE void swap() {
        if (p() < 2) return;
        const auto [choice, accept] = uniform_pair(philox_bits(at(p() * p(), 0), m.proposals_key));
        const U32 pairs = p() * (p() - 1) / 2;
        U32 j = 0, left = U32(choice * double(pairs));
        left = left < pairs - 1 ? left : pairs - 1;
#pragma unroll 1
        for (; left >= p() - 1 - j; ++j) left -= p() - 1 - j;
        const U32 h = j + 1 + left, of_j = j * p(), of_h = h * p();
        const double u = -m.T[of_j + h], w = -m.T[of_h + j];
        if (u == 0 || w == 0) return;
        double quadratic = 0;
        each(p(), [&](U32 i) {
            const double from_h = i == j ? 0 : (m.T[of_h + i] - double(i == h)) / w;
            const double from_j = i == h ? 0 : (m.T[of_j + i] - double(i == j)) / u;
            const auto change = [&](U32 k, double now) {
                const double moved = now - m.theta[k];
                return (moved * moved - m.d[k] * m.d[k]) * m.half_precision[k];
            };
            quadratic += (i == j ? 0 : change(of_j + i, from_h)) + (i == h ? 0 : change(of_h + i, from_j));
            m.pivot_row[i] = from_h, m.delta[i] = from_j;
        });
        quadratic = warp_sum(quadratic);
        const double b_j = m.b[h] / math::magnitude(w), b_h = m.b[j] / math::magnitude(u), log_scale = math::log(math::magnitude(u * w));
        const double log_b = math::log(b_j / m.b[j] * (b_h / m.b[h])), less = 1 / b_j - 1 / m.b[j] + (1 / b_h - 1 / m.b[h]);
        const double log_ratio = -quadratic - double(p() + 1) * log_scale - (o.shape + 1) * log_b - o.rate * less;
        if (!metropolis_accept(log_ratio, accept)) return;
        __syncwarp();
        if (o.stable) {
            if (!(-1 / (u * w) > 0)) return;
            cells.each([&](U32 k, U32 i, U32 c) { m.first[k] = i == j ? m.pivot_row[c] : i == h ? m.delta[c] : m.T[k]; });
            __syncwarp();
            if (!is_contraction(m.first, m.second, cells)) return;
        }
        if (lane() == 0) ++m.swaps;
        each(p(), [&](U32 i) {
            m.T[of_j + i] = m.pivot_row[i], m.T[of_h + i] = m.delta[i];
            if (i != j) m.d[of_j + i] = m.pivot_row[i] - m.theta[of_j + i];
            if (i != h) m.d[of_h + i] = m.delta[i] - m.theta[of_h + i];
            const double inverse = m.W[i * p() + j];
            m.W[i * p() + j] = m.W[i * p() + h] * w, m.W[i * p() + h] = inverse * u;
        });
        log_det -= log_scale;
        each(n(), [&](Index i) {
            const double other = e(j)[i];
            e(j)[i] = e(h)[i] / w, e(h)[i] = other / u;
        });
        if (lane() == 0) {
            const double other = m.sums[j];
            m.b[j] = b_j, m.b[h] = b_h;
            m.sums[j] = m.sums[h] / math::magnitude(w), m.sums[h] = other / math::magnitude(u);
        }
        __syncwarp();
    }

    /// b_j ~ IG(shape + n, rate + sum |e_j|), both with the power of the likelihood.
    FEDKERN_INLINE void draw_b() {
        double wrong = -math::infinity<double>(); // - (8 j + what is at fault), of the first j
        const U64 key = m.variances_key;
        __syncwarp();
        each(p(), [&](U32 j) {
            const double now = (o.rate + m.power * m.sums[j]) / gamma(o.shape + m.power * double(n()), at(j, 0), key);
            m.b[j] = now;
            if (positive(now)) return;
            const int what = math::magnitude(m.sums[j]) < math::infinity<double>() ? sem_scale : sem_coefficients;
            const double code = -(8. * j + what);
            wrong = code > wrong ? code : wrong;
        });
        wrong = warp_max(wrong);
        if (wrong <= 0 && wrong > -math::infinity<double>() && fault < 0) fault = int(Index(-wrong) % 8);
        __syncwarp();
    }

    const SemData& data;
    const SemOptions& o;
    Places& m;
    const Cells cells;
    U32 step = 0;
    double log_det = 0;
    int fault = -1;
};

/// A block is a warp. workspace: chain_size(p, n) numbers a block.
template <SemUpdate update> FEDKERN_KERNEL sweeps_of_chains(SemData data, SemState<const double> before, SemState<double> after,
                                                            SemOptions options, Vector<double> loglik, Matrix<Index> events,
                                                            double* workspace) {
    FEDKERN_SHARED(Places, places, 1);
    double* const own = workspace + blockIdx.x * chain_size(data.Y.shape[1], data.Y.shape[2]);
    for (Index c = blockIdx.x; c < loglik.size; c += gridDim.x) {
        WarpChain<update> chain(data, before, options, c, own, places);
        int fault = -1;
        Index t = 0;
        for (; t < options.n_sweeps && fault < 0; ++t) fault = chain.sweep(options.step + U32(t));
        chain.store(after, c, loglik, events.row(c), fault < 0 ? -1 : 8 * (t - 1) + fault);
        __syncwarp();
    }
}

/// n log|det B| - sum_j (n log(2 b_j) + sum_i |e_ij| / b_j), B = I - Theta, e = B y. A block is a warp; workspace: p (p + 3) numbers.
FEDKERN_KERNEL log_densities(Tensor<const double, 3> Y, Tensor<const double, 3> coefficients, Tensor<const double, 2> b,
                             Vector<double> loglik, double* workspace) {
    const Index p = Y.shape[1], n = Y.shape[2];
    const Cells cells{U32(p)};
    double* const B = workspace + blockIdx.x * p * (p + 3);
    for (Index c = blockIdx.x; c < loglik.size; c += gridDim.x) {
        cells.each([&](U32 k, U32 j, U32 h) { B[k] = j == h ? 1 : -coefficients[c][j][h]; });
        __syncwarp();
        double value = 0;
        for (Index j = 0; j < p; ++j) {
            double sum = 0;
            each(n, [&](Index i) {
                double x = 0;
#pragma unroll 4
                for (Index h = 0; h < p; ++h) x += B[j * p + h] * Y[c][h][i];
                sum += math::magnitude(x);
            });
            value -= double(n) * math::log(2 * b[c][j]) + warp_sum(sum) / b[c][j];
        }
        __syncwarp();
        const double log_det = invert(B, cells, B + p * p);
        if (lane() == 0) loglik[c] = n > 0 ? double(n) * log_det + value : value;
        __syncwarp();
    }
}

FEDKERN_INSTANCE(sweeps_of_chains<SemUpdate::row_gibbs>)
FEDKERN_INSTANCE(sweeps_of_chains<SemUpdate::element>)
FEDKERN_INSTANCE(sweeps_of_chains<SemUpdate::row>)
FEDKERN_INSTANCE(log_densities)

} // namespace cuda
} // namespace fedkern
