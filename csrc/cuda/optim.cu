// Optimisers: one parameter a thread, each number read and written once.
#include "grid.hpp"
#include "fedkern/optim/scalar.hpp"

namespace fedkern {
namespace cuda {

/// Rows of the states: m, v, t.
FEDKERN_KERNEL adam_columns(Matrix<const double> state, Vector<const double> gradient, AdamRule rule, double log_beta1, double log_beta2,
                            Matrix<double> new_state, Vector<double> step) {
    for (Index j = thread_of_grid(); j < gradient.size; j += threads_of_grid()) {
        const Adapted now = adam(
            rule, state.row(0)[j], state.row(1)[j], state.row(2)[j], gradient[j],
            [&](double count) { return adam_slope(rule, count, log_beta1); }, [&](double count) { return adam_shrink(count, log_beta2); });
        new_state.row(0)[j] = now.m, new_state.row(1)[j] = now.v, new_state.row(2)[j] = now.t;
        step[j] = now.step;
    }
}

FEDKERN_KERNEL adagrad_columns(Vector<const double> sum, Vector<const double> gradient, AdagradRule rule, Vector<double> new_sum,
                               Vector<double> step) {
    for (Index j = thread_of_grid(); j < gradient.size; j += threads_of_grid()) {
        const double g = gradient[j], now = sum[j] + g * g;
        new_sum[j] = now;
        step[j] = adagrad_step(rule, now, g);
    }
}

FEDKERN_INSTANCE(adam_columns)
FEDKERN_INSTANCE(adagrad_columns)

} // namespace cuda
} // namespace fedkern
