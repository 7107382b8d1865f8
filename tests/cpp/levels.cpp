// The choice of a level on a processor that the test makes up: CPU names what it has. Prints the level, or why there is none; and
// with an argument the level after `limit_isa` of it.
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {
bool has(const char* level) { return std::strstr(std::getenv("CPU"), level) != nullptr; }
} // namespace

#define __builtin_cpu_supports(level) has(level)
#include "units/choose.cpp"

namespace fedkern { // no kernel is called
#define FEDKERN_FAMILY(table, name) extern const table name{};
#define FEDKERN_LEVEL(level)                                                                                                               \
    namespace tables::level {                                                                                                              \
    FEDKERN_FAMILIES                                                                                                                       \
    }
FEDKERN_LEVELS
} // namespace fedkern

int main(int argc, char** argv) {
    try {
        std::printf("%s", fedkern::isa());
        if (argc > 1) fedkern::limit_isa(argv[1]), std::printf(" %s", fedkern::isa());
    } catch (const std::runtime_error& error) { std::printf("%s", error.what()); }
}
