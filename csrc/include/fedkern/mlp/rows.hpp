// Rows in vector lanes: a tile of rows is stored by columns, x[unit][row], so that a weight is one number for a whole register.
// Products of tiles with small matrices, and a network that takes tile after tile.
#pragma once
#include <algorithm>
#include <type_traits>

#include "fedkern/blocks.hpp"
#include "fedkern/math.hpp"
#include "fedkern/pack.hpp"
#include "fedkern/pieces.hpp"
#include "scalar.hpp"
#include "views.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

template <class T> inline constexpr Index rows_of_tile = 512 / sizeof(T);
template <class T> using Native = Pack<T, register_bytes / sizeof(T)>; // one register

/// Calls work<N>(i) for pieces [i, i + N) of [begin, end), N = `most` as long as that fits. Not inlined by itself, a small piece of
/// work waits for what it has captured: a fifth of the time of a small layer.
template <int most, class Work> FEDKERN_INLINE void in_pieces(Index begin, Index end, const Work& work) {
    for (; begin + most <= end; begin += most) work.template operator()<most>(begin);
    if constexpr (most > 1) in_pieces<most - 1>(begin, end, work);
}

// ---- Between arrays and tiles.

inline constexpr Index tiles_of_a_block = 6; // at least, where each block has sums of its own

/// How n rows are cut into tiles, and these into blocks of at least `shortest` tiles, `most` blocks at most: whatever the number of
/// threads.
struct Tiles {
    Index n, rows, shortest, most = max_blocks;

    Index count() const { return (n + rows - 1) / rows; }
    Index blocks() const { return std::min(most, block_count(count(), shortest)); }

    /// Calls work(block, each) for every block: each([](begin, count) {..}) visits its tiles.
    template <class Work> void for_blocks(int n_threads, const Work& work) const {
        fedkern::for_blocks(count(), blocks(), n_threads, [&](Index block, Index first, Index last) {
            work(block, [&](const auto& visit) {
                for (Index t = first; t < last; ++t) visit(t * rows, std::min(rows, n - t * rows));
            });
        });
    }
};

/// A tile of rows that lie one after the other, of so few numbers that the compiler makes shuffles of it.
template <int cols, class T> void load_rows(const T* from, T* to) {
    constexpr Index rows = rows_of_tile<T>;
#pragma GCC ivdep
    for (Index r = 0; r < rows; ++r)
        for (int j = 0; j < cols; ++j) to[j * rows + r] = from[r * cols + j];
}

/// The transpose of a square: on each of log2(N) levels, halves of rows i and i + width change their places.
template <class V, int width = V::size / 2> FEDKERN_INLINE void transpose(V* v) {
    for (int i = 0; i < V::size; ++i)
        if (!(i & width)) {
            const auto a = v[i].part[0], b = v[i + width].part[0];
            [&]<int... l>(std::integer_sequence<int, l...>) {
                v[i].part[0] = __builtin_shufflevector(a, b, (l & width ? V::size + l - width : l)...);
                v[i + width].part[0] = __builtin_shufflevector(a, b, (l & width ? V::size + l : l + width)...);
            }(std::make_integer_sequence<int, V::size>());
        }
    if constexpr (width > 1) transpose<V, width / 2>(v);
}

/// A tile of rows of any stride whose numbers are neighbours, square by square.
template <class T> void load_squares(const T* from, Index stride, Index cols, T* to) {
    using V = Pack<T, std::min<int>(register_bytes, 32) / sizeof(T)>;
    constexpr Index rows = rows_of_tile<T>;
    const Index squares = cols / V::size * V::size;
    for (Index r = 0; r < rows; r += V::size)
        for (Index j = 0; j < squares; j += V::size) {
            V v[V::size];
            for (int i = 0; i < V::size; ++i) v[i] = V::load(from + (r + i) * stride + j);
            transpose(v);
            for (int i = 0; i < V::size; ++i) v[i].store(to + (j + i) * rows + r);
        }
    for (Index j = squares; j < cols; ++j)
        for (Index r = 0; r < rows; ++r) to[j * rows + r] = from[r * stride + j];
}

