// Splits a range so that the result of a reduction does not depend on the number of threads: the number of blocks depends on
// the length alone, each block has its own partial result, and partial results are added in block order.
#pragma once
#include <algorithm>
#include <atomic>

#include "view.hpp"

#ifndef FEDKERN_POOL
#include <thread>
#include <vector>
#endif

namespace fedkern {

#ifdef FEDKERN_POOL
/// Runs task(context) on n_threads threads, this one included, and waits for all. The package's own pool (csrc/units/pool.cpp).
void run_on_threads(int n_threads, void (*task)(void*), void* context);
#else
/// Without the package's pool, threads are made for each call.
inline void run_on_threads(int n_threads, void (*task)(void*), void* context) {
    std::vector<std::jthread> others;
    for (int t = 1; t < n_threads; ++t) others.emplace_back(task, context);
    task(context);
}
#endif

inline namespace FEDKERN_ISA {

inline constexpr Index max_blocks = 64;
inline constexpr Index min_block_length = 64;

/// How many blocks a range of this length has, whatever the number of threads.
inline Index block_count(Index length, Index shortest = min_block_length) {
    return std::clamp(length / shortest, Index{1}, max_blocks);
}

/// Calls work(block, begin, end) for each of `blocks` blocks of [0, length), in any order, on at most n_threads threads.
template <class Work> void for_blocks(Index length, Index blocks, int n_threads, const Work& work) {
    struct Range {
        const Work& work;
        Index length, blocks;
        std::atomic<Index> next{0};
    } range{work, length, blocks};
    const auto run = [](void* context) {
        auto& r = *static_cast<Range*>(context);
        for (Index b; (b = r.next++) < r.blocks;) r.work(b, r.length * b / r.blocks, r.length * (b + 1) / r.blocks);
    };
    const auto threads = int(std::min<Index>(n_threads, blocks));
    if (threads <= 1)
        run(&range);
    else
        run_on_threads(threads, run, &range);
}

} // namespace FEDKERN_ISA
} // namespace fedkern
