#include "fedkern/vae_step.hpp"

namespace fedkern::tables::FEDKERN_ISA {

extern const VaeTable vae = {
    .gradient_f32 = vae_gradient<float>,
    .gradient_f64 = vae_gradient<double>,
    .steps_f32 = vae_steps<float>,
    .steps_f64 = vae_steps<double>,
};

} // namespace fedkern::tables::FEDKERN_ISA
