#include "draw_table.hpp"
#include "fedkern/spatial_table.hpp"
#include "units/table.hpp"

namespace fedkern {
namespace binding {

void table_sample(const py::array& values, const py::array& scale, const py::object& indptr, const py::object& indices,
                  const py::object& order, int kind, Index rank, Index group, U64 seed, U64 chain, U32 step, const py::array& theta,
                  const py::array& entry, int n_threads) {
    const DrawArrays arrays(values, scale, indptr, indices, order, kind, rank, group);
    const auto draws = matrix<double>(theta, "theta", theta.ndim() == 2 ? theta.shape(0) : 0, arrays.table.n);
    const auto numbers = vector<Index>(entry, "entry", draws.rows);
    const py::gil_scoped_release unlocked;
    kernels().spatial.table_sample(arrays.table, draw_keys(seed, chain), step, draws, numbers, n_threads);
}

} // namespace binding

void bind_spatial(py::module_& m) {
    using namespace py::literals;
    m.def("table_sample", &binding::table_sample, "values"_a.noconvert(), "scale"_a.noconvert(), "indptr"_a, "indices"_a, "order"_a,
          "kind"_a, "rank"_a, "group"_a, "seed"_a, "chain"_a, "step"_a, "theta"_a.noconvert(), "entry"_a.noconvert(), "n_threads"_a);
}

} // namespace fedkern
