"""Measures, as a trial, what `fedkern launch` would cost if its ranks were forked from one process after its imports.

    FEDKERN_DATA=.. python benchmarks/forked_ranks.py [--each 2] mpi/adult-dp.toml 11 [options of `fedkern run`]
    FEDKERN_DATA=.. python benchmarks/forked_ranks.py --forked 11 mpi/adult-dp.toml [options]

The first command runs the job both ways in turns, and prints seconds of CPU of all processes and the digest of the result; the
second runs it once, with output and exit code of its own, to be interrupted and killed by hand.

mpirun starts a shadow of each rank, which imports next to nothing: it hands its environment, its descriptors and its folder over
a socket to the process that has imported everything and has one thread, and that one forks a rank for it. The shadow passes
signals on and ends as its rank does. The kernel kills a rank whose shadow has ended; a shadow whose socket ends without a code
kills itself.
"""

from __future__ import annotations

import argparse
import fcntl
import gc
import json
import os
import resource
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib import import_module
from pathlib import Path

SHADOW = r"""
import array, json, os, select, signal, socket, sys
line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
signals = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP, signal.SIGCONT]
signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # they wait until there is a rank
line.connect("\0" + sys.argv[1])
line.sendmsg(
    [json.dumps([dict(os.environ), os.getcwd()]).encode()],
    [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))],
)
data, ancillary, _, _ = line.recvmsg(16, socket.CMSG_LEN(4))
if not data:
    os.kill(os.getpid(), signal.SIGKILL)
rank = array.array("i", ancillary[0][2])[0]
def forward(number, frame):
    try:
        signal.pidfd_send_signal(rank, number)
    except ProcessLookupError:
        pass
for number in signals:
    signal.signal(number, forward)
signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
for file in (0, 1, 2):
    os.close(file)
waiting = select.poll()
waiting.register(line, select.POLLIN)
waiting.register(rank, select.POLLIN)
waiting.poll()
line.settimeout(5)  # the rank has ended, and who forked it may be stopped
try:
    status = line.recv(4)
except TimeoutError:
    status = b""
code = os.waitstatus_to_exitcode(int.from_bytes(status, "little")) if status else -signal.SIGKILL
if code < 0:
    if code != -signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""
ROOM = 1 << 20  # bytes of an environment


MODULES = (  # of a rank of a private job
    "cryptography.hazmat.primitives.ciphers.algorithms",
    "dp_accounting.pld",
    "dp_accounting.rdp",
    "fedkern.cli.job",
    "fedkern.transports.launch",
    "fedkern.transports.mpi",
)


def load_all(job: str) -> None:
    """Imports what a rank imports, and does not start MPI."""
    import mpi4py

    mpi4py.rc.initialize = False
    for module in MODULES:
        import_module(module)
    from fedkern.methods import load, load_method

    load_method(load(job)[0].job.method)


class Forked(Exception):
    """Tells, in a new process, that it is a rank."""


class Parent:
    """Forks a rank for each shadow that asks, and tells each shadow how its rank has ended."""

    def __init__(self, shadows: socket.socket) -> None:
        self.shadows = shadows
        self.selector = selectors.DefaultSelector()
        self.ranks: dict[int, tuple[int, socket.socket]] = {}  # descriptor of a process -> its number, its shadow

    def serve(self, command: subprocess.Popen[bytes]) -> int:
        """Forks ranks until the command has ended; returns its exit code."""
        ended = os.pidfd_open(command.pid)
        self.selector.register(self.shadows, selectors.EVENT_READ)
        self.selector.register(ended, selectors.EVENT_READ)
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is self.shadows:
                    self.selector.register(self.shadows.accept()[0], selectors.EVENT_READ)
                elif isinstance(key.fileobj, socket.socket):
                    self.selector.unregister(key.fileobj)
                    self.fork(key.fileobj)
                elif key.fd in self.ranks:
                    self.bury(key.fd)
                else:
                    while self.ranks:  # whom the command has left behind
                        rank = next(iter(self.ranks))
                        signal.pidfd_send_signal(rank, signal.SIGKILL)
                        self.bury(rank)
                    return command.wait()

    def fork(self, shadow: socket.socket) -> None:
        """Forks the rank of a shadow."""
        _, uid, _ = struct.unpack("iII", shadow.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        data, files, _, _ = socket.recv_fds(shadow, ROOM, 3)
        if not data or uid != os.getuid():
            shadow.close()
            return
        threads = os.listdir("/proc/self/task")
        if len(threads) != 1:
            raise SystemExit(f"{len(threads)} threads at the fork")
        pid = os.fork()
        if not pid:
            self.become(shadow, data, files)
            raise Forked
        for file in files:
            os.close(file)
        rank = os.pidfd_open(pid)
        socket.send_fds(shadow, [b"here"], [rank])
        self.ranks[rank] = pid, shadow
        self.selector.register(rank, selectors.EVENT_READ)

    def become(self, shadow: socket.socket, data: bytes, files: list[int]) -> None:
        """Makes this process, just forked, the rank of its shadow."""
        # The kernel kills this process as soon as its shadow's end of the line is closed, whatever runs here.
        fcntl.fcntl(shadow, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(shadow, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(shadow, fcntl.F_SETFL, fcntl.fcntl(shadow, fcntl.F_GETFL) | os.O_ASYNC)
        ready = selectors.PollSelector()
        ready.register(shadow, selectors.EVENT_READ)
        if ready.select(0):  # it had ended before
            os._exit(3)
        for rank, (_, other) in self.ranks.items():
            os.close(rank)
            other.close()
        for key in list(self.selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self.selector.close()
        for target, file in enumerate(files):
            os.dup2(file, target)
            os.close(file)
        # The parent has one thread, so that its death is that of its thread: all ranks die at once. If each of them looked for
        # itself, a server might outlive its clients for some tenths of a second, and finish without them.
        from fedkern.transports import parent

        parent.at_death_of_parent(signal.SIGKILL)
        parent.at_death_of_parent = lambda number: None  # of `follow`
        environment, folder = json.loads(data)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)

    def bury(self, rank: int) -> None:
        """Tells a shadow how its rank has ended."""
        pid, shadow = self.ranks.pop(rank)
        self.selector.unregister(rank)
        _, status = os.waitpid(pid, 0)
        os.close(rank)
        with suppress(OSError):  # it has ended first
            shadow.send(status.to_bytes(4, "little"))
        shadow.close()


def run_forked(ranks: int, arguments: list[str]) -> int:
    """Runs one job; returns its exit code, of the job or in a forked process of its rank."""
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
    load_all(arguments[0])
    gc.collect()
    gc.freeze()  # the collector would copy every page
    name = f"fedkern-ranks-{os.urandom(16).hex()}"
    shadows = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    shadows.bind(f"\0{name}")
    shadows.listen(4096)
    python = [sys.executable, "-I", "-S", "-c", SHADOW, name]
    mpirun = [str(Path(sys.executable).with_name("mpirun")), "--with-ft", "ulfm", "--bind-to", "none", "--oversubscribe"]
    beside = [sys.executable, "-P", "-m", "fedkern.transports.mpirun", str(ranks), *mpirun, "-n", str(ranks), *python]
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = subprocess.Popen(beside, env=os.environ | allowed)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
        signal.signal(number, lambda number, _: command.send_signal(number))
    try:
        return Parent(shadows).serve(command)
    except Forked:
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["fedkern", "run", *arguments, "--mpi"]
    from fedkern.cli.__main__ import main

    return main()


def measured(command: list[str], out: Path) -> tuple[float, str]:
    """Returns the seconds of CPU of a command with all that it starts, and the digest of its result."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*command, "--out", str(out), "--quiet"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    digest = json.loads((out / "summary.json").read_text())["digest"]
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, digest


def main() -> int:
    """Runs the comparison, or one job."""
    if sys.argv[1:2] == ["--forked"]:
        return run_forked(int(sys.argv[2]), sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job")
    parser.add_argument("ranks")
    parser.add_argument("more", nargs=argparse.REMAINDER, metavar="OPTION")
    parser.add_argument("--each", type=int, default=2, metavar="N")
    options = parser.parse_args()
    ways = {
        "started": [sys.executable, "-P", "-m", "fedkern", "launch", "-n", options.ranks, options.job, *options.more],
        "forked": [sys.executable, __file__, "--forked", options.ranks, options.job, *options.more],
    }
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.each):
            for way, command in ways.items():
                seconds, digest = measured(command, Path(folder) / f"{way}-{number}")
                print(f"{way:<10}{seconds:>8.2f}  {digest}", flush=True)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return 0


if __name__ == "__main__":
    sys.exit(main())
