#include "fedkern/sem.hpp"

#include "table.hpp"

namespace fedkern::tables::FEDKERN_ISA {

const SemTable sem = {
    .log_density = sem_log_density,
    .sweeps = sem_sweeps,
};

} // namespace fedkern::tables::FEDKERN_ISA
