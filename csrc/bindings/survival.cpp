#include "tensors.hpp"
#include "units/table.hpp"

#include <optional>

namespace fedkern {
namespace {

/// The rows of a call; numbers of rows and sets are copies that were checked.
class SurvivalCall {
  public:
    SurvivalCall(const py::array& points, const py::array& X, const py::object& weights, const py::object& offset, const py::array& first,
                 const py::array& ends, const py::array& deaths, const py::object& until)
        : points(matrix<const double>(points, "points")), sets_(ends.ndim() == 1 ? ends.shape(0) : 0), first_(first, "first", {sets_}),
          ends_(ends, "ends", {sets_}), deaths_(deaths, "deaths", {sets_}) {
        const auto x = matrix<const double>(X, "X");
        if (this->points.cols != x.cols) throw py::value_error("points: needs a column for each of X");
        const auto column = [&](const py::object& values, const char* name) -> Vector<const double> {
            return values.is_none() ? Vector<const double>{nullptr, 0} : vector<const double>(py::cast<py::array>(values), name, x.rows);
        };
        const auto *from = first_.view.data, *to = ends_.view.data, *dying = deaths_.view.data;
        for (Index k = 0; k < sets_; ++k) {
            const bool same = k && from[k] == from[k - 1];
            const Index least = same ? to[k - 1] : from[k];
            const bool good = from[k] >= 0 && (!k || same || from[k] >= to[k - 1]) && dying[k] >= 1 && to[k] <= x.rows && to[k] >= least &&
                              dying[k] <= to[k] - least;
            if (!good) throw py::value_error("first, ends, deaths: sets must follow each other, and have rows");
        }
        rows = {x, column(weights, "weights"), column(offset, "offset"), {from, sets_}, {to, sets_}, {dying, sets_}, {nullptr, 0}};
        if (until.is_none()) return;
        const Index n[1] = {x.rows};
        until_.emplace(py::cast<py::array>(until), "until", n);
        for (Index i = 0; i < x.rows; ++i)
            if (until_->view.data[i] < 0) throw py::value_error("until: must not be negative");
        rows.until = {until_->view.data, x.rows};
    }

    Matrix<const double> points;
    SurvivalRows rows;

  private:
    Index sets_;
    Indices<1> first_, ends_, deaths_;
    std::optional<Indices<1>> until_;
};

void cox_values(const py::array& points, const py::array& X, const py::object& weights, const py::object& offset, const py::array& first,
                const py::array& ends, const py::array& deaths, const py::object& until, const py::array& value, int n_threads) {
    const SurvivalCall call(points, X, weights, offset, first, ends, deaths, until);
    const auto out = vector<double>(value, "value", call.points.rows);
    const py::gil_scoped_release unlocked;
    kernels().survival.cox_values(call.points, call.rows, out, n_threads);
}

void cox_curvature(const py::array& points, const py::array& X, const py::object& weights, const py::object& offset, const py::array& first,
                   const py::array& ends, const py::array& deaths, const py::object& until, const py::array& value,
                   const py::array& gradient, const py::array& minus_hessian, int n_threads) {
    const SurvivalCall call(points, X, weights, offset, first, ends, deaths, until);
    const Index S = call.points.rows, p = call.points.cols;
    const auto out = vector<double>(value, "value", S);
    const auto slope = matrix<double>(gradient, "gradient", S, p);
    const auto information = matrix<double>(minus_hessian, "minus_hessian", S, p * (p + 1) / 2);
    const py::gil_scoped_release unlocked;
    kernels().survival.cox_curvature(call.points, call.rows, out, slope, information, n_threads);
}

} // namespace

void bind_survival(py::module_& m) {
    using namespace py::literals;
    m.def("cox_values", &cox_values, "points"_a, "X"_a, "weights"_a, "offset"_a, "first"_a, "ends"_a, "deaths"_a, "until"_a,
          "value"_a.noconvert(), "n_threads"_a);
    m.def("cox_curvature", &cox_curvature, "points"_a, "X"_a, "weights"_a, "offset"_a, "first"_a, "ends"_a, "deaths"_a, "until"_a,
          "value"_a.noconvert(), "gradient"_a.noconvert(), "minus_hessian"_a.noconvert(), "n_threads"_a);
}

} // namespace fedkern
