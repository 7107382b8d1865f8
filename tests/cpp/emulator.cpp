// The grid emulator: see emulator.hpp. Compiled without a sanitizer, also where the kernels have one.
#include "emulator.hpp"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

extern "C" { // of ThreadSanitizer, where it is linked
void* __tsan_get_current_fiber() __attribute__((weak));
void* __tsan_create_fiber(unsigned) __attribute__((weak));
void __tsan_switch_to_fiber(void*, unsigned) __attribute__((weak));
void __tsan_acquire(void*) __attribute__((weak));
void __tsan_release(void*) __attribute__((weak));
void __asan_poison_memory_region(const volatile void*, std::size_t) __attribute__((weak)); // of AddressSanitizer, likewise
void __asan_unpoison_memory_region(const volatile void*, std::size_t) __attribute__((weak));
}

#ifdef __x86_64__
// swapcontext without its two system calls: what a call must preserve goes to the old stack and comes from the new one.
extern "C" void emulation_switch(void** old_stack, void* new_stack);
asm(R"(
.text
.type emulation_switch, @function
emulation_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size emulation_switch, .-emulation_switch
)");
#endif

namespace emulation {
namespace {

#ifdef __x86_64__
struct Context {
    void* stack;
    void begin(void* memory, std::size_t bytes, void (*entry)()) {
        void** top = reinterpret_cast<void**>(static_cast<char*>(memory) + bytes); // entry finds the stack as after a call
        top[-2] = reinterpret_cast<void*>(entry);
        stack = top - 8;
    }
    void to(Context& other) { emulation_switch(&stack, other.stack); }
};
#else
struct Context {
    ucontext_t context;
    void begin(void* memory, std::size_t bytes, void (*entry)()) {
        getcontext(&context);
        context.uc_stack = {memory, 0, bytes};
        context.uc_link = nullptr;
        makecontext(&context, entry, 0);
    }
    void to(Context& other) { swapcontext(&context, &other.context); }
};
#endif

constexpr std::size_t stack_bytes = 128 * 1024, most_static = 48 * 1024, most_shared = 227 * 1024, arena_bytes = 256 * 1024;
constexpr std::size_t gap = 64; // between shared arrays: nobody may touch it
enum class State { ready, at_block, at_warp, done };

struct Kernel {
    void (*kernel)();
    Call call;
    std::vector<std::size_t> sizes;
};

std::map<std::string, Kernel>& kernels() {
    static std::map<std::string, Kernel> all;
    return all;
}

struct Thread {
    Context context;
    void* stack = nullptr;
    void* fiber = nullptr;
    Place place;
    State state;
    unsigned mask;
    Site site;
    char slot[16]; // of exchanges
};

struct Fault : std::runtime_error {
    using runtime_error::runtime_error;
};

struct Grid {
    std::vector<Thread> threads = std::vector<Thread>(1024);
    Context scheduler;
    void* main_fiber = nullptr;
    unsigned size = 0, now = 0;
    const Kernel* kernel;
    void** parameters;
    std::map<const void*, std::pair<char*, std::size_t>> shared;
    char* arena = nullptr; // of shared arrays
    std::size_t used = 0;
    char* dynamic;
    std::size_t shared_bytes, most_shared_bytes = most_shared;
    // What orders threads, for ThreadSanitizer. A barrier's token differs from that of the one before: a thread that is already at the
    // next one must not seem to come before those that still leave this one.
    char launch_token, end_token, block_token[2], warp_token[32][32][2];
    unsigned block_turn = 0, warp_turn[32][32] = {};
    std::string fault;
} grid;

void* pages(std::size_t bytes) { return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0); }

bool same_place(const Thread& a, const Thread& b) { return a.site.line() == b.site.line() && a.site.column() == b.site.column(); }

std::string where(const Thread& t) {
    const char *file = t.site.file_name(), *slash = std::strrchr(file, '/');
    return std::string(slash ? slash + 1 : file) + ":" + std::to_string(t.site.line());
}

void to_scheduler() {
    Thread& t = grid.threads[grid.now];
    if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(grid.main_fiber, 1);
    t.context.to(grid.scheduler);
}

void entry() {
    if (__tsan_acquire) __tsan_acquire(&grid.launch_token);
    grid.kernel->call(grid.kernel->kernel, grid.parameters);
    Thread& t = grid.threads[grid.now];
    if (__tsan_release) __tsan_release(&grid.end_token);
    t.state = State::done;
    to_scheduler();
}

void resume(unsigned i) {
    grid.now = i;
    Thread& t = grid.threads[i];
    if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(t.fiber, 1);
    grid.scheduler.to(t.context);
}

unsigned count(State state) {
    return unsigned(std::count_if(grid.threads.begin(), grid.threads.begin() + grid.size, [&](auto& t) { return t.state == state; }));
}

/// Lets a block go on whose threads are all at one barrier.
bool release_block() {
    const unsigned waiting = count(State::at_block), done = count(State::done);
    if (!waiting || waiting + done != grid.size) return false;
    const auto end = grid.threads.begin() + grid.size;
    const Thread& first = *std::find_if(grid.threads.begin(), end, [](auto& t) { return t.state == State::at_block; });
    if (done) throw Fault(std::to_string(done) + " threads have ended before the barrier at " + where(first));
    for (auto t = grid.threads.begin(); t != end; ++t)
        if (!same_place(*t, first)) throw Fault("threads of one block are at different barriers: " + where(first) + " and " + where(*t));
    for (auto t = grid.threads.begin(); t != end; ++t) t->state = State::ready;
    ++grid.block_turn;
    return true;
}

/// Lets those lanes of a warp go on that wait for the same mask, if all that it names are there.
bool release_mask(unsigned first_lane, const Thread& t, unsigned mask) {
    Thread* lanes = &grid.threads[first_lane];
    bool all = true;
    for (unsigned k = 0; k < 32; ++k) {
        if (!(mask >> k & 1)) continue;
        if (lanes[k].state == State::done) throw Fault("lane " + std::to_string(k) + " of a mask has ended; others wait at " + where(t));
        all &= lanes[k].state == State::at_warp && lanes[k].mask == mask;
    }
    if (!all) return false;
    for (unsigned k = 0; k < 32; ++k)
        if (mask >> k & 1 && !same_place(lanes[k], t)) throw Fault("lanes of one mask are at " + where(t) + " and " + where(lanes[k]));
    for (unsigned k = 0; k < 32; ++k)
        if (mask >> k & 1) lanes[k].state = State::ready;
    ++grid.warp_turn[first_lane / 32][__builtin_ctz(mask)];
    return true;
}

/// Lets go whoever may go; returns whether anybody may.
bool release() {
    if (release_block()) return true;
    bool any = false;
    for (unsigned w = 0; w < grid.size; w += 32) {
        unsigned seen = 0;
        for (unsigned l = 0; l < 32; ++l) {
            const Thread& t = grid.threads[w + l];
            if (t.state != State::at_warp || seen >> l & 1) continue;
            const unsigned mask = t.mask;
            seen |= mask;
            any |= release_mask(w, t, mask);
        }
    }
    return any;
}

/// Fills with NaN, a byte at a time: to a sanitizer, memset would be an access.
void poison(char* memory, std::size_t bytes) {
    if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(memory, bytes);
    for (volatile char* p = memory; p < memory + bytes; ++p) *p = char(0xff);
}

void begin_block(dim3 block, dim3 block_size, dim3 grid_size) {
    grid.shared.clear();
    if (!grid.arena) grid.arena = static_cast<char*>(pages(2 * arena_bytes));
    grid.used = gap;
    if (__asan_poison_memory_region) __asan_poison_memory_region(grid.arena, 2 * arena_bytes);
    grid.dynamic = grid.arena + arena_bytes;
    poison(grid.dynamic, grid.shared_bytes);
    for (unsigned i = 0; i < grid.size; ++i) {
        Thread& t = grid.threads[i];
        if (!t.stack) t.stack = pages(stack_bytes);
        t.context.begin(t.stack, stack_bytes, entry);
        if (__tsan_create_fiber && !t.fiber) t.fiber = __tsan_create_fiber(0);
        t.place = {{i % block_size.x, i / block_size.x, 0}, block, block_size, grid_size};
        t.state = State::ready;
    }
    if (__tsan_release) __tsan_release(&grid.launch_token); // a block begins after what the host and earlier blocks did
}

void run_block(dim3 block, dim3 block_size, dim3 grid_size, std::mt19937* random, bool reversed) {
    begin_block(block, block_size, grid_size);
    std::vector<unsigned> order(grid.size);
    for (unsigned i = 0; i < grid.size; ++i) order[i] = reversed ? grid.size - 1 - i : i;
    while (count(State::done) != grid.size) {
        if (random) std::shuffle(order.begin(), order.end(), *random);
        for (const unsigned i : order)
            if (grid.threads[i].state == State::ready) resume(i);
        if (!grid.fault.empty()) throw Fault(grid.fault);
        if (count(State::done) == grid.size || release()) continue;
        std::map<std::string, int> at;
        for (unsigned i = 0; i < grid.size; ++i) ++at[grid.threads[i].state == State::done ? "ended" : "at " + where(grid.threads[i])];
        std::string text = "no thread can go on:";
        for (auto& [place, n] : at) text += " " + std::to_string(n) + " " + place;
        throw Fault(text);
    }
    if (__tsan_acquire) __tsan_acquire(&grid.end_token);
}

void check(const Kernel& kernel, const unsigned* grid_size, unsigned block_size, std::size_t shared_bytes, const std::size_t* sizes,
           std::size_t arguments) {
    const auto text = [](std::size_t n) { return std::to_string(n); };
    if (kernel.sizes.size() != arguments) throw Fault("takes " + text(kernel.sizes.size()) + " arguments, got " + text(arguments));
    for (std::size_t i = 0; i < arguments; ++i)
        if (kernel.sizes[i] != sizes[i])
            throw Fault("argument " + text(i) + " has " + text(kernel.sizes[i]) + " bytes, got " + text(sizes[i]));
    if (block_size % 32 || block_size == 0 || block_size > 1024)
        throw Fault("a block must have whole warps and at most 1,024 threads, got " + text(block_size));
    if (grid_size[1] > 65535 || grid_size[2] > 65535 || !grid_size[0] || !grid_size[1] || !grid_size[2] || grid_size[0] >> 31)
        throw Fault("a grid that no card has");
    if (shared_bytes > grid.most_shared_bytes)
        throw Fault("more than " + text(grid.most_shared_bytes / 1024) + " KiB of shared memory: " + text(shared_bytes));
}

} // namespace

