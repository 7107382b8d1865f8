#include "fedkern/wire.hpp"

#include "tables/frames.hpp"

namespace fedkern::tables::FEDKERN_ISA {

// Sums of integers: the same at every level.
extern const FrameTable frames = {
    .copy = wire::copy,
    .check = wire::check,
};

} // namespace fedkern::tables::FEDKERN_ISA
