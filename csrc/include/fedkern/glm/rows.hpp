// The rows of a regression, a block at a time: pointers into X where its rows are contiguous, otherwise a small copy; and the
// products of a block with vectors and with panels of eight vectors.
#pragma once
#include <algorithm>
#include <cmath>
#include <new>
#include <vector>

#include "fedkern/blocks.hpp"
#include "fedkern/privacy/rows.hpp"
#include "families.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

inline constexpr Index block_rows = 64; // at most, in one block
inline constexpr Index panel = 8;       // vectors in a panel

FEDKERN_INLINE constexpr Index round_up(Index n, Index step) { return (n + step - 1) / step * step; }

/// How many chunks of n rows have partial results of their own, of `size` numbers: the same for any number of threads, and never
/// more than 64 MiB of them.
inline Index chunk_count(Index n, Index size) { return std::clamp((Index{1} << 23) / std::max<Index>(size, 1), Index{1}, block_count(n)); }

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

/// Where the memory is asked for the rows of the next block while this one is worked on: in the order in which they lie, because
/// memory that is read in another order is half as fast, and evenly, because only a few requests can be under way.
struct Ahead {
    static constexpr char nowhere[64] = {};
    const char* first = nowhere;
    Index row = 0, pace = 0; // bytes to go on for each row, and for each pack of a row
    const char* of(Index i) const { return first + i * row; }
};

/// Walks over the rows [begin, end) in blocks, with numbers of type T: double, or float if X is in float32. Columns are padded with
/// harmless numbers to a multiple of eight.
template <class T> class RowBlock {
  public:
    Index begin, size = 0, padded = 0;
    const T* x[block_rows];
    alignas(64) double y[block_rows], offset[block_rows], weight[block_rows];

    /// A block has as many rows as fit into `bytes`.
    RowBlock(const Regression& data, const Family& family, Index first, Index end, Index bytes = block_bytes)
        : begin(first), data_(data), family_(family), end_(end), copied_(data.col_stride != 1 || data.single != (sizeof(T) == 4)) {
        length_ = std::clamp(bytes / (std::max<Index>(data.d, 1) * Index(sizeof(T))) / 8 * 8, Index{8}, block_rows);
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
        else if (data_.single) copy(static_cast<const float*>(data_.x));
        else copy(static_cast<const double*>(data_.x));
        return true;
    }

    /// Asking for so many eighths of the next block while each pack of this one is read once.
    Ahead ahead(Index eighths = 8) const {
        const Index bytes = data_.single ? 4 : 8;
        const bool neighbours = data_.col_stride == 1 && data_.row_stride >= data_.d && data_.row_stride <= 2 * data_.d;
        if (data_.picked || !neighbours || begin + length_ >= end_) return {reinterpret_cast<const char*>(x[0]), 0, 0};
        return {static_cast<const char*>(data_.x) + (begin + length_) * data_.row_stride * bytes, data_.row_stride * bytes * eighths / 8,
                64 / Index(sizeof(T)) * bytes * eighths / 8};
    }

  private:
    FEDKERN_INLINE Index row(Index i) const { return data_.picked ? data_.picked[begin + i] : begin + i; }

    template <class Source> void copy(const Source* from) {
        const Index d = data_.d, down = data_.row_stride, right = data_.col_stride;
        for (Index i = 0; i < size; ++i) x[i] = copy_.data() + i * d;
        using V = Pack<T>;
        if (right == 1)
            for (Index i = 0; i < size; ++i) {
                const Source* source = from + row(i) * down;
                T* to = copy_.data() + i * d;
                Index j = 0;
                for (; j + V::size <= d; j += V::size) V::load(source + j).store(to + j);
                for (; j < d; ++j) to[j] = T(source[j]);
            }
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

/// A vector that begins at a cache line, for what is large or used often: memory for it takes .1 us longer to get.
template <class T> struct AtLine {
    using value_type = T;
    AtLine() = default;
    template <class U> AtLine(const AtLine<U>&) {}
    T* allocate(std::size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(64))); }
    void deallocate(T* data, std::size_t) { ::operator delete(data, std::align_val_t(64)); }
    bool operator==(const AtLine&) const { return true; }
};
template <class T> using Lines = std::vector<T, AtLine<T>>;

