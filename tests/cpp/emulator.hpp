// CUDA C++ as a host compiler reads it: the kernels of csrc/cuda run on the CPU, for tests only.
//
// Blocks run one after the other, the threads of a block as fibers, each until it meets a barrier. What a GPU would leave undefined
// is an error here: a barrier that some threads never reach or reach at another line, a lane that is named in a mask and does not
// come, shared memory beyond the card's. Shared memory begins as NaN. The order of threads, warps and blocks is an argument: results
// that change with it are races.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __restrict__ __restrict

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};

struct alignas(16) double2 {
    double x, y;
};

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

namespace emulation {

using Site = std::source_location;

struct Place {
    dim3 thread, block, block_size, grid;
};
const Place& here();

void block_barrier(Site);
void warp_barrier(unsigned mask, Site);
/// Leaves `value` for the other lanes of the mask, waits for all of them, and copies what the lane `from` has left.
void exchange(unsigned mask, const void* value, std::size_t size, unsigned from, void* out, Site);
void* shared_array(const void* tag, std::size_t bytes); // of this block; `tag` is its declaration
void* dynamic_shared();

using Call = void (*)(void (*kernel)(), void** parameters);
struct Registration {
    Registration(const char* name, void (*kernel)(), Call call, const std::size_t* sizes, std::size_t count);
};

template <class... P> struct Unpacked {
    static constexpr std::size_t sizes[sizeof...(P) + 1] = {sizeof(P)..., 0};
    template <std::size_t... I> static void apply(void (*kernel)(), void** p, std::index_sequence<I...>) {
        reinterpret_cast<void (*)(P...)>(kernel)(*static_cast<P*>(p[I])...);
    }
    static void call(void (*kernel)(), void** p) { apply(kernel, p, std::index_sequence_for<P...>()); }
};

template <class... P> Registration registered(const char* name, void (*kernel)(P...)) {
    return {name, reinterpret_cast<void (*)()>(kernel), &Unpacked<P...>::call, Unpacked<P...>::sizes, sizeof...(P)};
}

} // namespace emulation

#define threadIdx (::emulation::here().thread)
#define blockIdx (::emulation::here().block)
#define blockDim (::emulation::here().block_size)
#define gridDim (::emulation::here().grid)

inline void __syncthreads(emulation::Site site = emulation::Site::current()) { emulation::block_barrier(site); }
inline void __syncwarp(unsigned mask = ~0u, emulation::Site site = emulation::Site::current()) { emulation::warp_barrier(mask, site); }

template <class T> T __shfl_sync(unsigned mask, T value, int lane, emulation::Site site = emulation::Site::current()) {
    T out;
    emulation::exchange(mask, &value, sizeof value, unsigned(lane) % 32, &out, site);
    return out;
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int bits, emulation::Site site = emulation::Site::current()) {
    T out;
    emulation::exchange(mask, &value, sizeof value, (threadIdx.x % 32) ^ unsigned(bits), &out, site);
    return out;
}
inline unsigned __ballot_sync(unsigned mask, bool predicate, emulation::Site site = emulation::Site::current()) {
    unsigned result = 0;
    for (unsigned l = 0; l < 32; ++l) {
        if (!(mask >> l & 1)) continue;
        bool other = false;
        emulation::exchange(mask, &predicate, sizeof predicate, l, &other, site);
        result |= unsigned(other) << l;
    }
    return result;
}

/// Whole numbers only: sums of floating-point numbers must not depend on an order.
template <class T> T atomicAdd(T* at, T value) {
    static_assert(std::is_integral_v<T>);
    return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}

#define FEDKERN_SHARED(T, name, size)                                                                                                      \
    static const char name##_tag = 0;                                                                                                      \
    T* const name = static_cast<T*>(::emulation::shared_array(&name##_tag, sizeof(T) * (size)))
#define FEDKERN_DYNAMIC_SHARED(T, name) T* const name = static_cast<T*>(::emulation::dynamic_shared())
#define FEDKERN_JOIN_(a, b) a##b
#define FEDKERN_JOIN(a, b) FEDKERN_JOIN_(a, b)
#define FEDKERN_INSTANCE(...)                                                                                                              \
    static const auto FEDKERN_JOIN(registration_, __COUNTER__) = ::emulation::registered(#__VA_ARGS__, &__VA_ARGS__);
