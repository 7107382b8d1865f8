#include "blas.hpp"
#include "draw_table.hpp"
#include "fedkern/spatial/table.hpp"
#include "tensors.hpp"
#include "units/table.hpp"

namespace fedkern {
namespace binding {

Vector<const double> numbers(const py::array& a, const char* name) { return vector<const double>(a, name, a.ndim() == 1 ? a.shape(0) : 0); }

void table_sample(const py::array& values, const py::array& scale, const py::object& indptr, const py::object& indices,
                  const py::object& order, int kind, Index rank, Index group, U64 seed, U64 chain, U32 step, const py::array& theta,
                  const py::array& entry, int n_threads) {
    const DrawArrays arrays(values, scale, indptr, indices, order, kind, rank, group);
    const auto draws = matrix<double>(theta, "theta", theta.ndim() == 2 ? theta.shape(0) : 0, arrays.table.n);
    const auto entries = vector<Index>(entry, "entry", draws.rows);
    const py::gil_scoped_release unlocked;
    kernels().spatial.table_sample(arrays.table, draw_keys(seed, chain), step, draws, entries, n_threads);
}

/// A graph whose arrays live as long as this. Whether its numbers lie within it, the kernels ask.
class Areas {
  public:
    Areas(const py::object& indptr, const py::object& indices) : indptr_(indptr, "indptr", 1), indices_(indices, "indices", 1) {
        if (indptr_.size() < 1) throw py::value_error("indptr: is empty");
        graph = {indptr_.size() - 1, indices_.size(), indptr_.data(), indices_.data()};
    }
    Areas(const Areas&) = delete;

    AreaGraph graph;

  private:
    Contiguous<Index> indptr_, indices_;
};

[[noreturn]] void outside() { throw py::value_error("indices: outside the graph, or indptr does not rise from 0 to their number"); }

CarForm car_form(int form) {
    if (form < 0 || form > int(CarForm::icar)) throw py::value_error("form: there are 0, 1 and 2");
    return CarForm(form);
}

void car_logdensity(const py::array& theta, const py::array& phi, const py::array& indptr, const py::array& indices,
                    const py::array& logdet, int form, double lo, double hi, double widest, Index rank, const py::array& value,
                    const py::array& grad_theta, const py::array& grad_phi, int n_threads) {
    const Areas areas(indptr, indices);
    const Index n = areas.graph.n;
    const auto at = numbers(phi, "phi");
    const auto x = matrix<const double>(theta, "theta", at.size, n);
    const CarModel model{car_form(form), lo, hi, widest, rank < 0 ? n : rank, numbers(logdet, "logdet")};
    if (model.series.size < 1) throw py::value_error("logdet: is empty");
    const auto v = vector<double>(value, "value", at.size);
    const auto gradient = matrix<double>(grad_theta, "grad_theta", at.size, n);
    const auto slope = vector<double>(grad_phi, "grad_phi", at.size);
    bool fine;
    {
        const py::gil_scoped_release unlocked;
        fine = kernels().spatial.car_logdensity(x, at, areas.graph, model, v, gradient, slope, n_threads);
    }
    if (!fine) outside();
}

Index car_factor(const py::array& phi, const py::array& order, const py::array& factor_indptr, const py::array& factor_indices,
                 const py::array& indptr, const py::array& indices, int form, const py::array& values, const py::array& logdet,
                 int n_threads) {
    const Areas areas(indptr, indices);
    const Index n = areas.graph.n;
    const Contiguous<Index> permutation(order, "order", 1), columns(factor_indptr, "factor_indptr", 1),
        rows(factor_indices, "factor_indices", 1);
    const FactorPattern pattern{permutation.data(), columns.data(), rows.data()};
    if (permutation.size() != n || columns.size() != n + 1) throw py::value_error("factor_indptr: wrong length");
    if (pattern.indptr[0] != 0 || pattern.indptr[n] != rows.size()) throw py::value_error("factor_indptr: must rise from 0");
    for (Index j = 0; j < n; ++j) {
        if (pattern.order[j] < 0 || pattern.order[j] >= n) throw py::value_error("order: outside");
        if (pattern.indptr[j] >= pattern.indptr[j + 1]) throw py::value_error("factor_indptr: must rise");
        for (Index k = pattern.indptr[j], before = j - 1; k < pattern.indptr[j + 1]; before = pattern.indices[k++])
            if (pattern.indices[k] <= before || pattern.indices[k] >= n)
                throw py::value_error("factor_indices: must rise within the triangle");
    }
    const auto at = numbers(phi, "phi");
    const auto v = matrix<double>(values, "values", at.size, rows.size());
    const auto determinants = vector<double>(logdet, "logdet", at.size);
    Index failed = -1;
    bool fine;
    {
        const py::gil_scoped_release unlocked;
        fine = kernels().spatial.within(areas.graph);
        if (fine) failed = kernels().spatial.car_factor(at, areas.graph, pattern, car_form(form), v, determinants, n_threads);
    }
    if (!fine) outside();
    return failed;
}

void car_sample(const py::array& vectors, const py::array& values, const py::array& weights, const py::array& phi, int form, U64 seed,
                U64 chain, U32 client, U32 step, const py::array& theta, int n_threads) {
    const auto w = numbers(values, "values");
    const auto U = matrix<const double>(vectors, "vectors", w.size, w.size);
    const auto scale = vector<const double>(weights, "weights", w.size);
    const auto at = numbers(phi, "phi");
    const auto draws = matrix<double>(theta, "theta", at.size, w.size);
    const CarForm which = car_form(form);
    const Blas& routines = blas();
    const py::gil_scoped_release unlocked;
    const DrawNames names{draw_keys(seed, chain).draws, client, step};
    kernels().spatial.car_sample(U, w, scale, at, which, names, draws, n_threads, routines);
}

/// A pattern whose arrays live as long as this; `n` rows, the last of which are the dense block's.
class Bordered {
  public:
    Bordered(const py::object& indptr, const py::object& indices, Index n, const char* rows = "rows of pattern and block are")
        : indptr_(indptr, "indptr", 1), indices_(indices, "indices", 1) {
        if (indptr_.size() < 1) throw py::value_error("indptr: is empty");
        pattern = {indptr_.size() - 1, indptr_.data(), indices_.data()};
        const auto& p = pattern;
        if (p.columns > n)
            throw py::value_error("indptr: has " + std::to_string(p.columns) + " columns, and " + rows + " " + std::to_string(n));
        if (p.indptr[0] != 0 || p.indptr[p.columns] != entries())
            throw py::value_error("indptr: must rise from 0 to the number of indices");
        for (Index j = 0; j < p.columns; ++j)
            if (p.indptr[j] >= p.indptr[j + 1]) throw py::value_error("indptr: must rise");
        for (Index j = 0; j < p.columns; ++j) {
            if (p.indices[p.indptr[j]] != j) throw py::value_error("indices: each column begins with its diagonal");
            for (Index k = p.indptr[j] + 1, before = j; k < p.indptr[j + 1]; before = p.indices[k++])
                if (p.indices[k] <= before) throw py::value_error("indices: must rise within a column");
            if (p.indices[p.indptr[j + 1] - 1] >= n)
                throw py::value_error("indices: has row " + std::to_string(p.indices[p.indptr[j + 1] - 1]) + ", and " + rows + " " +
                                      std::to_string(n));
        }
    }
    Bordered(const Bordered&) = delete;
    Index entries() const { return indices_.size(); }

