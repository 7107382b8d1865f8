#include "fedkern/mlp/networks.hpp"

#include "tables/mlp.hpp"

namespace fedkern::tables::FEDKERN_ISA {

extern const MlpTable mlp = {
    .forward_f32 = mlp_forward<float>,
    .forward_f64 = mlp_forward<double>,
    .backward_f32 = mlp_backward<float>,
    .backward_f64 = mlp_backward<double>,
};

} // namespace fedkern::tables::FEDKERN_ISA
