"""Frames: what is encoded comes back, and what nobody encoded is refused by name before anything is allocated for it."""

import ast
import os
import random
import struct
import subprocess
import sys
import tracemalloc
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

import fedkern
from fedkern import _core
from fedkern._core import wire
from fedkern.algorithms.core.messages import Message, RemoteFault
from fedkern.transports.codec import HEADER, LAST, Codec, is_last, pack, state_layout, unpack
from fedkern.transports.driver import Received
from support import toy
from support.refusal import refusal


@dataclass(frozen=True)
class Mixed(Message, kind=911):
    round: int
    text: Annotated[bytes, "text"]
    matrix: Annotated[NDArray[np.float64], "d k"]
    weight: float
    again: Annotated[bytes, "d"]
    vector: Annotated[NDArray[np.float64], "d"]


D, K, TEXT = 3, 2, 13
CODEC = Codec({"d": D, "k": K, "text": TEXT}, n_clients=4)
LONG = Codec({"d": 9000, "k": 1, "text": 0}, n_clients=4)
KINDS = (Mixed, Received)


def message(seed=0, codec=CODEC):
    rng = np.random.default_rng(seed)
    d, k = codec.dims["d"], codec.dims["k"]
    text = rng.bytes(min(7, codec.dims["text"]))
    return Mixed(seed - 5, text, rng.standard_normal((d, k)), rng.standard_normal(), b"ab", rng.standard_normal(d))


def same(a, b):
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in a.__dict__)


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.binary(max_size=TEXT),
    npst.arrays(np.float64, (D, K), elements=finite),
    finite,
    st.binary(max_size=D),
    npst.arrays(np.float64, D, elements=finite),
    st.integers(0, 3),
    st.booleans(),
)
def test_what_is_encoded_comes_back(number, text, matrix, weight, again, vector, client, last):
    before = Mixed(number, text, matrix, weight, again, vector)
    frame = CODEC.encode(client, before, last)
    sender, after = CODEC.decode(bytes(frame), KINDS)
    assert sender == client
    assert is_last(frame) is last
    assert same(before, after)


def test_the_length_depends_on_the_configuration_alone():
    lengths = {
        len(CODEC.encode(k, Mixed(r, b"x" * n, np.full((D, K), 1e308), 0.0, b"", np.zeros(D))))
        for k in (0, 3)
        for r in (0, 9)
        for n in (0, TEXT)
    }
    assert lengths == {CODEC.longest(KINDS)}


def test_any_layout_in_memory_gives_the_same_bytes():
    x = np.arange(12.0).reshape(2, 6)
    odd = Mixed(1, b"", x[:, ::2].T, 2.0, b"", np.arange(6.0).astype(">f8")[::2])
    plain = Mixed(1, b"", np.ascontiguousarray(x[:, ::2].T), 2.0, b"", np.array([0.0, 2.0, 4.0]))
    assert CODEC.encode(0, odd) == CODEC.encode(0, plain)


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 1000])
def test_the_checksum_is_what_it_is_said_to_be(n):
    codec = Codec({"d": n, "k": 1, "text": 0}, 1)
    frame = codec.encode(0, Mixed(1, b"", np.ones((n, 1)), 2.0, b"", np.arange(float(n))))
    assert HEADER.unpack_from(frame)[-1] == checksum(frame)


LEVEL = """
import numpy as np, sys
from fedkern import _core
from fedkern._core import wire
layout = wire.layout(911, [("round", "i", ()), ("text", "b", (13,)), ("x", "a", (1009,))])
frame = wire.encode(layout, 2, 1, {"round": 4, "text": b"five", "x": np.random.default_rng(6).standard_normal(1009)})
opened = wire.decode(layout, frame, 3)
worse = bytearray(frame)
worse[-1] ^= 1
infinite = wire.encode(layout, 2, 1, {"round": 4, "text": b"five", "x": np.r_[np.ones(1008), np.inf]})
said = opened is not None and wire.decode(layout, worse, 3) is None and wire.decode(layout, infinite, 3) is None
print(_core.isa(), said, bytes(frame).hex())
"""


def test_every_instruction_set_level_makes_and_opens_the_same_frame():
    levels = list(_core.levels())
    levels = levels[levels.index(_core.isa()) :]
    frames = set()
    for level in levels:
        command, env = [sys.executable, "-P", "-c", LEVEL], os.environ | {"FEDKERN_ISA": level}
        isa, said, frame = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.split()
        assert (isa, said) == (level, "True")
        assert HEADER.unpack_from(bytes.fromhex(frame))[-1] == checksum(bytes.fromhex(frame))
        frames.add(frame)
    assert len(frames) == 1


