// Conditional autoregressive priors: log density with gradients, and draws through eigenvectors (sigma.md, sections 3 and 9).
#pragma once
#include "fedkern/blas.hpp"
#include "table.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

/// Whether all rows begin and end, and all neighbours lie, within the graph.
inline bool within(const AreaGraph& g) {
    if (g.indptr[0] != 0 || g.indptr[g.n] != g.edges) return false;
    Index sign = 0; // negative as soon as one number is
    for (Index i = 0; i < g.n; ++i) sign |= g.indptr[i + 1] - g.indptr[i];
    for (Index k = 0; k < g.edges; ++k) sign |= g.indices[k] | (g.n - 1 - g.indices[k]);
    return sign >= 0;
}

FEDKERN_INLINE double own_weight(const AreaGraph& g, Index i) { return double(std::max(g.indptr[i + 1] - g.indptr[i], Index{1})); }

struct LogDeterminant {
    double value, slope;
};

/// The series and its derivative in phi, by Clenshaw's recurrence.
inline LogDeterminant log_determinant(const CarModel& model, double phi) {
    const auto& c = model.series;
    if (model.form == CarForm::icar) return {c[0], 0};
    const auto place = [&](double x) { return math::log1p(model.widest * x / (1 - x)); };
    const double low = place(model.lo), high = place(model.hi), half = std::max(0.5 * (high - low), 1e-3);
    const double r = model.widest * phi / (1 - phi), x = (math::log1p(r) - 0.5 * (low + high)) / half;
    double b1 = 0, b2 = 0, d1 = 0, d2 = 0;
    for (Index k = c.size - 1; k > 0; --k) {
        const double d = 2 * b1 + 2 * x * d1 - d2, b = c[k] + 2 * x * b1 - b2;
        d2 = d1, d1 = d, b2 = b1, b1 = b;
    }
    return {c[0] + x * b1 - b2, (b1 + x * d1 - d2) / half * model.widest / ((1 - phi) * (1 - phi) * (1 + r))};
}

/// Sums theta'Q theta and theta'(dQ/dphi) theta over areas, one (V = double) or eight (V = Lanes) at a time.
template <class V> struct CarSums {
    V whole, slope;

    /// Returns -Q theta. `less` is phi - 1.
    template <CarForm form> FEDKERN_INLINE V add(const V& x, const V& own, const V& around, const V& phi, const V& less) {
        V gradient;
        if constexpr (form == CarForm::leroux) {
            const V difference = own - around, shared = phi * difference;
            gradient = less * x - shared;
            slope = slope + x * (difference - x);
        } else {
            if constexpr (form == CarForm::icar) gradient = around - own;
            else gradient = phi * around - own;
            slope = slope - x * around;
        }
        whole = whole - x * gradient;
        return gradient;
    }
};

FEDKERN_INLINE double sum_of_areas(const Lanes& sums) {
    double v[draw_lanes];
    sums.store(v);
    return ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7]));
}

/// One draw: `gradient` becomes -Q x. `degrees` (n) is D.
template <CarForm form> CarSums<double> car_row(const AreaGraph& g, const double* degrees, const double* x, double phi, double* gradient) {
    const Index n = g.n, *neighbours = g.indices, *ends = g.indptr + 1;
    for (Index i = 0, k = 0; i < n; ++i) {
        double around = 0;
        const Index end = ends[i];
        for (; k + 1 < end; k += 2) around += x[neighbours[k]], around += x[neighbours[k + 1]];
        if (k < end) around += x[neighbours[k++]];
        gradient[i] = around;
    }
    CarSums<Lanes> sums{Lanes::all(0), Lanes::all(0)};
    const double less = phi - 1;
    Index i = 0;
    for (; i + draw_lanes <= n; i += draw_lanes) {
        const Lanes here = Lanes::load(x + i), own = Lanes::load(degrees + i) * here, around = Lanes::load(gradient + i);
        sums.template add<form>(here, own, around, Lanes::all(phi), Lanes::all(less)).store(gradient + i);
    }
    CarSums<double> all{sum_of_areas(sums.whole), sum_of_areas(sums.slope)};
    for (; i < n; ++i) gradient[i] = all.template add<form>(x[i], degrees[i] * x[i], gradient[i], phi, less);
    return all;
}

