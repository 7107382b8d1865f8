// A small pool of threads that sleep where nothing is to do. No OpenMP runtime: it clashes with whatever else is loaded.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <sys/mman.h>
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

/// Address space that nobody else gets while this lives: what a new thread keeps of its own, and cannot do without.
class Spare {
  public:
    Spare() : data_(::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
    ~Spare() {
        if (*this) ::munmap(data_, bytes);
    }
    Spare(const Spare&) = delete;
    explicit operator bool() const { return data_ != MAP_FAILED; }

  private:
    static constexpr std::size_t bytes = std::size_t{1} << 20;
    void* data_;
};

class Pool {
  public:
    void run(int n_threads, void (*task)(void*), void* context) {
        // Two Python threads at once: the second runs alone. The result is the same, whoever does the work.
        const std::unique_lock alone(busy_, std::try_to_lock);
        if (!alone) return task(context);
        SharedTask shared(task, context); // on this thread's stack, which waits for the others whatever happens
        {
            std::unique_lock lock(mutex_);
            const int others = workers(n_threads - 1, lock);
            shared_ = &shared, wanted_ = running_ = others;
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
    int workers(int wanted, std::unique_lock<std::mutex>& lock) {
        try {
            while (int(workers_.size()) < wanted) {
                if (const Spare spare; spare) workers_.emplace_back([this, seen = round_.load()] { work(seen); });
                else break;
                done_.wait(lock, [this] { return begun_ == workers_.size(); });
            }
        } catch (const std::exception&) {}
        return std::min(wanted, int(workers_.size()));
    }

    void work(unsigned long seen) {
        {
            // As in kernels(): here a thread gets what was kept spare.
            const std::lock_guard lock(mutex_);
            [[maybe_unused]] const volatile int there = std::uncaught_exceptions();
            ++begun_;
        }
        done_.notify_one();
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
    std::size_t begun_ = 0;
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
