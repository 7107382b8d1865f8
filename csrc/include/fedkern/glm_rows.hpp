// The rows of a regression, a block at a time: pointers into X where its rows are contiguous, otherwise a small copy.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "glm_views.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

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
    case Column::Type::i64: return read_column<long long>(c, n, row, out);
    case Column::Type::i32: return read_column<int>(c, n, row, out);
    case Column::Type::i8: return read_column<signed char>(c, n, row, out);
    case Column::Type::u8: return read_column<unsigned char>(c, n, row, out);
    }
}

/// At most `capacity` rows. Columns are padded with harmless numbers to a multiple of eight, so that loops need no tail.
template <class T> class RowBlock {
  public:
    static constexpr Index capacity = 64;
    Index size = 0, padded = 0;
    const T* x[capacity];
    alignas(64) double y[capacity], offset[capacity], weight[capacity];

    explicit RowBlock(const Regression<T>& data) : data_(data) {
        if (data.x.col_stride != 1) copy_.resize(length(data) * data.x.cols);
    }

    /// How many rows stay in a core's first-level cache together.
    static Index length(const Regression<T>& data) {
        const Index bytes = std::max<Index>(data.x.cols, 1) * Index(sizeof(T));
        return std::clamp(24 * 1024 / bytes / 8 * 8, Index{8}, capacity);
    }

    /// Loads rows [begin, begin + n); a response outside the family's domain becomes NaN.
    template <class Family> void load(Index begin, Index n, const Family& family) {
        size = n, padded = (n + 7) / 8 * 8;
        const auto row = [&](Index i) { return data_.picked ? data_.picked[begin + i] : begin + i; };
        read_column(data_.y, n, row, y);
        read_column(data_.offset, n, row, offset);
        read_column(data_.weight, n, row, weight);
        for (Index i = 0; i < n; ++i) y[i] = family.clean(y[i]);
        for (Index i = n; i < padded; ++i) y[i] = offset[i] = weight[i] = 0;
        const auto& m = data_.x;
        for (Index i = 0; i < n; ++i) x[i] = copy_.empty() ? m.data + row(i) * m.row_stride : copy_.data() + i * m.cols;
        if (copy_.empty()) return;
        // Column by column where those are the neighbours in memory.
        if (std::abs(m.row_stride) < std::abs(m.col_stride))
            for (Index j = 0; j < m.cols; ++j)
                for (Index i = 0; i < n; ++i) copy_[i * m.cols + j] = m.data[row(i) * m.row_stride + j * m.col_stride];
        else
            for (Index i = 0; i < n; ++i)
                for (Index j = 0; j < m.cols; ++j) copy_[i * m.cols + j] = m.data[row(i) * m.row_stride + j * m.col_stride];
    }

  private:
    const Regression<T>& data_;
    std::vector<T> copy_;
};

} // namespace FEDKERN_ISA
} // namespace fedkern
