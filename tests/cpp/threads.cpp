// What becomes of exceptions on several threads, and of threads that the system does not give. Prints what is wrong and fails.
// Compiled with the package's pool (FEDKERN_POOL) and without.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "fedkern/blocks.hpp"

using namespace fedkern;

static int failures = 0;
static void expect(bool good, const char* what) {
    if (!good) std::printf("wrong: %s\n", what), ++failures;
}

static const auto calling = std::this_thread::get_id();
static bool is_calling() { return std::this_thread::get_id() == calling; }
static void wait(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

/// One block on each of two threads: each waits until the other has begun.
template <class Work> void on_both(const Work& work) {
    std::atomic<int> begun{0};
    for_blocks(2, 2, 2, [&](Index, Index, Index) {
        ++begun;
        for (int i = 0; begun < 2 && i < 10'000; ++i) wait(1);
        expect(begun == 2, "two threads at work");
        work();
    });
}

/// The blocks that were worked on, each once, on so many threads.
static bool all_done(int n_threads) {
    std::vector<int> done(64);
    for_blocks(64, 64, n_threads, [&](Index block, Index, Index) { ++done[block]; });
    return done == std::vector<int>(64, 1);
}

/// Runs `work` with so little more memory than there is now.
template <class Work> void with_memory(std::size_t more, const Work& work) {
    rlimit before{};
    getrlimit(RLIMIT_AS, &before);
    unsigned long pages = 0;
    std::FILE* file = std::fopen("/proc/self/statm", "r");
    expect(file && std::fscanf(file, "%lu", &pages) == 1, "statm");
    if (file) std::fclose(file);
    const rlimit now{pages * sysconf(_SC_PAGESIZE) + more, before.rlim_max};
    setrlimit(RLIMIT_AS, &now);
    void* beyond = ::mmap(nullptr, more + (1 << 20), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (beyond == MAP_FAILED) work();
    else std::puts("no limit of memory here"), ::munmap(beyond, more + (1 << 20)); // an emulator takes it and does not hold to it
    setrlimit(RLIMIT_AS, &before);
}

int main() {
    with_memory(1 << 20, [] { expect(all_done(4), "no thread is given: the calling one does all"); });
    expect(all_done(4), "threads are given later");

    for (const bool caller : {false, true}) {
        bool finished = false, caught = false;
        try {
            on_both([&] {
                if (is_calling() == caller) throw std::runtime_error("here");
                wait(50);
                finished = true; // on the stack of the calling thread
            });
        } catch (const std::runtime_error& e) { caught = std::string(e.what()) == "here"; }
        expect(caught, caller ? "thrown by the calling thread" : "thrown by another thread");
        expect(finished, "the other thread has ended its work before the exception leaves");
        expect(all_done(2) && all_done(8), "works after an exception");
    }

    int caught = 0;
    try {
        on_both([] { throw std::runtime_error("everywhere"); });
    } catch (const std::runtime_error&) { ++caught; }
    expect(caught == 1, "thrown by both");

    with_memory(1 << 22, [] {
        bool ended = false;
        try {
            on_both([] { std::vector<double> large(1 << 24); });
        } catch (const std::bad_alloc&) { ended = true; }
        expect(ended, "memory that ends");
    });
    expect(all_done(2), "works after memory has ended");
    return failures;
}
