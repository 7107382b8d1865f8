// The draw of a site's coefficients given their scales: docs/spec/sparse.md, section 3.
//
//     S = diag(t / sigma),  A = I + S G S,  rhs = S R'(q - R theta) / sigma,  G = R'R
//     L L' = A,  u = A^-1 rhs + L'^-1 z,  d = t u
//
// t are the prior's standard deviations, lambda tau; with a slab (section 11) 1/t^2 = 1/(lambda tau)^2 + 1/slab^2, which is
// A = I + diag(lambda^2 tau^2 / slab^2) + S G S written in another scale.
#pragma once
#include <memory>
#include <mutex>

#include "fedkern/blas.hpp"
#include "fedkern/pack.hpp"
#include "fedkern/rng.hpp"
#include "scalar.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

inline constexpr Index largest_small = 320;    // coefficients: up to here loops of our own, beyond LAPACK
inline constexpr Index largest_padded = 64;    // coefficients: up to here R'R and R are copied into whole lanes
inline constexpr Index panel_rows = 4;         // finished together, by loops
inline constexpr Index panel_size = 1 << 17;   // numbers: a megabyte
inline constexpr Index least_panel = 64;       // columns

using Wide = Pack<double>;
using Narrow = Pack<double, 4>; // for few coefficients: of a triangle, wider packs compute more that nobody reads
inline constexpr Index lanes = Wide::size;
inline constexpr Index largest_narrow = 40; // coefficients

FEDKERN_INLINE Index whole_lanes(Index n) { return (n + lanes - 1) / lanes * lanes; }

/// Numbers on a boundary of 64 bytes, without a value at first.
class Numbers {
  public:
    Numbers() = default;
    explicit Numbers(Index n) : data_(new (std::align_val_t(64)) double[std::max<Index>(n, 1)]) {}
    operator double*() const { return data_.get(); }
    void need(Index n) {
        if (!data_) *this = Numbers(n);
    }

  private:
    struct Free {
        void operator()(double* data) const { operator delete[](data, std::align_val_t(64)); }
    };
    std::unique_ptr<double[], Free> data_;
};

/// What all regressions of a call share: the rows of R one after the other, and R'R.
class Design {
  public:
    const Index r, p;
    const Blas& blas;

    explicit Design(const Factor& factor) : r(factor.R.rows), p(factor.R.cols), blas(*factor.blas), factor_(factor) {
        if (factor.R.col_stride != 1) {
            copy_ = Numbers(r * p);
            for (Index i = 0; i < r; ++i)
                for (Index j = i; j < p; ++j) copy_[i * p + j] = factor.R.row(i)[j];
        }
        if (factor.gram.data && factor.gram.col_stride == 1) gram_ = factor.gram.data, gram_stride_ = factor.gram.row_stride;
    }

    /// Row i of R; it begins at column i.
    const double* row(Index i) const { return copy_ ? copy_ + i * p : factor_.R.data + i * factor_.R.row_stride; }

    /// Row i of R'R, from column i on.
    const double* gram(Index i) const {
        if (!gram_) std::call_once(once_, [this] { make_gram(); });
        return (gram_ ? gram_ + i * gram_stride_ : made_ + i * p);
    }

    /// e = q - R x.
    template <class Q> void residual(const Q& q, const double* x, double* e) const {
        for (Index i = 0; i < r; ++i) e[i] = q(i) - dot(row(i) + i, x + i, p - i);
    }

    /// c = R'e.
    void correlations(const double* e, double* c) const {
        std::fill_n(c, p, 0.);
        Index i = 0;
        for (; i + 4 <= r; i += 4) {
            const double *x0 = row(i), *x1 = row(i + 1), *x2 = row(i + 2), *x3 = row(i + 3);
            c[i] += e[i] * x0[i];
            c[i + 1] += e[i] * x0[i + 1] + e[i + 1] * x1[i + 1];
            c[i + 2] += e[i] * x0[i + 2] + e[i + 1] * x1[i + 2] + e[i + 2] * x2[i + 2];
            for (Index j = i + 3; j < p; ++j) c[j] += (e[i] * x0[j] + e[i + 1] * x1[j]) + (e[i + 2] * x2[j] + e[i + 3] * x3[j]);
        }
        for (; i < r; ++i)
            for (Index j = i; j < p; ++j) c[j] += e[i] * row(i)[j];
    }

