// Networks over all rows of a matrix: values, and gradients in parameters and inputs. Nothing of the size of rows times units is
// stored: tile after tile passes through the network, and the way back computes the values again. vertical.md, section 5.
#pragma once
#include "mlp_rows.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

FEDKERN_INLINE void gemm(const Blas& blas, char a, char b, Index m, Index n, Index k, const double* A, Index lda, const double* B, Index ldb,
                         double beta, double* C, Index ldc) {
    call(blas.dgemm, a, b, m, n, k, 1.0, A, lda, B, ldb, beta, C, ldc);
}
FEDKERN_INLINE void gemm(const Blas& blas, char a, char b, Index m, Index n, Index k, const float* A, Index lda, const float* B, Index ldb,
                         float beta, float* C, Index ldc) {
    call(blas.sgemm, a, b, m, n, k, 1.f, A, lda, B, ldb, beta, C, ldc);
}

/// Products of tiles by BLAS, for large layers: a tile is a matrix by columns.
template <class T> struct BlasProducts {
    static constexpr Index rows() { return 2048 / sizeof(T); }
    const Blas& blas;

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
        add_rows_of<T, rows()>(d, n_out, sums + n_in * n_out);
    }
};

/// Whether a layer has at least so many weights.
inline bool has_large_layer(const Network& net, Index weights) {
    for (int l = 0; l < net.layers; ++l)
        if (net.weights(l) >= weights) return true;
    return false;
}

/// From where on BLAS is faster. Forward the loops always win where they have fused products; backward when the sums over rows
/// of a layer are larger than the cache. Without fused products BLAS, which finds out what the processor has, wins early.
inline constexpr bool fused = register_bytes > 16;
inline constexpr Index large_layer = fused ? 32'768 : 1'024;

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

template <class T, class Products>
void mlp_backward(Matrix<const T> X, const T* parameters, Matrix<const T> upstream, const Network& net, Vector<T> grad_parameters,
                  Matrix<T> grad_X, int n_threads, Products products) {
    const Index k = grad_parameters.size, rows = products.rows();
    const Tiles tiles{X.rows, rows, tiles_of_a_block, std::max<Index>((Index{1} << 23) / k, 1)}; // of sums no more than 64 MiB
    const Scratch<double> sums(tiles.blocks() * k);
    tiles.for_blocks(worthwhile(n_threads, 3 * double(X.rows) * network_operations(net)), [&](Index block, const auto& each) {
        const NetworkTile<T, Products> tile(net, parameters, products);
        const Scratch<T> d(net.outputs() * rows), dx(net.inputs() * rows);
        double* sum = sums + block * k;
        std::fill_n(sum, k, 0.);
        each([&](Index begin, Index count) {
            load_tile(X, begin, count, tile.input(), rows);
            load_tile(upstream, begin, count, d, rows);
            tile.forward();
            tile.backward(d, sum, dx, net.inputs());
            store_tile<T>(dx, grad_X, begin, count, rows);
        });
    });
    add_blocks(sums, tiles.blocks(), k, grad_parameters);
}

template <class T>
void mlp_forward(Matrix<const T> X, Vector<const T> parameters, const Network& net, Matrix<T> Y, int n_threads, const Blas& blas) {
    const Scratch<T> p(parameters);
    const BlasProducts<T> large{blas};
    if (!fused && X.rows >= large.rows() && has_large_layer(net, large_layer))
        mlp_forward<T>(X, p, net, Y, n_threads, large);
    else
        mlp_forward<T>(X, p, net, Y, n_threads, Loops<T>{});
}

template <class T>
void mlp_backward(Matrix<const T> X, Vector<const T> parameters, Matrix<const T> upstream, const Network& net, Vector<T> grad_parameters,
                  Matrix<T> grad_X, int n_threads, const Blas& blas) {
    const Scratch<T> p(parameters);
    const BlasProducts<T> large{blas};
    if (X.rows >= large.rows() && has_large_layer(net, large_layer))
        mlp_backward<T>(X, p, upstream, net, grad_parameters, grad_X, n_threads, large);
    else
        mlp_backward<T>(X, p, upstream, net, grad_parameters, grad_X, n_threads, Loops<T>{});
}

} // namespace FEDKERN_ISA
} // namespace fedkern
