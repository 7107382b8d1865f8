"""Threads call kernels at the same time, each with the bits that it has alone.

With the interpreter's lock kernels run side by side while their arguments are checked in turn; in an interpreter without it
(`python3.13t`, PYTHON_GIL=0) everything does. The same tests hold for both.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue

import numpy as np
import pytest

from fedkern import kernels, testing
from fedkern.kernels._record import KERNELS
from fedkern.transports.codec import Codec, Frame
from support.command import python
from support.toy import Answer

THREADS = 6


@pytest.fixture(autouse=True)
def quick_switches() -> Iterator[None]:
    """Lets the interpreter change its thread as often as it can, where it has a lock."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(work: Callable[[int], None]) -> None:
    """Runs work(0), work(1), .. on threads that begin together; raises the first error of any."""
    start, errors = threading.Barrier(THREADS), []

    def run(number: int) -> None:
        start.wait()
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def bits(name: str, case: testing.Case, n_threads: int) -> list[bytes]:
    return [np.asarray(result).tobytes() for result in testing.results_of(name, case, backend="cpp", n_threads=n_threads)]


FAMILIES = sorted({name.partition(".")[0] for name in KERNELS})


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_have_the_same_bits_on_several_threads(family: str) -> None:
    """The threads share the cases' arrays and the pool, and each begins with another kernel."""
    names = [name for name, kernel in sorted(KERNELS.items()) if name.startswith(f"{family}.") and "cpp" in kernel.backends]
    work = []
    for name in names:
        for seed in range(3):
            case = testing.case(name, seed, sizes=(7, 33, 200))
            if case.arguments.get("family") not in KERNELS[name].lacks.get("cpp", ()):
                work.append((name, case, bits(name, case, 1)))

    def run(number: int) -> None:
        for turn in range(2):
            for k in range(len(work)):
                name, case, alone = work[(k + number * len(work) // THREADS) % len(work)]
                assert bits(name, case, 1 + (number + turn) % 3) == alone, name

    at_once(run)


def test_threads_share_a_bound_call() -> None:
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((200, 7)), rng.integers(0, 2, 200).astype(float)
    mu, log_sigma = rng.standard_normal(7), np.zeros(7)
    data = {"X": X, "y": y, "mu": mu, "log_sigma": log_sigma}
    step = kernels.bind("glm.clipped_grad_sum", data, ("mu", "log_sigma", "step"), family="bernoulli", clip=1.0, seed=1, step=0)
    alone = [[np.asarray(result).tobytes() for result in step(mu, log_sigma, i)] for i in range(20)]

    def run(number: int) -> None:
        for i in [*range(number, 20), *range(number)] * 5:
            assert [np.asarray(result).tobytes() for result in step(mu, log_sigma, i)] == alone[i]

    at_once(run)


def test_frames_are_made_opened_and_freed_on_other_threads() -> None:
    """Memory of large frames is used again, and no two frames that live have the same. Each thread opens and frees the frames of
    the one before it."""
    codec = Codec({"d": 9000, "note": 0}, n_clients=THREADS)
    mail: list[SimpleQueue[tuple[float, Frame]]] = [SimpleQueue() for _ in range(THREADS)]

    def run(number: int) -> None:
        def receive() -> None:
            value, frame = mail[number].get(timeout=60)
            client, message = codec.decode(frame, (Answer,))
            assert client == (number - 1) % THREADS
            assert isinstance(message, Answer)
            assert (message.dh == value).all()
            assert (message.dP == -value).all()

        for i in range(200):
            value = 1000.0 * number + i
            numbers = np.full(9000, value)
            frame = codec.encode(number, Answer(i, b"", numbers, -numbers))
            mail[(number + 1) % THREADS].put((value, frame))
            if i >= 5:
                receive()
        for _ in range(5):
            receive()

    at_once(run)


MEMORY = """
import sys, threading
from fedkern._core import wire

start, wrong = threading.Barrier(6), []

def use(number):
    start.wait()
    for i in range(2000):
        rooms = [wire.room(1 << 16) for _ in range(40)]
        marks = [bytes([number, k, i % 256, 1]) for k in range(40)]
        for room, mark in zip(rooms, marks): room[:4] = mark
        wrong.extend(mark for room, mark in zip(rooms, marks) if room[:4] != mark)

threads = [threading.Thread(target=use, args=(i,)) for i in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(wrong))
"""


def test_no_two_frames_have_the_same_memory() -> None:
    """In a process of its own: without a lock of our own, and without the interpreter's, it ends by a crash."""
    run = python("-P", "-c", MEMORY)
    assert (run.code, run.out.split()) == (0, ["0"]), run.err


FIRST_USE = """
import sys, threading
from fedkern import _core, testing
from fedkern.kernels import rng

sys.setswitchinterval(1e-6)
start, got = threading.Barrier(8), []
case = testing.case("mlp.forward", 1, sizes=(7,))
levels = [name for name, here in _core.levels().items() if here]

def first(number):
    start.wait()
    _core.limit_isa(levels[-1 if number == 3 else number % len(levels)])
    words = rng.words(9, key=5)  # the same at every level
    (Y,) = testing.results_of("mlp.forward", case)  # calls BLAS
    got.append((words.tobytes(), Y.shape))

threads = [threading.Thread(target=first, args=(i,)) for i in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(got), len(set(got)), _core.isa() == levels[-1], getattr(sys, "_is_gil_enabled", lambda: True)())
"""


def test_threads_make_the_first_calls_of_a_process() -> None:
    """They load BLAS, generate the calls and choose the level at the same time; one asks for the lowest, and it stays."""
    run = python("-P", "-c", FIRST_USE)
    assert run.code == 0, run.err
    # A module that does not say that it needs no lock would bring it back.
    has_lock = not sysconfig.get_config_var("Py_GIL_DISABLED") or os.environ.get("PYTHON_GIL") == "1"
    assert run.out.split() == ["8", "1", "True", str(has_lock)]
