// Rows in vector lanes: a tile of rows is stored by columns, x[unit][row], so that a weight is one number for a whole register and
// nothing is added across lanes. Products of tiles with small matrices, and a network that takes tile after tile.
#pragma once
#include <algorithm>
#include <type_traits>

#include "blocks.hpp"
#include "math.hpp"
#include "mlp_views.hpp"
#include "pack.hpp"
#include "pieces.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

template <class T> inline constexpr Index tile_rows = 256 / sizeof(T);
inline constexpr Index tile_lanes = 8; // partial sums of each sum over rows, in float64

/// Calls work<N>(i) for pieces [i, i + N) of [begin, end), N = `most` as long as that fits.
template <int most, class Work> FEDKERN_INLINE void in_pieces(Index begin, Index end, const Work& work) {
    for (; begin + most <= end; begin += most) work.template operator()<most>(begin);
    if constexpr (most > 1) in_pieces<most - 1>(begin, end, work);
}

// ---- Between arrays and tiles.

/// to[j][r] = x(begin + r, j) for `count` rows, and zeros.
template <class T> void load_tile(Matrix<const T> x, Index begin, Index count, std::type_identity_t<T>* to) {
    constexpr Index rows = tile_rows<T>;
    for (Index j = 0; j < x.cols; ++j) {
        const T* from = x.data + begin * x.row_stride + j * x.col_stride;
        for (Index r = 0; r < count; ++r) to[j * rows + r] = from[r * x.row_stride];
        for (Index r = count; r < rows; ++r) to[j * rows + r] = 0;
    }
}

/// x(begin + r, j) = from[j][r].
template <class T> void store_tile(const T* from, Matrix<T> x, Index begin, Index count) {
    for (Index j = 0; j < x.cols; ++j) {
        T* to = x.data + begin * x.row_stride + j * x.col_stride;
        for (Index r = 0; r < count; ++r) to[r * x.row_stride] = from[j * tile_rows<T> + r];
    }
}

/// How many blocks have sums of their own. With fewer tiles in a block the sums would cost more than what is summed.
template <class T> Index tile_blocks(Index n) { return block_count((n + tile_rows<T> - 1) / tile_rows<T>, 12); }

/// Calls work(block, tiles) for blocks of tiles: tiles([](begin, count) {..}) visits those of the block.
template <class T, class Work> void for_tile_blocks(Index n, int n_threads, const Work& work) {
    const Index tiles = (n + tile_rows<T> - 1) / tile_rows<T>;
    for_blocks(tiles, tile_blocks<T>(n), n_threads, [&](Index block, Index first, Index last) {
        work(block, [&](const auto& visit) {
            for (Index t = first; t < last; ++t) visit(t * tile_rows<T>, std::min(tile_rows<T>, n - t * tile_rows<T>));
        });
    });
}

// ---- Products of tiles.

/// out[o][r] = start[o] + sum_i w[o * down + i * right] x[i][r], o < n_out, i < n_in; without `start` from zero.
template <class T>
void multiply(const T* w, Index down, Index right, const std::type_identity_t<T>* start, const std::type_identity_t<T>* x, Index n_in,
              Index n_out, T* out) {
    using V = Pack<T, register_bytes / sizeof(T)>;
    constexpr Index rows = tile_rows<T>;
    constexpr int packs = register_bytes == 64 ? 4 : 2;
    in_pieces<4>(0, n_out, [&]<int N>(Index o) {
        for (Index r = 0; r < rows; r += packs * V::size) {
            V sum[N][packs];
            for (int k = 0; k < N; ++k)
                for (int p = 0; p < packs; ++p) sum[k][p] = V::all(start ? start[o + k] : T(0));
            for (Index i = 0; i < n_in; ++i) {
                V xi[packs];
                for (int p = 0; p < packs; ++p) xi[p] = V::load(x + i * rows + r + p * V::size);
                for (int k = 0; k < N; ++k) {
                    const V c = V::all(w[(o + k) * down + i * right]);
                    for (int p = 0; p < packs; ++p) sum[k][p] = sum[k][p] + c * xi[p];
                }
            }
            for (int k = 0; k < N; ++k)
                for (int p = 0; p < packs; ++p) sum[k][p].store(out + (o + k) * rows + r + p * V::size);
        }
    });
}

