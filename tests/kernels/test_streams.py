"""Streams of other packages, NumPy's seeds, and a NumPy bit generator on the words of a key."""

import copy
import pickle
import threading
from hashlib import blake2b

import numpy as np
import pytest

from fedkern import _core
from fedkern.kernels import rng
from fedkern.kernels._bit_generator import Philox4x32


@pytest.fixture(autouse=True)
def _nothing_registered(monkeypatch):
    monkeypatch.setattr(rng, "_registered", {})


def register(name, package="mine"):
    """As a module of a package calls it."""
    return eval("rng.register(name)", {"__name__": f"{package}.chains", "rng": rng, "name": name})


def test_a_registered_stream_is_its_own():
    number = register("mine.moves")
    assert number == register("mine.moves")  # a module that is loaded again
    digest = blake2b(b"mine.moves", digest_size=4).digest()
    assert number == 2**31 + (digest[0] | digest[1] << 8 | digest[2] << 16 | digest[3] << 24) % 2**31
    assert 2**31 <= number < 2**32
    assert rng.streams()["mine.moves"] == number
    assert max(_core.rng.streams().values()) < rng.REGISTERED
    assert rng.key(7, "mine.moves", 3) == _core.rng.key(7, number, 3)
    # Keys of one seed and one chain differ wherever the numbers do: each step from number to key is a bijection of 64 bits.
    keys = {rng.key(7, name) for name in rng.streams()}
    assert len(keys) == len(rng.streams())
    with pytest.raises(ValueError, match=r"no stream 'other'; there are user, .*; rng.register\('other'\) makes one"):
        rng.key(7, "other")


def colliding():
    """Two names of one number: by a birthday among 2^17 names."""
    seen = {}
    for i in range(2**19):
        name = f"mine.{i}"
        number = int.from_bytes(blake2b(name.encode(), digest_size=4).digest(), "little") % 2**31
        if number in seen:
            return seen[number], name
        seen[number] = name
    raise AssertionError("no collision")


def test_two_names_of_one_number_are_refused():
    first, second = colliding()
    number = register(first)
    with pytest.raises(ValueError, match=f"{second}' has the number of '{first}', {number}; take another name"):
        register(second)
    assert second not in rng.streams()
    assert register(first) == number


@pytest.mark.parametrize("name", ["", "draws of mine", "größe", "mine\n", ".x", "mine.", "mine..x", 3])
def test_a_name_of_other_characters_is_refused(name):
    with pytest.raises(ValueError, match=r"rng.register: name must be letters, digits"):
        register(name)


def test_a_name_of_ours_or_of_another_package_is_refused():
    with pytest.raises(ValueError, match="'noise' is a stream of fedkern"):
        register("noise")
    for name in ("fedkern", "fedkern.moves"):
        with pytest.raises(ValueError, match=f"names such as '{name}' are fedkern's own"):
            register(name)
    register("draws.of", "mine")
    with pytest.raises(ValueError, match=r"'draws\.of' is a stream of 'mine' already; begin the name with 'yours'"):
        register("draws.of", "yours")


def test_a_seed_sequence_is_a_seed():
    sequence = np.random.SeedSequence(2**100 + 5, spawn_key=(3,))
    words = sequence.generate_state(2)  # of 32 bits
    assert rng.key(sequence, "noise", 2) == rng.key(int(words[0]) | int(words[1]) << 32, "noise", 2)
    assert rng.key(sequence) == rng.key(np.random.SeedSequence(2**100 + 5, spawn_key=(3,)))
    children = [*sequence.spawn(50), *sequence.spawn(50)]
    assert len({rng.key(child) for child in [sequence, *children]}) == 101
    assert rng.key(sequence) == rng.key(np.random.SeedSequence(2**100 + 5, spawn_key=(3,)))  # whatever it has spawned


KEY, CLIENT, STEP = 2**63 + 12345, 2**32 - 1, 77


def bits(**more):
    return rng.bit_generator(KEY, **{"client": CLIENT, "step": STEP, **more})


