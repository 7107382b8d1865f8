#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>

#include "table.hpp"

namespace fedkern {
namespace {

struct Level {
    const char* name;
    Table table;
    bool here;
};

#define FEDKERN_FAMILY(table, name) name,
Table avx512() {
    using namespace tables::avx512;
    return {FEDKERN_FAMILIES};
}
Table avx2() {
    using namespace tables::avx2;
    return {FEDKERN_FAMILIES};
}
Table baseline() {
    using namespace tables::baseline;
    return {FEDKERN_FAMILIES};
}
#undef FEDKERN_FAMILY

// From the highest to the lowest.
const Level levels[] = {{"avx512", avx512(), bool(__builtin_cpu_supports("x86-64-v4"))},
                        {"avx2", avx2(), bool(__builtin_cpu_supports("x86-64-v3"))},
                        {"baseline", baseline(), true}};

const Level* find(const std::string& wanted, const char* who) {
    for (const Level& l : levels)
        if (l.here && (wanted.empty() || wanted == l.name)) return &l;
    throw std::runtime_error(std::string(who) + "=" + wanted + ": this CPU has no such instruction-set level (avx512, avx2, baseline)");
}

const Level*& chosen() {
    static const Level* level = [] {
        const char* wanted = std::getenv("FEDKERN_ISA");
        return find(wanted ? wanted : "", "FEDKERN_ISA");
    }();
    return level;
}

} // namespace

const Table& kernels() {
    // What C++ keeps of a thread's exceptions is allocated when it is first asked for, and a thread that does not get it ends the
    // process: here, before a kernel takes memory, and not when it finds that there is none. Volatile: the call is not left out.
    [[maybe_unused]] const volatile int there = std::uncaught_exceptions();
    return chosen()->table;
}
const char* isa() { return chosen()->name; }

void limit_isa(const char* name) {
    const Level* limit = find(name, "limit_isa");
    if (limit > chosen()) chosen() = limit; // later in the list is lower
}

} // namespace fedkern
