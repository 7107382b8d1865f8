#include "fedkern/mlp/vae_step.hpp"

#include "tables/mlp_vae.hpp"

namespace fedkern::tables::FEDKERN_ISA {

extern const MlpVaeTable<float> mlp_vae_f32 = {
    .gradient = vae_gradient<float>,
    .steps = vae_steps<float>,
};

} // namespace fedkern::tables::FEDKERN_ISA
