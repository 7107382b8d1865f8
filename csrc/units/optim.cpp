#include "fedkern/optim/adaptive.hpp"

#include "tables/optim.hpp"

namespace fedkern::tables::FEDKERN_ISA {

extern const OptimTable optim = {
    .adam = adam,
    .adagrad = adagrad,
};

} // namespace fedkern::tables::FEDKERN_ISA
