// Networks over all rows of a matrix: values, and gradients in parameters and inputs. Nothing of the size of rows times units is
// stored: tile after tile passes through the network, and the way back computes the values again. vertical.md, section 5.
#pragma once
#include "fedkern/blas.hpp"
#include "rows.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

FEDKERN_INLINE void gemm(const Blas& blas, char a, char b, Index m, Index n, Index k, const double* A, Index lda, const double* B,
                         Index ldb, double beta, double* C, Index ldc) {
    call(blas.dgemm, a, b, m, n, k, 1.0, A, lda, B, ldb, beta, C, ldc);
}
FEDKERN_INLINE void gemm(const Blas& blas, char a, char b, Index m, Index n, Index k, const float* A, Index lda, const float* B, Index ldb,
                         float beta, float* C, Index ldc) {
    call(blas.sgemm, a, b, m, n, k, 1.f, A, lda, B, ldb, beta, C, ldc);
}

/// Products of tiles by BLAS, for large layers: a tile is a matrix by columns.
template <class T> struct BlasProducts {
    static constexpr Index most = 2048 / sizeof(T); // rows of a tile

    const Blas& blas;
    Index n = most;

    /// For so many rows in one tile.
    static BlasProducts of(const Blas& blas, Index n) { return {blas, (n + Pack<T>::size - 1) / Pack<T>::size * Pack<T>::size}; }

    Index rows() const { return n; }

    void affine(const T* W, const T* bias, const T* x, Index n_in, Index n_out, T* out) const {
        for (Index o = 0; o < n_out; ++o) std::fill_n(out + o * rows(), rows(), bias[o]);
        gemm(blas, 'N', 'N', rows(), n_out, n_in, x, rows(), W, n_in, T(1), out, rows());
    }
    void transposed(const T* W, const T* d, Index n_in, Index n_out, Index n, T* out) const {
        if (n > 0) gemm(blas, 'N', 'T', rows(), n, n_out, d, rows(), W, n_in, T(0), out, rows());
    }
    void transposed(const T* W, const T* d, Index n_in, Index n_out, Activation kind, const T* values, T* out) const {
        transposed(W, d, n_in, n_out, n_in, out);
        with_activation(kind, [&]<Activation f>() {
            using V = Pack<T>;
            for (Index e = 0; e < n_in * rows(); e += V::size) times_slope<f>(V::load(out + e), V::load(values + e)).store(out + e);
        });
    }
    void add_gradient(const T* d, const T* x, Index n_in, Index n_out, double* sums) const {
        if constexpr (sizeof(T) == 8) {
            gemm(blas, 'T', 'N', n_in, n_out, rows(), x, rows(), d, rows(), 1., sums, n_in);
        } else {
            const Scratch<T> part(n_in * n_out);
            gemm(blas, 'T', 'N', n_in, n_out, rows(), x, rows(), d, rows(), T(0), part, n_in);
            for (Index j = 0; j < n_in * n_out; ++j) sums[j] += double(part[j]);
        }
        add_rows_of(d, n_out, sums + n_in * n_out, rows());
    }
};

/// The same where all rows are one tile: the gradient is written where it belongs, and the only memory of its size is the result.
template <class T> struct OneTileProducts : BlasProducts<T> {
    void add_gradient(const T* d, const T* x, Index n_in, Index n_out, T* gradient) const {
        const Index rows = this->n;
        gemm(this->blas, 'T', 'N', n_in, n_out, rows, x, rows, d, rows, T(0), gradient, n_in);
        std::fill_n(gradient + n_in * n_out, n_out, T(0));
        add_rows_of(d, n_out, gradient + n_in * n_out, rows);
    }
};

/// Whether a layer has at least so many weights.
inline bool has_large_layer(const Network& net, Index weights) {
    for (int l = 0; l < net.layers; ++l)
        if (net.weights(l) >= weights) return true;
    return false;
}

/// The numbers themselves where they are neighbours, otherwise their copy.
template <class T> class Neighbours {
  public:
    explicit Neighbours(Vector<const T> x) : copy_(x.stride == 1 ? 0 : x.size), data_(contiguous(x, static_cast<T*>(copy_))) {}
    operator const T*() const { return data_; }

  private:
    const Scratch<T> copy_;
    const T* data_;
};

/// From where on BLAS is faster. Forward the loops always win where they have fused products; backward when the sums over rows
/// of a layer are larger than the cache. Without fused products BLAS, which finds out what the processor has, wins early.
inline constexpr bool fused = register_bytes > 16;
inline constexpr Index large_layer = fused ? 32'768 : 1'024;
/// From where on it is faster though one tile has all rows: the weights are read from memory, once for all of them.
inline constexpr Index one_tile_layer = 131'072;

