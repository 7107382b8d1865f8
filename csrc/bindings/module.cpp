#include <pybind11/pybind11.h>
#include <pybind11/typing.h>

#include "units/table.hpp"

#include <exception>

namespace py = pybind11;

namespace fedkern {
void bind_augmented(py::module_&);
void bind_glm(py::module_&);
void bind_mixed(py::module_&);
void bind_mlp(py::module_&);
void bind_mlp_vae(py::module_&);
void bind_multinomial(py::module_&);
void bind_optim(py::module_&);
void bind_privacy(py::module_&);
void bind_rng(py::module_&);
void bind_sem(py::module_&);
void bind_shrinkage_rows(py::module_&);
void bind_shrinkage_server(py::module_&);
void bind_shrinkage(py::module_&);
void bind_spatial(py::module_&);
void bind_survival(py::module_&);
void bind_blas(py::module_&);
void bind_bound(py::module_&);
void bind_files(py::module_&);
void bind_ranges(py::module_&);
void bind_signals(py::module_&);
void bind_wire(py::module_&);
void bind_words(py::module_&);
}

// Threads of an interpreter without its lock call these at the same time: nothing that changes is shared but under a lock of ours.
PYBIND11_MODULE(_core, m, py::mod_gil_not_used()) {
    [[maybe_unused]] const volatile int there = std::uncaught_exceptions(); // as in kernels(): bindings throw, too
    m.doc() = "Compiled kernels of fedkern. Arguments are checked for memory safety only; call fedkern.kernels instead.";
    m.def("isa", &fedkern::isa, "The instruction-set level in use.");
    m.def(
        "levels",
        [] {
            py::typing::Dict<py::str, bool> here;
            for (const fedkern::Level& level : fedkern::levels()) here[level.name] = level.here;
            return here;
        },
        "The instruction-set levels of this module, from the highest, and whether this processor has them.");
    m.def("limit_isa", &fedkern::limit_isa, py::arg("name"), "Lowers the instruction-set level to at most `name`.");
    const auto family = [&](const char* name, void (*bind)(py::module_&)) {
        py::module_ sub = m.def_submodule(name);
        bind(sub);
    };
    family("augmented", fedkern::bind_augmented);
    family("glm", fedkern::bind_glm);
    family("mixed", fedkern::bind_mixed);
    family("mlp", fedkern::bind_mlp);
    family("mlp", fedkern::bind_mlp_vae);
    family("multinomial", fedkern::bind_multinomial);
    family("optim", fedkern::bind_optim);
    family("privacy", fedkern::bind_privacy);
    family("rng", fedkern::bind_rng);
    family("sem", fedkern::bind_sem);
    family("shrinkage", fedkern::bind_shrinkage_rows);
    family("shrinkage", fedkern::bind_shrinkage_server);
    family("shrinkage", fedkern::bind_shrinkage);
    family("spatial", fedkern::bind_spatial);
    family("survival", fedkern::bind_survival);
    family("blas", fedkern::bind_blas);
    family("bound", fedkern::bind_bound);
    family("files", fedkern::bind_files);
    family("ranges", fedkern::bind_ranges);
    family("signals", fedkern::bind_signals);
    family("wire", fedkern::bind_wire);
    family("words", fedkern::bind_words);
}