/// to[j][r] = x(begin + r, j) for `count` rows, and zeros.
template <class T> void load_tile(Matrix<const T> x, Index begin, Index count, std::type_identity_t<T>* to, Index rows = rows_of_tile<T>) {
    if (count == rows_of_tile<T> && count == rows && x.col_stride == 1 && x.row_stride == x.cols) {
        const T* from = x.data + begin * x.cols;
        if (x.cols == 2) return load_rows<2>(from, to);
        if (x.cols == 3) return load_rows<3>(from, to);
        if (x.cols == 4) return load_rows<4>(from, to);
    }
    if (count == rows_of_tile<T> && count == rows && x.col_stride == 1)
        return load_squares(x.data + begin * x.row_stride, x.row_stride, x.cols, to);
    for (Index j = 0; j < x.cols; ++j) {
        const T* from = x.data + begin * x.row_stride + j * x.col_stride;
        for (Index r = 0; r < count; ++r) to[j * rows + r] = from[r * x.row_stride];
        for (Index r = count; r < rows; ++r) to[j * rows + r] = 0;
    }
}

/// x(begin + r, j) = from[j][r].
template <class T>
void store_tile(const std::type_identity_t<T>* from, Matrix<T> x, Index begin, Index count, Index rows = rows_of_tile<T>) {
    for (Index j = 0; j < x.cols; ++j) {
        T* to = x.data + begin * x.row_stride + j * x.col_stride;
        for (Index r = 0; r < count; ++r) to[r * x.row_stride] = from[j * rows + r];
    }
}

// ---- Products of tiles.

/// out[o][r] = finish(start[o] + sum_i w[o * down + i * right] x[i][r], at), o < n_out, i < n_in; without `start` from zero. `finish`
/// takes a pack and where it will stand.
template <class T, class Finish> void multiply(const T* w, Index down, Index right, const std::type_identity_t<T>* start,
                                               const std::type_identity_t<T>* x, Index n_in, Index n_out, T* out, const Finish& finish) {
    using V = Native<T>;
    constexpr Index rows = rows_of_tile<T>;
    constexpr int packs = register_bytes == 64 ? 4 : 2;
    in_pieces<4>(0, n_out, [&]<int N>(Index o) __attribute__((always_inline)) {
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
                for (int p = 0; p < packs; ++p) {
                    const Index at = (o + k) * rows + r + p * V::size;
                    finish(sum[k][p], at).store(out + at);
                }
        }
    });
}
template <class T> void multiply(const T* w, Index down, Index right, const std::type_identity_t<T>* start,
                                 const std::type_identity_t<T>* x, Index n_in, Index n_out, T* out) {
    multiply(w, down, right, start, x, n_in, n_out, out, [](const auto& sum, Index) { return sum; });
}

/// The sums of L packs of L numbers as one pack. On each of log2(L) levels halves are added, as in Pack::sum.
template <class V, int width = V::size / 2> FEDKERN_INLINE V sums_of(const V* v) {
    static_assert(V::parts == 1);
    V half[width];
    for (int i = 0; i < width; ++i)
        half[i].part[0] = [&]<int... lane>(std::integer_sequence<int, lane...>) {
            // Blocks of 2 width lanes: the first half of a result's is of v[i], the second of v[i + width].
            constexpr auto at = [](int l) { return l / (2 * width) * (2 * width) + l % width + (l / width % 2 ? V::size : 0); };
            const auto &a = v[i].part[0], &b = v[i + width].part[0];
            return __builtin_shufflevector(a, b, at(lane)...) + __builtin_shufflevector(a, b, (at(lane) + width)...);
        }(std::make_integer_sequence<int, V::size>());
    if constexpr (width == 1) return half[0];
    else return sums_of<V, width / 2>(half);
}

/// sums[o * n_in + i] += sum_r d[o][r] x[i][r], o < n_out, i < n_in. In float32 the rows of one tile are added up in float32.
template <class T> void add_products(const T* d, Index n_out, const std::type_identity_t<T>* x, Index n_in, double* sums) {
    using V = Native<T>;
    constexpr Index rows = rows_of_tile<T>;
    constexpr int most = register_bytes == 64 ? 4 : 2;
    in_pieces<most>(0, n_out, [&]<int N>(Index o) __attribute__((always_inline)) {
        in_pieces<4>(0, n_in, [&]<int M>(Index i) __attribute__((always_inline)) {
            constexpr int all = (N * M + V::size - 1) / V::size * V::size;
            V sum[all];
            for (int k = 0; k < all; ++k) sum[k] = V::all(0);
            for (Index r = 0; r < rows; r += V::size) {
                V xi[M];
                for (int l = 0; l < M; ++l) xi[l] = V::load(x + (i + l) * rows + r);
                for (int k = 0; k < N; ++k) {
                    const V dk = V::load(d + (o + k) * rows + r);
                    for (int l = 0; l < M; ++l) sum[k * M + l] = sum[k * M + l] + dk * xi[l];
                }
            }
            alignas(64) T total[all];
            for (int k = 0; k < all; k += V::size) sums_of(sum + k).store(total + k);
            for (int k = 0; k < N; ++k) {
                double* to = sums + (o + k) * n_in + i;
                if constexpr (M == 4) {
                    using Four = Pack<double, 4>;
                    (Four::load(to) + Four::load(total + k * M)).store(to);
                } else {
                    for (int l = 0; l < M; ++l) to[l] += double(total[k * M + l]);
                }
            }
        });
    });
}