const Place& here() { return grid.threads[grid.now].place; }

void block_barrier(Site site) {
    Thread& t = grid.threads[grid.now];
    t.state = State::at_block, t.site = site;
    char* const token = &grid.block_token[grid.block_turn % 2];
    if (__tsan_release) __tsan_release(token);
    to_scheduler();
    if (__tsan_acquire) __tsan_acquire(token);
}

void warp_barrier(unsigned mask, Site site) {
    const unsigned warp = grid.now / 32, first = mask ? unsigned(__builtin_ctz(mask)) : 0;
    char* const token = &grid.warp_token[warp][first][grid.warp_turn[warp][first] % 2];
    Thread& t = grid.threads[grid.now];
    t.state = State::at_warp, t.mask = mask, t.site = site;
    if (!(mask >> grid.now % 32 & 1)) grid.fault = "a lane calls with a mask that it is not in, at " + where(t);
    if (__tsan_release) __tsan_release(token);
    to_scheduler();
    if (__tsan_acquire) __tsan_acquire(token);
}

void exchange(unsigned mask, const void* value, std::size_t size, unsigned from, void* out, Site site) {
    const unsigned self = grid.now;
    if (size > sizeof grid.threads[self].slot) std::abort();
    std::memcpy(grid.threads[self].slot, value, size);
    warp_barrier(mask, site);
    if (!(mask >> from & 1)) grid.fault = "a value is read from a lane outside the mask, at " + where(grid.threads[self]);
    std::memcpy(out, grid.threads[self / 32 * 32 + from].slot, size);
    warp_barrier(mask, site);
}

