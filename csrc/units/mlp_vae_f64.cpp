#include "fedkern/mlp/vae_step.hpp"

#include "tables/mlp_vae.hpp"

namespace fedkern::tables::FEDKERN_ISA {

extern const MlpVaeTable<double> mlp_vae_f64 = {
    .gradient = vae_gradient<double>,
    .steps = vae_steps<double>,
};

} // namespace fedkern::tables::FEDKERN_ISA