  private:
    void make_gram() const {
        made_ = Numbers(p * p);
        if (factor_.gram.data) {
            for (Index i = 0; i < p; ++i)
                for (Index j = i; j < p; ++j) made_[i * p + j] = factor_.gram.row(i)[j];
        } else if (p <= largest_padded) {
            std::fill_n(static_cast<double*>(made_), p * p, 0.);
            for (Index k = 0; k < r; ++k)
                for (Index i = k; i < p; ++i)
                    for (Index j = i; j < p; ++j) made_[i * p + j] += row(k)[i] * row(k)[j];
        } else {
            const Numbers clean(r * p);
            for (Index i = 0; i < r; ++i) std::fill_n(clean + i * p, i, 0.), std::copy_n(row(i) + i, p - i, clean + i * p + i);
            call(blas.dsyrk, 'L', 'N', p, r, 1.0, static_cast<double*>(clean), p, 0.0, static_cast<double*>(made_), p);
        }
    }

    Factor factor_;
    Numbers copy_;
    const double* gram_ = nullptr;
    Index gram_stride_ = 0;
    mutable Numbers made_;
    mutable std::once_flag once_;
};

/// The residual e = q - R theta, and c = R'e, which is made when first needed.
struct Residual {
    double *e, *c;
    bool c_known = false;
};

/// Draws of coefficients, with the memory that one thread needs for them.
class CoefficientDraw {
  public:
    enum class Way { gram, factorised_again, data, failed };

    explicit CoefficientDraw(const Design& design, DrawForm form)
        : D(design), r(D.r), p(D.p), ld(whole_lanes(p + 1)), form_(form), s_(ld), u_(whole_lanes(std::max(p, r))), z_(p) {
        std::fill_n(s_ + p, ld - p, 0.);
        if (p <= largest_padded) copy_padded();
    }

    /// d given t, sigma and e = q - R theta. The normals: number e of regression g is half e % 2 of item
    /// g p + e / 2 (`at` is item g p), draw 0; those of the rows, in the data-space form, the same with draw 1.
    Way draw(const double* t, double sigma, Residual& of, Counter at, U64 key, double* d) {
        const double per_sigma = 1 / sigma;
        double largest = 0;
        for (Index j = 0; j < p; ++j) s_[j] = t[j] * per_sigma;
        for (Index j = 0; j < p; ++j) largest = s_[j] > largest ? s_[j] : largest;
        at.draw = 0;
        fill_normal({z_, p}, at, key);
        const bool rows = by_rows(form_, r, p);
        Way way = Way::failed;
        if (rows && largest < most_data_scale && in_data_space(of.e, per_sigma, at, key)) way = Way::data;
        if (way == Way::failed && !of.c_known) D.correlations(of.e, of.c), of.c_known = true;
        if (way == Way::failed && factorise(of.c, per_sigma)) way = Way::gram;
        if (way == Way::failed) by_orthogonal_factor(of.e, per_sigma), way = Way::factorised_again;
        bool finite = true;
        for (Index j = 0; j < p; ++j) {
            d[j] = t[j] * u_[j];
            finite &= math::magnitude(d[j]) < math::infinity<double>();
        }
        return finite ? way : Way::failed;
    }

    /// |e - R d|^2.
    double residual_squares(const double* e, const double* d) const {
        double total = 0;
        if (p > largest_padded) {
            for (Index i = 0; i < r; ++i) {
                const double x = e[i] - dot(D.row(i) + i, d + i, p - i);
                total += x * x;
            }
            return total;
        }
        Wide sum = Wide::all(0);
        for (Index i = 0; i < r; i += lanes) {
            Wide x = r - i < lanes ? Wide::load(e + i, int(r - i)) : Wide::load(e + i);
            for (Index j = i; j < p; ++j) x = x - Wide::all(d[j]) * Wide::load(columns_ + j * ld + i);
            sum = sum + x * x;
        }
        return sum.sum();
    }