/// sums[o] += sum_r d[o][r].
template <class T, class Sum> void add_rows_of(const T* d, Index n_out, Sum* sums, Index rows = rows_of_tile<T>) {
    using V = Native<T>;
    for (Index o = 0; o < n_out; ++o) {
        V sum = V::load(d + o * rows);
        for (Index r = V::size; r < rows; r += V::size) sum = sum + V::load(d + o * rows + r);
        sums[o] += Sum(sum.sum());
    }
}

/// total_j = the sum over blocks.
template <class T> void add_blocks(const double* sums, Index blocks, Index k, Vector<T> total) {
    for (Index j = 0; j < k; ++j) {
        double sum = sums[j];
        for (Index b = 1; b < blocks; ++b) sum += sums[b * k + j];
        total[j] = T(sum);
    }
}

// ---- Activations.

template <Activation kind, class V> FEDKERN_INLINE V times_slope(V d, const V& value) {
    for (int i = 0; i < V::parts; ++i) d.part[i] = with_slope<kind>(d.part[i], value.part[i]);
    return d;
}

template <class Work> FEDKERN_INLINE void with_activation(Activation kind, const Work& work) {
    switch (kind) {
    case Activation::tanh: return work.template operator()<Activation::tanh>();
    case Activation::relu: return work.template operator()<Activation::relu>();
    case Activation::identity: return work.template operator()<Activation::identity>();
    }
}

template <class T> void activate(Activation kind, T* x, Index size) {
    with_activation(kind, [&]<Activation f>() {
        for (Index e = 0; e < size; ++e) x[e] = activated<f>(x[e]);
    });
}

// ---- A network.

/// Products of tiles by the loops above.
template <class T> struct Loops {
    static constexpr Index rows() { return rows_of_tile<T>; }

    void affine(const T* W, const T* bias, const T* x, Index n_in, Index n_out, T* out) const {
        multiply(W, n_in, 1, bias, x, n_in, n_out, out);
    }
    /// out[i] = sum_o W(o, i) d[o] for the first n inputs.
    void transposed(const T* W, const T* d, Index n_in, Index n_out, Index n, T* out) const {
        multiply(W, 1, n_in, nullptr, d, n_out, n, out);
    }
    /// The same for all inputs, multiplied by the slope at their values.
    void transposed(const T* W, const T* d, Index n_in, Index n_out, Activation kind, const T* values, T* out) const {
        with_activation(kind, [&]<Activation f>() {
            multiply(W, 1, n_in, nullptr, d, n_out, n_in, out,
                     [&]<class V>(const V& sum, Index at) { return times_slope<f>(sum, V::load(values + at)); });
        });
    }
    /// Adds the gradient of W and the bias behind it.
    void add_gradient(const T* d, const T* x, Index n_in, Index n_out, double* sums) const {
        add_products(d, n_out, x, n_in, sums);
        add_rows_of(d, n_out, sums + n_in * n_out);
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
    template <class Sum> void backward(const T* upstream, Sum* sums, T* inputs, Index n) const {
        const T* d = upstream;
        for (int l = net_.layers - 1; l >= 0; --l) {
            const Index in = net_.sizes[l], out = net_.sizes[l + 1], at = net_.first(l);
            const T* x = values_ + first_of(l) * products_.rows();
            if (sums) products_.add_gradient(d, x, in, out, sums + at);
            if (l == 0) return products_.transposed(parameters_ + at, d, in, out, n, inputs);
            T* to = cotangents_ + l % 2 * widest_ * products_.rows();
            products_.transposed(parameters_ + at, d, in, out, net_.activation, x, to);
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

/// Floating-point operations of a row on the way forward; the way back has twice as many.
inline double network_operations(const Network& net) { return 2.5 * double(net.first(net.layers)) + 30; }

} // namespace FEDKERN_ISA
} // namespace fedkern
