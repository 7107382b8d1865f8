// Networks: what stands between the matrix products, which are cuBLAS's (device.py, `multiply`). Numbers of a batch stand row after
// row, a unit a column.
#include "grid.hpp"
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
        if (after)
            after[j] = sum;
        else
            out[j] = T(sum);
    }
}

#define FEDKERN_OF_NETWORKS(T)                                                                                                 \
    FEDKERN_INSTANCE(biased<T, Activation::tanh>)                                                                              \
    FEDKERN_INSTANCE(biased<T, Activation::relu>)                                                                              \
    FEDKERN_INSTANCE(biased<T, Activation::identity>)                                                                          \
    FEDKERN_INSTANCE(pull<T, Activation::tanh>)                                                                                \
    FEDKERN_INSTANCE(pull<T, Activation::relu>)                                                                                \
    FEDKERN_INSTANCE(pull<T, Activation::identity>)                                                                            \
    FEDKERN_INSTANCE(sum_chunks<T>)
FEDKERN_OF_NETWORKS(double)
FEDKERN_OF_NETWORKS(float)

} // namespace cuda
} // namespace fedkern
