"""The secure source can't be predicted, seeded, copied or replaced; both sources add the noise that is accounted for."""

from __future__ import annotations

import builtins
import copy
import inspect
import math
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fedkern.errors import JobError
from fedkern.kernels import privacy, rng
from fedkern.privacy import noise
from fedkern.privacy.noise import CHUNK, KeyedSource, SecureSource

ZERO = np.zeros(50, np.int64)


# --- unpredictable


def test_no_argument_anywhere_could_be_a_seed():
    assert list(inspect.signature(SecureSource).parameters) == []
    for name, method in inspect.getmembers(SecureSource, inspect.isfunction):
        if not name.startswith("__"):
            assert set(inspect.signature(method).parameters) <= {
                "self",
                "n_rows",
                "threshold",
                "size",
                "total",
                "sigma",
                "step",
                "n",
                "decay",
            }


def test_the_key_is_asked_of_the_operating_system_at_every_rekey(monkeypatch):
    asked = []
    real = os.urandom
    monkeypatch.setattr(os, "urandom", lambda n: asked.append(n) or real(n))
    source = SecureSource()
    source.add_noise(ZERO, 1.0)
    source.rekey()
    assert asked == [32, 32]


def test_the_key_is_not_kept():
    key = bytes(range(32))
    source = SecureSource.__new__(SecureSource)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", lambda n: key)
        source.__init__()
    kept = [
        v for v in vars(source).values() if isinstance(v, bytes | bytearray) or (isinstance(v, np.ndarray) and key in v.tobytes())
    ]
    assert kept == []


@pytest.mark.parametrize("fault", [OSError("no device"), NotImplementedError("no source")])
def test_without_entropy_it_is_an_error_and_never_another_source(monkeypatch, fault):
    source = SecureSource()
    monkeypatch.setattr(os, "urandom", lambda n: (_ for _ in ()).throw(fault))
    for use in (SecureSource, source.rekey):
        with pytest.raises(JobError, match=r"the operating system gives no entropy .* private noise has no other source"):
            use()
    source._forget()  # as after a fork
    with pytest.raises(JobError, match="no entropy"):
        source.add_noise(ZERO, 1.0)


def test_without_the_cipher_it_is_an_error_and_never_another_source(monkeypatch):
    real = builtins.__import__

    def blocked(name, *rest):
        if name.startswith("cryptography"):
            raise ImportError("No module named 'cryptography'")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", blocked)
    with pytest.raises(JobError, match=r"needs the package cryptography .* pip install 'fedkern\[dp\]'"):
        SecureSource()


def test_numpys_and_pythons_seeds_change_nothing():
    draws = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002 - this is the point
        draws.append(SecureSource().add_noise(ZERO, 5.0))
    assert (draws[0] != draws[1]).any()


def test_streams_never_come_twice():
    source = SecureSource()
    seen = {source._take(8).tobytes() for _ in range(5000)}  # over several refills
    source.rekey()
    seen |= {source._take(8).tobytes() for _ in range(5000)} | {SecureSource()._take(8).tobytes() for _ in range(100)}
    assert len(seen) == 10_100


def drawn_at_once(source: SecureSource, n_threads: int = 4, rounds: int = 60) -> list[bytes]:
    """What threads that draw from one source at the same time get, each draw by its first eight numbers."""
    start = threading.Barrier(n_threads)
    total = np.zeros(3000, np.int64)

    def draws(_: int) -> list[bytes]:
        start.wait()
        return [source.add_noise(total, 1000.0)[:8].tobytes() for _ in range(rounds)]

    with ThreadPoolExecutor(n_threads) as pool:
        return [one for own in pool.map(draws, range(n_threads)) for one in own]


def test_threads_that_draw_at_once_never_get_the_same_noise():
    found = drawn_at_once(SecureSource())
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    "draw",
    [
        lambda source: source.coins(100, 1 << 31),
        lambda source: source.subset(100, 10),
        lambda source: source.add_noise(ZERO, 1.0),
        lambda source: source.rekey(),
    ],
    ids=["coins", "subset", "add_noise", "rekey"],
)
def test_every_draw_waits_for_the_one_before(draw: Callable[[SecureSource], object]) -> None:
    source = SecureSource()
    done = threading.Event()
    thread = threading.Thread(target=lambda: (draw(source), done.set()))
    with source._lock:
        thread.start()
        assert not done.wait(0.05)
    assert done.wait(10)
    thread.join()