/// A contiguous copy of x in type T, followed by zeros up to a multiple of sixteen.
template <class T> Lines<T> padded_copy(Vector<const double> x) {
    Lines<T> copy(round_up(x.size, 16));
    for (Index j = 0; j < x.size; ++j) copy[j] = T(x[j]);
    return copy;
}

/// Rows that are worked on together where they are in cache and share what they are multiplied with.
inline constexpr int tile_rows = register_bytes == 64 ? 4 : 1;

/// Calls work(r, pack of x_rj .., j) over R rows, the last packs filled with zeros, and `asks` the memory for what is at `at`.
template <class V, int R, bool asks = true, class T, class Work>
FEDKERN_INLINE void for_packs(const T* const* x, Index d, const char* at, Index pace, const Work& work) {
    Index j = 0;
    for (; j + V::size <= d; j += V::size)
        for (int r = 0; r < R; ++r) {
            if constexpr (asks) ask(at), at += pace;
            work(r, V::load(x[r] + j), j);
        }
    if (j < d)
        for (int r = 0; r < R; ++r) work(r, V::load(x[r] + j, int(d - j)), j);
}

// ---- Products of a block of rows with one vector.

/// In float32 a sum is closed after this many columns, so that errors do not grow with d.
template <class A> inline constexpr Index closed = sizeof(A) == 4 ? 128 : Index{1} << 40;

/// a_i = x_i't for n rows; t is padded. Row by row, in the order of memory.
template <class A> void row_dots(const A* const* x, const Ahead& ahead, Index n, const A* t, Index d, A* a) {
    using V = Streamed<A>;
    for (Index i = 0; i < n; ++i) {
        a[i] = 0;
        for (Index begin = 0; begin < d; begin += closed<A>) {
            const Index size = std::min(closed<A>, d - begin);
            const A *row = x[i] + begin, *tj = t + begin;
            const char* at = ahead.of(i) + begin / V::size * ahead.pace;
            V sum = V::all(0);
            Index j = 0;
            for (; j + 4 * V::size <= size; j += 4 * V::size) // few instructions for many bytes: the processor looks further ahead
                for (int k = 0; k < 4; ++k) {
                    ask(at), at += ahead.pace;
                    sum = sum + V::load(row + j + k * V::size) * V::load(tj + j + k * V::size);
                }
            for (; j + V::size <= size; j += V::size) {
                ask(at), at += ahead.pace;
                sum = sum + V::load(row + j) * V::load(tj + j);
            }
            if (j < size) sum = sum + V::load(row + j, int(size - j)) * V::load(tj + j);
            a[i] += sum.sum();
        }
    }
}

/// g_j += sum_i r_i x_ij over n rows, n a multiple of eight; g is padded. Asks for three bytes ahead for every eight that it reads.
template <class T> void add_rows(const T* const* x, const char* at, Index n, const T* r, Index d, T* g) {
    using V = Streamed<T>;
    for (Index i = 0; i < n; i += 8) {
        V ri[8];
        for (int k = 0; k < 8; ++k) ri[k] = V::all(r[i + k]);
        const auto add = [&](Index j, const auto& load) {
            V sum = V::load(g + j);
            ask(at), ask(at + 64), ask(at + 128), at += 192;
            for (int k = 0; k < 8; ++k) sum = sum + ri[k] * load(x[i + k] + j);
            sum.store(g + j);
        };
        Index j = 0;
        for (; j + V::size <= d; j += V::size) add(j, [](const T* p) { return V::load(p); });
        if (j < d) add(j, [&](const T* p) { return V::load(p, int(d - j)); });
    }
}

// ---- Products with a panel: eight vectors at once.

