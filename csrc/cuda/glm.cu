// Generalised linear models. A warp holds R rows of up to 32 C columns in registers: what a product has read is there for the
// gradient. Longer rows are read twice: once for their coefficients, once for the sums over columns.
#include "grid.hpp"
#include "fedkern/glm/scalar.hpp"
#include "fedkern/privacy/scalar.hpp"
#include "fedkern/rng.hpp"

namespace fedkern {
namespace cuda {

// ---- Rows.

FEDKERN_INLINE double number(const Column& c, Index i) {
    if (!c.data) return c.fill;
    const char* at = static_cast<const char*>(c.data) + i * c.stride;
    switch (c.type) {
    case Column::Type::f64: return *reinterpret_cast<const double*>(at);
    case Column::Type::f32: return *reinterpret_cast<const float*>(at);
    case Column::Type::i64: return double(*reinterpret_cast<const Index*>(at));
    case Column::Type::i32: return *reinterpret_cast<const int*>(at);
    case Column::Type::i8: return *reinterpret_cast<const signed char*>(at);
    default: return *reinterpret_cast<const unsigned char*>(at);
    }
}

FEDKERN_INLINE Index place(const Regression& data, Index i) { return data.picked ? data.picked[i] : i; }

template <class T> FEDKERN_INLINE Vector<const T> row(const Regression& data, Index i) {
    return {static_cast<const T*>(data.x) + place(data, i) * data.row_stride, data.d, data.col_stride};
}

/// What stands beside a row; a response that the family has not is NaN.
struct Response {
    double y, offset, weight;
    FEDKERN_INLINE Response(const Regression& data, const AnyFamily& family, Index i) {
        const Index at = place(data, i);
        y = family.clean(number(data.y, at)), offset = number(data.offset, at), weight = number(data.weight, at);
    }
};

/// R rows from `first` on; zeros beyond `end` and beyond the columns.
template <bool walks = true, class T, int C, int R>
FEDKERN_INLINE void load_rows(const Regression& data, Index first, Index end, T (&x)[R][C]) {
    const int left = rows_left<R>(first, end);
#pragma unroll
    for (int r = 0; r < R; ++r) {
        const bool there = r == 0 || r < left;
        load_row<walks>(row<T>(data, there ? first + r : first), there, x[r]);
    }
}

/// The rows of a block: a share of all that follows from their number.
struct Share {
    Index begin, end;
    FEDKERN_INLINE explicit Share(Index n) : begin(n * blockIdx.x / gridDim.x), end(n * (blockIdx.x + 1) / gridDim.x) {}
};

/// The nodes of a row's quadrature, shared by the lanes that have the row.
template <int R> struct LanesNodes {
    static constexpr int step = 32 / R;
    int first = lane() % step;
    FEDKERN_INLINE double sum(double x) const {
#pragma unroll
        for (int bit = step / 2; bit > 0; bit /= 2) x += __shfl_xor_sync(all_lanes, x, bit);
        return x;
    }
};

/// Whether a lane does the scalar work of its row for all that share it.
template <int R> FEDKERN_INLINE bool speaks() { return lane() % (32 / R) == 0; }

// ---- Draws of the weights, and a posterior as vectors without strides.

/// theta_s = mu + sigma e_s, e_s element by element rng's of draw s; deviation_s = share sigma e_s.
FEDKERN_KERNEL draw_weights(Vector<const double> mu, Vector<const double> log_sigma, Index draws, double share, U64 key, Counter counter,
                            double* theta, double* e, double* deviation) {
    const Index d = mu.size, pairs = (d + 1) / 2;
    for (Index i = thread_of_grid(); i < draws * pairs; i += threads_of_grid()) {
        const Index s = i / pairs, k = i % pairs;
        const auto z = normal_pair(philox_bits({U32(k), U32(s), counter.client, counter.step}, key));
        for (Index j = 2 * k; j < 2 * k + 2 && j < d; ++j) {
            const double es = j % 2 ? z.second : z.first, step = math::exp(log_sigma[j]) * es;
            e[s * d + j] = es;
            theta[s * d + j] = mu[j] + step;
            deviation[s * d + j] = share * step;
        }
    }
}

/// mean = mu, variance = sigma^2; z: rng's elements of draw 0, for draws of the activations.
FEDKERN_KERNEL unfold(Vector<const double> mu, Vector<const double> log_sigma, Index draws, U64 key, Counter counter, double* mean,
                      double* variance, double* z) {
    for (Index j = thread_of_grid(); j < mu.size; j += threads_of_grid()) {
        mean[j] = mu[j];
        variance[j] = math::exp(2 * log_sigma[j]);
    }
    for (Index k = thread_of_grid(); 2 * k < draws; k += threads_of_grid()) {
        const auto pair = normal_pair(philox_bits({U32(k), 0, counter.client, counter.step}, key));
        z[2 * k] = pair.first;
        if (2 * k + 1 < draws) z[2 * k + 1] = pair.second;
    }
}

// ---- Log-likelihood at several parameters at once.

/// partial[block][s][0..d): the gradient of the block's log-likelihood at theta_s; [d]: its value. S draws from `first_draw` on.
template <class T, int C, int R, int S>
FEDKERN_KERNEL loglik_rows(Regression data, Likelihood likelihood, const double* theta, Index draws, Index first_draw, double* partial) {
    FEDKERN_SHARED(double, room, most_warps * 32 * C);
    FEDKERN_SHARED(double, value_room, most_warps);
    const Index d = data.d;
    const Share share(data.n);
    const AnyFamily family(likelihood);
    T t[S][C];
    double sum[S][C] = {}, value[S] = {};
#pragma unroll
    for (int s = 0; s < S; ++s)
#pragma unroll
        for (int c = 0; c < C; ++c) {
            const Index j = lane() + 32 * c;
            t[s][c] = j < d && first_draw + s < draws ? T(theta[(first_draw + s) * d + j]) : T(0);
        }
    for (Index first = share.begin + warp() * R; first < share.end; first += warps() * R) {
        T x[R][C];
        load_rows(data, first, share.end, x);
        const Index i = first + row_of<R>(lane());
        const bool counts = i < share.end;
        const Response own(data, family, counts ? i : first);
        const double base = family.base(own.y);
#pragma unroll
        for (int s = 0; s < S; ++s) {
            double dot[R];
#pragma unroll
            for (int r = 0; r < R; ++r) {
                T a = 0;
#pragma unroll
                for (int c = 0; c < C; ++c) a += x[r][c] * t[s][c];
                dot[r] = a;
            }
            const auto weighed = family.weigh(T(warp_sums(dot) + own.offset), T(own.y));
            if (counts && speaks<R>()) value[s] += own.weight * (double(weighed.value) + base);
            const T slope = counts ? T(own.weight) * weighed.slope : T(0);
            T add[C] = {};
#pragma unroll
            for (int r = 0; r < R; ++r) {
                const T g = __shfl_sync(all_lanes, slope, r * (32 / R));
#pragma unroll
                for (int c = 0; c < C; ++c) add[c] += g * x[r][c];
            }
#pragma unroll
            for (int c = 0; c < C; ++c) sum[s][c] += double(add[c]);
        }
    }
#pragma unroll
    for (int s = 0; s < S; ++s) {
        if (first_draw + s >= draws) break;
        double* to = partial + (blockIdx.x * draws + first_draw + s) * (d + 1);
        store_block_sums(sum[s], room, to, d);
        const double all = block_sum(value[s], value_room);
        if (threadIdx.x == 0) to[d] = all;
        __syncthreads();
    }
}

/// Long rows, one a warp: w times slope and value at each theta_s.
template <class T>
FEDKERN_KERNEL loglik_slopes(Regression data, Likelihood likelihood, const double* theta, Index draws, double* slopes, double* values) {
    const AnyFamily family(likelihood);
    for (Index i = warp_of_grid(); i < data.n; i += warps_of_grid()) {
        const auto x = row<T>(data, i);
        const Response own(data, family, i);
        const double base = family.base(own.y);
        for (Index s = 0; s < draws; ++s) {
            T a = 0;
            for (Index j = lane(); j < data.d; j += 32) a += x[j] * T(theta[s * data.d + j]);
            const auto weighed = family.weigh(T(warp_sum(a) + own.offset), T(own.y));
            if (lane() == 0) {
                slopes[i * draws + s] = T(own.weight) * weighed.slope;
                values[i * draws + s] = own.weight * (double(weighed.value) + base);
            }
        }
    }
}

/// Block (share, tile, s): the sums of a share of the rows over `blockDim.x` columns, the last of which is the value.
template <class T>
FEDKERN_KERNEL loglik_columns(Regression data, const double* slopes, const double* values, Index draws, double* partial) {
    const Index d = data.d, j = Index(blockIdx.y) * blockDim.x + threadIdx.x, s = blockIdx.z;
    if (j > d) return;
    const Share share(data.n);
    double sum = 0;
    for (Index i = share.begin; i < share.end; ++i)
        sum += j < d ? slopes[i * draws + s] * double(row<T>(data, i)[j]) : values[i * draws + s];
    partial[(blockIdx.x * draws + s) * (d + 1) + j] = sum;
}

// ---- Sums over examples of v_i, each clipped to a norm: docs/spec/pvi.md, sections 3 and 4.

/// Where v_i comes from: the expectation under q, exactly or by draws of the activations: (alpha x, beta x^2 sigma^2); one draw of
/// the weights: alpha (x, x sigma e); several draws: (alpha x, z).
enum class By { expectation, weights, several };

struct Coefficients {
    double alpha, beta, squared, value; // squared: ||v||^2
};

/// By::expectation for one row, x'mu, sum x^2 sigma^2, sum x^2 and sum x^4 sigma^4 known; without draws by quadrature.
template <class Nodes> FEDKERN_DEVICE Coefficients expected(const AnyFamily& family, const Response& own, double m, double v, double n2,
                                                            double n4, const double* z, Index draws, bool with_value, const Nodes& nodes) {
    const double mean = m + own.offset, s = math::sqrt(v);
    double value = 0, slope = 0, curvature = 0;
    if (draws == 0) {
        const Expectation e = family.expect(mean, s, own.y, with_value, nodes);
        value = with_value ? e.value + family.base(own.y) : 0, slope = e.slope, curvature = e.curvature;
    } else {
        for (Index k = 0; k < draws; ++k) {
            const double now = family.slope(mean + s * z[k], own.y);
            slope += now;
            curvature += now * z[k];
        }
        slope /= double(draws);
        curvature = s == 0 ? 0 : curvature / double(draws) / s;
    }
    const double alpha = own.weight * slope, beta = own.weight * curvature;
    return {alpha, beta, row_square(alpha, n2) + row_square(beta, n4) + 0 * mean, own.weight * value};
}

/// What a row is multiplied with, in units of the grid; 0 if it is skipped: then it must not be multiplied at all.
FEDKERN_INLINE double clipped(const Clipping& clip, double squared, bool single) {
    return clip.grid > 0 ? clip_weight(squared, clip.bound) / clip.grid : clip_weight(squared, clip.bound, single);
}

/// The vectors that all rows share. expectation: mu, sigma^2, and z; otherwise: theta_s and sigma e_s (over S if there are several).
struct Shared {
    const double *first, *second, *z;
    Index draws;
};

/// partial[block]: the sums of a block's rows, 2 d numbers, their value, and how many were skipped. With an `Out` of whole numbers in
/// units of the grid; otherwise the second half lacks factors that all rows share. `clips` = 0: nothing is clipped or skipped.
template <By by, class T, int C, int R, class Out>
FEDKERN_KERNEL example_rows(Regression data, Likelihood likelihood, Clipping clip, int clips, int with_value, Shared shared, Out* partial) {
    constexpr bool grid = Out(0.5) == 0, second = grid || by != By::weights;
    FEDKERN_SHARED(Out, room, most_warps * 32 * C);
    FEDKERN_SHARED(double, small, 2 * most_warps);
    const Index d = data.d;
    const Share share(data.n);
    const AnyFamily family(likelihood);
    Out g[C] = {}, h[C] = {};
    double value = 0, skipped = 0;
    for (Index first = share.begin + warp() * R; first < share.end; first += warps() * R) {
        T x[R][C];
        load_rows<by != By::expectation>(data, first, share.end, x); // else sm_100 spills
        const Index i = first + row_of<R>(lane());
        const bool counts = i < share.end;
        const Response own(data, family, counts ? i : first);
        Coefficients k;
        double z[by == By::several ? R : 1][by == By::several ? C : 1] = {};
        if constexpr (by == By::expectation) {
            double m[R] = {}, v[R] = {}, n2[R] = {}, n4[R] = {};
#pragma unroll
            for (int c = 0; c < C; ++c) {
                const Index j = lane() + 32 * c;
                const double mu = j < d ? shared.first[j] : 0, variance = j < d ? shared.second[j] : 0;
#pragma unroll
                for (int r = 0; r < R; ++r) {
                    const double xj = x[r][c], square = xj * xj, scaled = square * variance;
                    m[r] += xj * mu, v[r] += scaled, n2[r] += square, n4[r] += scaled * scaled;
                }
            }
            const double sum_m = warp_sums(m), sum_v = warp_sums(v), sum_2 = warp_sums(n2), sum_4 = warp_sums(n4);
            k = expected(family, own, sum_m, sum_v, sum_2, sum_4, shared.z, shared.draws, with_value, LanesNodes<R>{});
        } else if constexpr (by == By::weights) {
            double a[R] = {}, q[R] = {};
#pragma unroll
            for (int c = 0; c < C; ++c) {
                const Index j = lane() + 32 * c;
                const double theta = j < d ? shared.first[j] : 0, deviation = j < d ? shared.second[j] : 0;
#pragma unroll
                for (int r = 0; r < R; ++r)
                    a[r] += double(x[r][c]) * theta, q[r] += double(x[r][c]) * double(x[r][c]) * (1 + deviation * deviation);
            }
            const double activation = warp_sums(a) + own.offset, alpha = own.weight * family.slope(activation, own.y);
            k = {alpha, alpha, row_square(alpha, warp_sums(q)) + 0 * activation, 0};
        } else {
            k = {0, 1, 0, 0};
            for (Index s = 0; s < shared.draws; ++s) {
                double a[R] = {}, deviation[C];
#pragma unroll
                for (int c = 0; c < C; ++c) {
                    const Index j = lane() + 32 * c;
                    const double theta = j < d ? shared.first[s * d + j] : 0;
                    deviation[c] = j < d ? shared.second[s * d + j] : 0;
#pragma unroll
                    for (int r = 0; r < R; ++r) a[r] += double(x[r][c]) * theta;
                }
                const double slope = own.weight * family.slope(warp_sums(a) + own.offset, own.y);
                k.alpha += slope / double(shared.draws);
#pragma unroll
                for (int r = 0; r < R; ++r) {
                    const double of_row = __shfl_sync(all_lanes, slope, r * (32 / R));
#pragma unroll
                    for (int c = 0; c < C; ++c) z[r][c] += of_row * deviation[c];
                }
            }
            double n2[R] = {}, nz[R] = {};
#pragma unroll
            for (int r = 0; r < R; ++r)
#pragma unroll
                for (int c = 0; c < C; ++c) {
                    const double xj = x[r][c];
                    z[r][c] *= xj;
                    n2[r] += xj * xj, nz[r] += z[r][c] * z[r][c];
                }
            k.squared = row_square(k.alpha, warp_sums(n2)) + warp_sums(nz);
        }
        const double w = clips ? clipped(clip, k.squared, data.single) : 1;
        if (counts && speaks<R>()) value += k.value, skipped += !(w > 0);
        const int kept = counts && w > 0;
#pragma unroll
        for (int r = 0; r < R; ++r) {
            const int from = r * (32 / R);
            const double a = __shfl_sync(all_lanes, w * k.alpha, from), b = __shfl_sync(all_lanes, w * k.beta, from);
            if (!__shfl_sync(all_lanes, kept, from)) continue;
#pragma unroll
            for (int c = 0; c < C; ++c) {
                const double xj = x[r][c];
                g[c] += Out(a * xj);
                if constexpr (by == By::several) {
                    h[c] += Out(b * z[r][c]);
                } else if constexpr (grid) {
                    const Index j = lane() + 32 * c;
                    const double factor = j < d ? shared.second[j] : 0;
                    h[c] += Out(b * ((by == By::expectation ? xj * xj : xj) * factor));
                } else if constexpr (second) {
                    h[c] += b * (xj * xj);
                }
            }
        }
    }
    Out* to = partial + blockIdx.x * (2 * d + 2);
    store_block_sums(g, room, to, d);
    store_block_sums(h, room, to + d, d);
    value = block_sum(value, small), skipped = block_sum(skipped, small + most_warps);
    if (threadIdx.x == 0) to[2 * d] = Out(value), to[2 * d + 1] = Out(skipped);
}

/// Long rows, one a warp: their coefficients after clipping, alpha NaN where a row is skipped. slopes: of the draws, for By::several.
template <By by, class T> FEDKERN_KERNEL example_coefficients(Regression data, Likelihood likelihood, Clipping clip, int clips,
                                                              int with_value, Shared shared, double* alpha, double* beta, double* value,
                                                              double* slopes) {
    const Index d = data.d;
    const AnyFamily family(likelihood);
    for (Index i = warp_of_grid(); i < data.n; i += warps_of_grid()) {
        const auto x = row<T>(data, i);
        const Response own(data, family, i);
        Coefficients k;
        if constexpr (by == By::expectation) {
            double m = 0, v = 0, n2 = 0, n4 = 0;
            for (Index j = lane(); j < d; j += 32) {
                const double xj = x[j], square = xj * xj, scaled = square * shared.second[j];
                m += xj * shared.first[j], v += scaled, n2 += square, n4 += scaled * scaled;
            }
            m = warp_sum(m), v = warp_sum(v), n2 = warp_sum(n2), n4 = warp_sum(n4);
            k = expected(family, own, m, v, n2, n4, shared.z, shared.draws, with_value, LanesNodes<1>{});
        } else if constexpr (by == By::weights) {
            double a = 0, q = 0;
            for (Index j = lane(); j < d; j += 32) {
                const double xj = x[j];
                a += xj * shared.first[j], q += xj * xj * (1 + shared.second[j] * shared.second[j]);
            }
            const double activation = warp_sum(a) + own.offset, of_row = own.weight * family.slope(activation, own.y);
            k = {of_row, of_row, row_square(of_row, warp_sum(q)) + 0 * activation, 0};
        } else {
            k = {0, 1, 0, 0};
            for (Index s = 0; s < shared.draws; ++s) {
                double a = 0;
                for (Index j = lane(); j < d; j += 32) a += double(x[j]) * shared.first[s * d + j];
                const double slope = own.weight * family.slope(warp_sum(a) + own.offset, own.y);
                k.alpha += slope / double(shared.draws);
                if (lane() == 0) slopes[i * shared.draws + s] = slope;
            }
            __syncwarp();
            double n2 = 0, nz = 0;
            for (Index j = lane(); j < d; j += 32) {
                double z = 0;
                for (Index s = 0; s < shared.draws; ++s) z += slopes[i * shared.draws + s] * shared.second[s * d + j];
                const double xj = x[j];
                z *= xj;
                n2 += xj * xj, nz += z * z;
            }
            k.squared = row_square(k.alpha, warp_sum(n2)) + warp_sum(nz);
        }
        const double w = clips ? clipped(clip, k.squared, data.single) : 1;
        if (lane() == 0) {
            alpha[i] = w > 0 ? w * k.alpha : math::not_a_number<double>();
            beta[i] = w * k.beta;
            value[i] = k.value;
        }
    }
}

/// Block (share, tile): the sums of a share of the rows over `blockDim.x` columns, the last of which counts and adds values.
template <By by, class T, class Out> FEDKERN_KERNEL example_columns(Regression data, int clips, Shared shared, const double* alpha,
                                                                    const double* beta, const double* value, const double* slopes,
                                                                    Out* partial) {
    constexpr bool grid = Out(0.5) == 0;
    const Index d = data.d, j = Index(blockIdx.y) * blockDim.x + threadIdx.x;
    if (j > d) return;
    const Share share(data.n);
    Out* to = partial + blockIdx.x * (2 * d + 2);
    Out g = 0, h = 0;
    for (Index i = share.begin; i < share.end; ++i) {
        const bool skipped = clips && !(alpha[i] == alpha[i]);
        if (j == d) {
            g += Out(value[i]), h += Out(skipped);
        } else if (!skipped) {
            const double xj = row<T>(data, i)[j];
            g += Out(alpha[i] * xj);
            if constexpr (by == By::several) {
                double z = 0;
                for (Index s = 0; s < shared.draws; ++s) z += slopes[i * shared.draws + s] * shared.second[s * d + j];
                h += Out(beta[i] * (z * xj));
            } else {
                const double factor = grid ? shared.second[j] : 1;
                h += Out(beta[i] * ((by == By::expectation ? xj * xj : xj) * factor));
            }
        }
    }
    to[j < d ? j : 2 * d] = g, to[j < d ? d + j : 2 * d + 1] = h;
}

/// total from the sums of all blocks: the factors that were left to the end, and keyed noise (rng's element j of draw 2^32 - 1).
template <By by, class Out> FEDKERN_KERNEL finish_examples(const Out* sums, Index d, const double* second, double sd, U64 key,
                                                           Counter counter, Vector<Out> total, Index* skipped) {
    constexpr bool grid = Out(0.5) == 0;
    for (Index j = thread_of_grid(); j < 2 * d; j += threads_of_grid()) {
        Out x = sums[j];
        if constexpr (!grid) {
            if (by == By::expectation && j >= d) x *= second[j - d];
            if (by == By::weights && j >= d) x = sums[j - d] * second[j - d];
            if (sd > 0) {
                const auto z = normal_pair(philox_bits({U32(j / 2), ~0u, counter.client, counter.step}, key));
                x += sd * (j % 2 ? z.second : z.first);
            }
        }
        total[j] = x;
    }
    if (thread_of_grid() == 0) *skipped = Index(sums[2 * d + 1]);
}

// ---- The evidence lower bound of a mean-field posterior, from sums over rows; one block.

/// exp(shift'theta - theta' diag(precision) theta / 2).
struct MeanFieldCavity {
    Vector<const double> shift, precision;
};

/// The sum over a block of what each of d columns adds, and of the cavity's normalising constant if it has one.
template <class Column> FEDKERN_INLINE double bound(const MeanFieldCavity& prior, Index d, const Column& column) {
    FEDKERN_SHARED(double, room, 3 * most_warps);
    double sum = 0, normaliser = 0, improper = 0;
    for (Index j = threadIdx.x; j < d; j += blockDim.x) {
        const double h = prior.shift[j], P = prior.precision[j];
        sum += column(j, h, P);
        if (P > 0) normaliser += 0.5 * (math::log(P) - h * h / P) - half_log_2pi;
        else improper += 1;
    }
    sum = block_sum(sum, room), normaliser = block_sum(normaliser, room + most_warps),
    improper = block_sum(improper, room + 2 * most_warps);
    return sum + (improper > 0 ? 0 : normaliser);
}

/// sums[s]: the gradient at theta_s and the value. The path gradient ("stl") holds (mu, sigma) in log q fixed.
FEDKERN_KERNEL finish_sampled(const double* sums, const double* theta, const double* e, Index draws, Vector<const double> log_sigma,
                              MeanFieldCavity prior, int stl, Vector<double> grad_mu, Vector<double> grad_omega, double* elbo) {
    const Index d = log_sigma.size;
    double all = bound(prior, d, [&](Index j, double h, double P) {
        const double omega = log_sigma[j], sigma = math::exp(omega);
        double sum = 0, sum_mu = 0, sum_omega = 0;
        for (Index s = 0; s < draws; ++s) {
            const double t = theta[s * d + j], es = e[s * d + j];
            const double u = sums[s * (d + 1) + j] + h - P * t + (stl ? es / sigma : 0);
            sum_mu += u;
            sum_omega += u * es * sigma;
            sum += h * t - 0.5 * P * t * t + 0.5 * es * es + omega + half_log_2pi;
        }
        grad_mu[j] = sum_mu / double(draws);
        grad_omega[j] = sum_omega / double(draws) + (stl ? 0 : 1);
        return sum / double(draws);
    });
    if (threadIdx.x != 0) return;
    double value = 0;
    for (Index s = 0; s < draws; ++s) value += sums[s * (d + 1) + d];
    *elbo = all + value / double(draws);
}

/// sums: of the expectations' gradients, without the factor sigma^2 of the second half, and the value.
FEDKERN_KERNEL finish_analytic(const double* sums, const double* variance, Vector<const double> mu, Vector<const double> log_sigma,
                               MeanFieldCavity prior, Vector<double> grad_mu, Vector<double> grad_omega, double* elbo) {
    const Index d = mu.size;
    const double all = bound(prior, d, [&](Index j, double h, double P) {
        const double m = mu[j], v = variance[j];
        grad_mu[j] = sums[j] + h - P * m;
        grad_omega[j] = sums[d + j] * v + 1 - P * v;
        return h * m - 0.5 * P * (v + m * m) + log_sigma[j] + half_log_2pi + 0.5;
    });
    if (threadIdx.x == 0) *elbo = all + sums[2 * d];
}

// ---- Expectations and predictions of every row. X is read once, R rows a warp.

enum class Wanted { expectations, mean };

struct RowOutputs {
    Vector<double> value, slope, curvature; // only the first for Wanted::mean
};

/// What is wanted of row i with x'theta + offset ~ N(m, s^2); `stores`: of the threads that share it, the one that writes.
template <Wanted wanted, class Nodes> FEDKERN_DEVICE void store_row(const AnyFamily& family, const Response& own, double m, double s,
                                                                    int probit, Index i, bool stores, const RowOutputs& out,
                                                                    const Nodes& nodes) {
    if constexpr (wanted == Wanted::mean) {
        const double mean = family.mean(m, s, probit, nodes);
        if (stores) out.value[i] = mean;
    } else {
        const Expectation e = family.expect(m, s, own.y, true, nodes);
        if (!stores) return;
        out.value[i] = own.weight * (e.value + family.base(own.y));
        out.slope[i] = own.weight * e.slope;
        out.curvature[i] = own.weight * e.curvature;
    }
}

template <Wanted wanted, class T> FEDKERN_KERNEL row_expectations(Regression data, Likelihood likelihood, const double* mean,
                                                                  const double* variance, int probit, RowOutputs out) {
    constexpr int R = 8;
    const AnyFamily family(likelihood);
    for (Index first = warp_of_grid() * R; first < data.n; first += warps_of_grid() * R) {
        double m[R] = {}, v[R] = {};
        for (Index j = lane(); j < data.d; j += 32) {
            const double mu = mean[j], var = variance[j];
#pragma unroll
            for (int r = 0; r < R; ++r) {
                const double xj = first + r < data.n ? row<T>(data, first + r)[j] : T(0);
                m[r] += xj * mu, v[r] += xj * xj * var;
            }
        }
        const double sum_m = warp_sums(m), sum_v = warp_sums(v);
        const Index i = first + row_of<R>(lane());
        const bool stores = i < data.n && speaks<R>();
        const Response own(data, family, i < data.n ? i : first);
        store_row<wanted>(family, own, sum_m + own.offset, math::sqrt(sum_v), probit, i, stores, out, LanesNodes<R>{});
    }
}

// ---- Full rank: rows in chunks, rotated by a matrix product of the library; u = L'x.

/// x: rows [begin, begin + count) in use, without strides.
template <class T> FEDKERN_KERNEL gather_rows(Regression data, Index begin, Index count, double* x) {
    for (Index k = thread_of_grid(); k < count * data.d; k += threads_of_grid()) x[k] = row<T>(data, begin + k / data.d)[k % data.d];
}

/// Of a chunk's rows, one a warp: x'mu, ||u||^2, sum x^2 and sum_j x_j^2 sum_{l <= j} u_l^2.
struct Chunk {
    double *m, *v, *n2, *n4;
};
FEDKERN_KERNEL rotated_sums(const double* x, const double* u, Vector<const double> mu, Index count, Chunk sums) {
    const Index d = mu.size;
    for (Index i = warp_of_grid(); i < count; i += warps_of_grid()) {
        double m = 0, n2 = 0, n4 = 0, before = 0; // before: sum of u^2 over the columns before these 32
        for (Index start = 0; start < d; start += 32) {
            const Index j = start + lane();
            const double xj = j < d ? x[i * d + j] : 0, uj = j < d ? u[i * d + j] : 0;
            double below = uj * uj;
#pragma unroll
            for (int step = 1; step < 32; step *= 2) {
                const double other = __shfl_sync(all_lanes, below, lane() >= step ? lane() - step : lane());
                if (lane() >= step) below += other;
            }
            m += j < d ? xj * mu[j] : 0;
            n2 += xj * xj;
            n4 += xj * xj * (before + below);
            before += __shfl_sync(all_lanes, below, 31);
        }
        m = warp_sum(m), n2 = warp_sum(n2), n4 = warp_sum(n4);
        if (lane() == 0) sums.m[i] = m, sums.v[i] = before, sums.n2[i] = n2, sums.n4[i] = n4;
    }
}

template <Wanted wanted> FEDKERN_KERNEL chunk_expectations(Regression data, Likelihood likelihood, Index begin, Index count, Chunk sums,
                                                           int probit, RowOutputs out) {
    const AnyFamily family(likelihood);
    for (Index i = thread_of_grid(); i < count; i += threads_of_grid()) {
        const Response own(data, family, begin + i);
        store_row<wanted>(family, own, sums.m[i] + own.offset, math::sqrt(sums.v[i]), probit, begin + i, true, out, AllNodes{});
    }
}

/// Coefficients after clipping, alpha NaN where a row is skipped.
FEDKERN_KERNEL chunk_coefficients(Regression data, Likelihood likelihood, Clipping clip, int clips, int with_value, Index begin,
                                  Index count, Chunk sums, double* alpha, double* beta, double* value) {
    const AnyFamily family(likelihood);
    for (Index i = thread_of_grid(); i < count; i += threads_of_grid()) {
        const Response own(data, family, begin + i);
        const Coefficients k = expected(family, own, sums.m[i], sums.v[i], sums.n2[i], sums.n4[i], nullptr, 0, with_value, AllNodes{});
        const double w = clips ? clipped(clip, k.squared, data.single) : 1;
        alpha[i] = w > 0 ? w * k.alpha : math::not_a_number<double>();
        beta[i] = w * k.beta, value[i] = k.value;
    }
}

/// Makes of x and u what the library's products sum: zeros in rows that are skipped, and v = beta x.
FEDKERN_KERNEL scale_chunk(Index d, Index count, int clips, double* alpha, const double* beta, double* x, double* u, double* v,
                           double* skipped) {
    for (Index i = warp_of_grid(); i < count; i += warps_of_grid()) {
        const bool skips = clips && !(alpha[i] == alpha[i]);
        for (Index j = lane(); j < d; j += 32) {
            const Index k = i * d + j;
            v[k] = skips ? 0 : beta[i] * x[k];
            if (skips) x[k] = u[k] = 0;
        }
        __syncwarp();
        if (lane() == 0) {
            skipped[i] = skips;
            if (skips) alpha[i] = 0;
        }
    }
}

/// On the grid: block (share, tile) sums a share of the rows over `blockDim.x` of the d + d (d + 1) / 2 numbers, the mu block and the
/// lower triangle row by row; one more counts what is skipped.
FEDKERN_KERNEL chunk_grid_sums(Index d, Index count, const double* alpha, const double* beta, const double* x, const double* u,
                               Index* partial) {
    const Index size = d + d * (d + 1) / 2, k = Index(blockIdx.y) * blockDim.x + threadIdx.x;
    if (k > size) return;
    Index row = 0, col = k - d; // of the triangle
    if (col >= 0) {
        row = Index((math::sqrt(8.0 * double(col) + 1) - 1) / 2);
        while (row * (row + 1) / 2 > col) --row;
        while ((row + 1) * (row + 2) / 2 <= col) ++row;
        col -= row * (row + 1) / 2;
    }
    const Share share(count);
    Index sum = 0;
    for (Index i = share.begin; i < share.end; ++i) {
        const bool skipped = !(alpha[i] == alpha[i]);
        if (k == size) sum += skipped;
        else if (!skipped) sum += k < d ? Index(alpha[i] * x[i * d + k]) : Index(beta[i] * x[i * d + row] * u[i * d + col]);
    }
    partial[blockIdx.x * (size + 1) + k] = sum;
}

/// L'^-1 e_s from the last row up; one block a draw.
FEDKERN_KERNEL solve_transposed(const double* L, const double* e, Index d, double* solved) {
    double* x = solved + blockIdx.x * d;
    for (Index j = threadIdx.x; j < d; j += blockDim.x) x[j] = e[blockIdx.x * d + j];
    for (Index i = d; i-- > 0;) {
        __syncthreads();
        const double xi = x[i] / L[i * d + i];
        for (Index j = threadIdx.x; j < i; j += blockDim.x) x[j] -= xi * L[i * d + j];
        __syncthreads();
        if (threadIdx.x == 0) x[i] = xi;
    }
}

#define FEDKERN_EXAMPLES(by, T, C, R)                                                                                                      \
    FEDKERN_INSTANCE(example_rows<by, T, C, R, double>)                                                                                    \
    FEDKERN_INSTANCE(example_rows<by, T, C, R, Index>)
#define FEDKERN_LONG_EXAMPLES(by, T)                                                                                                       \
    FEDKERN_INSTANCE(example_coefficients<by, T>)                                                                                          \
    FEDKERN_INSTANCE(example_columns<by, T, double>)                                                                                       \
    FEDKERN_INSTANCE(example_columns<by, T, Index>)
#define FEDKERN_TYPE(T)                                                                                                                    \
    FEDKERN_INSTANCE(loglik_rows<T, 1, 8, 1>)                                                                                              \
    FEDKERN_INSTANCE(loglik_rows<T, 1, 8, 4>)                                                                                              \
    FEDKERN_INSTANCE(loglik_rows<T, 4, 4, 1>)                                                                                              \
    FEDKERN_INSTANCE(loglik_rows<T, 4, 2, 2>)                                                                                              \
    FEDKERN_INSTANCE(loglik_rows<T, 8, 2, 1>)                                                                                              \
    FEDKERN_INSTANCE(loglik_slopes<T>)                                                                                                     \
    FEDKERN_INSTANCE(loglik_columns<T>)                                                                                                    \
    FEDKERN_EXAMPLES(By::expectation, T, 1, 4)                                                                                             \
    FEDKERN_EXAMPLES(By::expectation, T, 4, 2)                                                                                             \
    FEDKERN_LONG_EXAMPLES(By::expectation, T)                                                                                              \
    FEDKERN_EXAMPLES(By::weights, T, 1, 8)                                                                                                 \
    FEDKERN_EXAMPLES(By::weights, T, 4, 4)                                                                                                 \
    FEDKERN_EXAMPLES(By::weights, T, 8, 1)                                                                                                 \
    FEDKERN_LONG_EXAMPLES(By::weights, T)                                                                                                  \
    FEDKERN_EXAMPLES(By::several, T, 1, 4)                                                                                                 \
    FEDKERN_EXAMPLES(By::several, T, 4, 2)                                                                                                 \
    FEDKERN_LONG_EXAMPLES(By::several, T)                                                                                                  \
    FEDKERN_INSTANCE(row_expectations<Wanted::expectations, T>)                                                                            \
    FEDKERN_INSTANCE(row_expectations<Wanted::mean, T>)                                                                                    \
    FEDKERN_INSTANCE(gather_rows<T>)
FEDKERN_TYPE(double)
FEDKERN_TYPE(float)
FEDKERN_INSTANCE(draw_weights)
FEDKERN_INSTANCE(unfold)
FEDKERN_INSTANCE(finish_examples<By::expectation, double>)
FEDKERN_INSTANCE(finish_examples<By::weights, double>)
FEDKERN_INSTANCE(finish_examples<By::several, double>)
FEDKERN_INSTANCE(finish_examples<By::expectation, Index>)
FEDKERN_INSTANCE(finish_sampled)
FEDKERN_INSTANCE(finish_analytic)
FEDKERN_INSTANCE(rotated_sums)
FEDKERN_INSTANCE(chunk_expectations<Wanted::expectations>)
FEDKERN_INSTANCE(chunk_expectations<Wanted::mean>)
FEDKERN_INSTANCE(chunk_coefficients)
FEDKERN_INSTANCE(scale_chunk)
FEDKERN_INSTANCE(chunk_grid_sums)
FEDKERN_INSTANCE(solve_transposed)
FEDKERN_INSTANCE(sum_partials<double>)
FEDKERN_INSTANCE(sum_partials<Index>)

} // namespace cuda
} // namespace fedkern
