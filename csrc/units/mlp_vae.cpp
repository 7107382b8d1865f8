#include "fedkern/mlp/vae_step.hpp"

#include "tables/mlp_vae.hpp"

namespace fedkern::tables::FEDKERN_ISA {

extern const MlpVaeTable mlp_vae = {
    .gradient_f32 = vae_gradient<float>,
    .gradient_f64 = vae_gradient<double>,
    .steps_f32 = vae_steps<float>,
    .steps_f64 = vae_steps<double>,
};

} // namespace fedkern::tables::FEDKERN_ISA
