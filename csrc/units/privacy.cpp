#include "fedkern/privacy/discrete_gaussian.hpp"
#include "fedkern/privacy/sums.hpp"

#include "tables/privacy.hpp"

namespace fedkern::tables::FEDKERN_ISA {

extern const PrivacyTable privacy = {
    .clip_sum_f32 = clip_sum<float>,
    .clip_sum_f64 = clip_sum<double>,
    .add_noise = add_noise,
    .discrete_gaussian = discrete_gaussian,
};

} // namespace fedkern::tables::FEDKERN_ISA