  private:
    /// G, whole and padded with zeros, and the columns of R.
    void copy_padded() {
        gram_ = Numbers(p * ld), columns_ = Numbers(p * ld);
        std::fill_n(static_cast<double*>(gram_), p * ld, 0.), std::fill_n(static_cast<double*>(columns_), p * ld, 0.);
        for (Index i = 0; i < p; ++i)
            for (Index j = i; j < p; ++j) gram_[i * ld + j] = gram_[j * ld + i] = D.gram(i)[j];
        for (Index i = 0; i < r; ++i)
            for (Index j = i; j < p; ++j) columns_[j * ld + i] = D.row(i)[j];
    }

    bool factorise(const double* c, double per_sigma) {
        if (p <= largest_narrow) return by_loops<Narrow>(c, per_sigma);
        return p <= largest_small ? by_loops<Wide>(c, per_sigma) : by_lapack(c, per_sigma);
    }

    /// Rows of L' one after the other, rhs as one more column, which thereby becomes y = L^-1 rhs. Packs of any width give the same.
    template <class V> bool by_loops(const double* c, double per_sigma) {
        A_.need(p * ld), inverse_.need(ld);
        constexpr Index lanes = V::size;
        const Index width = (p + lanes) / lanes * lanes; // of a row: p + 1 columns in whole packs
        double *const A = A_, *const s = s_;
        for (Index i = 0; i < p; ++i) {
            const Index block = i / lanes * lanes;
            if (gram_) {
                const V own = V::all(s[i]);
                for (Index k = block; k < width; k += lanes) (own * V::load(gram_ + i * ld + k) * V::load(s + k)).store(A + i * ld + k);
            } else {
                const double* G = D.gram(i);
                for (Index k = block; k < i; ++k) A[i * ld + k] = 0;
                for (Index k = i; k < p; ++k) A[i * ld + k] = s[i] * G[k] * s[k];
                for (Index k = p; k < width; ++k) A[i * ld + k] = 0;
            }
            A[i * ld + i] += 1;
            A[i * ld + p] = s_[i] * c[i] * per_sigma;
        }
        for (Index j = 0; j < p; j += panel_rows) {
            const Index end = std::min(j + panel_rows, p);
            for (Index q = j; q < end; ++q) {
                for (Index b = j; b < q; ++b) subtract<V, 1, 1>(q, b);
                const double pivot = A[q * ld + q];
                if (!(pivot > 0)) return false;
                const double inverse = 1 / math::sqrt(pivot);
                inverse_[q] = inverse;
                for (Index k = q / lanes * lanes; k < width; k += lanes) (V::load(A + q * ld + k) * V::all(inverse)).store(A + q * ld + k);
            }
            Index i = end;
            for (; i + 4 <= p; i += 4) subtract<V, 4, panel_rows>(i, j);
            for (; i < p; ++i) subtract<V, 1, panel_rows>(i, j);
        }
        for (Index j = p - 1; j >= 0; --j) {
            const double* row = A + j * ld;
            double x = row[p] + z_[j];
            if (p - j <= 16)
                for (Index k = p - 1; k > j; --k) x -= row[k] * u_[k];
            else x -= dot(row + j + 1, u_ + j + 1, p - j - 1);
            u_[j] = x * inverse_[j];
        }
        return true;
    }

    /// Takes `count` finished rows, from row j on, out of the rows i .. i + `rows` - 1.
    template <class V, int rows, int count> FEDKERN_INLINE void subtract(Index i, Index j) {
        constexpr Index lanes = V::size;
        const Index width = (p + lanes) / lanes * lanes;
        double* const A = A_;
        double factor[rows][count];
        for (int a = 0; a < rows; ++a)
            for (int b = 0; b < count; ++b) factor[a][b] = A[(j + b) * ld + i + a];
        for (Index k = i / lanes * lanes; k < width; k += lanes) {
            V x[rows];
            for (int a = 0; a < rows; ++a) x[a] = V::load(A + (i + a) * ld + k);
            for (int b = 0; b < count; ++b) {
                const V y = V::load(A + (j + b) * ld + k);
                for (int a = 0; a < rows; ++a) x[a] = x[a] - V::all(factor[a][b]) * y;
            }
            for (int a = 0; a < rows; ++a) x[a].store(A + (i + a) * ld + k);
        }
    }

