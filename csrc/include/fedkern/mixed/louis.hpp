// What rows add to a group's gradient and Hessian by Louis (1982), whatever their family.
#pragma once
#include "modes.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {
namespace mixed {

/// E[curve q q'] of a row, q = d eta / d xi, whose sums of curve, curve u and curve u u' are m0, m1 and m2; at(i, j) is an element of the
/// information; d eta / d T_ab is z_a u_b unit(a, b).
template <class Unit, class At> FEDKERN_INLINE void spread(const double* x, const double* z, int p, int d, double m0, const double* m1,
                                                           const double* m2, const Unit& unit, const At& at) {
    for (int i = 0; i < p; ++i)
        for (int j = 0; j <= i; ++j) at(i, j) += m0 * x[i] * x[j];
    for (int a = 0; a < d; ++a)
        for (int b = 0; b <= a; ++b) {
            const double by = z[a] * unit(a, b);
            for (int j = 0; j < p; ++j) at(p + pair(a, b), j) += by * m1[b] * x[j];
            for (int c = 0; c <= a; ++c)
                for (int e = 0; e <= c && pair(c, e) <= pair(a, b); ++e)
                    at(p + pair(a, b), p + pair(c, e)) += by * z[c] * unit(c, e) * m2[b > e ? pair(b, e) : pair(e, b)];
        }
}

/// E d is added to the gradient, and cov(d) taken from the information: D (P, K) is d at the nodes, but for its rows of T, which are
/// `linear` (d, K) times the places (d, K). `weighted` (K) and `mean` (P) are room.
template <class Unit, class At> FEDKERN_INLINE void finish(double* D, const double* linear, const double* places, const double* w, int K,
                                                           int P, int p, int d, const Unit& unit, const At& at, double* gradient,
                                                           double* weighted, double* mean) {
    for (int a = 0; a < d; ++a)
        for (int b = 0; b <= a; ++b) {
            const double by = unit(a, b);
            for (int k = 0; k < K; ++k) D[Index(p + pair(a, b)) * K + k] = by * linear[Index(a) * K + k] * places[Index(b) * K + k];
        }
    for (int i = 0; i < P; ++i) {
        double* row = D + Index(i) * K;
        double sum = 0;
        for (int k = 0; k < K; ++k) sum += w[k] * row[k];
        gradient[i] += sum, mean[i] = sum;
        if (K == 1) continue;
        for (int k = 0; k < K; ++k) row[k] -= sum, weighted[k] = w[k] * row[k];
        for (int j = 0; j <= i; ++j) {
            const double* other = D + Index(j) * K;
            double covariance = 0;
            for (int k = 0; k < K; ++k) covariance += weighted[k] * other[k];
            at(i, j) -= covariance;
        }
    }
    for (int a = 0; a < d; ++a) at(p + pair(a, a), p + pair(a, a)) -= mean[p + pair(a, a)];
}

} // namespace mixed
} // namespace FEDKERN_ISA
} // namespace fedkern