/// out[i][0..8) += sum_j x_ij p[j][0..8), rows i of a tile.
template <int R, class A> FEDKERN_INLINE void panel_tile(const A* const* x, const char* at, Index pace, const A* p, Index size, A* out) {
    using V = Pack<A, panel>;
    constexpr int lines = R * int(sizeof(A)) / 16; // so many are four columns of the rows
    V sum[R];
    for (int r = 0; r < R; ++r) sum[r] = V::all(0);
    const auto step = [&](Index j) {
        const V pj = V::load(p + j * panel);
        for (int r = 0; r < R; ++r) sum[r] = sum[r] + V::all(x[r][j]) * pj;
    };
    Index j = 0;
    for (; j + 4 <= size; j += 4, at += pace)
        for (int k = 0; k < 4; ++k) {
            step(j + k);
            if (k < lines) ask(at + 64 * k);
        }
    for (; j < size; ++j) step(j);
    for (int r = 0; r < R; ++r) (V::load(out + r * panel) + sum[r]).store(out + r * panel);
}

/// out[i][0..8) += sum_j x_ij p[j][0..8) for n rows and the columns from `first` on.
template <class A> void row_panel(const A* const* x, const Ahead& ahead, Index n, const A* p, Index first, Index d, A* out) {
    constexpr int tile = 8 / Pack<A, panel>::parts; // eight sums in registers
    for (Index begin = first; begin < d; begin += closed<A>) {
        const Index size = std::min(closed<A>, d - begin);
        for (Index i = 0; i < n; i += tile) {
            const int rows = int(std::min<Index>(tile, n - i));
            const Index pace = 4 * ahead.row * rows / d;
            const char* at = ahead.of(i) + begin * pace / 4;
            const A* row[tile];
            for (int r = 0; r < tile; ++r) row[r] = x[i + std::min(r, rows - 1)] + begin;
            if (rows == tile) {
                panel_tile<tile>(row, at, pace, p + begin * panel, size, out + i * panel);
            } else {
                for (int r = 0; r < rows; ++r) panel_tile<1>(row + r, at, 0, p + begin * panel, size, out + (i + r) * panel);
            }
        }
    }
}

/// The columns [j, j + R V::size) of add_panel: `load` reads a pack.
template <class V, int R, class A, class Load>
FEDKERN_INLINE void add_panel_columns(const A* const* x, Index n, const A* c, Index j, double* g, Index row_stride, const Load& load) {
    V sum[panel][R];
    for (int s = 0; s < panel; ++s)
        for (int r = 0; r < R; ++r) sum[s][r] = V::all(0);
    for (Index i = 0; i < n; ++i) {
        V xi[R];
        for (int r = 0; r < R; ++r) xi[r] = load(x[i] + j + r * V::size);
        for (int s = 0; s < panel; ++s)
            for (int r = 0; r < R; ++r) sum[s][r] = sum[s][r] + V::all(c[i * panel + s]) * xi[r];
    }
    for (int s = 0; s < panel; ++s)
        for (int r = 0; r < R; ++r) {
            A values[V::size];
            sum[s][r].store(values);
            double* to = g + s * row_stride + j + r * V::size;
            using D = Pack<double, V::size>;
            (D::load(to) + D::load(values)).store(to);
        }
}

/// g[s][j] += sum_i c[i][s] x_ij, s < 8, over n rows and the first d columns; rows of g are padded. Sums over the block are of type A.
template <class A> void add_panel(const A* const* x, Index n, const A* c, Index d, double* g, Index row_stride) {
    using V = Pack<A, register_bytes / sizeof(A)>;
    constexpr int R = register_bytes == 64 ? 2 : 1;
    const auto whole = [](const A* p) { return V::load(p); };
    Index j = 0;
    for (; j + R * V::size <= d; j += R * V::size) add_panel_columns<V, R>(x, n, c, j, g, row_stride, whole);
    for (; j + V::size <= d; j += V::size) add_panel_columns<V, 1>(x, n, c, j, g, row_stride, whole);
    if (j == d) return;
    if constexpr (register_bytes == 64) {
        using Half = Pack<A, V::size / 2>;
        if (d - j <= Half::size)
            return add_panel_columns<Half, 1>(x, n, c, j, g, row_stride, [&](const A* p) { return Half::load(p, int(d - j)); });
    }
    add_panel_columns<V, 1>(x, n, c, j, g, row_stride, [&](const A* p) { return V::load(p, int(d - j)); });
}

} // namespace FEDKERN_ISA
} // namespace fedkern
