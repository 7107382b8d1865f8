// Networks: what stands between the matrix products, which are cuBLAS's (device.py, `multiply`). Numbers of a batch stand row after
// row, a unit a column.
#include "table.hpp"
#include "fedkern/mlp/scalar.hpp"

namespace fedkern {
namespace cuda {

/// out = f(products + bias); `products` (rows, units) one behind the other, and may be those of `out`.
template <class T, Activation f> FEDKERN_KERNEL biased(const T* products, const T* bias, Matrix<T> out) {
    for (Index e = thread_of_grid(); e < out.rows * out.cols; e += threads_of_grid()) {
        const Index r = e / out.cols, o = e - r * out.cols;
        out.row(r)[o] = activated<f>(products[e] + bias[o]);
    }
}

/// The way back through an activation: to = from times the slope at `values`, and of each `chunk` of rows the sums of columns, which
/// are a bias's gradient, `stride` numbers from one to the next. `to` may be `from`; without data nobody wants it. Block (chunk, tile
/// of 32 columns).
template <class T, Activation f>
FEDKERN_KERNEL pull(Matrix<const T> from, const T* values, Matrix<T> to, Index chunk, T* sums, Index stride) {
    FEDKERN_SHARED(double, room, most_threads);
    const Index begin = blockIdx.x * chunk, end = begin + chunk < from.rows ? begin + chunk : from.rows;
    for (Index first = Index(blockIdx.y) * 32; first < from.cols; first += Index(gridDim.y) * 32) {
        const Index j = first + lane();
        double sum = 0;
        if (j < from.cols)
            for (Index r = begin + warp(); r < end; r += warps()) {
                T d = from.row(r)[j];
                if constexpr (f != Activation::identity) d = with_slope<f>(d, values[r * from.cols + j]);
                if (to.data) to.row(r)[j] = d;
                sum += double(d);
            }
        room[threadIdx.x] = sum;
        __syncthreads();
        if (warp() == 0 && j < from.cols) {
            for (int w = 1; w < warps(); ++w) sum += room[w * 32 + lane()];
            sums[blockIdx.x * stride + j] = T(sum);
        }
        __syncthreads();
    }
}

/// total_j = sum_c partial[c][j] over chunks, after what `before` holds of earlier rows; a null `before` holds nothing. Where more rows
/// come the total goes to `after`, else to `out`.
template <class T> FEDKERN_KERNEL sum_chunks(const T* partial, Index chunks, const double* before, double* after, Vector<T> out) {
    for (Index j = thread_of_grid(); j < out.size; j += threads_of_grid()) {
        double sum = before ? before[j] : 0;
        for (Index c = 0; c < chunks; ++c) sum += double(partial[c * out.size + j]);
        if (after) after[j] = sum;
        else out[j] = T(sum);
    }
}

// ---- The autoencoder. What is small beside the products takes a warp for each row of the batch.

/// What a pass adds to begins with zeros.
template <class T> FEDKERN_KERNEL cleared(T* x, Index size, double* sums, Index n) {
    for (Index i = thread_of_grid(); i < size; i += threads_of_grid()) x[i] = 0;
    for (Index i = thread_of_grid(); i < n; i += threads_of_grid()) sums[i] = 0;
}

/// out = the columns of a, b and c, side by side.
template <class T> FEDKERN_KERNEL joined(Matrix<const T> a, Matrix<const T> b, Matrix<const T> c, T* out) {
    const Index all = a.cols + b.cols + c.cols;
    for (Index e = thread_of_grid(); e < a.rows * all; e += threads_of_grid()) {
        const Index r = e / all, j = e - r * all;
        out[e] = j < a.cols ? a.row(r)[j] : j < a.cols + b.cols ? b.row(r)[j - a.cols] : c.row(r)[j - a.cols - b.cols];
    }
}

template <class T> FEDKERN_INLINE T deviation(T log_v) { return math::exp(log_v * T(0.5)); }

/// z = mean + exp(log_v / 2) e, the reparametrised draw.
template <class T> FEDKERN_KERNEL latent(Matrix<const T> mean, Matrix<const T> raw, Matrix<const T> e, Matrix<T> z) {
    for (Index i = thread_of_grid(); i < z.rows * z.cols; i += threads_of_grid()) {
        const Index r = i / z.cols, u = i - r * z.cols;
        z.row(r)[u] = mean.row(r)[u] + deviation(bounded(raw.row(r)[u])) * e.row(r)[u];
    }
}

/// Adds |theta - mu|^2 of each row to `squares`; mu = products + bias becomes its cotangent precision / batch (theta - mu).
template <class T> FEDKERN_KERNEL residuals(Matrix<const T> theta, const T* bias, double precision, T* products, double* squares) {
    const T slope = T(1) / T(theta.rows) * T(precision);
    for (Index r = warp_of_grid(); r < theta.rows; r += warps_of_grid()) {
        double sum = 0;
        for (Index j = lane(); j < theta.cols; j += 32) {
            T* at = products + r * theta.cols + j;
            const T e = theta.row(r)[j] - (bias ? *at + bias[j] : *at);
            sum += double(e) * double(e);
            *at = e * slope;
        }
        sum = warp_sum(sum);
        if (lane() == 0) squares[r] += sum;
    }
}

/// Adds KL[N(mean, v) || N(0, I)] of each row to `divergence`, and writes the cotangents of the mean and of the raw log variance. The
/// step's weight is the one behind those of the steps that were made.
template <class T> FEDKERN_KERNEL standard_heads(Matrix<const T> mean, Matrix<const T> raw, Matrix<const T> e, Matrix<const T> to_z,
                                                 const double* weights, const Index* made, Matrix<T> to_mean, Matrix<T> to_raw,
                                                 double* divergence) {
    const T w = T(1) / T(mean.rows) * T(weights[*made]);
    for (Index r = warp_of_grid(); r < mean.rows; r += warps_of_grid()) {
        double sum = 0;
        for (Index u = lane(); u < mean.cols; u += 32) {
            const T x = raw.row(r)[u], log_v = bounded(x);
            const auto to = standard_back(mean.row(r)[u], x, log_v, deviation(log_v), e.row(r)[u], to_z.row(r)[u], w);
            sum += double(to.divergence);
            to_mean.row(r)[u] = to.mean, to_raw.row(r)[u] = to.raw;
        }
        sum = warp_sum(sum);
        if (lane() == 0) divergence[r] += sum;
    }
}

/// The same of KL[N(m, v) || N(m0, v0)]; heads (rows, 2 q) are means and then raw log variances.
template <class T> FEDKERN_KERNEL both_heads(const T* prior, const T* posterior, Matrix<const T> e, const T* to_z, const double* weights,
                                             const Index* made, T* to_prior, T* to_posterior, double* divergence) {
    const Index q = e.cols;
    const T w = T(1) / T(e.rows) * T(weights[*made]);
    for (Index r = warp_of_grid(); r < e.rows; r += warps_of_grid()) {
        double sum = 0;
        for (Index u = lane(); u < q; u += 32) {
            const Index m = 2 * q * r + u, v = m + q;
            const T log_v = bounded(posterior[v]);
            const auto to =
                divergence_back(posterior[m], posterior[v], log_v, deviation(log_v), e.row(r)[u], to_z[q * r + u], prior[m], prior[v], w);
            sum += double(to.divergence);
            to_posterior[m] = to.mean, to_posterior[v] = to.raw;
            to_prior[m] = to.prior_mean, to_prior[v] = to.prior_raw;
        }
        sum = warp_sum(sum);
        if (lane() == 0) divergence[r] += sum;
    }
}

/// out_o = sum_k s_k y_ok of each row; y (rows, out, rank).
template <class T> FEDKERN_KERNEL mixed(const T* y, const T* s, Index rank, Matrix<T> out) {
    for (Index i = thread_of_grid(); i < out.rows * out.cols; i += threads_of_grid()) {
        const Index r = i / out.cols;
        T sum = 0;
        for (Index k = 0; k < rank; ++k) sum += s[r * rank + k] * y[i * rank + k];
        out.row(r)[i - r * out.cols] = sum;
    }
}

/// The way back: adds to the cotangent of s, and makes of y its cotangents. A warp for each number of s.
template <class T> FEDKERN_KERNEL mixed_back(Matrix<const T> d, const T* s, Index rank, T* y, T* to_s) {
    for (Index i = warp_of_grid(); i < d.rows * rank; i += warps_of_grid()) {
        const Index r = i / rank, k = i - r * rank;
        const T of = s[i];
        double sum = 0;
        for (Index o = lane(); o < d.cols; o += 32) {
            T* at = y + (r * d.cols + o) * rank + k;
            const T delta = d.row(r)[o];
            sum += double(delta) * double(*at);
            *at = delta * of;
        }
        sum = warp_sum(sum);
        if (lane() == 0) to_s[i] += T(sum);
    }
}

/// Batch means of the ELBO, |theta - mu|^2, KL_G and sum_j KL_j, on every thread of a block; `sums` (3, rows) are the last three.
FEDKERN_INLINE void terms_of(const double* sums, Index rows, Index d, double gamma, double* room, double (&terms)[4]) {
    for (int i = 0; i < 3; ++i) {
        double sum = 0;
        for (Index r = threadIdx.x; r < rows; r += blockDim.x) sum += sums[i * rows + r];
        terms[i + 1] = block_sum(sum, room) / double(rows);
        __syncthreads();
    }
    terms[0] = elbo_of(terms[1], terms[2], terms[3], double(d), gamma);
}

/// One block.
FEDKERN_KERNEL elbo_terms(const double* sums, Index rows, Index d, double gamma, Vector<double> out) {
    FEDKERN_SHARED(double, room, most_warps);
    double terms[4];
    terms_of(sums, rows, d, gamma, room, terms);
    if (threadIdx.x == 0)
        for (int i = 0; i < 4; ++i) out[i] = terms[i];
}

// ---- Steps of Adam. Nobody waits for the number that ends them: a state on the device remembers it.

/// partial[b] = a block's share of sum_j g_j^2.
template <class T> FEDKERN_KERNEL squares_of(const T* g, Index size, double* partial) {
    FEDKERN_SHARED(double, room, most_warps);
    double sum = 0;
    for (Index j = thread_of_grid(); j < size; j += threads_of_grid()) sum += double(g[j]) * double(g[j]);
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/// What a step leaves for `climb`, and steps for those behind them.
struct Going {
    double alive; // 0 from the first ELBO or norm on that is not finite
    double slope, correction, factor;
};

/// A step's row of the trace, and what Adam needs; `made` counts it. `first` is the number of the first step. One block.
FEDKERN_KERNEL judged(const double* sums, Index rows, Index d, double gamma, const double* partial, Index blocks, double clip,
                      const double* rates, U32 first, Index* made, Going* going, Matrix<double> trace) {
    FEDKERN_SHARED(double, room, most_warps);
    double row[5], terms[4], squares = 0;
    terms_of(sums, rows, d, gamma, room, terms);
    for (Index b = threadIdx.x; b < blocks; b += blockDim.x) squares += partial[b];
    const double norm = math::sqrt(block_sum(squares, room));
    if (threadIdx.x != 0) return;
    for (int i = 0; i < 4; ++i) row[i] = terms[i];
    row[4] = norm;
    const bool alive = going->alive != 0 && row[0] - row[0] == 0 && norm - norm == 0;
    const Index s = *made;
    const double count = double(first) + double(s) + 1;
    for (int i = 0; i < 5; ++i) trace.row(s)[i] = alive ? row[i] : math::not_a_number<double>();
    *going = {double(alive), -rates[s] / math::expm1(count * math::log(0.9)), -1 / math::expm1(count * math::log(0.999)),
              clip > 0 && norm > clip ? clip / norm : 1};
    *made = s + 1;
}

/// Adam, where steps are still made.
template <class T> FEDKERN_KERNEL climb(const T* g, Index size, const Going* going, T* parameters, T* m, T* v) {
    if (going->alive == 0) return;
    const AdamUp<T> x{T(going->slope), T(going->correction), T(going->factor)};
    for (Index j = thread_of_grid(); j < size; j += threads_of_grid()) adam_up(x, g[j], parameters[j], m[j], v[j]);
}

#define FEDKERN_OF_NETWORKS(T)                                                                                                             \
    FEDKERN_INSTANCE(biased<T, Activation::tanh>)                                                                                          \
    FEDKERN_INSTANCE(biased<T, Activation::relu>)                                                                                          \
    FEDKERN_INSTANCE(biased<T, Activation::identity>)                                                                                      \
    FEDKERN_INSTANCE(pull<T, Activation::tanh>)                                                                                            \
    FEDKERN_INSTANCE(pull<T, Activation::relu>)                                                                                            \
    FEDKERN_INSTANCE(pull<T, Activation::identity>)                                                                                        \
    FEDKERN_INSTANCE(sum_chunks<T>)                                                                                                        \
    FEDKERN_INSTANCE(cleared<T>)                                                                                                           \
    FEDKERN_INSTANCE(joined<T>)                                                                                                            \
    FEDKERN_INSTANCE(latent<T>)                                                                                                            \
    FEDKERN_INSTANCE(residuals<T>)                                                                                                         \
    FEDKERN_INSTANCE(standard_heads<T>)                                                                                                    \
    FEDKERN_INSTANCE(both_heads<T>)                                                                                                        \
    FEDKERN_INSTANCE(mixed<T>)                                                                                                             \
    FEDKERN_INSTANCE(mixed_back<T>)                                                                                                        \
    FEDKERN_INSTANCE(squares_of<T>)                                                                                                        \
    FEDKERN_INSTANCE(climb<T>)                                                                                                             \
    FEDKERN_INSTANCE(normals<T>)                                                                                                           \
    FEDKERN_INSTANCE(conditions<T>)                                                                                                        \
    FEDKERN_INSTANCE(stored_draws<T>)                                                                                                      \
    FEDKERN_INSTANCE(dense_draws<T>)                                                                                                       \
    FEDKERN_INSTANCE(sparse_draws<T>)
FEDKERN_OF_NETWORKS(double)
FEDKERN_OF_NETWORKS(float)
FEDKERN_INSTANCE(elbo_terms)
FEDKERN_INSTANCE(judged)

} // namespace cuda
} // namespace fedkern