@pytest.mark.parametrize(
    "change",
    [{"round": np.int32(4)}, {"weight": 3}, {"weight": np.float32(0.5)}, {"text": np.bytes_(b"abc")}, {"vector": np.arange(3)}],
)
def test_near_types_are_taken_as_what_they_mean(change):
    _, got = CODEC.decode(CODEC.encode(0, Mixed(**(message().__dict__ | change))), KINDS)
    assert same(got, Mixed(**(message().__dict__ | change)))
    assert {name: type(value) for name, value in got.__dict__.items()} == {
        name: type(value) for name, value in message().__dict__.items()
    }


def test_a_view_outlives_its_frame():
    frame = CODEC.encode(0, message())
    got = CODEC.decode(frame, KINDS)[1].vector
    with pytest.raises(BufferError):
        frame.extend(b"x")  # would move what the view looks at
    del frame
    np.testing.assert_array_equal(got, message().vector)


@pytest.mark.parametrize("codec", [CODEC, LONG], ids=["short", "long"])
def test_nobody_can_give_back_the_memory_that_arrays_look_at(codec):
    frame = codec.encode(0, message(0, codec))
    got = codec.decode(frame, KINDS)[1].matrix
    want, base = got.copy(), got
    while (base := getattr(base, "base", None)) is not None:
        if hasattr(base, "release"):
            base.release()
    if hasattr(frame, "release"):
        frame.release()
    del frame, base
    others = [codec.encode(0, message(1, codec)) for _ in range(3)]
    np.testing.assert_array_equal(got, want)
    assert len(others) == 3


def test_another_address_gives_the_same_frame_as_encoding_anew():
    for codec in (CODEC, LONG):
        assert codec.readdress(codec.encode(1, message(3, codec)), 2) == codec.encode(2, message(3, codec))


def test_arrays_are_views_that_cannot_be_written():
    _, got = CODEC.decode(CODEC.encode(0, message()), KINDS)
    assert got.matrix.base is not None
    for array in (got.matrix, got.vector):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"vector": np.zeros(D + 1)}, r"Mixed\.vector: shape \(4,\), needs \(3,\)"),
        ({"matrix": np.zeros((K, D))}, r"Mixed\.matrix: shape \(2, 3\), needs \(3, 2\)"),
        ({"text": b"x" * (TEXT + 1)}, r"Mixed\.text: 14 bytes, at most 13"),
        ({"round": 2**63}, r"Mixed\.round: 9223372036854775808 does not fit into 64 bits"),
    ],
)
def test_a_message_that_does_not_fit_its_schema_is_the_callers_fault(change, says):
    with pytest.raises(ValueError, match=says):
        CODEC.encode(0, Mixed(**(message().__dict__ | change)))


def test_a_symbol_without_a_number_is_named():
    with refusal(ValueError, "Mixed", "text", "d", "k"):
        Codec({"d": 1, "k": 1}, 1).encode(0, message())


def checksum(frame):
    """What csrc/include/fedkern/wire.hpp says of a frame's words (but for the fourth, which is the checksum), in NumPy."""
    words = np.frombuffer(frame, "<u8")
    positions = 2 * np.arange(len(words), dtype=np.uint64) + np.uint64(1)
    half = np.uint64(0xFFFFFFFF)
    low = ((words & half) + positions * np.uint64(0x9E3779B1)) & half
    high = ((words >> np.uint64(32)) + positions * np.uint64(0x85EBCA77)) & half
    terms = words + low * high
    return int(np.delete(terms, 3).sum())


def resealed(frame, at=None, value=b""):
    """The frame with bytes replaced and a checksum that fits: what a peer with other code would send."""
    frame = bytearray(frame)
    if at is not None:
        frame[at : at + len(value)] = value
    struct.pack_into("<Q", frame, 24, checksum(frame))
    return bytes(frame)


def place(name):
    """Where a field begins in a frame."""
    words = {"round": 0, "text": 1, "matrix": 4, "weight": 10, "again": 11, "vector": 13}
    return HEADER.size + 8 * words[name]


def double(value):
    return struct.pack("<d", value)