/// sums[o * n_in + i][lane] += sum of d[o][r] x[i][r] over the rows of a lane, o < n_out, i < n_in. In float32 a lane adds up the
/// rows of this tile alone.
template <class T> void add_products(const T* d, Index n_out, const std::type_identity_t<T>* x, Index n_in, double* sums) {
    using V = Pack<T>;
    constexpr Index rows = tile_rows<T>;
    constexpr int side = register_bytes == 64 ? 4 : 2;
    in_pieces<side>(0, n_out, [&]<int N>(Index o) {
        in_pieces<side>(0, n_in, [&]<int M>(Index i) {
            V sum[N][M];
            double* to[N];
            for (int k = 0; k < N; ++k) to[k] = sums + ((o + k) * n_in + i) * tile_lanes;
            for (int k = 0; k < N; ++k)
                for (int l = 0; l < M; ++l) {
                    if constexpr (sizeof(T) == 8)
                        sum[k][l] = V::load(to[k] + l * tile_lanes);
                    else
                        sum[k][l] = V::all(0);
                }
            for (Index r = 0; r < rows; r += V::size) {
                V xi[M];
                for (int l = 0; l < M; ++l) xi[l] = V::load(x + (i + l) * rows + r);
                for (int k = 0; k < N; ++k) {
                    const V dk = V::load(d + (o + k) * rows + r);
                    for (int l = 0; l < M; ++l) sum[k][l] = sum[k][l] + dk * xi[l];
                }
            }
            for (int k = 0; k < N; ++k)
                for (int l = 0; l < M; ++l) {
                    if constexpr (sizeof(T) == 8) {
                        sum[k][l].store(to[k] + l * tile_lanes);
                    } else {
                        T lane[V::size];
                        sum[k][l].store(lane);
                        for (Index e = 0; e < tile_lanes; ++e) to[k][l * tile_lanes + e] += double(lane[e]) + double(lane[e + tile_lanes]);
                    }
                }
        });
    });
}

/// sums[o][lane] += sum of d[o][r] over the rows of a lane.
template <class T> void add_rows_of(const T* d, Index n_out, double* sums) {
    using V = Pack<double, tile_lanes>;
    for (Index o = 0; o < n_out; ++o) {
        V sum = V::load(sums + o * tile_lanes);
        for (Index r = 0; r < tile_rows<T>; r += tile_lanes) sum = sum + V::load(d + o * tile_rows<T> + r);
        sum.store(sums + o * tile_lanes);
    }
}

FEDKERN_INLINE double sum_of_lanes(const double* sums) { return Pack<double, tile_lanes>::load(sums).sum(); }

// ---- Activations. The slope is a function of the value.

template <Activation kind, class T> FEDKERN_INLINE T activated(T x) {
    if constexpr (kind == Activation::tanh)
        return math::tanh(x);
    else if constexpr (kind == Activation::relu)
        return x < 0 ? T(0) : x; // NaN stays
    else
        return x;
}

template <Activation kind, class T> FEDKERN_INLINE T times_slope(T d, T value) {
    if constexpr (kind == Activation::tanh)
        return d * (1 - value * value);
    else if constexpr (kind == Activation::relu)
        return value > 0 ? d : T(0);
    else
        return d;
}

template <class Work> FEDKERN_INLINE void with_activation(Activation kind, const Work& work) {
    switch (kind) {
    case Activation::tanh: return work.template operator()<Activation::tanh>();
    case Activation::relu: return work.template operator()<Activation::relu>();
    case Activation::identity: return; // changes nothing
    }
}

