#include "tensors.hpp"
#include "units/table.hpp"

namespace fedkern {
namespace {

/// How many shape numbers points need; -1: at least one.
Index shape_numbers(MixedFamily family, Index cuts) {
    switch (family) {
    case MixedFamily::binomial:
    case MixedFamily::poisson:
    case MixedFamily::exponential:
    case MixedFamily::probit:
    case MixedFamily::cloglog: return 0;
    case MixedFamily::student:
    case MixedFamily::zero_inflated_negative_binomial:
    case MixedFamily::hurdle_negative_binomial: return 2;
    case MixedFamily::ordinal:
    case MixedFamily::ordinal_probit: return -1;
    case MixedFamily::piecewise: return cuts + 1;
    default: return 1;
    }
}

/// The rows of a call; their `starts` are a copy that was checked.
class MixedCall {
  public:
    MixedCall(const py::array& points, const py::array& X, const py::array& Z, const py::array& y, const py::object& trials,
              const py::object& offset, const py::array& starts, const py::object& upper, const py::object& cuts, const py::object& entry,
              int family, int nodes)
        : points(matrix<const double>(points, "points")), starts_(starts, "starts", {starts.ndim() == 1 ? starts.shape(0) : 0}) {
        const auto x = matrix<const double>(X, "X");
        const auto z = matrix<const double>(Z, "Z");
        const auto column = [&](const py::object& values, const char* name) -> Vector<const double> {
            return values.is_none() ? Vector<const double>{nullptr, 0} : vector<const double>(py::cast<py::array>(values), name, x.rows);
        };
        if (family < 0 || family >= int(MixedFamily::families)) throw py::value_error("family: no likelihood has this number");
        const Index most = has_several_modes(MixedFamily(family)) ? 1 : mixed_effects;
        if (z.rows != x.rows || z.cols > most) throw py::value_error("Z: needs a row for each of X, and at most 3 columns, or 1");
        if (nodes < 1 || nodes > mixed_nodes) throw py::value_error("nodes: must be in [1, 128]");
        const Index g = starts_.size();
        const auto* at = starts_.view.data;
        bool rises = g > 0 && at[0] == 0 && at[g - 1] == x.rows;
        for (Index i = 1; i < g; ++i) rises &= at[i] >= at[i - 1];
        if (!rises) throw py::value_error("starts: must rise from 0 to the number of rows");
        rows = {
            x,    z, vector<const double>(y, "y", x.rows), column(trials, "trials"), column(offset, "offset"), {at, g}, MixedFamily(family),
            nodes};
        times = {column(upper, "upper"), {nullptr, 0}, column(entry, "entry")};
        if (!cuts.is_none()) {
            const auto edges = py::cast<py::array>(cuts);
            times.cuts = vector<const double>(edges, "cuts", edges.ndim() == 1 ? edges.shape(0) : 0);
        }
        const Index wanted = shape_numbers(rows.family, times.cuts.size), own = this->points.cols - x.cols - z.cols * (z.cols + 1) / 2;
        if (wanted < 0 ? own < 1 : own != wanted)
            throw py::value_error("points: needs a column for each coefficient, number of T, and shape number");
    }

    bool is_general() const { return rows.family > MixedFamily::negative_binomial; }

    Matrix<const double> points;
    MixedRows rows;
    MixedTimes times;

  private:
    Indices<1> starts_;
};

void values(const py::array& points, const py::array& X, const py::array& Z, const py::array& y, const py::object& trials,
            const py::object& offset, const py::array& starts, const py::object& upper, const py::object& cuts, const py::object& entry,
            int family, int nodes, const py::array& value, int n_threads) {
    const MixedCall call(points, X, Z, y, trials, offset, starts, upper, cuts, entry, family, nodes);
    const auto out = vector<double>(value, "value", call.points.rows);
    const py::gil_scoped_release unlocked;
    if (call.is_general()) kernels().mixed_general.values(call.points, call.rows, call.times, out, n_threads);
    else kernels().mixed.values(call.points, call.rows, out, n_threads);
}

void curvature(const py::array& points, const py::array& X, const py::array& Z, const py::array& y, const py::object& trials,
               const py::object& offset, const py::array& starts, const py::object& upper, const py::object& cuts, const py::object& entry,
               int family, int nodes, const py::array& value, const py::array& gradient, const py::array& minus_hessian, int n_threads) {
    const MixedCall call(points, X, Z, y, trials, offset, starts, upper, cuts, entry, family, nodes);
    const Index S = call.points.rows, P = call.points.cols;
    const auto out = vector<double>(value, "value", S);
    const auto slope = matrix<double>(gradient, "gradient", S, P);
    const auto information = matrix<double>(minus_hessian, "minus_hessian", S, P * (P + 1) / 2);
    const py::gil_scoped_release unlocked;
    if (call.is_general()) kernels().mixed_general.curvature(call.points, call.rows, call.times, out, slope, information, n_threads);
    else kernels().mixed.curvature(call.points, call.rows, out, slope, information, n_threads);
}

} // namespace

void bind_mixed(py::module_& m) {
    using namespace py::literals;
    m.def("values", &values, "points"_a, "X"_a, "Z"_a, "y"_a, "trials"_a, "offset"_a, "starts"_a, "upper"_a, "cuts"_a, "entry"_a,
          "family"_a, "nodes"_a, "value"_a.noconvert(), "n_threads"_a);
    m.def("curvature", &curvature, "points"_a, "X"_a, "Z"_a, "y"_a, "trials"_a, "offset"_a, "starts"_a, "upper"_a, "cuts"_a, "entry"_a,
          "family"_a, "nodes"_a, "value"_a.noconvert(), "gradient"_a.noconvert(), "minus_hessian"_a.noconvert(), "n_threads"_a);
}

} // namespace fedkern