    BorderedPattern pattern;

  private:
    Contiguous<Index> indptr_, indices_;
};

/// Rows of a pattern with a block of this size.
Index rows_of(const py::array& indptr, const py::array& block) {
    return (indptr.ndim() == 1 ? indptr.shape(0) - 1 : 0) + (block.ndim() == 2 ? block.shape(0) : 0);
}

Index bordered_factor(const py::array& values, const py::array& indptr, const py::array& indices, const py::array& block,
                      const py::array& factor, const py::array& rest, int) {
    const Bordered pattern(indptr, indices, rows_of(indptr, block));
    const auto v = vector<const double>(values, "values", pattern.entries());
    const auto B = matrix<const double>(block, "block", block.ndim() == 2 ? block.shape(0) : 0, block.ndim() == 2 ? block.shape(0) : 0);
    const auto L = vector<double>(factor, "factor", pattern.entries());
    const auto left = matrix<double>(rest, "rest", B.rows, B.rows);
    const py::gil_scoped_release unlocked;
    return kernels().spatial.bordered_factor(v, pattern.pattern, B, L, left);
}

void bordered_inverse(const py::array& factor, const py::array& indptr, const py::array& indices, const py::array& block,
                      const py::array& inverse, int) {
    const Bordered pattern(indptr, indices, rows_of(indptr, block));
    const auto L = vector<const double>(factor, "factor", pattern.entries());
    const auto B = matrix<const double>(block, "block", block.ndim() == 2 ? block.shape(0) : 0, block.ndim() == 2 ? block.shape(0) : 0);
    const auto Z = vector<double>(inverse, "inverse", pattern.entries());
    const py::gil_scoped_release unlocked;
    kernels().spatial.bordered_inverse(L, pattern.pattern, B, Z);
}

void bordered_solve(const py::array& right, const py::array& factor, const py::array& indptr, const py::array& indices, bool back,
                    const py::array& solved, int) {
    const auto r = matrix<const double>(right, "right");
    const Bordered pattern(indptr, indices, r.cols, "right has rows of length");
    const auto L = vector<const double>(factor, "factor", pattern.entries());
    const auto x = matrix<double>(solved, "solved", r.rows, r.cols);
    const py::gil_scoped_release unlocked;
    kernels().spatial.bordered_solve(r, L, pattern.pattern, back, x);
}

GpKind gp_kind(int kind) {
    if (kind < 0 || kind > int(GpKind::matern52)) throw py::value_error("kind: there are 0, 1, 2 and 3");
    return GpKind(kind);
}

void gp_covariance(const py::array& x, const py::array& lengthscale, int kind, double jitter, const py::array& covariance, int n_threads) {
    const auto at = matrix<const double>(x, "x");
    const auto scales = numbers(lengthscale, "lengthscale");
    const auto out = tensor<double, 3>(covariance, "covariance", {scales.size, at.rows, at.rows});
    const GpKind which = gp_kind(kind);
    const py::gil_scoped_release unlocked;
    kernels().spatial.gp_covariance(at, scales, which, jitter, out, n_threads);
}

void gp_factor(const py::array& x, const py::array& lengthscale, int kind, double tolerance, const py::array& factors,
               const py::array& residual, int n_threads) {
    const auto at = matrix<const double>(x, "x");
    const auto scales = numbers(lengthscale, "lengthscale");
    const auto out = tensor<double, 3>(factors, "factors", {scales.size, at.rows, factors.ndim() == 3 ? factors.shape(2) : 0});
    const auto left = vector<double>(residual, "residual", scales.size);
    const GpKind which = gp_kind(kind);
    const py::gil_scoped_release unlocked;
    kernels().spatial.gp_factor(at, scales, which, tolerance, out, left, n_threads);
}

Index gp_sample(const py::array& x, const py::array& lengthscale, int kind, double jitter, U64 seed, U64 chain, U32 client, U32 step,
                const py::array& theta, int n_threads) {
    const auto at = matrix<const double>(x, "x");
    const auto scales = numbers(lengthscale, "lengthscale");
    const auto draws = matrix<double>(theta, "theta", scales.size, at.rows);
    const GpKind which = gp_kind(kind);
    const Blas& routines = blas();
    const py::gil_scoped_release unlocked;
    const DrawNames names{draw_keys(seed, chain).draws, client, step};
    return kernels().spatial.gp_sample(at, scales, which, jitter, names, draws, n_threads, routines);
}

} // namespace binding

void bind_spatial(py::module_& m) {
    using namespace py::literals;
    m.def("table_sample", &binding::table_sample, "values"_a.noconvert(), "scale"_a.noconvert(), "indptr"_a, "indices"_a, "order"_a,
          "kind"_a, "rank"_a, "group"_a, "seed"_a, "chain"_a, "step"_a, "theta"_a.noconvert(), "entry"_a.noconvert(), "n_threads"_a);
    m.def("car_logdensity", &binding::car_logdensity, "theta"_a.noconvert(), "phi"_a.noconvert(), "indptr"_a.noconvert(),
          "indices"_a.noconvert(), "logdet"_a.noconvert(), "form"_a, "lo"_a, "hi"_a, "widest"_a, "rank"_a, "value"_a.noconvert(),
          "grad_theta"_a.noconvert(), "grad_phi"_a.noconvert(), "n_threads"_a);
    m.def("car_factor", &binding::car_factor, "phi"_a.noconvert(), "order"_a.noconvert(), "factor_indptr"_a.noconvert(),
          "factor_indices"_a.noconvert(), "indptr"_a.noconvert(), "indices"_a.noconvert(), "form"_a, "values"_a.noconvert(),
          "logdet"_a.noconvert(), "n_threads"_a);
    m.def("car_sample", &binding::car_sample, "vectors"_a.noconvert(), "values"_a.noconvert(), "weights"_a.noconvert(), "phi"_a.noconvert(),
          "form"_a, "seed"_a, "chain"_a, "client"_a, "step"_a, "theta"_a.noconvert(), "n_threads"_a);
    m.def("bordered_factor", &binding::bordered_factor, "values"_a.noconvert(), "indptr"_a.noconvert(), "indices"_a.noconvert(),
          "block"_a.noconvert(), "factor"_a.noconvert(), "rest"_a.noconvert(), "n_threads"_a);
    m.def("bordered_inverse", &binding::bordered_inverse, "factor"_a.noconvert(), "indptr"_a.noconvert(), "indices"_a.noconvert(),
          "block"_a.noconvert(), "inverse"_a.noconvert(), "n_threads"_a);
    m.def("bordered_solve", &binding::bordered_solve, "right"_a.noconvert(), "factor"_a.noconvert(), "indptr"_a.noconvert(),
          "indices"_a.noconvert(), "back"_a, "solved"_a.noconvert(), "n_threads"_a);
    m.def("gp_covariance", &binding::gp_covariance, "x"_a.noconvert(), "lengthscale"_a.noconvert(), "kind"_a, "jitter"_a,
          "covariance"_a.noconvert(), "n_threads"_a);
    m.def("gp_factor", &binding::gp_factor, "x"_a.noconvert(), "lengthscale"_a.noconvert(), "kind"_a, "tolerance"_a,
          "factors"_a.noconvert(), "residual"_a.noconvert(), "n_threads"_a);
    m.def("gp_sample", &binding::gp_sample, "x"_a.noconvert(), "lengthscale"_a.noconvert(), "kind"_a, "jitter"_a, "seed"_a, "chain"_a,
          "client"_a, "step"_a, "theta"_a.noconvert(), "n_threads"_a);
}

} // namespace fedkern