GOOD = CODEC.encode(2, message())
REFUSED = {
    "nothing": (b"", "a frame of 0 bytes is shorter than its header of 32"),
    "half a header": (GOOD[:20], "a frame of 20 bytes is shorter"),
    "another magic": (b"http" + GOOD[4:], "not a version 1 fedkern frame"),
    "another version": (resealed(GOOD, 4, b"\2"), "not a version 1 fedkern frame"),
    "unknown client": (resealed(GOOD, 8, b"\4"), "client 4: the job has 4 clients"),
    "unknown kind": (resealed(GOOD, 6, b"\xee\xee"), "client 2: kind 61166, expected Mixed or Received"),
    "wrong direction": (toy.codec(4).encode(2, toy.Question(0, 1.0, *np.ones((2, 6)))), "client 2: Question, expected Mixed or"),
    "cut": (GOOD[:-8], "client 2: Mixed of 152 bytes, said 160, needs 160"),
    "longer": (GOOD + bytes(8), "client 2: Mixed of 168 bytes, said 160, needs 160"),
    "a length that is a lie": (
        resealed(GOOD, 16, struct.pack("<Q", 2**60)),
        "client 2: Mixed of 160 bytes, said 1152921504606847008",
    ),
    "another shape": (
        Codec({"d": 4, "k": K, "text": TEXT}, 4).encode(2, Mixed(0, b"", np.ones((4, K)), 1.0, b"", np.ones(4))),
        "client 2: Mixed of 184 bytes",
    ),
    "another dtype": (resealed(GOOD[: HEADER.size] + np.zeros(16, "<f4").tobytes()), "client 2: Mixed of 96 bytes"),
    "unknown flags": (resealed(GOOD, 12, b"\2"), "client 2: Mixed was altered"),
    "a bit of the content": (GOOD[:-1] + bytes([GOOD[-1] ^ 1]), "client 2: Mixed was altered on its way"),
    "nan in an array": (resealed(GOOD, place("vector") + 8, double(np.nan)), r"client 2: Mixed.vector is not finite in round -5"),
    "inf in an array": (
        resealed(GOOD, place("matrix") + 40, double(np.inf)),
        r"client 2: Mixed.matrix is not finite in round -5",
    ),
    "-inf in a number": (resealed(GOOD, place("weight"), double(-np.inf)), r"client 2: Mixed.weight is not finite in round -5"),
    "nan in a number": (resealed(GOOD, place("weight"), double(np.nan)), r"client 2: Mixed.weight is not finite in round -5"),
    "too many bytes": (
        resealed(GOOD, place("text"), struct.pack("<q", TEXT + 1)),
        "client 2: Mixed.text of 14 bytes, at most 13",
    ),
    "a negative length": (resealed(GOOD, place("again"), struct.pack("<q", -1)), "client 2: Mixed.again of -1 bytes, at most 3"),
    "something in the padding": (
        resealed(GOOD, place("again") + 15, b"!"),
        "client 2: Mixed.again: something follows its 2 bytes",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_frame_is_refused_by_name(name):
    frame, says = REFUSED[name]
    with pytest.raises(RemoteFault, match=says):
        CODEC.decode(frame, KINDS)


def test_resealing_an_unchanged_frame_changes_nothing():
    """Negative control of the list above: its faults are not those of the checksum."""
    assert resealed(GOOD) == GOOD
    assert same(
        CODEC.decode(resealed(GOOD, place("weight"), double(0.5)), KINDS)[1], Mixed(**(message().__dict__ | {"weight": 0.5}))
    )


def mutated(frame, others, chance):
    """A frame that nobody encoded, made from one that somebody did."""
    frame, n = bytearray(frame), len(frame)
    match chance.randrange(9):
        case 0:
            frame[chance.randrange(n)] ^= 1 << chance.randrange(8)
        case 1:
            for _ in range(chance.randrange(2, 9)):
                frame[chance.randrange(n)] = chance.randrange(256)
        case 2:
            del frame[chance.randrange(n) :]
        case 3:
            frame += chance.randbytes(chance.randrange(1, 40))
        case 4:  # two words change places
            i, j = (8 * chance.randrange(n // 8) for _ in range(2))
            frame[i : i + 8], frame[j : j + 8] = frame[j : j + 8], frame[i : i + 8]
        case 5:  # the beginning of one, the end of another
            at = chance.randrange(n)
            frame[at:] = chance.choice(others)[at:]
        case 6:
            at = chance.randrange(n)
            frame[at : at + chance.randrange(1, 33)] = b""
        case 7:
            at, length = chance.randrange(n), chance.randrange(1, 33)
            frame[at : at + length] = bytes(len(frame[at : at + length]))
        case 8:
            frame[:] = chance.randbytes(chance.randrange(2 * n))
    return bytes(frame)


def accepted(codec, n_frames, seed=1):
    chance = random.Random(seed)
    good = [bytes(codec.encode(k, message(s, codec))) for k in range(4) for s in range(8)]
    known, n = set(good), 0
    for _ in range(n_frames):
        frame = mutated(chance.choice(good), good, chance)
        if frame not in known:
            try:
                codec.decode(frame, KINDS)
                n += 1
            except RemoteFault:
                pass
    return n


def test_no_mutated_frame_is_accepted():
    assert accepted(CODEC, 100_000) == 0


@pytest.mark.nightly
def test_no_frame_of_a_million_is_accepted():
    assert accepted(CODEC, 1_000_000, seed=2) == 0


def test_no_long_mutated_frame_is_accepted():
    """Long frames have another checksum."""
    assert accepted(LONG, 1_000) == 0


def test_with_another_checksum_mutated_frames_would_be_accepted():
    """Negative control of the three tests above: what they refuse is well formed, and refused for the checksum."""
    chance, good, n = random.Random(3), [bytes(CODEC.encode(k, message(s))) for k in range(4) for s in range(8)], 0
    for _ in range(5_000):
        frame = mutated(chance.choice(good), good, chance)
        if len(frame) == len(GOOD):
            try:
                CODEC.decode(resealed(frame), KINDS)
                n += 1
            except RemoteFault:
                pass
    assert n > 100


def test_the_fault_of_every_refused_frame_is_known():
    """The compiled half refuses; this half finds out why. They must not disagree."""
    chance, good = random.Random(4), [bytes(CODEC.encode(k, message(s))) for k in range(4) for s in range(8)]
    for _ in range(5_000):
        frame = mutated(chance.choice(good), good, chance)
        for candidate in (frame, resealed(frame)) if len(frame) == len(GOOD) else (frame,):
            try:
                CODEC.decode(candidate, KINDS)
            except RemoteFault as fault:
                assert "was refused" not in str(fault)  # noqa: PT017


def test_refusing_allocates_less_than_the_schema_allows():
    frames = [resealed(GOOD, 16, struct.pack("<Q", 2**k)) for k in range(8, 64)]
    chance = random.Random(0)
    frames += [frame for _ in range(500) if (frame := mutated(GOOD, [bytes(GOOD)], chance)) != GOOD]
    CODEC.encode(0, message())
    tracemalloc.start()
    for frame in frames:
        with pytest.raises(RemoteFault):
            CODEC.decode(frame, KINDS)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 500_000  # what pytest.raises keeps of 564 faults, not 2^60


saved = st.dictionaries(
    st.text(max_size=8),
    st.one_of(
        st.integers(),
        st.floats(allow_nan=False),
        st.binary(max_size=20),
        npst.arrays(
            st.sampled_from([np.float64, np.int64, np.uint8, np.bool_]),
            npst.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3),
        ),
    ),
    max_size=5,
)


@given(saved)
def test_a_saved_state_comes_back(state):
    again = unpack(pack(state))
    assert set(again) == set(state)
    for name, value in state.items():
        assert type(again[name]) is type(value) or np.isscalar(value)
        np.testing.assert_array_equal(again[name], value)
    assert pack(dict(reversed(state.items()))) == pack(state)


def test_a_saved_array_can_be_written():
    array = unpack(pack({"a": np.zeros(3)}))["a"]
    array[0] = 1


@given(st.binary(max_size=60))
def test_other_bytes_are_no_saved_state(data):
    good = pack({"a": np.zeros(2), "b": 1})
    for bad in (data, good[:-1], good + b"x", good[: len(good) // 2] + data):
        try:
            unpack(bad)
        except ValueError as fault:
            assert "not a saved state" in str(fault)  # noqa: PT017
        else:
            assert bad[:4] == b"\0\0\0\0" or bad == good


@pytest.mark.parametrize("value", ["text", None, [1], np.array(["x"]), np.zeros(2, complex)])
def test_what_cannot_be_saved_is_named(value):
    with pytest.raises(ValueError, match="saved 'name': "):
        pack({"name": value})


FORBIDDEN = {
    "send",
    "recv",
    "isend",
    "irecv",
    "bcast",
    "gather",
    "scatter",
    "allgather",
    "alltoall",
    "allreduce",
    "reduce",
    "sendrecv",
    "ssend",
    "bsend",
}


def faults(source):
    """Uses of pickle, and of mpi4py's lower-case (pickling) calls, in a module's source."""
    for node in ast.walk(ast.parse(source)):
        names = (
            [a.name for a in node.names] + [getattr(node, "module", None) or ""]
            if isinstance(node, ast.Import | ast.ImportFrom)
            else []
        )
        if any(name.split(".")[0] in ("pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve") for name in names):
            yield f"imports {names}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value)
            if node.func.attr in FORBIDDEN and ("comm" in owner.lower() or "MPI" in owner):
                yield f"{owner}.{node.func.attr}"
            if node.func.attr == "load" and any(
                k.arg == "allow_pickle" and ast.unparse(k.value) != "False" for k in node.keywords
            ):
                yield f"{owner}.load with pickle"


def test_no_pickle_and_no_pickling_call_anywhere():
    sources = sorted(Path(fedkern.__file__).parent.rglob("*.py"))
    assert len(sources) > 20
    found = {str(path): list(faults(path.read_text())) for path in sources}
    assert {path: what for path, what in found.items() if what} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "self.link.comm.send(x, 0)",
        "MPI.COMM_WORLD.bcast(x)",
        "np.load(f, allow_pickle=True)",
    ],
)
def test_the_search_finds_what_it_looks_for(source):
    assert list(faults(source))


def test_last_is_the_only_flag():
    assert LAST == 1
    assert is_last(CODEC.encode(0, Received()))
    assert not is_last(CODEC.encode(0, Received(), last=False))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ([("x", "z", ())], "one of i f a b"),
        ([("x", "a")], "one of i f a b"),
        ([("x", "a", (-1,))], "a size is out of bounds"),
        ([("x", "a", (2**40, 2**40))], "a size is out of bounds"),
    ],
)
def test_a_layout_that_could_corrupt_memory_is_refused(fields, says):
    with pytest.raises(ValueError, match=says):
        wire.layout(1, fields)


def test_something_else_in_the_place_of_a_layout_is_refused():
    with pytest.raises(ValueError, match="invalid PyCapsule"):
        wire.decode(1, b"", 1)


def test_memory_of_a_long_frame_goes_to_another_only_when_nobody_sees_it():
    """A view that outlives the frame's own name keeps its bytes; without one the next frame of this length may take them."""
    frame = LONG.encode(1, message(3, LONG))
    assert isinstance(frame, memoryview)  # the others are bytearrays
    where = np.frombuffer(frame, np.uint8).ctypes.data
    opened = LONG.decode(frame, KINDS)[1]
    vector = opened.vector[5:7]
    del frame, opened
    others = [LONG.readdress(LONG.encode(2, message(seed, LONG)), 3) for seed in range(4, 8)]
    assert all(np.frombuffer(other, np.uint8).ctypes.data != where for other in others)
    assert np.array_equal(vector, message(3, LONG).vector[5:7])
    del vector
    again = LONG.encode(1, message(9, LONG))
    assert np.frombuffer(again, np.uint8).ctypes.data == where
    assert same(LONG.decode(again, KINDS)[1], message(9, LONG))


def test_memory_that_waits_for_a_frame_is_bounded():
    """640 MiB in all, 32 of which may wait; the C library keeps some of what it is given back, more in a long process."""
    sizes = [(1 << 24) + 8 * i for i in range(40)]
    before = _resident()
    for size in sizes:
        room = wire.room(size)
        np.frombuffer(room, np.uint8)[:] = 1
        del room
    assert _resident() - before < 1 << 28


def _resident():
    """Bytes of this process that are in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_layout_is_of_fields_types_and_shapes_and_not_of_values():
    def of(saved, *declared):
        state = make_dataclass("State", declared or [("h", "Vector"), ("psi", "Matrix | None")])
        return state_layout(state(None, None), saved)

    plain = {"h": np.zeros(3), "round": 0, "note": b""}
    assert of(plain) == of({"note": b"some", "round": 7, "h": np.ones(3)})
    others = [
        of(plain | {"h": np.zeros(4)}),
        of(plain | {"h": np.zeros((3, 1))}),
        of(plain | {"h": np.zeros(3, np.int64)}),
        of(plain | {"round": 0.0}),
        of({"h": np.zeros(3), "rounds": 0, "note": b""}),
        of({"h": np.zeros(3), "round": 0}),
        of(plain, ("h", "Vector"), ("Psi", "Matrix | None")),  # of nothing that is saved yet
        of(plain, ("h", "Vector"), ("psi", "Vector | None")),
    ]
    assert len({of(plain), *others}) == 1 + len(others)
