// Predictors x'beta of rows at many points: a product of matrices by tiles of rows and points whose sums stay in registers. Each sum
// begins at a number of the row's and adds column after column, so that its bits depend neither on the tile nor on the other points.
#pragma once
#include <algorithm>

#include "pack.hpp"
#include "pieces.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

/// Coefficients of points, column by column of `panel` points that a tile has, the last of them filled up with zeros to 8.
class PointCoefficients {
  public:
    static constexpr Index panel = register_bytes == 64 ? 16 : 8; // two registers, but of the baseline four
    static constexpr int rows = register_bytes == 64 ? 12 : register_bytes == 32 ? 6 : 2;

    PointCoefficients(Index p, Index points) : p_(p), points_((points + 7) / 8 * 8), held_(p_ * points_) {
        std::fill_n(+held_, p * points_, 0.0);
    }

    double& at(Index j, Index point) { return held_[place(point) + j * wide(point) + point % panel]; }

    /// to[r * step + point] = start(r) + x(r)'beta, of `count` rows; x(r) is a pointer.
    template <class Row, class Start> void predict(Index count, const Row& x, const Start& start, double* to, Index step) const {
        for (Index point = 0; point < points_; point += panel) {
            const double* beta = held_ + place(point);
            if (panel == 8 || wide(point) == 8) tiles<8>(count, x, start, beta, to + point, step);
            else tiles<panel>(count, x, start, beta, to + point, step);
        }
    }

  private:
    Index place(Index point) const { return point / panel * panel * p_; }
    Index wide(Index point) const { return std::min(panel, points_ - point / panel * panel); }

    template <int N, class Row, class Start>
    void tiles(Index count, const Row& x, const Start& start, const double* beta, double* to, Index step) const {
        Index r = 0;
        for (; r + rows <= count; r += rows) tile<rows, N>(r, x, start, beta, to, step);
        if constexpr (rows > 4)
            for (; r + 4 <= count; r += 4) tile<4, N>(r, x, start, beta, to, step);
        for (; r < count; ++r) tile<1, N>(r, x, start, beta, to, step);
    }

    template <int R, int N, class Row, class Start>
    FEDKERN_INLINE void tile(Index first, const Row& x, const Start& start, const double* beta, double* to, Index step) const {
        using Some = Pack<double, N>;
        const double* row[R];
        Some sum[R];
        for (int r = 0; r < R; ++r) row[r] = x(first + r), sum[r] = Some::all(start(first + r));
        for (Index j = 0; j < p_; ++j) {
            const Some b = Some::load(beta + j * N);
            for (int r = 0; r < R; ++r) sum[r] = sum[r] + Some::all(row[r][j]) * b;
        }
        for (int r = 0; r < R; ++r) sum[r].store(to + (first + r) * step);
    }

    Index p_, points_;
    Scratch<double> held_;
};

} // namespace FEDKERN_ISA
} // namespace fedkern
