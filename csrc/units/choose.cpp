#include <atomic>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>

#include "levels.hpp"
#include "table.hpp"

// The levels that are compiled into this module, from the highest: setup.py says FEDKERN_LEVEL(name) for each.
#ifndef FEDKERN_LEVELS
#error "FEDKERN_LEVELS: compile this file by setup.py"
#endif

namespace fedkern {

#define FEDKERN_FAMILY(table, name) extern const table name;
#define FEDKERN_LEVEL(level)                                                                                                               \
    namespace tables::level {                                                                                                              \
    FEDKERN_FAMILIES                                                                                                                       \
    }
FEDKERN_LEVELS
#undef FEDKERN_LEVEL
#undef FEDKERN_FAMILY

namespace {

struct BuiltLevel {
    const char* name;
    Table table;
    bool here;
};

#define FEDKERN_FAMILY(table, name) name,
#define FEDKERN_LEVEL(level)                                                                                                               \
    Table table_##level() {                                                                                                                \
        using namespace tables::level;                                                                                                     \
        return {FEDKERN_FAMILIES};                                                                                                         \
    }
FEDKERN_LEVELS
#undef FEDKERN_LEVEL
#undef FEDKERN_FAMILY

#define FEDKERN_LEVEL(level) {#level, table_##level(), has_##level()},
const BuiltLevel built[] = {FEDKERN_LEVELS}; // from the highest to the lowest
#undef FEDKERN_LEVEL

/// The names of the levels built, or only of those that this processor has.
std::string names(bool only_here) {
    std::string list;
    for (const BuiltLevel& l : built)
        if (l.here || !only_here) list += (list.empty() ? "" : ", ") + std::string(l.name);
    return list;
}

[[noreturn]] void refuse(const std::string& wanted, const std::string& who) {
    const std::string usable = names(true);
    if (usable.empty() || wanted.empty())
        throw std::runtime_error("fedkern was built for the instructions " + names(false) +
                                 " alone, and this processor does not have them: build it on this machine, or with FEDKERN_LEVELS=all");
    std::string known;
    bool is_known = false, is_built = false;
    for (const char* name : known_levels) known += (known.empty() ? "" : ", ") + std::string(name), is_known |= wanted == name;
    for (const BuiltLevel& l : built) is_built |= wanted == l.name;
    const std::string remedy = "; unset " + who + ", or give it one of these: " + usable;
    if (!is_known) throw std::runtime_error(who + "=" + wanted + ": there is no such instruction-set level (" + known + ")" + remedy);
    if (is_built) throw std::runtime_error(who + "=" + wanted + ": this processor has no such instructions" + remedy);
    throw std::runtime_error(who + "=" + wanted + ": fedkern was built without these instructions" + remedy +
                             "; or build it with FEDKERN_LEVELS=all");
}

const BuiltLevel* find(const std::string& wanted, const char* who) {
    for (const BuiltLevel& l : built)
        if (l.here && (wanted.empty() || wanted == l.name)) return &l;
    refuse(wanted, who);
}

/// Any thread reads it and any may lower it; the tables themselves are constant, so that no order of other memory is needed.
std::atomic<const BuiltLevel*>& chosen() {
    static std::atomic<const BuiltLevel*> level = [] {
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
    return chosen().load(std::memory_order_relaxed)->table;
}
const char* isa() { return chosen().load(std::memory_order_relaxed)->name; }

void limit_isa(const char* name) {
    const BuiltLevel* limit = find(name, "limit_isa");
    const BuiltLevel* now = chosen().load(std::memory_order_relaxed);
    // Later in the list is lower. Another thread may lower it at the same time: the lower of both stays.
    while (limit > now && !chosen().compare_exchange_weak(now, limit, std::memory_order_relaxed)) {}
}

std::vector<Level> levels() {
    std::vector<Level> list;
    for (const BuiltLevel& l : built) list.push_back({l.name, l.here});
    return list;
}

} // namespace fedkern
