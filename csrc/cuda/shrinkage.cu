// Gibbs sweeps of many regressions at once: a block is one regression of one chain, from its scales to sigma^2, all sweeps of the
// call. Its system stays in shared memory while that is large enough, else in global memory. docs/spec/sparse.md, sections 2, 3, 8.
#include "dense.hpp"
#include "fedkern/rng.hpp"
#include "fedkern/shrinkage/scalar.hpp"
#include "fedkern/shrinkage/scales.hpp"

namespace fedkern {
namespace cuda {

inline constexpr Index needs_workspace = -2; // in `fault`: the regression must be done again, with room for an orthogonal factor

/// What all regressions of a call share. R (r, p), what is below its diagonal is not read; gram = R'R, both triangles.
struct Design {
    Matrix<const double> R, gram;
};

// ---- Dense systems of one block: dense.hpp.

/// x = L'^-1 x for all but the last row.
FEDKERN_INLINE void solve_upper(const Packed& A, int m, const double* inverse, double* x) {
    for (int j = m - 1; j >= 0; --j) {
        __syncthreads();
        const double u = x[j] * inverse[j];
        for (int i = int(threadIdx.x); i < j; i += int(blockDim.x)) x[i] -= A(j, i) * u;
        __syncthreads();
        if (threadIdx.x == 0) x[j] = u;
    }
    __syncthreads();
}

/// out_i = in(i) - (R x)_i, a row a warp.
template <class In> FEDKERN_INLINE void take_product(const Matrix<const double>& R, const In& in, const double* x, double* out) {
    for (Index i = warp(); i < R.rows; i += warps()) {
        double sum = 0;
        for (Index j = i + lane(); j < R.cols; j += 32) sum += R.row(i)[j] * x[j];
        sum = warp_sum(sum);
        if (lane() == 0) out[i] = in(i) - sum;
    }
    __syncthreads();
}

/// (R'e)_j.
FEDKERN_INLINE double correlation(const Matrix<const double>& R, const double* e, Index j) {
    double sum = 0;
    for (Index i = 0; i < R.rows && i <= j; ++i) sum += R.row(i)[j] * e[i];
    return sum;
}

/// The QR factorisation of [R S; I] beside [e / sigma; 0] by reflections; u = L'^-1 (L^-1 rhs + z). X (r + p, p + 1) by columns.
FEDKERN_INLINE void by_orthogonal_factor(const Matrix<const double>& R, const double* s, const double* e, double per_sigma, const double* z,
                                         double* X, double* room, double* u) {
    const Index r = R.rows, p = R.cols, rows = r + p;
    const int thread = int(threadIdx.x), threads = int(blockDim.x);
    for (Index k = thread; k < rows * (p + 1); k += threads) {
        const Index i = k % rows, j = k / rows;
        X[k] = i >= r ? double(j == i - r) : j == p ? e[i] * per_sigma : j >= i ? R.row(i)[j] * s[j] : 0;
    }
    __syncthreads();
    for (Index j = 0; j < p; ++j) {
        double* const v = X + j * rows;
        double squares = 0;
        for (Index i = j + thread; i < rows; i += threads) squares += v[i] * v[i];
        squares = block_sum(squares, room);
        const double head = v[j], norm = math::sqrt(squares), alpha = head > 0 ? -norm : norm, beta = 1 / (squares - alpha * head);
        __syncthreads();
        if (thread == 0) v[j] = head - alpha;
        __syncthreads();
        for (Index k = j + 1 + warp(); k <= p; k += warps()) {
            double* const x = X + k * rows;
            double dot = 0;
            for (Index i = j + lane(); i < rows; i += 32) dot += v[i] * x[i];
            dot = warp_sum(dot) * beta;
            for (Index i = j + lane(); i < rows; i += 32) x[i] -= dot * v[i];
        }
        __syncthreads();
        if (thread == 0) v[j] = alpha;
        __syncthreads();
    }
    const double* y = X + p * rows;
    for (Index j = p - 1; j >= 0; --j) { // z belongs to a triangle with a positive diagonal
        double sum = 0;
        for (Index k = j + 1 + thread; k < p; k += threads) sum += X[k * rows + j] * u[k];
        sum = block_sum(sum, room);
        __syncthreads();
        if (thread == 0) u[j] = (y[j] + (X[j * rows + j] < 0 ? -z[j] : z[j]) - sum) / X[j * rows + j];
        __syncthreads();
    }
}

// ---- One regression of one chain.

FEDKERN_INLINE double normal_of(Index element, Counter at, U64 key) {
    at.item += U32(element / 2);
    const auto z = normal_pair(philox_bits(at, key));
    return element % 2 ? z.second : z.first;
}

/// A block's memory: eight vectors of p numbers and a packed system of p + 1 rows.
struct Room {
    double *e, *c, *d, *t, *s, *z, *u, *inverse, *system;
    FEDKERN_INLINE Room(double* memory, Index p)
        : e(memory), c(e + p), d(c + p), t(d + p), s(t + p), z(s + p), u(z + p), inverse(u + p), system(inverse + p) {}
};
FEDKERN_INLINE Index room_size(Index p) { return 8 * p + packed_size(p + 1); }

enum class Way { gram, factorised_again, data, failed, needs_workspace };

/// room.d given t, sigma and e = q - R theta: CoefficientDraw of gaussian.hpp. room.c = R'e; `own`: none, or (r + p)(p + 1) numbers.
FEDKERN_INLINE Way draw_coefficients(const Design& x, const Room& room, double per_sigma, DrawForm form, Counter at, U64 key, double* sums,
                                     int* flags, double* own) {
    const int p = int(x.R.cols), r = int(x.R.rows), thread = int(threadIdx.x), threads = int(blockDim.x);
    const double *const e = room.e, *const s = room.s, *const z = room.z;
    double *const u = room.u, *const inverse = room.inverse;
    double widest = 0;
    at.draw = 0;
    for (int j = thread; j < p; j += threads) {
        room.z[j] = normal_of(j, at, key);
        room.s[j] = room.t[j] * per_sigma;
        widest = room.s[j] > widest ? room.s[j] : widest;
    }
#pragma unroll
    for (int bit = 16; bit > 0; bit /= 2) {
        const double other = __shfl_xor_sync(all_lanes, widest, bit);
        widest = other > widest ? other : widest;
    }
    __syncthreads();
    if (lane() == 0) sums[warp()] = widest;
    if (thread == 0) flags[0] = 0;
    __syncthreads();
    for (int w = 0; w < warps(); ++w) widest = sums[w] > widest ? sums[w] : widest;

    Way way = Way::failed;
    if (by_rows(form, r, p) && widest < most_data_scale) { // (I + W W') w = e / sigma - v, v = W z + N(0, I), W = R S; u = z + W'w
        at.draw = 1;
        const Packed M{room.system, r + 1};
        for (int k = warp(); k < r * (r + 1) / 2 + r; k += warps()) { // a number of M, or of the right-hand side, a warp
            int i = 0, j = 0;
            const bool right = k >= r * (r + 1) / 2;
            if (right) {
                j = k - r * (r + 1) / 2;
            } else {
                int left = k;
                while (left >= r - j) left -= r - j, ++j;
                i = j + left;
            }
            double sum = 0;
            if (right)
                for (int l = j + lane(); l < p; l += 32) sum += x.R.row(j)[l] * s[l] * z[l];
            else
                for (int l = i + lane(); l < p; l += 32) sum += (x.R.row(i)[l] * s[l]) * (x.R.row(j)[l] * s[l]);
            sum = warp_sum(sum);
            if (lane() == 0) {
                if (right) M(r, j) = e[j] * per_sigma - (sum + normal_of(j, at, key));
                else M(i, j) = sum + double(i == j);
            }
        }
        if (factorise(M, r, inverse, &flags[1])) {
            for (int j = thread; j < r; j += threads) u[j] = M(r, j);
            solve_upper(M, r, inverse, u);
            for (int j = thread; j < p; j += threads) inverse[j] = z[j] + s[j] * correlation(x.R, u, j);
            __syncthreads();
            for (int j = thread; j < p; j += threads) u[j] = inverse[j];
            way = Way::data;
        }
        __syncthreads();
    }
    if (way == Way::failed) {
        const Packed A{room.system, p + 1};
        for (int j = warp(); j < p; j += warps())
            for (int i = j + lane(); i <= p; i += 32)
                A(i, j) = i == p ? s[j] * room.c[j] * per_sigma : s[i] * x.gram.row(j)[i] * s[j] + double(i == j);
        if (factorise(A, p, inverse, &flags[1])) {
            for (int j = thread; j < p; j += threads) u[j] = A(p, j) + z[j];
            solve_upper(A, p, inverse, u);
            way = Way::gram;
        }
        __syncthreads();
    }
    if (way == Way::failed) {
        if (!own) return Way::needs_workspace;
        by_orthogonal_factor(x.R, s, e, per_sigma, z, own, sums, u);
        way = Way::factorised_again;
    }
    __syncthreads();
    for (int j = thread; j < p; j += threads) {
        room.d[j] = room.t[j] * u[j];
        if (!(math::magnitude(room.d[j]) < math::infinity<double>())) atomicAdd(&flags[0], 1);
    }
    __syncthreads();
    return flags[0] ? Way::failed : way;
}

/// A call of sweeps. `inert`: whether regression g is that of column g on the others; then there is no q and no rss.
struct Sweeps {
    Design design;
    Rows<const double> theta, tau_sq;
    LocalState<const double> from;
    LocalState<double> to;
    Rows<Index> events;
    Matrix<const double> q;
    Vector<const double> rss;
    LocalModel model;
    SweepCounter counter;
    int inert;
};

/// What a block shares beside its Room.
struct Scratch {
    double sums[most_warps], drawn;
    int flags[4]; // coefficients that are not finite; a pivot that failed; scales that were clipped, and that are NaN
};

FEDKERN_INLINE void sweep_task(const Sweeps& x, Index task, const Room& room, Scratch& scratch, double* own) {
    const Matrix<const double>& R = x.design.R;
    const int p = int(R.cols), r = int(R.rows), thread = int(threadIdx.x), threads = int(blockDim.x);
    const Index regression = task % x.theta.regressions;
    const int inert = x.inert ? int(regression) : -1;
    const U64 chain = x.counter.chain + U64(task / x.theta.regressions);
    const U64 scale_key = stream_key(x.counter.seed, Stream::scales, chain),
              normal_key = stream_key(x.counter.seed, Stream::coefficients, chain);
    const U64 variance_key = stream_key(x.counter.seed, Stream::variances, chain);
    const auto theta = x.theta.row(task), tau_sq = x.tau_sq.row(task);
    const auto lambda_sq = x.to.lambda_sq.row(task);
    for (int j = thread; j < p; j += threads) {
        room.d[j] = j == inert ? 0 : x.from.deviation.row(task)[j];
        lambda_sq[j] = x.from.lambda_sq.row(task)[j];
        room.u[j] = j == inert ? -1 : theta[j];
    }
    double sigma_sq = x.from.sigma_sq.row(task)[0];
    const double rss = x.inert ? 0 : x.rss[task];
    Index clipped_scales = 0, again = 0, in_data_space = 0, stopped = -1;
    __syncthreads();
    take_product(R, [&](Index i) { return x.inert ? 0 : x.q.row(task)[i]; }, room.u, room.e);
    for (int j = thread; j < p; j += threads) room.c[j] = correlation(R, room.e, j);

    for (Index sweep = 0; sweep < x.counter.n_sweeps && stopped == -1; ++sweep) {
        const Counter at{U32(regression) * U32(p), 0, x.counter.client, U32(x.counter.step + sweep)};
        if (thread == 0) scratch.flags[2] = scratch.flags[3] = 0;
        __syncthreads();
        for (int j = thread; j < p; j += threads) {
            double next = 1;
            if (j != inert) {
                Counter item = at;
                item.item += U32(j);
                const double value = local_variance(0.5 * room.d[j] * room.d[j] / tau_sq[j], lambda_sq[j], x.model.lambda, item, scale_key);
                next = clipped(value);
                if (next < value || next > value) atomicAdd(&scratch.flags[2], 1);
                if (!(next > 0)) atomicAdd(&scratch.flags[3], 1);
            }
            lambda_sq[j] = next;
            room.t[j] = j == inert ? 0 : prior_deviation(math::sqrt(next * tau_sq[j]), x.model.slab);
        }
        __syncthreads();
        clipped_scales += scratch.flags[2];
        if (scratch.flags[3]) {
            stopped = 8 * sweep + of_lambda;
            break;
        }
        const double per_sigma = 1 / math::sqrt(sigma_sq);
        const Way way = draw_coefficients(x.design, room, per_sigma, x.model.form, at, normal_key, scratch.sums, scratch.flags, own);
        if (way == Way::failed || way == Way::needs_workspace) {
            stopped = way == Way::failed ? 8 * sweep + of_coefficients : needs_workspace;
            break;
        }
        again += way == Way::factorised_again, in_data_space += way == Way::data;
        take_product(R, [&](Index i) { return room.e[i]; }, room.d, room.u);
        double squares = 0;
        for (int i = thread; i < r; i += threads) squares += room.u[i] * room.u[i];
        squares = block_sum(squares, scratch.sums);
        if (thread == 0) scratch.drawn = gamma(x.model.shape + 0.5 * x.model.n, {U32(regression), 0, at.client, at.step}, variance_key);
        __syncthreads();
        sigma_sq = (x.model.rate + 0.5 * (rss + squares)) / scratch.drawn;
        if (!positive(sigma_sq)) stopped = 8 * sweep + of_sigma;
        __syncthreads();
    }
    for (int j = thread; j < p; j += threads) x.to.deviation.row(task)[j] = room.d[j];
    if (thread == 0) {
        const auto events = x.events.row(task);
        x.to.sigma_sq.row(task)[0] = sigma_sq;
        events[scales_clipped] = clipped_scales, events[orthogonal_factors] = again, events[data_draws] = in_data_space;
        events[fault] = stopped;
    }
    __syncthreads();
}

/// Tasks `first` + blockIdx.x. workspace: room_size(p) numbers a block, or none: then the block's memory is shared.
FEDKERN_LARGE_KERNEL sweeps(Sweeps x, Index first, double* workspace) {
    FEDKERN_DYNAMIC_SHARED(double, memory);
    FEDKERN_SHARED(Scratch, scratch, 1);
    const Index p = x.design.R.cols;
    sweep_task(x, first + blockIdx.x, {workspace ? workspace + blockIdx.x * room_size(p) : memory, p}, *scratch, nullptr);
}

/// The tasks that are marked, again. workspace: room_size(p) + (r + p)(p + 1) numbers a block.
FEDKERN_LARGE_KERNEL sweeps_again(Sweeps x, double* workspace) {
    FEDKERN_SHARED(Scratch, scratch, 1);
    const Index r = x.design.R.rows, p = x.design.R.cols, tasks = x.theta.chains * x.theta.regressions;
    double* const own = workspace + blockIdx.x * (room_size(p) + (r + p) * (p + 1));
    for (Index task = blockIdx.x; task < tasks; task += gridDim.x) {
        const bool marked = x.events.row(task)[fault] == needs_workspace;
        __syncthreads();
        if (marked) sweep_task(x, task, {own, p}, *scratch, own + room_size(p));
    }
}

// ---- One draw of coefficients a chain.

struct Posterior {
    Design design;
    Matrix<const double> q, mean, scale;
    Vector<const double> sigma_sq;
    double slab;
    DrawForm form;
    SweepCounter counter;
    Matrix<double> deviation;
    Vector<Index> marks;
};

FEDKERN_INLINE void draw_task(const Posterior& x, Index i, const Room& room, Scratch& scratch, double* own) {
    const Matrix<const double>& R = x.design.R;
    const int p = int(R.cols), thread = int(threadIdx.x), threads = int(blockDim.x);
    for (int j = thread; j < p; j += threads) {
        room.u[j] = x.mean.row(i)[j];
        room.t[j] = prior_deviation(x.scale.row(i)[j], x.slab);
    }
    __syncthreads();
    take_product(R, [&](Index k) { return x.q.row(i)[k]; }, room.u, room.e);
    for (int j = thread; j < p; j += threads) room.c[j] = correlation(R, room.e, j);
    __syncthreads();
    const U64 key = stream_key(x.counter.seed, Stream::coefficients, x.counter.chain + U64(i));
    const Counter at{0, 0, x.counter.client, x.counter.step};
    const Way way = draw_coefficients(x.design, room, 1 / math::sqrt(x.sigma_sq[i]), x.form, at, key, scratch.sums, scratch.flags, own);
    const bool drawn = way != Way::failed && way != Way::needs_workspace;
    for (int j = thread; j < p; j += threads) x.deviation.row(i)[j] = drawn ? room.d[j] : math::not_a_number<double>();
    if (thread == 0) x.marks[i] = way == Way::needs_workspace;
    __syncthreads();
}

/// As `sweeps` and `sweeps_again`.
FEDKERN_LARGE_KERNEL posterior_draws(Posterior x, Index first, double* workspace) {
    FEDKERN_DYNAMIC_SHARED(double, memory);
    FEDKERN_SHARED(Scratch, scratch, 1);
    const Index p = x.design.R.cols;
    draw_task(x, first + blockIdx.x, {workspace ? workspace + blockIdx.x * room_size(p) : memory, p}, *scratch, nullptr);
}

FEDKERN_LARGE_KERNEL posterior_draws_again(Posterior x, double* workspace) {
    FEDKERN_SHARED(Scratch, scratch, 1);
    const Index r = x.design.R.rows, p = x.design.R.cols;
    double* const own = workspace + blockIdx.x * (room_size(p) + (r + p) * (p + 1));
    for (Index i = blockIdx.x; i < x.mean.rows; i += gridDim.x) {
        const bool marked = x.marks[i];
        __syncthreads();
        if (marked) draw_task(x, i, {own, p}, *scratch, own + room_size(p));
    }
}

// ---- Of all elements.

/// R'R where it was not given.
FEDKERN_KERNEL gram_of(Matrix<const double> R, double* gram) {
    const Index p = R.cols;
    for (Index k = thread_of_grid(); k < p * p; k += threads_of_grid()) {
        const Index i = k / p, j = k % p;
        double sum = 0;
        for (Index l = 0; l < R.rows && l <= i && l <= j; ++l) sum += R.row(l)[i] * R.row(l)[j];
        gram[k] = sum;
    }
}

struct Sums {
    Rows<double> of[4];
};

/// A client's terms of S0, S1, S2 and, with a slab, S3: products only, so that nothing is fused with a sum.
FEDKERN_KERNEL local_terms(Rows<const double> deviation, Rows<const double> lambda_sq, int n_sums, Sums sums) {
    const Index p = deviation.cols, tasks = deviation.chains * deviation.regressions;
    for (Index k = thread_of_grid(); k < tasks * p; k += threads_of_grid()) {
        const Index task = k / p, j = k % p;
        const double d = deviation.row(task)[j], precision = 1 / lambda_sq.row(task)[j], first = d * precision;
        const double terms[4] = {precision, first, d * first, d};
#pragma unroll
        for (int s = 0; s < 4; ++s)
            if (s < n_sums) sums.of[s].row(task)[j] = terms[s];
    }
}

FEDKERN_INSTANCE(sweeps)
FEDKERN_INSTANCE(sweeps_again)
FEDKERN_INSTANCE(posterior_draws)
FEDKERN_INSTANCE(posterior_draws_again)
FEDKERN_INSTANCE(gram_of)
FEDKERN_INSTANCE(local_terms)

} // namespace cuda
} // namespace fedkern
