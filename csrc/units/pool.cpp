// A small pool of threads that sleep where nothing is to do. No OpenMP runtime: it clashes with whatever else is loaded.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <unistd.h>
#include <vector>

#include "fedkern/blocks.hpp"

namespace fedkern {
namespace {

/// For so long a thread looks before it sleeps: a kernel's parts follow each other within microseconds, and to be woken takes tens of
/// them (a private step of 1 ms on two threads: 1.6 times as fast as on one without this, 1.9 with it).
constexpr std::chrono::microseconds patience{50};

void relax() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

/// Whether it comes true before the patience ends.
template <class Condition> bool soon(const Condition& holds) {
    const auto end = std::chrono::steady_clock::now() + patience;
    do {
        for (int i = 0; i < 64; ++i) {
            if (holds()) return true;
            relax();
        }
    } while (std::chrono::steady_clock::now() < end);
    return false;
}

class Pool {
  public:
    void run(int n_threads, void (*task)(void*), void* context) {
        // Two Python threads at once: the second runs alone. The result is the same, whoever does the work.
        const std::unique_lock alone(busy_, std::try_to_lock);
        if (!alone) return task(context);
        SharedTask shared(task, context); // on this thread's stack, which waits for the others whatever happens
        {
            const std::lock_guard lock(mutex_);
            shared_ = &shared, wanted_ = running_ = workers(n_threads - 1);
            ++round_;
        }
        wake_.notify_all();
        shared.run();
        const auto all_done = [this] { return running_ == 0; };
        if (!soon(all_done)) {
            std::unique_lock lock(mutex_);
            done_.wait(lock, all_done);
        }
        shared.rethrow();
    }

  private:
    /// So many threads if the system gives them, otherwise those that there are: a result depends on no number of threads.
    int workers(int wanted) {
        try {
            while (int(workers_.size()) < wanted) workers_.emplace_back([this, seen = round_.load()] { work(seen); });
        } catch (const std::exception&) {
        }
        return std::min(wanted, int(workers_.size()));
    }

    void work(unsigned long seen) {
        // What C++ keeps of a thread's exceptions is allocated when it is first asked for. Memory may have ended when one is thrown.
        (void)std::uncaught_exceptions();
        const auto called = [&] { return round_ != seen; };
        for (;;) {
            soon(called);
            std::unique_lock lock(mutex_);
            wake_.wait(lock, called);
            seen = round_;
            if (wanted_ == 0) continue; // enough others have come
            --wanted_;
            SharedTask& shared = *shared_;
            lock.unlock();
            shared.run();
            lock.lock();
            if (--running_ == 0) done_.notify_one();
        }
    }

    std::mutex busy_, mutex_;
    std::condition_variable wake_, done_;
    std::vector<std::thread> workers_;
    std::atomic<unsigned long> round_{0};
    SharedTask* shared_ = nullptr;
    int wanted_ = 0;
    std::atomic<int> running_{0};
};

} // namespace

void run_on_threads(int n_threads, void (*task)(void*), void* context) {
    // A forked child has no threads but its own, so it needs another pool. Pools are never destroyed: at exit their threads sleep.
    static Pool* pool = nullptr;
    static pid_t owner = 0;
    static std::mutex making;
    Pool* mine;
    {
        const std::lock_guard lock(making);
        if (!pool || owner != getpid()) pool = new Pool, owner = getpid();
        mine = pool;
    }
    mine->run(n_threads, task, context);
}

} // namespace fedkern
