#pragma once
#include "fedkern/blas.hpp"

namespace fedkern {

/// The routines of SciPy. Throws if fedkern.kernels has not loaded them.
const Blas& blas();

} // namespace fedkern