def test_a_child_that_was_forked_while_a_thread_draws_can_draw():
    code = """
import os, threading, numpy as np
from fedkern.privacy.noise import SecureSource
source = SecureSource()
source._lock.acquire()  # by this thread: the child's only one is another
def fork():
    child = os.fork()
    if not child:
        source.add_noise(np.zeros(5, np.int64), 1.0)
        os._exit(0)
    found.append(os.waitpid(child, 0)[1])
found = []
thread = threading.Thread(target=fork)
thread.start()
thread.join()
assert found == [0]
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_it_cannot_be_copied_or_stored():
    source = SecureSource()
    for copier in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="its noise could come twice"):
            copier(source)


def test_a_forked_child_has_a_stream_of_its_own():
    script = (
        "import os, numpy as np\n"
        "from fedkern.privacy.noise import SecureSource\n"
        "s = SecureSource(); s.coins(5, 9)\n"
        "r, w = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.write(w, s._take(8).tobytes()); os._exit(0)\n"
        "os.wait()\n"
        "print(os.read(r, 32) != s._take(8).tobytes())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True, env=os.environ)
    assert done.stdout.strip() == "True"


def test_the_cipher_is_chacha20():
    """RFC 8439, 2.4.2 has no counter 0 vector for the zero nonce; appendix A.1, test vector 1 has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", bytes)
        source = SecureSource()
    assert source._take(4).tobytes().hex() == "76b8e0ada0f13d90405d6ae55386bd28"


# --- every word once


class Counting:
    """A cipher whose words are 0, 1, 2, .."""

    def __init__(self):
        self.at = 0

    def update_into(self, data, buffer):
        words = np.frombuffer(buffer, np.uint32)
        words[:] = np.arange(self.at, self.at + len(words), dtype=np.uint32)
        self.at += len(words)


class Given(Counting):
    """A cipher whose words are given."""

    def __init__(self, words):
        super().__init__()
        self.words = words

    def update_into(self, data, buffer):
        out = np.frombuffer(buffer, np.uint32)
        out[:] = self.words[self.at : self.at + len(out)]
        self.at += len(out)


def planted(monkeypatch, cipher):
    monkeypatch.setattr(noise, "_chacha20", lambda: cipher)
    return SecureSource()


def test_each_word_of_the_stream_is_used_once_and_in_order(monkeypatch):
    source = planted(monkeypatch, Counting())
    seen = [source._take(n).copy() for n in (5, CHUNK - 2, 1, CHUNK, 700, 0, CHUNK - 700, 3)]
    np.testing.assert_array_equal(np.concatenate(seen), np.arange(3 * CHUNK + 7))


def test_noise_over_refills_is_the_kernels_noise_of_the_whole_stream(monkeypatch):
    words = np.random.default_rng(3).integers(0, 2**32, 40 * CHUNK, dtype=np.uint32)
    source = planted(monkeypatch, Given(words))
    total = np.arange(40_000)
    got = np.concatenate([source.add_noise(part, 5.0) for part in np.array_split(total, 190)])
    want, _ = privacy.discrete_gaussian(words, 5 << 20, 40_000)
    np.testing.assert_array_equal(got, (total + want).astype(float))


@pytest.mark.parametrize("n", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5])
def test_coins_compare_one_word_a_row(monkeypatch, n):
    words = np.random.default_rng(4).integers(0, 2**32, 8 * CHUNK, dtype=np.uint32)
    source = planted(monkeypatch, Given(words))
    taken = source.coins(n, 2**31)
    np.testing.assert_array_equal(taken, np.flatnonzero(words[:n] < 2**31))
    assert taken.dtype == np.int64
    assert len(source.coins(n, 2**32)) == n


def test_a_subset_is_drawn_again_if_a_tie_leaves_it_open(monkeypatch):
    words = np.concatenate([np.zeros(8, np.uint32), np.arange(8, dtype=np.uint32), np.zeros(CHUNK, np.uint32)])
    assert planted(monkeypatch, Given(words)).subset(4, 2).tolist() == [0, 1]


def by_the_rule(words, n, size):
    """Places of the smallest 64-bit numbers, two words each, low word first."""
    numbers = words[: 2 * n : 2].astype(np.uint64) + (words[1 : 2 * n : 2].astype(np.uint64) << np.uint64(32))
    return np.sort(np.argsort(numbers, kind="stable")[:size])


