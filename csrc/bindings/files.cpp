// Lines of logs: written, and seen to have been, in one call.
#include <pybind11/pybind11.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace fedkern {
namespace py = pybind11;

namespace {

[[noreturn]] void fail(int code) {
    errno = code;
    PyErr_SetFromErrno(PyExc_OSError);
    throw py::error_already_set();
}

// All of the data, where the file's next bytes go. A write may end early without a fault (a quota, a disk of the network, a signal):
// what is left is written by the next one, which has the fault if there is one. An OSError where not all fits, or where the file has
// no name any more.
void append(int file, const py::bytes& data) {
    std::string_view rest = data;
    struct stat state{};
    for (bool begun = false, first = true; first || !rest.empty(); first = false) {
        ssize_t written = 0;
        int code = 0;
        {
            const py::gil_scoped_release others;
            written = ::write(file, rest.data(), rest.size());
            if (written < 0) code = errno;
        }
        if (written > 0) {
            rest.remove_prefix(static_cast<std::size_t>(written));
            begun = true;
        }
        if (code && code != EINTR) fail(code);
        if (!code && !written && !rest.empty()) fail(EIO); // no progress and no fault: it would never end
        if (!begun && !rest.empty() && PyErr_CheckSignals()) throw py::error_already_set(); // half a line would be a fault of ours
    }
    if (::fstat(file, &state)) fail(errno);
    if (!state.st_nlink) fail(ENOENT);
}

} // namespace

void bind_files(py::module_& m) {
    m.doc() = "Lines of logs.";
    m.def("append", &append, py::arg("file"), py::arg("data"));
}

} // namespace fedkern
