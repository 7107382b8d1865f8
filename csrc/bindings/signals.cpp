// What a signal does while a library has the only thread, and the interpreter's lock: MPI, while it waits for all ranks to start.
#include <pybind11/pybind11.h>

#include <csignal>
#include <cstring>
#include <mutex>
#include <string>
#include <unistd.h>

namespace fedkern {
namespace py = pybind11;

namespace {

struct End {
    int code;
    std::size_t length;
    char words[256];
};

End ends[NSIG];

extern "C" void end_process(int number) { // only what POSIX allows in a handler
    const End& end = ends[number];
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, end.words, end.length); // there may be nobody who reads it
    ::_exit(end.code);
}

void exit_at(int number, int code, const std::string& words) {
    if (number <= 0 || number >= NSIG) throw py::value_error("exit_at: no such signal");
    if (words.size() > sizeof End::words) throw py::value_error("exit_at: too many words");
    static std::mutex setting; // one thread at a time; the handler itself takes no lock
    const std::lock_guard lock(setting);
    End& end = ends[number];
    end.code = code;
    end.length = words.size();
    std::memcpy(end.words, words.data(), words.size());
    struct sigaction action{};
    action.sa_handler = end_process;
    sigfillset(&action.sa_mask);
    if (sigaction(number, &action, nullptr) != 0) throw py::value_error("exit_at: this signal has no handler");
}

} // namespace

void bind_signals(py::module_& m) {
    m.doc() = "What a signal does while no Python runs.";
    m.def("exit_at", &exit_at, py::arg("number"), py::arg("code"), py::arg("words"),
          "From now on this signal writes `words` on standard error and ends the process; `signal.signal` undoes it.");
}

} // namespace fedkern
