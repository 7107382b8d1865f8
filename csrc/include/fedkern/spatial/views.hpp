// What the spatial kernels take: plain aggregates, which cross from one instruction-set level to another.
#pragma once
#include "fedkern/view.hpp"

namespace fedkern {

/// A table of priors of n numbers (docs/spec/sigma.md, section 3): row-major, every array in neighbouring elements.
struct DrawTable {
    enum Kind : int { stored, dense, sparse };
    int kind;
    Index n, rank, group; // rank: of dense factors; group: how many neighbours of a batch share an entry
    Index entries, length; // of the table, and numbers in each
    const double *values, *scale; // (entries, length), (n)
    const Index *indptr, *indices, *order; // of sparse factors: columns (n + 1), rows (length), which coordinate is which (n)

    /// How many normals a draw takes.
    FEDKERN_INLINE Index normals() const { return kind == stored ? 0 : kind == dense ? rank : n; }
};

/// Keys of the streams that name a draw's entry and its normals.
struct DrawKeys {
    unsigned long long entries, draws;
};

/// A symmetric graph without a diagonal, by compressed rows, in neighbouring elements.
struct AreaGraph {
    Index n, edges;
    const Index *indptr, *indices;
};

/// Precisions D - phi W, (1 - phi) I + phi (D - W), D - W; D = 1 for an area without neighbours.
enum class CarForm : int { car, leroux, icar };

/// log det Q as a Chebyshev series in log(1 + widest phi / (1 - phi)) over [lo, hi] (logdet_table).
struct CarModel {
    CarForm form;
    double lo, hi, widest;
    Index rank; // of Q
    Vector<const double> series;
};

/// The pattern of a Cholesky factor of Q[order][:, order]: columns, the diagonal first, then rising rows.
struct FactorPattern {
    const Index *order, *indptr, *indices;
};

/// The pattern of the columns of a Cholesky factor left of its last, dense block: in each the diagonal first, then rising rows.
struct BorderedPattern {
    Index columns;
    const Index *indptr, *indices;
};

enum class GpKind : int { rbf, matern12, matern32, matern52 };

/// Names the normals of draws.
struct DrawNames {
    unsigned long long key;
    unsigned client, step;
};

} // namespace fedkern
