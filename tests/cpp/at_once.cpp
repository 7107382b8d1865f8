// Several threads choose the level of instructions and share the pool, for ThreadSanitizer. CPU as in levels.cpp. Prints the level
// at the end, and whether each sum over blocks was right.
#include <atomic>
#include <thread>
#include <vector>

#define main main_of_levels
#include "levels.cpp"
#undef main

#include "fedkern/blocks.hpp"

int main() {
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 6; ++i)
        threads.emplace_back([&wrong, i] {
            for (int turn = 0; turn < 300; ++turn) {
                if (turn == 150) fedkern::limit_isa(i == 3 ? "baseline" : "avx2");
                if (!fedkern::isa() || !&fedkern::kernels()) std::abort();
                long sums[8] = {}, all = 0;
                fedkern::for_blocks(64, 8, 3, [&](fedkern::Index block, fedkern::Index begin, fedkern::Index end) {
                    for (fedkern::Index k = begin; k < end; ++k) sums[block] += k + i;
                });
                for (const long sum : sums) all += sum;
                wrong += all != 64 * 63 / 2 + 64 * i;
            }
        });
    for (auto& thread : threads) thread.join();
    std::printf("%s %d", fedkern::isa(), wrong.load());
}
