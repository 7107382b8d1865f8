// A small pool of sleeping threads. No OpenMP runtime: it would spin, and it clashes with whatever else is loaded.
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unistd.h>
#include <vector>

#include "fedkern/blocks.hpp"

namespace fedkern {
namespace {

class Pool {
  public:
    void run(int n_threads, void (*task)(void*), void* context) {
        // Two Python threads at once: the second runs alone. The result is the same, whoever does the work.
        const std::unique_lock alone(busy_, std::try_to_lock);
        if (!alone) return task(context);
        {
            const std::lock_guard lock(mutex_);
            while (int(workers_.size()) < n_threads - 1) workers_.emplace_back([this, seen = round_] { work(seen); });
            task_ = task, context_ = context, wanted_ = running_ = n_threads - 1;
            ++round_;
        }
        wake_.notify_all();
        task(context);
        std::unique_lock lock(mutex_);
        done_.wait(lock, [this] { return running_ == 0; });
    }

  private:
    void work(unsigned long seen) {
        std::unique_lock lock(mutex_);
        for (;;) {
            wake_.wait(lock, [&] { return round_ != seen; });
            seen = round_;
            if (wanted_ == 0) continue; // enough others have come
            --wanted_;
            const auto task = task_;
            const auto context = context_;
            lock.unlock();
            task(context);
            lock.lock();
            if (--running_ == 0) done_.notify_one();
        }
    }

    std::mutex busy_, mutex_;
    std::condition_variable wake_, done_;
    std::vector<std::thread> workers_;
    unsigned long round_ = 0;
    void (*task_)(void*) = nullptr;
    void* context_ = nullptr;
    int wanted_ = 0, running_ = 0;
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