template <class T, class Products>
void mlp_forward(Matrix<const T> X, const T* parameters, const Network& net, Matrix<T> Y, int n_threads, Products products) {
    const Tiles tiles{X.rows, products.rows(), 4}; // no sums
    tiles.for_blocks(worthwhile(n_threads, double(X.rows) * network_operations(net)), [&](Index, const auto& each) {
        const NetworkTile<T, Products> tile(net, parameters, products);
        each([&](Index begin, Index count) {
            load_tile(X, begin, count, tile.input(), products.rows());
            tile.forward();
            store_tile(tile.output(), Y, begin, count, products.rows());
        });
    });
}

/// The gradient in the first inputs, as many as `grad_X` has columns.
template <class T, class Products> void mlp_backward(Matrix<const T> X, const T* parameters, Matrix<const T> upstream, const Network& net,
                                                     Vector<T> grad_parameters, Matrix<T> grad_X, int n_threads, Products products) {
    const Index k = grad_parameters.size, rows = products.rows();
    const Tiles tiles{X.rows, rows, tiles_of_a_block, std::max<Index>((Index{1} << 23) / k, 1)}; // of sums no more than 64 MiB
    const Scratch<double> sums(tiles.blocks() * k);
    tiles.for_blocks(worthwhile(n_threads, 3 * double(X.rows) * network_operations(net)), [&](Index block, const auto& each) {
        const NetworkTile<T, Products> tile(net, parameters, products);
        const Scratch<T> d(net.outputs() * rows), dx(grad_X.cols * rows);
        double* sum = sums + block * k;
        std::fill_n(sum, k, 0.);
        each([&](Index begin, Index count) {
            load_tile(X, begin, count, tile.input(), rows);
            load_tile(upstream, begin, count, d, rows);
            tile.forward();
            tile.backward(d, sum, dx, grad_X.cols);
            store_tile<T>(dx, grad_X, begin, count, rows);
        });
    });
    add_blocks(sums, tiles.blocks(), k, grad_parameters);
}

/// Whether all rows are one tile for BLAS.
template <class T> bool is_one_tile(Index rows, const Network& net) {
    return rows > 0 && rows <= BlasProducts<T>::most && has_large_layer(net, one_tile_layer);
}

template <class T>
void mlp_forward(Matrix<const T> X, Vector<const T> parameters, const Network& net, Matrix<T> Y, int n_threads, const Blas& blas) {
    const Neighbours<T> p(parameters);
    if (is_one_tile<T>(X.rows, net)) mlp_forward<T>(X, p, net, Y, n_threads, BlasProducts<T>::of(blas, X.rows));
    else if (!fused && X.rows >= BlasProducts<T>::most && has_large_layer(net, large_layer))
        mlp_forward<T>(X, p, net, Y, n_threads, BlasProducts<T>{blas});
    else mlp_forward<T>(X, p, net, Y, n_threads, Loops<T>{});
}

template <class T> void mlp_backward_of_one_tile(Matrix<const T> X, const T* parameters, Matrix<const T> upstream, const Network& net,
                                                 Vector<T> grad_parameters, Matrix<T> grad_X, const Blas& blas) {
    const OneTileProducts<T> products{BlasProducts<T>::of(blas, X.rows)};
    const Index rows = products.rows();
    const NetworkTile<T, OneTileProducts<T>> tile(net, parameters, products);
    const Scratch<T> d(net.outputs() * rows), dx(grad_X.cols * rows);
    load_tile(X, 0, X.rows, tile.input(), rows);
    load_tile(upstream, 0, X.rows, d, rows);
    tile.forward();
    const bool in_place = grad_parameters.stride == 1;
    const Scratch<T> copy(in_place ? 0 : grad_parameters.size);
    tile.backward(d, in_place ? grad_parameters.data : copy, dx, grad_X.cols);
    if (!in_place)
        for (Index j = 0; j < grad_parameters.size; ++j) grad_parameters[j] = copy[j];
    store_tile<T>(dx, grad_X, 0, X.rows, rows);
}

template <class T> void mlp_backward(Matrix<const T> X, Vector<const T> parameters, Matrix<const T> upstream, const Network& net,
                                     Vector<T> grad_parameters, Matrix<T> grad_X, int n_threads, const Blas& blas) {
    const Neighbours<T> p(parameters);
    if (is_one_tile<T>(X.rows, net)) mlp_backward_of_one_tile<T>(X, p, upstream, net, grad_parameters, grad_X, blas);
    else if (X.rows >= BlasProducts<T>::most && has_large_layer(net, large_layer))
        mlp_backward<T>(X, p, upstream, net, grad_parameters, grad_X, n_threads, BlasProducts<T>{blas});
    else mlp_backward<T>(X, p, upstream, net, grad_parameters, grad_X, n_threads, Loops<T>{});
}

} // namespace FEDKERN_ISA
} // namespace fedkern
