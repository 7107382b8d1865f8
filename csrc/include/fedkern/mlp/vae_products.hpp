// Products of a tile of rows with matrices, for a tile of any number of rows: x[unit][row], so that a weight is one number for a
// whole register. By loops; large matrices by BLAS where there are no fused products.
#pragma once
#include "networks.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

/// The first n of a register's numbers.
template <class T> FEDKERN_INLINE void store_first(const Native<T>& v, T* to, int n) {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4) _mm512_mask_storeu_ps(to, __mmask16((1u << n) - 1), __m512(v.part[0]));
    else _mm512_mask_storeu_pd(to, __mmask8((1u << n) - 1), __m512d(v.part[0]));
#else
    for (int i = 0; i < n; ++i) to[i] = v.part[0][i];
#endif
}

/// As many rows as a register has numbers, exchanged with columns: on level `s`, blocks of s x s numbers change places.
template <class V, int s = 1> FEDKERN_INLINE void exchange(V* v) {
    constexpr int L = V::size;
    [&]<int... lane>(std::integer_sequence<int, lane...>) __attribute__((always_inline)) {
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i)
            if (!(i & s)) {
                const auto a = v[i].part[0], b = v[i + s].part[0];
                v[i].part[0] = __builtin_shufflevector(a, b, (lane & s ? lane - s + L : lane)...);
                v[i + s].part[0] = __builtin_shufflevector(a, b, (lane & s ? lane + L : lane + s)...);
            }
    }(std::make_integer_sequence<int, L>());
    if constexpr (2 * s < L) exchange<V, 2 * s>(v);
}

/// to[j][i] = from[i][j] for i < n, j < m; both counted up to whole registers, and where i >= n, zero. `from` may be read and `to`
/// written up to there.
template <class T> void transpose(const T* from, Index n, Index m, Index from_stride, T* to, Index to_stride) {
    using V = Native<T>;
    constexpr Index L = V::size;
    for (Index i = 0; i < n; i += L)
        for (Index j = 0; j < m; j += L) {
            V v[L];
            if (i + L <= n) {
#pragma GCC unroll 16
                for (Index k = 0; k < L; ++k) v[k] = V::load(from + (i + k) * from_stride + j);
            } else {
#pragma GCC unroll 16
                for (Index k = 0; k < L; ++k) v[k] = i + k < n ? V::load(from + (i + k) * from_stride + j) : V::all(0);
            }
            exchange(v);
#pragma GCC unroll 16
            for (Index k = 0; k < L; ++k) v[k].store(to + (j + k) * to_stride + i);
        }
}

template <class T> constexpr Index whole_registers(Index n) { return (n + Native<T>::size - 1) / Native<T>::size * Native<T>::size; }

/// Outputs worked on together, which take all registers but those of the inputs: of large layers.
inline constexpr int wide_piece = register_bytes == 64 ? 14 : 6;

/// Calls work<N>(i) for pieces of [begin, end): as long as that fits, wide ones first if there are any.
template <bool wide, int most, class Work> FEDKERN_INLINE void in_pieces_of(Index begin, Index end, const Work& work) {
    if constexpr (wide)
        for (; begin + wide_piece <= end; begin += wide_piece) work.template operator()<wide_piece>(begin);
    in_pieces<most>(begin, end, work);
}

/// Terms of a sum that are added up before the next outputs have their turn.
inline constexpr Index depth = 512;

