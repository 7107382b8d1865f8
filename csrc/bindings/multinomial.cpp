#include "tensors.hpp"
#include "units/table.hpp"

namespace fedkern {
namespace {

/// Rows that points with a block of coefficients for each level but the reference belong to.
MultinomialRows multinomial_rows(const Matrix<const double>& points, const py::array& X, const py::array& y, std::int64_t levels) {
    const auto x = matrix<const double>(X, "X");
    if (levels < 2 || levels > (std::int64_t{1} << 31)) throw py::value_error("levels: must be at least 2");
    if (points.cols != (levels - 1) * x.cols) throw py::value_error("points: needs a column for each of X, of each level but the first");
    return {x, vector<const double>(y, "y", x.rows), Index(levels)};
}

void values_of_levels(const py::array& points, const py::array& X, const py::array& y, std::int64_t levels, const py::array& value,
                      int n_threads) {
    const auto at = matrix<const double>(points, "points");
    const auto rows = multinomial_rows(at, X, y, levels);
    const auto out = vector<double>(value, "value", at.rows);
    const py::gil_scoped_release unlocked;
    kernels().multinomial.multinomial_values(at, rows, out, n_threads);
}

void curvature_of_levels(const py::array& points, const py::array& X, const py::array& y, std::int64_t levels, const py::array& value,
                         const py::array& gradient, const py::array& minus_hessian, int n_threads) {
    const auto at = matrix<const double>(points, "points");
    const auto rows = multinomial_rows(at, X, y, levels);
    const Index S = at.rows, k = at.cols;
    const auto out = vector<double>(value, "value", S);
    const auto slope = matrix<double>(gradient, "gradient", S, k);
    const auto information = matrix<double>(minus_hessian, "minus_hessian", S, k * (k + 1) / 2);
    const py::gil_scoped_release unlocked;
    kernels().multinomial.multinomial_curvature(at, rows, out, slope, information, n_threads);
}

} // namespace

void bind_multinomial(py::module_& m) {
    using namespace py::literals;
    m.def("values", &values_of_levels, "points"_a, "X"_a, "y"_a, "levels"_a, "value"_a.noconvert(), "n_threads"_a);
    m.def("curvature", &curvature_of_levels, "points"_a, "X"_a, "y"_a, "levels"_a, "value"_a.noconvert(), "gradient"_a.noconvert(),
          "minus_hessian"_a.noconvert(), "n_threads"_a);
}

} // namespace fedkern
