#pragma once
#include "fedkern/wire.hpp"

namespace fedkern {

struct FrameTable {
    std::uint64_t (*copy)(void* to, const void* from, std::size_t n_words, std::uint32_t first);
    wire::Checked (*check)(const void* data, std::size_t n_words, std::uint32_t first);
};

} // namespace fedkern
