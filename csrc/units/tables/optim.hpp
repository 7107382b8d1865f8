#pragma once
#include "fedkern/optim/views.hpp"

namespace fedkern {

struct OptimTable {
    template <class Rule> using Update = void(Matrix<const double> state, Vector<const double> gradient, Rule, Matrix<double> new_state,
                                              Vector<double> step, int n_threads);

    Update<AdamRule>* adam;
    Update<AdagradRule>* adagrad;
};

} // namespace fedkern