/// Rows [begin, end) of a batch.
template <CarForm form> void car_rows(Matrix<const double> theta, Vector<const double> phi, const AreaGraph& g, const double* degrees,
                                      const CarModel& model, Index begin, Index end, Vector<double> value, Matrix<double> grad_theta,
                                      Vector<double> grad_phi) {
    const Index n = g.n;
    const Scratch<double> copy(n), gradient(n);
    const double constant = double(model.rank) * 1.8378770664093454836, nan = math::not_a_number<double>(); // log(2 pi)
    for (Index b = begin; b < end; ++b) {
        const auto row = grad_theta.row(b);
        double* to = row.stride == 1 ? row.data : &gradient[0];
        const auto sums = car_row<form>(g, degrees, contiguous(theta.row(b), &copy[0]), phi[b], to);
        const auto determinant = log_determinant(model, phi[b]);
        const bool inside = form == CarForm::icar || (model.lo <= phi[b] && phi[b] <= model.hi);
        value[b] = inside ? 0.5 * (determinant.value - constant - sums.whole) : nan;
        grad_phi[b] = form == CarForm::icar ? 0 : inside ? 0.5 * (determinant.slope - sums.slope) : nan;
        if (!inside) std::fill(to, to + n, nan);
        if (row.stride != 1)
            for (Index i = 0; i < n; ++i) row[i] = to[i];
    }
}

/// False if the graph's numbers lie outside it.
inline bool car_logdensity(Matrix<const double> theta, Vector<const double> phi, const AreaGraph& g, const CarModel& model,
                           Vector<double> value, Matrix<double> grad_theta, Vector<double> grad_phi, int n_threads) {
    if (!within(g)) return false;
    const Index m = theta.rows;
    const auto rows = model.form == CarForm::car      ? car_rows<CarForm::car>
                      : model.form == CarForm::leroux ? car_rows<CarForm::leroux>
                                                      : car_rows<CarForm::icar>;
    const Scratch<double> degrees(g.n);
    for (Index i = 0; i < g.n; ++i) degrees[i] = own_weight(g, i);
    n_threads = worthwhile(n_threads, 4.0 * double(m) * double(g.edges + g.n));
    for_blocks(m, block_count(m, 1), n_threads,
               [&](Index, Index begin, Index end) { rows(theta, phi, g, degrees, model, begin, end, value, grad_theta, grad_phi); });
    return true;
}

/// Precision of an eigenvector's coefficient.
FEDKERN_INLINE double eigen_precision(CarForm form, double value, double phi) {
    return form == CarForm::car ? 1 - phi * value : form == CarForm::leroux ? (1 - phi) + phi * value : value;
}

/// theta = weights * U (e / sqrt(precision)), a matrix product for all rows.
inline void car_sample(Matrix<const double> vectors, Vector<const double> values, Vector<const double> weights, Vector<const double> phi,
                       CarForm form, DrawNames names, Matrix<double> theta, int n_threads, const Blas& blas) {
    const Index m = theta.rows, n = theta.cols;
    if (!m || !n) return;
    const bool by_rows = vectors.col_stride == 1 && vectors.row_stride >= n;
    const bool by_columns = vectors.row_stride == 1 && vectors.col_stride >= n;
    const bool in_place = theta.col_stride == 1 && (theta.row_stride >= n || m == 1);
    const Scratch<double> copied(by_rows || by_columns ? 0 : n * n), e(m * n), draws(in_place ? 0 : m * n), eigenvalues(values),
        scale(weights);
    if (!by_rows && !by_columns)
        for (Index i = 0; i < n; ++i)
            for (Index k = 0; k < n; ++k) copied[i * n + k] = vectors.row(i)[k];
    for_blocks(m, block_count(m, 1), worthwhile(n_threads, 40.0 * double(m) * double(n)), [&](Index, Index begin, Index end) {
        for (Index b = begin; b < end; ++b) {
            double* row = &e[b * n];
            fill_normal_from({row, n}, b * n, names);
            for (Index k = 0; k < n; ++k) {
                const double p = eigen_precision(form, eigenvalues[k], phi[b]);
                row[k] = p == 0 ? 0 : row[k] / math::sqrt(p);
            }
        }
    });
    const double* U = by_rows || by_columns ? vectors.data : copied;
    const Index leading = by_rows ? vectors.row_stride : by_columns ? vectors.col_stride : n;
    double* to = in_place ? theta.data : draws;
    const Index apart = in_place && m > 1 ? theta.row_stride : n;
    call(blas.dgemm, by_columns && !by_rows ? 'N' : 'T', 'N', n, m, n, 1.0, U, leading, static_cast<double*>(e), n, 0.0, to, apart);
    for (Index b = 0; b < m; ++b) {
        const auto row = theta.row(b);
        for (Index i = 0; i < n; ++i) row[i] = scale[i] * to[b * apart + i];
    }
}

} // namespace FEDKERN_ISA
} // namespace fedkern