def expected(n, **more):
    """The first words, row by row."""
    return rng.words(-(-n // 4), key=KEY, **{"client": CLIENT, "step": STEP, **more}).ravel()[:n]


def test_numbers_are_the_words_in_their_order():
    words = expected(4000)
    numbers = words[::2].astype(np.uint64) | words[1::2].astype(np.uint64) << np.uint64(32)
    np.testing.assert_array_equal(bits().random_raw(2000), numbers)
    called = bits()
    by_ctypes = called.ctypes  # what Numba calls
    assert [by_ctypes.next_uint32(by_ctypes.state) for _ in range(601)] == words[:601].tolist()
    assert [by_ctypes.next_uint64(by_ctypes.state) for _ in range(5)] == numbers[301:306].tolist()
    assert by_ctypes.next_uint32(by_ctypes.state) == words[601]  # the upper half that was kept, as NumPy's generators do
    assert by_ctypes.next_double(by_ctypes.state) == rng.uniform(1, key=KEY, client=CLIENT, step=STEP, first_item=153)[0]
    np.testing.assert_array_equal(np.random.Generator(bits()).random(999), rng.uniform(999, key=KEY, client=CLIENT, step=STEP))
    whole = np.random.Generator(bits()).integers(2**32, size=999, dtype=np.uint32)
    np.testing.assert_array_equal(whole, words[:999])


@pytest.mark.parametrize(("block", "item", "draw"), [(2**32 - 3, 2**32 - 3, 0), (5 * 2**32 + 100, 100, 5)])
def test_items_are_followed_by_the_next_draw(block, item, draw):
    generator = bits()
    state = generator.state
    state["state"]["block"], state["state"]["half"] = block, 1
    generator.state = state
    left = min(2**32 - item, 90)
    first = expected(4 * left, first_item=item, draw=draw)
    words = np.concatenate([first, expected(40, draw=draw + 1)]) if left < 90 else first
    numbers = words[::2].astype(np.uint64) | words[1::2].astype(np.uint64) << np.uint64(32)
    np.testing.assert_array_equal(generator.random_raw(len(numbers) - 1), numbers[1:])


def test_the_state_says_the_place():
    generator = bits()
    assert generator.state["state"] == {"key": KEY, "client": CLIENT, "step": STEP, "block": 0, "half": 0}
    generator.random_raw(2 * 64)  # a whole buffer
    assert (generator.state["state"]["block"], generator.state["state"]["half"]) == (64, 0)
    generator.random_raw(3)
    assert (generator.state["state"]["block"], generator.state["state"]["half"]) == (65, 1)
    generator.ctypes.next_uint32(generator.ctypes.state)
    kept = generator.state
    assert (kept["has_uint32"], kept["uinteger"]) == (1, expected(4 * 67)[-4 * 1 - 1])
    numbers = generator.random_raw(200)
    generator.state = kept
    np.testing.assert_array_equal(generator.random_raw(200), numbers)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_goes_on_by_itself_at_the_same_place(again):
    generator = np.random.Generator(bits())
    generator.random(133)
    generator.integers(10, dtype=np.uint32)  # keeps half a number
    other = again(generator) if again is not copy.copy else np.random.Generator(copy.copy(generator.bit_generator))
    assert isinstance(other.bit_generator, Philox4x32)
    mine = generator.integers(2**32, size=300, dtype=np.uint32)
    np.testing.assert_array_equal(other.integers(2**32, size=300, dtype=np.uint32), mine)


def test_a_jump_is_the_same_place_of_a_later_step():
    generator = bits()
    generator.random_raw(7)
    np.testing.assert_array_equal(generator.jumped(3).random_raw(9), bits(step=STEP + 3).random_raw(16)[7:])
    np.testing.assert_array_equal(generator.random_raw(9), bits().random_raw(16)[7:])  # it has not moved
    with pytest.raises(ValueError, match=r"step 77 \+ jumps 4294967219 must be below 2\^32"):
        generator.jumped(2**32 - 77)
    with pytest.raises(ValueError, match=r"jumps >= 0"):
        generator.jumped(-1)


def test_children_are_refused():
    for spawn in (bits().spawn, np.random.Generator(bits()).spawn):
        with pytest.raises(TypeError, match=r"a key has no children; make each its own key, by rng.key"):
            spawn(2)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: rng.bit_generator(-1), ValueError, r"key must be in \[0, 18446744073709551616\), got -1"),
        (lambda: rng.bit_generator(2**64), ValueError, "key must be in"),
        (lambda: bits(client=2**32), ValueError, r"client must be in \[0, 4294967296\), got 4294967296"),
        (lambda: bits(step=-1), ValueError, "step must be in"),
        (lambda: rng.bit_generator(1.5), TypeError, "integer"),
        (lambda: setattr(bits(), "state", {"bit_generator": "Philox"}), ValueError, "state must be one of a Philox4x32"),
        (lambda: setattr(bits(), "state", bits(step=78).state), ValueError, "the state is of .*'step': 78"),
        (lambda: setattr(bits(), "state", {**bits().state, "uinteger": 2**32}), ValueError, "uinteger must be in"),
        (lambda: setattr(bits(), "state", {"bit_generator": "Philox4x32", "state": {}}), ValueError, "state lacks"),
        (lambda: _core.rng.bit_generator(np.random.PCG64().capsule, 1, 0, 0), ValueError, "has a state already"),
        (lambda: _core.rng.place(np.random.PCG64().capsule), ValueError, "not of rng.bit_generator"),
        (lambda: _core.rng.place(object()), ValueError, "PyCapsule_GetPointer called with invalid PyCapsule object"),
        (lambda: _core.rng.bit_generator(bits().capsule, 1, 0, 0), ValueError, "has a state already"),
        (lambda: _core.rng.go(bits().capsule, 0, 2, False, 0), ValueError, "half: must be 0 or 1"),
    ],
)
def test_a_wrong_argument_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_generator_outlives_its_bit_generator_and_threads_share_it():
    """NumPy holds the lock of the bit generator, so no number is lost or given twice."""
    generator = np.random.Generator(bits())
    drawn = [[] for _ in range(4)]

    def draw(to):
        for _ in range(200):
            to.append(generator.bit_generator.random_raw(37))

    threads = [threading.Thread(target=draw, args=(to,)) for to in drawn]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    every = np.sort(np.concatenate([one for to in drawn for one in to]))
    np.testing.assert_array_equal(every, np.sort(bits().random_raw(4 * 200 * 37)))