template <class T> void activate(Activation kind, T* x, Index size) {
    with_activation(kind, [&]<Activation f>() {
        for (Index e = 0; e < size; ++e) x[e] = activated<f>(x[e]);
    });
}

template <class T> void multiply_by_slope(Activation kind, T* d, const T* value, Index size) {
    with_activation(kind, [&]<Activation f>() {
        for (Index e = 0; e < size; ++e) d[e] = times_slope<f>(d[e], value[e]);
    });
}

// ---- A network.

/// Products of tiles by the loops above.
template <class T> struct Loops {
    static constexpr Index lanes = tile_lanes; // of each sum over rows
    static constexpr Index rows() { return tile_rows<T>; }

    void affine(const T* W, const T* bias, const T* x, Index n_in, Index n_out, T* out) const {
        multiply(W, n_in, 1, bias, x, n_in, n_out, out);
    }
    /// out[i] = sum_o W(o, i) d[o] for the first n inputs.
    void transposed(const T* W, const T* d, Index n_in, Index n_out, Index n, T* out) const {
        multiply(W, 1, n_in, nullptr, d, n_out, n, out);
    }
    /// Adds the gradient of W and the bias behind it.
    void add_gradient(const T* d, const T* x, Index n_in, Index n_out, double* sums) const {
        add_products(d, n_out, x, n_in, sums);
        add_rows_of(d, n_out, sums + n_in * n_out * tile_lanes);
    }
};

/// A network and the memory for one tile of rows: whoever uses it fills input(), calls forward(), then backward() once or more.
template <class T, class Products = Loops<T>> class NetworkTile {
  public:
    NetworkTile(const Network& net, const T* parameters, Products products = {})
        : net_(net), parameters_(parameters), products_(products), widest_(*std::max_element(net.sizes, net.sizes + net.layers + 1)),
          values_(first_of(net.layers + 1) * products.rows()), cotangents_(2 * widest_ * products.rows()) {}

    T* input() const { return values_; }
    T* output() const { return values_ + first_of(net_.layers) * products_.rows(); }

    void forward() const {
        const T* p = parameters_;
        T* x = values_;
        for (int l = 0; l < net_.layers; ++l) {
            const Index in = net_.sizes[l], out = net_.sizes[l + 1];
            T* y = x + in * products_.rows();
            products_.affine(p, p + in * out, x, in, out, y);
            if (l + 1 < net_.layers) activate(net_.activation, y, out * products_.rows());
            p += in * out + out, x = y;
        }
    }

    /// From the cotangent of the output: adds the parameters' gradient to `sums`, if there are any, and writes the cotangent of the
    /// first n inputs.
    void backward(const T* upstream, double* sums, T* inputs, Index n) const {
        const T* d = upstream;
        for (int l = net_.layers - 1; l >= 0; --l) {
            const Index in = net_.sizes[l], out = net_.sizes[l + 1], at = net_.first(l);
            const T* x = values_ + first_of(l) * products_.rows();
            if (sums) products_.add_gradient(d, x, in, out, sums + at * products_.lanes);
            T* to = l > 0 ? cotangents_ + l % 2 * widest_ * products_.rows() : inputs;
            products_.transposed(parameters_ + at, d, in, out, l > 0 ? in : n, to);
            if (l > 0) multiply_by_slope(net_.activation, to, x, in * products_.rows());
            d = to;
        }
    }

  private:
    const Network& net_;
    const T* parameters_;
    const Products products_;
    const Index widest_;
    const Scratch<T> values_, cotangents_;

    /// How many units stand before those of a layer; of the layer behind the last one: how many there are.
    Index first_of(int layer) const {
        Index units = 0;
        for (int l = 0; l < layer; ++l) units += net_.sizes[l];
        return units;
    }
};

} // namespace FEDKERN_ISA
} // namespace fedkern
