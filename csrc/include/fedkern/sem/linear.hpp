// Small dense linear algebra of the structural equation model, in rows that are padded to whole vectors.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "fedkern/pack.hpp"
#include "fedkern/rng.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {
namespace sem {

using Wide = Pack<double>;

inline constexpr Index lanes = Wide::size;

FEDKERN_INLINE Index padded(Index n) { return (n + lanes - 1) / lanes * lanes; }
FEDKERN_INLINE Wide at(const double* x, Index i) { return Wide::load(x + i); }
FEDKERN_INLINE void put(const Wide& value, double* x, Index i) { value.store(x + i); }
/// total += |x|.
FEDKERN_INLINE void add_magnitude(const Wide& x, Wide& total) {
    typedef U64 Bits __attribute__((vector_size(Wide::bytes)));
    for (int i = 0; i < Wide::parts; ++i) total.part[i] += Wide::Part(Bits(x.part[i]) & 0x7fffffffffffffffULL);
}

/// Arrays of doubles in one piece of memory, each beginning at a cache line and zero at first. Laid out twice with the same calls:
/// before `allocate` they are only counted.
class Workspace {
  public:
    double* take(Index n) {
        const Index begin = std::exchange(used_, used_ + padded(n));
        return base_ ? base_ + begin : nullptr;
    }
    void allocate() {
        memory_.assign(used_ + lanes, 0.0);
        base_ = memory_.data();
        while (reinterpret_cast<std::uintptr_t>(base_) % line) ++base_;
        used_ = 0;
    }

