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

// All of the data, where the file's next bytes go; an OSError where they do not fit, or where the file has no name any more.
void append(int file, const py::bytes& data) {
    const std::string_view bytes = data;
    struct stat state {};
    ssize_t written = -1;
    while (written < 0) {
        int code = 0;
        {
            const py::gil_scoped_release others;
            written = ::write(file, bytes.data(), bytes.size());
            if (written < 0 || ::fstat(file, &state)) code = errno;
        }
        if (code && (written >= 0 || code != EINTR)) fail(code);
        if (written < 0 && PyErr_CheckSignals()) throw py::error_already_set();
    }
    if (static_cast<std::size_t>(written) < bytes.size()) fail(ENOSPC);
    if (!state.st_nlink) fail(ENOENT);
}

} // namespace

void bind_files(py::module_& m) {
    m.doc() = "Lines of logs.";
    m.def("append", &append, py::arg("file"), py::arg("data"));
}

} // namespace fedkern
