// What the spatial kernels take: plain aggregates, which cross from one instruction-set level to another.
#pragma once
#include "view.hpp"

namespace fedkern {

/// A table of priors of n numbers (sigma.md, section 3): row-major, every array in neighbouring elements.
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

} // namespace fedkern
