// Mean-field inference of an autoregressive prior with Gaussian observations: many steps of Adam in one call.
#pragma once
#include "fedkern/tensor.hpp"
#include "car.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

/// phi = lo + (hi - lo) sigmoid(x), its slope, and log p(x) with its slope, phi logit-normal (sigma.md, section 6), but for constants.
struct LogitPhi {
    double phi, slope, density, density_slope;
};

inline LogitPhi logit_phi(double x, double lo, double hi, double mean, double variance) {
    const double s = math::sigmoid(x), other = math::sigmoid(-x), width = hi - lo;
    const double phi = lo + width * s, rest = (1 - hi) + width * other, slope = width * s * other;
    const double away = math::log(phi / rest) - mean, inner = phi * rest;
    return {phi, slope, -0.5 * away * away / variance - math::log(inner) + math::log(slope),
            (-away / variance - (rest - phi)) / inner * slope + (other - s)};
}

/// term(0) + .. + term(size - 1), in eight lanes.
template <class Term> FEDKERN_INLINE double lane_sum(Index size, const Term& term) {
    double sums[8] = {}, rest = 0;
    Index i = 0;
    for (; i + 8 <= size; i += 8)
        for (Index lane = 0; lane < 8; ++lane) sums[lane] += term(i + lane);
    for (; i < size; ++i) rest += term(i);
    return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7])) + rest;
}

/// One sample's gradient of the evidence lower bound, ascent: in the means (first row), in the logs of the sds (second). Returns the
/// bound's value, entropy included. `draw`, `spread` (n + 1), `slopes` (n): memory.
template <CarForm form>
double meanfield_gradient(const AreaGraph& g, const double* degrees, const CarModel& model, const double* y, const double* weight,
                          const CarObservations& data, const double* parameters, double* spread, double* draw, double* slopes,
                          double* gradient) {
    const Index n = g.n, k = n + 1;
    for (Index i = 0; i < k; ++i) spread[i] *= math::exp(parameters[k + i]), draw[i] = parameters[i] + spread[i];
    const auto at = logit_phi(draw[n], model.lo, model.hi, data.prior_mean, data.prior_variance);
    const auto sums = car_row<form>(g, degrees, draw, at.phi, slopes);
    const auto determinant = log_determinant(model, at.phi);
    for (Index i = 0; i < n; ++i) {
        const double left = y[i] - draw[i], pull = weight[i] * left;
        gradient[i] = slopes[i] + pull;
        slopes[i] = pull * left;
    }
    gradient[n] = (0.5 * (determinant.slope - sums.slope)) * at.slope + at.density_slope;
    for (Index i = 0; i < k; ++i) gradient[k + i] = gradient[i] * spread[i] + 1;
    const double entropy = lane_sum(k, [&](Index i) { return parameters[k + i]; }), misfit = lane_sum(n, [&](Index i) { return slopes[i]; });
    return 0.5 * (determinant.value - sums.whole - misfit) + at.density + entropy;
}

/// Adam (Kingma and Ba, 2015) with 0.9, 0.999, 1e-8, ascent; `count`: steps with this one.
inline void ascend(double* parameters, double* first, double* second, const double* gradient, Index size, double rate, double count) {
    const double scale = -rate / math::expm1(count * math::log(0.9)), correction = -1 / math::expm1(count * math::log(0.999));
    for (Index i = 0; i < size; ++i) {
        first[i] = 0.9 * first[i] + 0.1 * gradient[i];
        second[i] = 0.999 * second[i] + 0.001 * gradient[i] * gradient[i];
        parameters[i] += scale * first[i] / (math::sqrt(second[i] * correction) + 1e-8);
    }
}

/// Steps first, .., first + rates.size - 1; at a bound or gradient that is not finite they end, and the trace is NaN from there on.
/// False if the graph's numbers lie outside it.
inline bool car_meanfield(const AreaGraph& g, const CarModel& model, const CarObservations& data, Matrix<const double> parameters,
                          Tensor<const double, 3> moments, Vector<const double> rates, U64 key, U32 first, Matrix<double> new_parameters,
                          Tensor<double, 3> new_moments, Vector<double> trace) {
    if (!within(g)) return false;
    const Index n = g.n, k = n + 1;
    const Scratch<double> degrees(n), y(data.y), weight(data.weight), state(6 * k), spread(k), draw(k), slopes(n), gradient(2 * k);
    double *here = state, *m = state + 2 * k, *v = state + 4 * k;
    for (Index i = 0; i < n; ++i) degrees[i] = own_weight(g, i);
    for (Index row = 0; row < 2; ++row)
        for (Index i = 0; i < k; ++i) {
            here[row * k + i] = parameters.row(row)[i];
            m[row * k + i] = moments[0][row][i], v[row * k + i] = moments[1][row][i];
        }
    const auto gradient_of = model.form == CarForm::leroux ? meanfield_gradient<CarForm::leroux> : meanfield_gradient<CarForm::car>;
    for (Index t = 0; t < rates.size; ++t) trace[t] = math::not_a_number<double>();
    for (Index t = 0; t < rates.size; ++t) {
        fill_normal({spread, k}, {0, 0, 0, first + U32(t)}, key);
        const double value = gradient_of(g, degrees, model, y, weight, data, here, spread, draw, slopes, gradient);
        const double size = lane_sum(2 * k, [&](Index i) { return math::magnitude(gradient[i]); });
        if (!(size + math::magnitude(value) < math::infinity<double>())) break;
        trace[t] = value;
        ascend(here, m, v, gradient, 2 * k, rates[t], double(first) + double(t) + 1);
    }
    for (Index row = 0; row < 2; ++row)
        for (Index i = 0; i < k; ++i) {
            new_parameters.row(row)[i] = here[row * k + i];
            new_moments[0][row][i] = m[row * k + i], new_moments[1][row][i] = v[row * k + i];
        }
    return true;
}

} // namespace FEDKERN_ISA
} // namespace fedkern
