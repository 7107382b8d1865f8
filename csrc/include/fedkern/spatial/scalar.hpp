// Which entry of a table of priors is drawn, for host and device. Specification: docs/spec/sigma.md, section 3.
#pragma once
#include "fedkern/rng.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

/// Number floor(u T) for a group of rows.
FEDKERN_INLINE Index table_entry(Index entries, Index group, U32 step, U64 key) {
    const auto u = uniform_pair(philox_bits({U32(group / 2), 0, 0, step}, key));
    const Index t = Index((group % 2 ? u.second : u.first) * double(entries));
    return t < entries ? t : entries - 1;
}

} // namespace FEDKERN_ISA
} // namespace fedkern