  private:
    static constexpr std::uintptr_t line = 64;
    std::vector<double> memory_;
    double* base_ = nullptr;
    Index used_ = 0;
};

/// A matrix by rows, `width` doubles apart; what is beyond its columns is zero.
struct Square {
    double* data;
    Index p, width;
    FEDKERN_INLINE double* operator[](Index i) const { return data + i * width; }
};

/// out = e - delta y. Returns sum |out|.
FEDKERN_INLINE double shift(const double* e, const double* y, double delta, double* out, Index width) {
    Wide total[4];
    for (Wide& one : total) one = Wide::all(0);
    const Wide by = Wide::all(delta);
    Index i = 0;
    for (; i + 4 * lanes <= width; i += 4 * lanes)
#pragma GCC unroll 4
        for (Index k = 0; k < 4; ++k) {
            const Wide shifted = at(e, i + k * lanes) - by * at(y, i + k * lanes);
            put(shifted, out, i + k * lanes);
            add_magnitude(shifted, total[k]);
        }
    for (; i < width; i += lanes) {
        const Wide shifted = at(e, i) - by * at(y, i);
        put(shifted, out, i);
        add_magnitude(shifted, total[0]);
    }
    return ((total[0] + total[1]) + (total[2] + total[3])).sum();
}

/// How many vectors `combine` works on at once: what registers hold.
inline constexpr int most_combined = register_bytes == 64 ? 8 : register_bytes == 32 ? 4 : 2;

/// The vectors from i on of out = base - sum_h coefficient_h y_h.
template <int vectors> FEDKERN_INLINE void combine_part(const double* base, const double* coefficient, const double* Y, Index p,
                                                        Index width, double* out, Index i, Wide& total) {
    Wide part[vectors];
#pragma GCC unroll 8
    for (int k = 0; k < vectors; ++k) part[k] = at(base, i + k * lanes);
    for (Index h = 0; h < p; ++h) {
        const Wide by = Wide::all(coefficient[h]);
#pragma GCC unroll 8
        for (int k = 0; k < vectors; ++k) part[k] = part[k] - by * at(Y + h * width, i + k * lanes);
    }
#pragma GCC unroll 8
    for (int k = 0; k < vectors; ++k) {
        put(part[k], out, i + k * lanes);
        add_magnitude(part[k], total);
    }
}

/// out = base - sum_h coefficient_h y_h, rows y_h of Y. Returns sum |out|.
inline double combine(const double* base, const double* coefficient, const double* Y, Index p, Index width, double* out) {
    constexpr int most = most_combined;
    Wide total = Wide::all(0);
    Index i = 0;
    for (; i + most * lanes <= width; i += most * lanes) combine_part<most>(base, coefficient, Y, p, width, out, i, total);
    if (most == 8 && width - i >= 4 * lanes) combine_part<4>(base, coefficient, Y, p, width, out, i, total), i += 4 * lanes;
    for (; i < width; i += lanes) combine_part<1>(base, coefficient, Y, p, width, out, i, total);
    return total.sum();
}

/// y += a x.
FEDKERN_INLINE void add(double a, const double* x, double* y, Index begin, Index width) {
    const Wide by = Wide::all(a);
    for (Index i = begin / lanes * lanes; i < width; i += lanes) put(at(y, i) + by * at(x, i), y, i);
}

/// out[k] = x . y_k for `count` <= 4 rows y_k that follow each other.
template <int count> FEDKERN_INLINE void dots_of(const double* x, const double* y, Index width, double* out) {
    Wide total[count];
    for (Wide& one : total) one = Wide::all(0);
    for (Index i = 0; i < width; i += lanes)
#pragma GCC unroll 4
        for (int k = 0; k < count; ++k) total[k] = total[k] + at(x, i) * at(y + k * width, i);
    for (int k = 0; k < count; ++k) out[k] = total[k].sum();
}

/// out[k] = x . y_k for `count` rows y_k that follow each other.
inline void dots(const double* x, const double* y, Index count, Index width, double* out) {
    for (; count >= 4; count -= 4, y += 4 * width, out += 4) dots_of<4>(x, y, width, out);
    if (count == 3) dots_of<3>(x, y, width, out);
    if (count == 2) dots_of<2>(x, y, width, out);
    if (count == 1) dots_of<1>(x, y, width, out);
}

/// Replaces a matrix by its inverse (Gauss-Jordan, pivots by column). Returns log|det|; -inf or NaN if there is no inverse.
inline double invert(const Square& W, std::vector<Index>& pivots) {
    const Index p = W.p;
    double product = 1, log_det = 0;
    for (Index k = 0; k < p; ++k) {
        Index best = k;
        for (Index i = k + 1; i < p; ++i)
            if (math::magnitude(W[i][k]) > math::magnitude(W[best][k])) best = i;
        pivots[k] = best;
        if (best != k) std::swap_ranges(W[k], W[k] + p, W[best]);
        const double pivot = W[k][k];
        product *= math::magnitude(pivot);
        if (!(product > 1e-200 && product < 1e200 && k + 1 < p)) log_det += math::log(product), product = 1;
        if (!(math::magnitude(pivot) > 0)) return log_det;
        const double inverse = 1 / pivot; // single elements are written after the vectors that hold them: a wait less
        for (Index i = 0; i < W.width; i += lanes) put(at(W[k], i) * Wide::all(inverse), W[k], i);
        W[k][k] = inverse;
        for (Index i = 0; i < p; ++i) {
            if (i == k) continue;
            const double factor = W[i][k];
            add(-factor, W[k], W[i], 0, W.width);
            W[i][k] = -factor * inverse;
        }
    }
    for (Index k = p; k-- > 0;)
        if (pivots[k] != k)
            for (Index i = 0; i < p; ++i) std::swap(W[i][k], W[i][pivots[k]]);
    return log_det;
}

/// Whether the spectral radius of T is below 1: its powers T^(2^k) are bounded from below by their trace and from above by their
/// row and column sums. `T` and `spare` are overwritten.
inline bool is_contraction(Square T, Square spare) {
    const Index p = T.p;
    for (int squaring = 0; squaring < 64; ++squaring) {
        double* columns = spare[0];
        std::fill_n(columns, T.width, 0.0);
        double trace = 0, rows = 0, most = 0;
        for (Index i = 0; i < p; ++i) {
            Wide row = Wide::all(0);
            for (Index k = 0; k < T.width; k += lanes) {
                Wide column = at(columns, k);
                add_magnitude(at(T[i], k), row);
                add_magnitude(at(T[i], k), column);
                put(column, columns, k);
            }
            rows = std::max(rows, row.sum());
            trace += T[i][i];
        }
        for (Index k = 0; k < p; ++k) most = std::max(most, columns[k]);
        const double bound = std::min(rows, most);
        if (bound < 1) return true;
        if (!(math::magnitude(trace) <= double(p) && bound < 1e150)) return false;
        for (Index i = 0; i < p; ++i) {
            std::fill_n(spare[i], T.width, 0.0);
            for (Index k = 0; k < p; ++k) add(T[i][k], T[k], spare[i], 0, T.width);
        }
        std::swap(T.data, spare.data);
    }
    return false;
}

/// Replaces the upper triangle of A by U, A = U'U. A - I must be positive semidefinite: then every pivot is at least 1, and one
/// that rounding has made smaller is 1.
inline void factorise(const Square& A) {
    for (Index k = 0; k < A.p; ++k) {
        const double pivot = A[k][k], root = math::sqrt(pivot > 1 ? pivot : 1);
        std::fill(A[k] + k / lanes * lanes, A[k] + k, 0.0);
        A[k][k] = root * root;
        for (Index i = k / lanes * lanes; i < A.width; i += lanes) put(at(A[k], i) / Wide::all(root), A[k], i);
        for (Index i = k + 1; i < A.p; ++i) add(-A[k][i], A[k], A[i], i, A.width);
    }
}

/// x = U'^-1 x.
inline void solve_lower(const Square& U, double* x) {
    for (Index k = 0; k < U.p; ++k) {
        const double value = x[k] / U[k][k];
        add(-value, U[k], x, k, U.width);
        x[k] = value;
    }
}

/// x = U^-1 x.
inline void solve_upper(const Square& U, double* x) {
    for (Index k = U.p; k-- > 0;) {
        double rest = x[k];
        for (Index i = k + 1; i < U.p; ++i) rest -= U[k][i] * x[i];
        x[k] = rest / U[k][k];
    }
}

} // namespace sem
} // namespace FEDKERN_ISA
} // namespace fedkern
