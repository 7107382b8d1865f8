#include "tensors.hpp"
#include "units/table.hpp"

namespace fedkern {
namespace {

/// The rows of a call; their `starts` are a copy that was checked.
class MixedCall {
  public:
    MixedCall(const py::array& points, const py::array& X, const py::array& Z, const py::array& y, const py::object& trials,
              const py::object& offset, const py::array& starts, const py::object& upper, const py::object& cuts, int family, int nodes)
        : points(matrix<const double>(points, "points")), starts_(starts, "starts", {starts.ndim() == 1 ? starts.shape(0) : 0}) {
        const auto x = matrix<const double>(X, "X");
        const auto z = matrix<const double>(Z, "Z");
        const auto column = [&](const py::object& values, const char* name) -> Vector<const double> {
            return values.is_none() ? Vector<const double>{nullptr, 0} : vector<const double>(py::cast<py::array>(values), name, x.rows);
        };
        if (z.rows != x.rows || z.cols > mixed_effects) throw py::value_error("Z: needs a row for each of X, and at most 3 columns");
        if (family < 0 || family > int(MixedFamily::negative_binomial)) throw py::value_error("family: no likelihood has this number");
        if (nodes < 1 || nodes > mixed_nodes) throw py::value_error("nodes: must be in [1, 128]");
        if (!upper.is_none() || !cuts.is_none()) throw py::value_error("upper, cuts: no family here has them");
        const Index g = starts_.size();
        const auto* at = starts_.view.data;
        bool rises = g > 0 && at[0] == 0 && at[g - 1] == x.rows;
        for (Index i = 1; i < g; ++i) rises &= at[i] >= at[i - 1];
        if (!rises) throw py::value_error("starts: must rise from 0 to the number of rows");
        rows = {x, z, vector<const double>(y, "y", x.rows), column(trials, "trials"), column(offset, "offset"), {at, g},
                MixedFamily(family), nodes};
        const bool dispersed = rows.family == MixedFamily::gaussian || rows.family == MixedFamily::negative_binomial;
        if (this->points.cols != x.cols + z.cols * (z.cols + 1) / 2 + dispersed)
            throw py::value_error("points: needs a column for each coefficient, number of T, and dispersion");
    }

    Matrix<const double> points;
    MixedRows rows;

  private:
    Indices<1> starts_;
};

void values(const py::array& points, const py::array& X, const py::array& Z, const py::array& y, const py::object& trials,
            const py::object& offset, const py::array& starts, const py::object& upper, const py::object& cuts, int family, int nodes,
            const py::array& value, int n_threads) {
    const MixedCall call(points, X, Z, y, trials, offset, starts, upper, cuts, family, nodes);
    const auto out = vector<double>(value, "value", call.points.rows);
    const py::gil_scoped_release unlocked;
    kernels().mixed.values(call.points, call.rows, out, n_threads);
}

void curvature(const py::array& points, const py::array& X, const py::array& Z, const py::array& y, const py::object& trials,
               const py::object& offset, const py::array& starts, const py::object& upper, const py::object& cuts, int family,
               int nodes, const py::array& value, const py::array& gradient, const py::array& minus_hessian, int n_threads) {
    const MixedCall call(points, X, Z, y, trials, offset, starts, upper, cuts, family, nodes);
    const Index S = call.points.rows, P = call.points.cols;
    const auto out = vector<double>(value, "value", S);
    const auto slope = matrix<double>(gradient, "gradient", S, P);
    const auto information = matrix<double>(minus_hessian, "minus_hessian", S, P * (P + 1) / 2);
    const py::gil_scoped_release unlocked;
    kernels().mixed.curvature(call.points, call.rows, out, slope, information, n_threads);
}

} // namespace

void bind_mixed(py::module_& m) {
    using namespace py::literals;
    m.def("values", &values, "points"_a, "X"_a, "Z"_a, "y"_a, "trials"_a, "offset"_a, "starts"_a, "upper"_a, "cuts"_a, "family"_a, "nodes"_a,
          "value"_a.noconvert(), "n_threads"_a);
    m.def("curvature", &curvature, "points"_a, "X"_a, "Z"_a, "y"_a, "trials"_a, "offset"_a, "starts"_a, "upper"_a, "cuts"_a, "family"_a, "nodes"_a,
          "value"_a.noconvert(), "gradient"_a.noconvert(), "minus_hessian"_a.noconvert(), "n_threads"_a);
}

} // namespace fedkern