void* shared_array(const void* tag, std::size_t bytes) {
    auto& [memory, size] = grid.shared[tag];
    if (memory) return memory;
    memory = grid.arena + grid.used, size = bytes;
    grid.used += (bytes + 15) / 16 * 16 + gap;
    std::size_t all = 0;
    for (auto& [_, array] : grid.shared) all += array.second;
    if (all > most_static) grid.fault = "more than 48 KiB of static shared memory";
    if (all + grid.shared_bytes > grid.most_shared_bytes) grid.fault = "more shared memory than a card has";
    if (grid.used > arena_bytes) std::abort();
    poison(memory, bytes);
    return memory;
}

void* dynamic_shared() { return grid.dynamic; }

Registration::Registration(const char* name, void (*kernel)(), Call call, const std::size_t* sizes, std::size_t count) {
    kernels()[name] = {kernel, call, {sizes, sizes + count}};
}

} // namespace emulation

using namespace emulation;

/// Runs a kernel. order: 0 as numbered, 1 backwards, others random. Returns null, or what went wrong.
extern "C" const char* emulate(const char* name, const unsigned* grid_size, unsigned block_size, std::size_t shared_bytes,
                               void** parameters, const std::size_t* sizes, std::size_t arguments, unsigned order) {
    static std::string said;
    const auto found = kernels().find(name);
    try {
        if (found == kernels().end()) throw Fault("no such kernel");
        check(found->second, grid_size, block_size, shared_bytes, sizes, arguments);
        grid.kernel = &found->second, grid.parameters = parameters, grid.size = block_size, grid.shared_bytes = shared_bytes;
        grid.fault.clear();
        if (__tsan_get_current_fiber) grid.main_fiber = __tsan_get_current_fiber();
        std::mt19937 random(order);
        const unsigned nx = grid_size[0], ny = grid_size[1], blocks = nx * ny * grid_size[2];
        std::vector<unsigned> all(blocks);
        for (unsigned b = 0; b < blocks; ++b) all[b] = order == 1 ? blocks - 1 - b : b;
        if (order > 1) std::shuffle(all.begin(), all.end(), random);
        for (const unsigned b : all)
            run_block({b % nx, b / nx % ny, b / nx / ny}, {block_size, 1, 1}, {nx, ny, grid_size[2]}, order > 1 ? &random : nullptr,
                      order == 1);
        return nullptr;
    } catch (const std::exception& error) {
        said = std::string(name) + ": " + error.what();
        return said.c_str();
    }
}

/// How much shared memory a block may have: cards differ.
extern "C" void emulated_shared_memory(std::size_t bytes) { grid.most_shared_bytes = bytes; }

/// The names of all kernels, one a line.
extern "C" const char* emulated_kernels() {
    static std::string all;
    all.clear();
    for (auto& [name, _] : kernels()) all += name + "\n";
    return all.c_str();
}
