"""Ranks of mpirun that need not import the package: a server process has, and forks for each of them.

    mpirun -n 3 python -I -S rank.py SOCKET -m MODULE ARGUMENTS        (or: SOCKET FILE ARGUMENTS)

Each rank that mpirun starts is a small process that hands its files, folder and environment to the server, and stands for the
fork until it ends: it passes signals on, ends as the fork ends, and the fork ends with it. A fresh Python would take three
quarters of a second of a processor for its imports, many times what a small job takes. Tests of how ranks start and die
(`transports`, `cli/test_launch.py`) have fresh ones.
"""

import os
import selectors
import signal
import socket
import struct
import sys
from contextlib import suppress

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
SIZE, NUMBER = struct.Struct("<Q"), struct.Struct("<q")
SECONDS = "seconds"  # instead of a program: what forks have used


def ask(address, words):
    """A connection to the server, which has this process's surroundings."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.connect(address)
    cores = ",".join(map(str, os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ""
    variables = [f"{name}={value}" for name, value in os.environ.items()]
    told = os.fsencode("\0".join([os.getcwd(), cores, str(len(words)), *words, *variables]))
    socket.send_fds(server, [SIZE.pack(len(told))], [0, 1, 2])
    server.sendall(told)
    return server


def received(server):
    """The server's next number; None if it has ended."""
    told = server.recv(NUMBER.size, socket.MSG_WAITALL)
    return NUMBER.unpack(told)[0] if len(told) == NUMBER.size else None


def stand_for(address, words):
    """Ends as the fork does."""
    server = ask(address, words)
    child = received(server)
    if child is None:
        sys.exit("rank.py: the server has ended")

    def pass_on(number, frame):
        with suppress(ProcessLookupError):  # the fork has ended at the same time
            os.kill(child, number)

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    code = received(server)
    if code is None:
        sys.exit("rank.py: the server has ended")
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    os._exit(code)


class Server:
    """Forks until its standard input ends; what then runs is killed."""

    def __init__(self, address):
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listening.bind(address)
        self.listening.listen(64)
        self.running, self.seconds = {}, 0.0  # connections by process id; of the processor
        self.ended, ends = os.pipe()
        for pipe in (self.ended, ends):
            os.set_blocking(pipe, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(ends, warn_on_full_buffer=False)
        self.selector = selectors.DefaultSelector()
        for file, take in ((self.listening, self.accept), (self.ended, self.reap), (0, self.end)):
            self.selector.register(file, selectors.EVENT_READ, take)
        self.words = None  # of a fork, in which the server has ended

    def serve(self):
        """In a fork it returns the words of its program."""
        while True:
            for key, _ in self.selector.select():
                key.data(key.fileobj)
                if self.words is not None:
                    return self.words

    def accept(self, listening):
        connection, _ = listening.accept()
        told, files, *_ = socket.recv_fds(connection, SIZE.size, 3)
        size = SIZE.unpack(told)[0] if told else 0
        text = connection.recv(size, socket.MSG_WAITALL)
        if not told or len(text) < size:  # it was killed as it asked
            connection.close()
            for file in files:
                os.close(file)
            return
        folder, cores, count, *rest = os.fsdecode(text).split("\0")
        words, variables = rest[: int(count)], rest[int(count) :]
        if words == [SECONDS]:
            connection.sendall(NUMBER.pack(int(self.seconds * 1e6)))
            connection.close()
        elif child := os.fork():
            with suppress(OSError):  # whom it stands for may have ended
                connection.sendall(NUMBER.pack(child))
            self.running[child] = connection
            self.selector.register(connection, 1, lambda connection: self.cut(child, connection))
        else:
            self.become(files, folder, cores, words, variables)
            return
        for file in files:
            os.close(file)

    def cut(self, child, connection):
        """Whom the fork stands for has ended."""
        if self.running.get(child) is connection:  # else the fork has ended at the same time
            self.selector.unregister(connection)
            os.kill(child, signal.SIGKILL)

    def reap(self, pipe):
        os.read(pipe, 4096)
        while self.running:
            child, status, used = os.wait4(-1, os.WNOHANG)
            if not child:
                break
            self.seconds += used.ru_utime + used.ru_stime
            connection = self.running.pop(child)
            if connection.fileno() in self.selector.get_map():
                self.selector.unregister(connection)
            with connection, suppress(OSError):  # whom it stands for may have ended before
                connection.sendall(NUMBER.pack(os.waitstatus_to_exitcode(status)))

    def end(self, standard_input):
        if not os.read(0, 1):
            for child in self.running:
                os.kill(child, signal.SIGKILL)
            os._exit(0)

    def become(self, files, folder, cores, words, variables):
        """In the fork: what mpirun has started."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.selector.close()
        for connection in self.running.values():
            connection.close()
        self.listening.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.setpgid(0, 0)
        if cores:
            os.sched_setaffinity(0, map(int, cores.split(",")))
        os.environ.clear()
        os.environ.update(variable.split("=", 1) for variable in variables)
        os.chdir(folder)
        self.words = words


def main(address):
    """The server; in a fork, the program."""
    import gc
    import importlib
    import runpy

    from support.forked import IMPORTED

    for name in (*IMPORTED, "fedkern.transports.launch"):
        importlib.import_module(name)
    gc.freeze()
    server = Server(address)
    print("ready", flush=True)
    words = server.serve()
    del server
    if words[0] == "-m":
        sys.argv[:] = words[1:]
        sys.modules.pop(f"{words[1]}.__main__", None)  # it is run anew
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = words
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        main(sys.argv[2])
    else:
        stand_for(sys.argv[1], sys.argv[2:])
