// The rows of a regression, a block at a time: pointers into X where its rows are contiguous, otherwise a small copy; and the
// products of a block with vectors and with panels of eight vectors.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "blocks.hpp"
#include "glm_families.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

inline constexpr Index block_rows = 64; // at most, in one block
inline constexpr Index panel = 8;       // vectors in a panel

FEDKERN_INLINE constexpr Index round_up(Index n, Index step) { return (n + step - 1) / step * step; }

template <class T, class Row> FEDKERN_INLINE void read_column(const Column& c, Index n, const Row& row, double* out) {
    for (Index i = 0; i < n; ++i) {
        T value;
        __builtin_memcpy(&value, static_cast<const char*>(c.data) + row(i) * c.stride, sizeof value);
        out[i] = double(value);
    }
}

template <class Row> void read_column(const Column& c, Index n, const Row& row, double* out) {
    if (!c.data) return void(std::fill_n(out, n, c.fill));
    switch (c.type) {
    case Column::Type::f64: return read_column<double>(c, n, row, out);
    case Column::Type::f32: return read_column<float>(c, n, row, out);
    case Column::Type::i64: return read_column<long>(c, n, row, out);
    case Column::Type::i32: return read_column<int>(c, n, row, out);
    case Column::Type::i8: return read_column<signed char>(c, n, row, out);
    case Column::Type::u8: return read_column<unsigned char>(c, n, row, out);
    }
}

/// Walks over the rows [begin, end) in blocks, with numbers of type T: double, or float if X is in float32. Columns are padded with
/// harmless numbers to a multiple of eight.
template <class T> class RowBlock {
  public:
    Index begin, size = 0, padded = 0;
    const T* x[block_rows];
    alignas(64) double y[block_rows], offset[block_rows], weight[block_rows];

    RowBlock(const Regression& data, const Family& family, Index first, Index end)
        : begin(first), data_(data), family_(family), end_(end), copied_(data.col_stride != 1 || data.single != (sizeof(T) == 4)) {
        // As many rows as stay in a core's first-level cache.
        const Index bytes = std::max<Index>(data.d, 1) * Index(sizeof(T));
        length_ = std::clamp(24 * 1024 / bytes / 8 * 8, Index{8}, block_rows);
        if (copied_) copy_.resize(length_ * data.d);
    }

    /// Loads the next block, if there is one; a response outside the family's domain becomes NaN.
    bool next() {
        begin += size;
        if (begin >= end_) return false;
        size = std::min(length_, end_ - begin), padded = round_up(size, 8);
        read_column(data_.y, size, [this](Index i) { return row(i); }, y);
        read_column(data_.offset, size, [this](Index i) { return row(i); }, offset);
        read_column(data_.weight, size, [this](Index i) { return row(i); }, weight);
        family_.clean(size, y);
        for (Index i = size; i < padded; ++i) y[i] = offset[i] = weight[i] = 0;
        if (!copied_)
            for (Index i = 0; i < size; ++i) x[i] = static_cast<const T*>(data_.x) + row(i) * data_.row_stride;
        else if (data_.single)
            copy(static_cast<const float*>(data_.x));
        else
            copy(static_cast<const double*>(data_.x));
        return true;
    }

    /// Asks the memory for row i of the next block.
    FEDKERN_INLINE void prefetch(Index i) const {
        const Index ahead = length_ + i;
        if (begin + ahead >= end_ || data_.col_stride != 1) return;
        const Index bytes = data_.single ? 4 : 8;
        const char* from = static_cast<const char*>(data_.x) + row(ahead) * data_.row_stride * bytes;
        for (Index b = 0; b < data_.d * bytes; b += 64) __builtin_prefetch(from + b);
    }

  private:
    FEDKERN_INLINE Index row(Index i) const { return data_.picked ? data_.picked[begin + i] : begin + i; }

    template <class Source> void copy(const Source* from) {
        const Index d = data_.d, down = data_.row_stride, right = data_.col_stride;
        for (Index i = 0; i < size; ++i) x[i] = copy_.data() + i * d;
        if (right == 1)
            for (Index i = 0; i < size; ++i) std::copy_n(from + row(i) * down, d, copy_.data() + i * d);
        else if (std::abs(down) < std::abs(right)) // the neighbours in memory are rows
            for (Index j = 0; j < d; ++j)
                for (Index i = 0; i < size; ++i) copy_[i * d + j] = T(from[row(i) * down + j * right]);
        else
            for (Index i = 0; i < size; ++i)
                for (Index j = 0; j < d; ++j) copy_[i * d + j] = T(from[row(i) * down + j * right]);
    }

    const Regression& data_;
    const Family& family_;
    Index end_, length_;
    bool copied_;
    std::vector<T> copy_;
};

/// A contiguous copy of x in type T, followed by zeros up to a multiple of sixteen.
template <class T> std::vector<T> padded_copy(Vector<const double> x) {
    std::vector<T> copy(round_up(x.size, 16));
    for (Index j = 0; j < x.size; ++j) copy[j] = T(x[j]);
    return copy;
}

/// Calls work(pack of x_j .., j) over a row, the last pack filled with zeros.
template <class V, class T, class Work> FEDKERN_INLINE void for_packs(const T* x, Index d, const Work& work) {
    Index j = 0;
    for (; j + V::size <= d; j += V::size) work(V::load(x + j), j);
    if (j < d) work(V::load(x + j, int(d - j)), j);
}

// ---- Products of a block of rows with one vector.

/// In float32 a sum is closed after this many columns, so that errors do not grow with d.
template <class A> inline constexpr Index stretch = sizeof(A) == 4 ? 256 : Index{1} << 40;