    bool by_lapack(const double* c, double per_sigma) {
        A_.need(p * p);
        double *const A = A_, *const u = u_;
        for (Index i = 0; i < p; ++i) {
            const double* G = D.gram(i);
            for (Index j = i; j < p; ++j) A[i * p + j] = s_[i] * G[j] * s_[j];
            A[i * p + i] += 1;
            u[i] = s_[i] * c[i] * per_sigma;
        }
        int info = 0;
        call(D.blas.dpotrf, 'L', p, A, p, &info); // by columns, it is the lower triangle
        if (info) return false;
        call(D.blas.dtrsv, 'L', 'N', 'N', p, A, p, u, 1);
        for (Index j = 0; j < p; ++j) u[j] += z_[j];
        call(D.blas.dtrsv, 'L', 'T', 'N', p, A, p, u, 1);
        return true;
    }

    /// The QR factorisation of [R S; I] beside [e / sigma; 0]: its triangle is L' but for signs, its last column L^-1 rhs.
    void by_orthogonal_factor(const double* e, double per_sigma) {
        const Index rows = r + p, work = 64 * (p + 1);
        const Numbers X(rows * (p + 1)), reflections(p + 1), space(work);
        std::fill_n(static_cast<double*>(X), rows * (p + 1), 0.);
        for (Index i = 0; i < r; ++i) {
            for (Index j = i; j < p; ++j) X[j * rows + i] = D.row(i)[j] * s_[j];
            X[p * rows + i] = e[i] * per_sigma;
        }
        for (Index j = 0; j < p; ++j) X[j * rows + r + j] = 1;
        int info = 0;
        call(D.blas.dgeqrf, rows, p + 1, static_cast<double*>(X), rows, static_cast<double*>(reflections), static_cast<double*>(space),
             work, &info);
        for (Index j = p - 1; j >= 0; --j) { // z belongs to a triangle with a positive diagonal
            double x = X[p * rows + j] + (X[j * rows + j] < 0 ? -z_[j] : z_[j]);
            for (Index k = j + 1; k < p; ++k) x -= X[k * rows + j] * u_[k];
            u_[j] = x / X[j * rows + j];
        }
    }

    /// Bhattacharya, Chakraborty, Mallick (2016), about theta and in units of sigma: W = R S, (I + W W') w = e / sigma - v,
    /// v = W z + N(0, I), u = z + W'w.
    bool in_data_space(const double* e, double per_sigma, Counter at, U64 key) {
        if (!W_) W_ = Numbers(std::max(panel_size, r * least_panel)), M_ = Numbers(r * r), w_ = Numbers(r);
        double *const W = W_, *const M = M_, *const w = w_, *const u = u_;
        at.draw = 1;
        fill_normal({w, r}, at, key);
        for (Index i = 0; i < r; ++i) w[i] = e[i] * per_sigma - w[i];
        // A panel of columns of W at a time, which stays in the cache; within the triangle, only the rows above its end are not 0.
        std::fill_n(M, r * r, 0.);
        for (Index first = 0, end; first < p; first = end) {
            const Index width = std::max(least_panel, panel_size / r);
            end = std::min(p, first + (first < r ? std::clamp(r / 6, least_panel, width) : width));
            const Index rows = std::min(r, end), columns = end - first;
            for (Index i = 0; i < rows; ++i) {
                double* const row = W + i * columns;
                const Index begin = std::max(i, first);
                std::fill_n(row, begin - first, 0.);
                for (Index j = begin; j < end; ++j) row[j - first] = D.row(i)[j] * s_[j];
                w[i] -= dot(row, z_ + first, columns);
            }
            call(D.blas.dsyrk, 'L', 'T', rows, columns, 1.0, W, columns, 1.0, M, r);
        }
        for (Index i = 0; i < r; ++i) M[i * r + i] += 1;
        int info = 0;
        call(D.blas.dpotrf, 'L', r, M, r, &info);
        if (info) return false;
        call(D.blas.dtrsv, 'L', 'N', 'N', r, M, r, w, 1);
        call(D.blas.dtrsv, 'L', 'T', 'N', r, M, r, w, 1);
        D.correlations(w, u);
        for (Index j = 0; j < p; ++j) u[j] = z_[j] + s_[j] * u[j];
        return true;
    }

    const Design& D;
    const Index r, p, ld;
    const DrawForm form_;
    Numbers s_, u_, z_;
    Numbers gram_, columns_; // padded
    Numbers A_, inverse_;    // Gram form
    Numbers W_, M_, w_;      // data-space form
};

} // namespace FEDKERN_ISA
} // namespace fedkern
