#include "fedkern/sem/sweeps.hpp"

#include "tables/sem.hpp"

namespace fedkern::tables::FEDKERN_ISA {

extern const SemTable sem = {
    .log_density = sem_log_density,
    .sweeps = sem_sweeps,
};

} // namespace fedkern::tables::FEDKERN_ISA