# Beyond CHUNK / 2 rows a subset takes more words than are made at a time.
BIG = [CHUNK // 2, CHUNK // 2 + 1, 20_000, CHUNK, 2 * CHUNK + 3]


@pytest.mark.parametrize("n", BIG)
@pytest.mark.parametrize("size", [0, 1, 101, 5_000, -1, -0.5], ids=str)
def test_a_subset_has_the_smallest_words_of_the_stream(monkeypatch, n, size):
    size = n if size == -1 else n // 2 + 1 if size == -0.5 else size
    words = np.random.default_rng(n + size).integers(0, 2**32, 6 * CHUNK, dtype=np.uint32)
    source = planted(monkeypatch, Given(words))
    source._take(5)  # not from the start of what was made
    np.testing.assert_array_equal(source.subset(n, size), by_the_rule(words[5:], n, size))


@pytest.mark.parametrize("n", BIG)
def test_a_keyed_subset_has_the_smallest_words_of_its_block(n):
    source = KeyedSource(rng.key(1, "noise"), 7)
    words = rng.words(-(-2 * n // 4), key=source.key, client=7, step=3, draw=2).reshape(-1)
    np.testing.assert_array_equal(source.subset(n, 101, 3), by_the_rule(words, n, 101))


def test_rows_that_are_a_buffer_apart_are_chosen_apart():
    """Rows i and i + CHUNK / 2 come from the same places of two buffers."""
    source, n, draws = SecureSource(), 2 * CHUNK, 40
    taken = np.zeros((draws, n), bool)
    for k in range(draws):
        taken[k, source.subset(n, n // 4)] = True
    for apart in (CHUNK // 2, CHUNK, 3 * CHUNK // 2):
        pairs = (taken[:, :-apart] & taken[:, apart:]).sum()
        of = draws * (n - apart)
        assert abs(pairs - of / 16) < 5 * (3 / 16) * math.sqrt(of), apart  # p^2, and sd p (1 - p) for a fixed size


# --- the parameter


def test_the_parameter_is_rounded_up(monkeypatch):
    asked = []
    kernel = privacy.DISCRETE_GAUSSIAN
    real = kernel.implementation("cpp")
    monkeypatch.setitem(kernel._loaded, "cpp", lambda words, sigma, out: asked.append(sigma) or real(words, sigma, out))
    for sigma in (5.0, 5.0 + 2.0**-30, 2.0**-10, math.pi):
        SecureSource().add_noise(ZERO[:3], sigma)
    assert list(dict.fromkeys(asked)) == [5 << 20, (5 << 20) + 1, 1 << 10, math.ceil(math.pi * 2**20)]


@pytest.mark.parametrize("sigma", [2048.0, math.inf, 0.0, -1.0])
def test_noise_that_the_sampler_cannot_draw_is_refused(sigma):
    with pytest.raises((ValueError, OverflowError)):
        SecureSource().add_noise(ZERO, sigma)


def test_totals_are_kept_to_the_last_unit():
    total = np.array([0, 1, -(2**50), 2**50 + 1])
    noisy = SecureSource().add_noise(total, 2.0**-10)
    assert np.abs(noisy - total).max() < 2.0**10 * 12
    assert (noisy == np.rint(noisy)).all()


# --- keyed


def test_keyed_noise_repeats_and_counters_are_apart():
    a, b = (KeyedSource(rng.key(1, "noise"), 7) for _ in range(2))
    np.testing.assert_array_equal(a.add_noise(ZERO, 5.0, 3), b.add_noise(ZERO, 5.0, 3))
    others = [
        a.add_noise(ZERO, 5.0, 4),
        KeyedSource(rng.key(1, "noise"), 8).add_noise(ZERO, 5.0, 3),
        KeyedSource(rng.key(2, "noise"), 7).add_noise(ZERO, 5.0, 3),
    ]
    assert all((o != a.add_noise(ZERO, 5.0, 3)).all() for o in others)
    np.testing.assert_array_equal(a.coins(100, 2**31, 3), b.coins(100, 2**31, 3))
    assert a.coins(100, 2**31, 3).tolist() != a.coins(100, 2**31, 4).tolist()


def test_keyed_coins_and_noise_share_no_block(monkeypatch):
    seen = []
    real = rng.words

    def words(n, *, key, client, step, draw):
        seen.extend((item, draw, client, step) for item in range(n))
        return real(n, key=key, client=client, step=step, draw=draw)

    monkeypatch.setattr(rng, "words", words)
    source = KeyedSource(rng.key(1, "noise"), 7)
    for step in range(3):
        source.coins(21, 5, step)
        source.subset(21, 5, step)
    assert len(seen) == len(set(seen))
    assert all(draw > 0 for _, draw, _, _ in seen)  # draw 0 is the noise


def test_sources_say_what_they_are():
    assert SecureSource.secure
    assert "secure" in SecureSource().describe()
    assert not KeyedSource.secure
    assert "not private" in KeyedSource(1, 0).describe()