/// out[o][r] = finish(start(o, at) + sum_i w[o * down + i * right] x[i][r], at) for any number of registers in a row; `at` is where
/// it will stand. Of x no more is read at a time than the cache holds, and sums wait in `out` meanwhile: a weight comes from memory
/// once, in rows that the processor fetches ahead, and is copied nowhere. (So `finish` finds in `out` what was there only if n_in <= depth.)
template <bool wide = false, class T, class Start, class Finish>
void multiply_rows(const T* w, Index down, Index right, const std::type_identity_t<T>* x, Index n_in, Index n_out, Index rows, T* out,
                   const Start& start, const Finish& finish) {
    using V = Native<T>;
    constexpr int most = register_bytes == 64 ? 6 : 4;
    for (Index begin = 0; begin == 0 || begin < n_in; begin += depth) {
        const Index end = std::min(n_in, begin + depth);
        in_pieces_of<wide, most>(0, n_out, [&]<int N>(Index o) __attribute__((always_inline)) {
            in_pieces<2>(0, rows / V::size, [&]<int packs>(Index first) __attribute__((always_inline)) {
                const Index r = first * V::size;
                V sum[N][packs];
                for (int k = 0; k < N; ++k)
                    for (int p = 0; p < packs; ++p) {
                        const Index at = (o + k) * rows + r + p * V::size;
                        sum[k][p] = begin ? V::load(out + at) : start(o + k, at);
                    }
                const T* weights = w + o * down;
                for (Index i = begin; i < end; ++i) {
                    V xi[packs];
                    for (int p = 0; p < packs; ++p) xi[p] = V::load(x + i * rows + r + p * V::size);
                    for (int k = 0; k < N; ++k) {
                        const V c = V::all(weights[k * down + i * right]);
                        for (int p = 0; p < packs; ++p) sum[k][p] = sum[k][p] + c * xi[p];
                    }
                }
                for (int k = 0; k < N; ++k)
                    for (int p = 0; p < packs; ++p) {
                        const Index at = (o + k) * rows + r + p * V::size;
                        (end < n_in ? sum[k][p] : finish(sum[k][p], at)).store(out + at);
                    }
            });
        });
    }
}

