#include <cstdlib>
#include <stdexcept>
#include <string>

#include "table.hpp"

namespace fedkern {
namespace {

struct Level {
    const char* name;
    const Table* table;
    bool here;
};

// From the highest to the lowest.
const Level levels[] = {{"avx512", &tables::avx512, bool(__builtin_cpu_supports("x86-64-v4"))},
                        {"avx2", &tables::avx2, bool(__builtin_cpu_supports("x86-64-v3"))},
                        {"baseline", &tables::baseline, true}};

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

const Table& kernels() { return *chosen()->table; }
const char* isa() { return chosen()->name; }

void limit_isa(const char* name) {
    const Level* limit = find(name, "limit_isa");
    if (limit > chosen()) chosen() = limit; // later in the list is lower
}

} // namespace fedkern