template <int R, class A> FEDKERN_INLINE void dot_tile(const A* const* x, const A* t, Index begin, Index size, A* a) {
    using V = Pack<A>;
    V sum[R];
    const A* row[R];
    for (int r = 0; r < R; ++r) sum[r] = V::all(0), row[r] = x[r] + begin;
    Index j = 0;
    for (; j + V::size <= size; j += V::size) {
        const V tj = V::load(t + begin + j);
        for (int r = 0; r < R; ++r) sum[r] = sum[r] + V::load(row[r] + j) * tj;
    }
    if (j < size) {
        const V tj = V::load(t + begin + j);
        for (int r = 0; r < R; ++r) sum[r] = sum[r] + V::load(row[r] + j, int(size - j)) * tj;
    }
    for (int r = 0; r < R; ++r) a[r] += sum[r].sum();
}

/// a_i = x_i't for n rows in sums of type A; t is padded.
template <class A> void row_dots(const A* const* x, Index n, const A* t, Index d, A* a) {
    std::fill_n(a, n, A(0));
    for (Index begin = 0; begin < d; begin += stretch<A>) {
        const Index size = std::min(stretch<A>, d - begin);
        Index i = 0;
        for (; i + 4 <= n; i += 4) dot_tile<4>(x + i, t, begin, size, a + i);
        for (; i < n; ++i) dot_tile<1>(x + i, t, begin, size, a + i);
    }
}

/// g_j += sum_i r_i x_ij over n rows, n a multiple of eight; before(i) is called before rows [i, i + 8).
template <class T, class Before> void add_rows(const T* const* x, Index n, const T* r, Index d, T* __restrict g, const Before& before) {
    for (Index i = 0; i < n; i += 8) {
        before(i);
        const T *x0 = x[i], *x1 = x[i + 1], *x2 = x[i + 2], *x3 = x[i + 3], *x4 = x[i + 4], *x5 = x[i + 5], *x6 = x[i + 6], *x7 = x[i + 7];
        const T r0 = r[i], r1 = r[i + 1], r2 = r[i + 2], r3 = r[i + 3], r4 = r[i + 4], r5 = r[i + 5], r6 = r[i + 6], r7 = r[i + 7];
        for (Index j = 0; j < d; ++j) {
            const T even = (g[j] + r0 * x0[j]) + r2 * x2[j] + r4 * x4[j] + r6 * x6[j];
            g[j] = even + (r1 * x1[j] + r3 * x3[j] + r5 * x5[j] + r7 * x7[j]);
        }
    }
}

// ---- Products with a panel: eight vectors at once.

/// out[i][0..8) += sum_j x_ij p[j][0..8), rows i of a tile.
template <int R, class A> FEDKERN_INLINE void panel_tile(const A* const* x, const A* p, Index begin, Index size, A* out) {
    using V = Pack<A, panel>;
    V sum[R];
    const A* row[R];
    for (int r = 0; r < R; ++r) sum[r] = V::all(0), row[r] = x[r] + begin;
    for (Index j = 0; j < size; ++j) {
        const V pj = V::load(p + (begin + j) * panel);
        for (int r = 0; r < R; ++r) sum[r] = sum[r] + V::all(row[r][j]) * pj;
    }
    for (int r = 0; r < R; ++r) (V::load(out + r * panel) + sum[r]).store(out + r * panel);
}

/// out[i][0..8) = sum_j x_ij p[j][0..8) for n rows and the columns from `first` on.
template <class A> void row_panel(const A* const* x, Index n, const A* p, Index first, Index d, A* out) {
    constexpr int tile = 8 / Pack<A, panel>::parts; // eight sums in registers
    std::fill_n(out, n * panel, A(0));
    for (Index begin = first; begin < d; begin += stretch<A>) {
        const Index size = std::min(stretch<A>, d - begin);
        Index i = 0;
        for (; i + tile <= n; i += tile) panel_tile<tile>(x + i, p, begin, size, out + i * panel);
        for (; i < n; ++i) panel_tile<1>(x + i, p, begin, size, out + i * panel);
    }
}

/// g[s][j] += sum_i c[i][s] x_ij, s < 8, over n rows and the first d columns. Sums over the block are of type A.
template <class A> void add_panel(const A* const* x, Index n, const A* c, Index d, double* g, Index row_stride) {
    constexpr int width = register_bytes / sizeof(A), both = register_bytes == 64 ? 2 : 1;
    using V = Pack<A, width>;
    const auto add = [&](Index j, const auto& load) {
        V sum[panel][both];
        for (int s = 0; s < panel; ++s)
            for (int b = 0; b < both; ++b) sum[s][b] = V::all(0);
        for (Index i = 0; i < n; ++i) {
            V xi[both];
            for (int b = 0; b < both; ++b) xi[b] = load(x[i] + j + b * width, b);
            for (int s = 0; s < panel; ++s)
                for (int b = 0; b < both; ++b) sum[s][b] = sum[s][b] + V::all(c[i * panel + s]) * xi[b];
        }
        const Index valid = std::min<Index>(width * both, d - j);
        for (int s = 0; s < panel; ++s) {
            A values[width * both];
            for (int b = 0; b < both; ++b) sum[s][b].store(values + b * width);
            for (Index l = 0; l < valid; ++l) g[s * row_stride + j + l] += double(values[l]);
        }
    };
    Index j = 0;
    for (; j + width * both <= d; j += width * both) add(j, [](const A* xj, int) { return V::load(xj); });
    if (j < d) add(j, [&](const A* xj, int b) { return V::load(xj, int(std::clamp<Index>(d - j - b * width, 0, width))); });
}

} // namespace FEDKERN_ISA
} // namespace fedkern