/// Layers of a tile of `rows` rows, a whole number of registers. W (n_out, n_in) by rows.
template <class T> class TileProducts {
  public:
    /// `widest`: the most inputs of a layer that does not go through BLAS.
    TileProducts(const Blas& blas, Index rows, Index widest)
        : blas_(blas), rows_(rows), exchanged_(rows * (whole_registers<T>(widest) + V::size)) {}

    Index rows() const { return rows_; }
    void use_threads(int n) { threads_ = n; }

    /// From so many weights on wide pieces, or BLAS, are faster.
    static bool is_large(Index n_in, Index n_out) { return n_in * n_out >= (fused ? 24'576 : 4'096); }
    /// Of many rows they are so for fewer weights; sums have the same order.
    bool is_wide(Index n_in, Index n_out) const {
        return is_large(n_in, n_out) || (fused && rows_ >= 64 && n_in >= 32 && n_out >= 2 * wide_piece);
    }

    /// y = W x + b, or max(W x + b, 0); without b W x.
    template <bool relu = false> void affine(const T* W, const T* b, const T* x, Index n_in, Index n_out, T* y) const {
        if (!fused && is_large(n_in, n_out)) {
            for (Index o = 0; o < n_out; ++o) std::fill_n(y + o * rows_, rows_, b ? b[o] : T(0));
            in_parts(n_out, n_in, [&](Index o, Index n) {
                gemm(blas_, 'N', 'N', rows_, n, n_in, x, rows_, W + o * n_in, n_in, T(1), y + o * rows_, rows_);
            });
            if constexpr (relu) activate(Activation::relu, y, n_out * rows_);
            return;
        }
        multiply(
            W, n_in, 1, x, n_in, n_out, y, [b](Index o, Index) { return V::all(b ? b[o] : T(0)); },
            [](V sum, Index) __attribute__((always_inline)) {
                if constexpr (relu) sum.part[0] = sum.part[0] < 0 ? typename V::Part{} : sum.part[0]; // NaN stays
                return sum;
            });
    }

    /// dx[i] = sum_o W(o, first + i) d[o] for i < n; or adds it.
    template <bool add = false> void transposed(const T* W, const T* d, Index n_in, Index n_out, Index first, Index n, T* dx) const {
        if (!fused && is_large(n, n_out))
            return in_parts(n, n_out, [&](Index i, Index m) {
                gemm(blas_, 'N', 'T', rows_, m, n_out, d, rows_, W + first + i, n_in, T(add), dx + i * rows_, rows_);
            });
        if (add && (is_large(n, n_out) || n_out > depth))
            multiply(W + first, 1, n_in, d, n_out, n, dx, [dx](Index, Index at) { return V::load(dx + at); }, as_it_is);
        else
            multiply(W + first, 1, n_in, d, n_out, n, dx, from_zero, [dx](const V& sum, Index at) __attribute__((always_inline)) {
                if constexpr (add) return sum + V::load(dx + at);
                else return sum;
            });
    }

    /// The cotangent of what stands before max(., 0), whose values are known.
    void through_relu(const T* W, const T* d, Index n_in, Index n_out, const T* values, T* dx) const {
        if (!fused && is_large(n_in, n_out)) {
            transposed(W, d, n_in, n_out, 0, n_in, dx);
            for (Index e = 0; e < n_in * rows_; ++e) dx[e] = values[e] > 0 ? dx[e] : T(0);
            return;
        }
        multiply(W, 1, n_in, d, n_out, n_in, dx, from_zero, [values](const V& sum, Index at) __attribute__((always_inline)) {
            return times_slope<Activation::relu>(sum, V::load(values + at));
        });
    }

    /// G(o, i) = sum_r d[o][r] x[i][r], and of a bias the sums of d; or adds them.
    void gradient(const T* d, const T* x, Index n_in, Index n_out, T* G, T* bias, bool add) const {
        if (!is_wide(n_in, n_out)) small_gradient(d, x, n_in, n_out, G, add);
        else if constexpr (fused) large_gradient(d, x, n_in, n_out, G, add);
        else
            in_parts(n_out, n_in, [&](Index o, Index n) {
                gemm(blas_, 'T', 'N', n_in, n, rows_, x, rows_, d + o * rows_, rows_, T(add), G + o * n_in, n_in);
            });
        if (!bias) return;
        if (!add) std::fill_n(bias, n_out, T(0));
        add_rows(d, n_out, bias);
    }

  private:
    const Blas& blas_;
    const Index rows_;
    const Scratch<T> exchanged_;
    int threads_ = 1;

    using V = Native<T>;
    static constexpr auto from_zero = [](Index, Index) { return V::all(0); };
    static constexpr auto as_it_is = [](const V& sum, Index) { return sum; };

    /// A large product by parts of the result's columns, whole pieces of them: how many there are depends on the sizes alone.
    template <class Work> void in_parts(Index columns, Index inner, const Work& work) const {
        const double operations = 2 * double(rows_) * double(columns) * double(inner);
        const Index piece = fused ? wide_piece : 1, shortest = fused ? 2 * wide_piece : 64;
        const Index parts = std::clamp(std::min(Index(operations / 1e7), columns / shortest), Index{1}, Index{8});
        for_blocks((columns + piece - 1) / piece, parts, threads_, [&](Index, Index begin, Index end) {
            begin *= piece, end = std::min(end * piece, columns);
            work(begin, end - begin);
        });
    }

    /// `multiply_rows` for this tile, of large matrices in parts.
    template <class Start, class Finish> void multiply(const T* w, Index down, Index right, const T* x, Index n_in, Index n_out, T* out,
                                                       const Start& start, const Finish& finish) const {
        if (!is_wide(n_in, n_out)) return multiply_rows(w, down, right, x, n_in, n_out, rows_, out, start, finish);
        in_parts(n_out, n_in, [&](Index o, Index n) {
            const Index skipped = o * rows_;
            multiply_rows<true>(
                w + o * down, down, right, x, n_in, n, rows_, out + skipped,
                [&](Index k, Index at) __attribute__((always_inline)) { return start(o + k, skipped + at); },
                [&](const V& sum, Index at) __attribute__((always_inline)) { return finish(sum, skipped + at); });
        });
    }

    /// G from registers of its columns: x is exchanged for as many columns at a time as a sum has.
    void large_gradient(const T* d, const T* x, Index n_in, Index n_out, T* G, bool add) const {
        const Index rows = rows_, registers = whole_registers<T>(n_in) / V::size;
        for_blocks((registers + 1) / 2, 2, worthwhile(threads_, 4 * double(n_in * rows)), [&](Index, Index begin, Index end) {
            for (Index i = 2 * begin * V::size; i < std::min(2 * end * V::size, n_in); i += 2 * V::size)
                transpose(x + i * rows, std::min<Index>(n_in - i, 2 * V::size), rows, rows, exchanged_ + i * rows, 2 * V::size);
        });
        in_parts(n_out, n_in, [&](Index first, Index n) {
            in_pieces_of<true, wide_piece / 2>(first, first + n, [&]<int N>(Index o) __attribute__((always_inline)) {
                in_pieces<2>(0, registers, [&]<int packs>(Index column) __attribute__((always_inline)) {
                    const Index i = column * V::size;
                    V sum[N][packs];
                    for (int k = 0; k < N; ++k)
                        for (int p = 0; p < packs; ++p) sum[k][p] = V::all(0);
                    const T *from = d + o * rows, *columns = exchanged_ + i * rows;
                    for (Index r = 0; r < rows; ++r) {
                        V xi[packs];
                        for (int p = 0; p < packs; ++p) xi[p] = V::load(columns + (2 * r + p) * V::size);
                        for (int k = 0; k < N; ++k) {
                            const V dk = V::all(from[k * rows + r]);
                            for (int p = 0; p < packs; ++p) sum[k][p] = sum[k][p] + dk * xi[p];
                        }
                    }
                    store_columns(sum, G + o * n_in + i, n_in, n_in - i, add);
                });
            });
        });
    }

    /// Sums to N rows of G, of which `left` columns are left.
    template <int N, int packs> FEDKERN_INLINE static void store_columns(const V (&sum)[N][packs], T* G, Index n_in, Index left, bool add) {
        for (int k = 0; k < N; ++k)
            for (int p = 0; p < packs; ++p) {
                T* to = G + k * n_in + p * V::size;
                const Index n = left - p * V::size;
                if (n >= V::size) (add ? sum[k][p] + V::load(to) : sum[k][p]).store(to);
                else store_first<T>(add ? sum[k][p] + V::load(to, int(n)) : sum[k][p], to, int(n));
            }
    }

    /// Columns of G in lanes: that needs x row by row.
    void small_gradient(const T* d, const T* x, Index n_in, Index n_out, T* G, bool add) const {
        constexpr int most = register_bytes == 64 ? 6 : 4;
        const Index width = whole_registers<T>(n_in), rows = rows_;
        transpose(x, n_in, rows, rows, static_cast<T*>(exchanged_), width);
        in_pieces<2>(0, width / V::size, [&]<int packs>(Index first) __attribute__((always_inline)) {
            const Index i = first * V::size;
            const T* columns = exchanged_ + i;
            in_pieces<most>(0, n_out, [&]<int N>(Index o) __attribute__((always_inline)) {
                V sum[N][packs];
                for (int k = 0; k < N; ++k)
                    for (int p = 0; p < packs; ++p) sum[k][p] = V::all(0);
                const T* from = d + o * rows;
                for (Index r = 0; r < rows; ++r) {
                    V xi[packs];
                    for (int p = 0; p < packs; ++p) xi[p] = V::load(columns + r * width + p * V::size);
                    for (int k = 0; k < N; ++k) {
                        const V dk = V::all(from[k * rows + r]);
                        for (int p = 0; p < packs; ++p) sum[k][p] = sum[k][p] + dk * xi[p];
                    }
                }
                store_columns(sum, G + o * n_in + i, n_in, n_in - i, add);
            });
        });
    }

    /// sums[o] += sum_r d[o][r], as many of them at once as a register has numbers.
    void add_rows(const T* d, Index n_out, T* sums) const {
        Index o = 0;
        for (; o + V::size <= n_out; o += V::size) {
            V sum[V::size];
            for (Index k = 0; k < V::size; ++k) {
                sum[k] = V::load(d + (o + k) * rows_);
                for (Index r = V::size; r < rows_; r += V::size) sum[k] = sum[k] + V::load(d + (o + k) * rows_ + r);
            }
            (sums_of(sum) + V::load(sums + o)).store(sums + o);
        }
        add_rows_of(d + o * rows_, n_out - o, sums + o, rows_);
    }
};

} // namespace FEDKERN_ISA
} // namespace fedkern
