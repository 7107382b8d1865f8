// The compiled kernels as function pointers: a table for each family, and each of them once for each instruction-set level.
#pragma once
#include <cstdint>

#include "fedkern/blas.hpp"
#include "fedkern/glm_views.hpp"
#include "fedkern/rng.hpp"
#include "fedkern/sem_views.hpp"
#include "fedkern/shrinkage_server_views.hpp"
#include "fedkern/shrinkage_views.hpp"
#include "fedkern/view.hpp"

namespace fedkern {

struct RngTable {
    using FillPairs = void (*)(Vector<double> out, Counter first, U64 key, int n_threads);
    void (*words)(Matrix<U32> out, Counter first, U64 key, int n_threads);
    FillPairs uniform, normal, exponential;
    void (*gamma)(Vector<const double> shape, Vector<double> out, Counter first, U64 key, int n_threads);
    void (*inverse_gaussian)(Vector<const double> mean, Vector<const double> shape, Vector<double> out, Counter first, U64 key,
                             int n_threads);
};

struct PrivacyTable {
    Index (*clip_sum_f32)(Matrix<const float>, double bound, Vector<double> total, int n_threads);
    Index (*clip_sum_f64)(Matrix<const double>, double bound, Vector<double> total, int n_threads);
    void (*add_noise)(Vector<const double> total, double sigma, U64 key, U32 client, U32 step, Vector<double> out, int n_threads);
    Index (*discrete_gaussian)(Vector<const std::uint32_t> words, std::int64_t sigma, Vector<std::int64_t> out, Index* used);
};

struct ShrinkageServerTable {
    void (*local_sums)(Tensor<const double, 3> deviation, Tensor<const double, 3> lambda_sq, double slab, Tensor<double, 4> sums,
                       int n_threads);
    void (*global_sweep)(Tensor<const double, 4> deviation, Tensor<const double, 4> lambda_sq, Tensor<const std::int64_t, 2> indicators,
                         ServerState<const double>, ServerOptions, ServerDraws, ServerResult, Clients, int n_threads);
    void (*global_sweep_sums)(Tensor<const double, 4> sums, Index n_clients, Tensor<const std::int64_t, 2> indicators,
                              ServerState<const double>, ServerOptions, ServerDraws, ServerResult, int n_threads);
    void (*move_terms)(Tensor<const double, 2> R, Tensor<const double, 2> q, Tensor<const std::int64_t, 1> block, MoveState,
                       Tensor<const double, 2> deviation, Tensor<const double, 1> sigma_sq, double slab, Tensor<double, 2> gradient,
                       Tensor<double, 3> precision, int n_threads);
    void (*move)(Tensor<const double, 2> gradient, Tensor<const double, 3> precision, Tensor<const std::int64_t, 1> block, MoveState,
                 MovePrior, U64 seed, U64 chain, U32 step, Tensor<double, 2> theta, Tensor<double, 2> t, int n_threads, const Blas&);
};

struct ShrinkageTable {
    void (*local_sweeps)(const Factor&, Matrix<const double> q, Vector<const double> rss, const Rows<const double>& theta,
                         const Rows<const double>& tau_sq, const LocalState<const double>& from, const LocalModel&, const SweepCounter&,
                         const LocalState<double>& to, const Rows<long>& events, int n_threads);
    void (*local_sweeps_batched)(const Factor&, const Rows<const double>& theta, const Rows<const double>& tau_sq,
                                 const LocalState<const double>& from, const LocalModel&, const SweepCounter&, const LocalState<double>& to,
                                 const Rows<long>& events, int n_threads);
    void (*gaussian_posterior_draw)(const Factor&, Matrix<const double> q, Matrix<const double> mean, Matrix<const double> scale,
                                    Vector<const double> sigma_sq, double slab, DrawForm, const SweepCounter&, Matrix<double> deviation,
                                    int n_threads);
};

/// FEDKERN_FAMILY(table, name) for each family of kernels: csrc/units/<name>.cpp fills its table.
#define FEDKERN_FAMILIES                                    \
    FEDKERN_FAMILY(RngTable, rng)                           \
    FEDKERN_FAMILY(PrivacyTable, privacy)                   \
    FEDKERN_FAMILY(GlmTable, glm)                           \
    FEDKERN_FAMILY(SemTable, sem)                           \
    FEDKERN_FAMILY(ShrinkageServerTable, shrinkage_server)  \
    FEDKERN_FAMILY(ShrinkageTable, shrinkage)

#define FEDKERN_FAMILY(table, name) extern const table name;
namespace tables::baseline {
FEDKERN_FAMILIES
}
namespace tables::avx2 {
FEDKERN_FAMILIES
}
namespace tables::avx512 {
FEDKERN_FAMILIES
}
#undef FEDKERN_FAMILY

#define FEDKERN_FAMILY(table, name) const table& name;
struct Table {
    FEDKERN_FAMILIES
};
#undef FEDKERN_FAMILY

/// The table in use: the highest level that this CPU has and FEDKERN_ISA (or limit_isa) allows.
const Table& kernels();
const char* isa();

/// Lowers the level to at most `name`: the ranks of a job agree on the lowest among them. Throws if this CPU lacks it.
void limit_isa(const char* name);

} // namespace fedkern
