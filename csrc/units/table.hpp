// The compiled kernels as function pointers: a table for each family, and each of them once for each instruction-set level. A unit
// includes its own table alone, so that nothing else is compiled again when a family changes.
#pragma once
#include "tables/augmented.hpp"
#include "tables/frames.hpp"
#include "tables/glm.hpp"
#include "tables/mixed.hpp"
#include "tables/mixed_general.hpp"
#include "tables/mlp.hpp"
#include "tables/mlp_vae.hpp"
#include "tables/multinomial.hpp"
#include "tables/optim.hpp"
#include "tables/privacy.hpp"
#include "tables/rng.hpp"
#include "tables/sem.hpp"
#include "tables/shrinkage.hpp"
#include "tables/shrinkage_rows.hpp"
#include "tables/shrinkage_server.hpp"
#include "tables/spatial.hpp"
#include "tables/survival.hpp"

#include <vector>

namespace fedkern {

/// FEDKERN_FAMILY(table, name) for each family of kernels: csrc/units/<name>.cpp fills its table.
#define FEDKERN_FAMILIES                                                                                                                   \
    FEDKERN_FAMILY(RngTable, rng)                                                                                                          \
    FEDKERN_FAMILY(PrivacyTable, privacy)                                                                                                  \
    FEDKERN_FAMILY(GlmTable, glm)                                                                                                          \
    FEDKERN_FAMILY(SemTable, sem)                                                                                                          \
    FEDKERN_FAMILY(AugmentedTable, augmented)                                                                                              \
    FEDKERN_FAMILY(MixedTable, mixed)                                                                                                      \
    FEDKERN_FAMILY(MixedGeneralTable, mixed_general)                                                                                       \
    FEDKERN_FAMILY(MlpTable, mlp)                                                                                                          \
    FEDKERN_FAMILY(MultinomialTable, multinomial)                                                                                          \
    FEDKERN_FAMILY(OptimTable, optim)                                                                                                      \
    FEDKERN_FAMILY(ShrinkageRowsTable, shrinkage_rows)                                                                                     \
    FEDKERN_FAMILY(ShrinkageServerTable, shrinkage_server)                                                                                 \
    FEDKERN_FAMILY(ShrinkageTable, shrinkage)                                                                                              \
    FEDKERN_FAMILY(SpatialTable, spatial)                                                                                                  \
    FEDKERN_FAMILY(SurvivalTable, survival)                                                                                                \
    FEDKERN_FAMILY(MlpVaeTable<float>, mlp_vae_f32)                                                                                        \
    FEDKERN_FAMILY(MlpVaeTable<double>, mlp_vae_f64)                                                                                       \
    FEDKERN_FAMILY(FrameTable, frames)

#define FEDKERN_FAMILY(table, name) const table& name;
struct Table {
    FEDKERN_FAMILIES
};
#undef FEDKERN_FAMILY

/// The table in use: the highest level that is compiled in, that this CPU has, and that FEDKERN_ISA (or limit_isa) allows. Throws if
/// there is none.
const Table& kernels();
const char* isa();

/// Lowers the level to at most `name`: the ranks of a job agree on one that all of them have. Throws if this module or CPU lacks it.
void limit_isa(const char* name);

struct Level {
    const char* name;
    bool here; // whether this CPU has it
};

/// The levels that are compiled in, from the highest.
std::vector<Level> levels();

} // namespace fedkern
