"""Message <-> bytes: a fixed header and raw little-endian values. No pickle; nothing is allocated before it is checked.

A frame is 32 bytes of header, then the fields of the message in their declared order, each 8 bytes or a multiple of them: an int
or a float; an array's values in C order; the length of a bytes field and its content, filled with zeros to the longest that the
job allows. So the length of a frame is a function of the job's public configuration alone, never of the data.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms.messages import KINDS, Message, RemoteFault, Saved, schema

HEADER = struct.Struct("<4sHHIIQQ")  # magic, version, kind, client, flags, bytes that follow, checksum
MAGIC, VERSION, LAST = b"fedk", 1, 1  # LAST: the client has nothing more to say to the question it was asked
WORD = np.dtype("<f8")

Kinds = tuple[type[Message], ...]
Frame = bytes | bytearray | memoryview


@dataclass(frozen=True)
class _Layout:
    """Where the fields of a message lie behind the header: numbers and lengths by one `struct`, arrays as slices of all words."""

    names: tuple[str, ...]
    scalars: struct.Struct
    scalar_names: tuple[str, ...]  # ints, floats, and the lengths of bytes fields
    floats: tuple[int, ...]  # which fields are floats
    arrays: tuple[tuple[int, tuple[int, ...], int, int], ...]  # which field, shape, first word, last + 1
    texts: tuple[tuple[int, int, int, int], ...]  # which field, longest, first byte in the frame, last + 1 (padding included)
    total: int  # bytes of a frame


class Codec:
    """The frames of one job: `dims` gives each symbol of the schemas its number, `n_clients` bounds the senders."""

    def __init__(self, dims: Mapping[str, int], n_clients: int) -> None:
        self.dims, self.n_clients = dict(dims), n_clients
        self._layouts: dict[type[Message], _Layout] = {}

    def layout(self, kind: type[Message]) -> _Layout:
        """Where the fields of a kind of message lie."""
        if kind in self._layouts:
            return self._layouts[kind]
        form, scalars, floats, arrays, texts, word = "<", [], [], [], [], 0
        names = tuple(schema(kind))
        for i, (name, field) in enumerate(schema(kind).items()):
            missing = [symbol for symbol in field.shape if symbol not in self.dims]
            if missing:
                raise ValueError(f"{kind.__name__}.{name}: no dimension {missing[0]!r} among {sorted(self.dims)}")
            shape = tuple(self.dims[symbol] for symbol in field.shape)
            if field.type is np.ndarray:
                words = math.prod(shape)
                arrays.append((i, shape, word, word + words))
                form += f"{8 * words}x"
            elif field.type is bytes:
                words = 1 + -(-shape[0] // 8)
                texts.append((i, shape[0], HEADER.size + 8 * (word + 1), HEADER.size + 8 * (word + words)))
                scalars.append(name)
                form += f"q{8 * (words - 1)}x"
            else:
                words = 1
                scalars.append(name)
                floats += [i] if field.type is float else []
                form += "d" if field.type is float else "q"
            word += words
        total = HEADER.size + 8 * word
        layout = _Layout(names, struct.Struct(form), tuple(scalars), tuple(floats), tuple(arrays), tuple(texts), total)
        self._layouts[kind] = layout
        return layout

    def longest(self, kinds: Kinds) -> int:
        """The longest frame of these kinds, in bytes."""
        return max((self.layout(kind).total for kind in kinds), default=HEADER.size)

    def encode(self, client: int, message: Message, last: bool = True) -> bytearray:
        """The frame of a message to or from `client`; a ValueError if the message does not fit its own schema."""
        kind, flags, values = type(message), LAST if last else 0, message.__dict__
        layout = self._layouts.get(kind) or self.layout(kind)
        frame = bytearray(layout.total)
        words = np.frombuffer(frame, WORD, -1, HEADER.size) if layout.names else _EMPTY
        if layout.texts:
            values = {**values, **{layout.names[i]: len(values[layout.names[i]]) for i, *_ in layout.texts}}
        layout.scalars.pack_into(frame, HEADER.size, *[values[name] for name in layout.scalar_names])
        for i, longest, start, _ in layout.texts:
            text = getattr(message, layout.names[i])
            if len(text) > longest:
                raise ValueError(f"{kind.__name__}.{layout.names[i]}: {len(text)} bytes, at most {longest}")
            frame[start : start + len(text)] = text
        for i, shape, start, stop in layout.arrays:
            array = values[layout.names[i]]
            if array.shape != shape:
                raise ValueError(f"{kind.__name__}.{layout.names[i]}: shape {array.shape}, needs {shape}")
            words[start:stop] = array if len(shape) == 1 else array.reshape(-1)
        checksum = _checksum(words) ^ _mix(kind.kind, client, flags)
        HEADER.pack_into(frame, 0, MAGIC, VERSION, kind.kind, client, flags, layout.total - HEADER.size, checksum)
        return frame

    def readdress(self, frame: Frame, client: int) -> bytearray:
        """A copy of a frame of this codec for another client."""
        copy = bytearray(frame)
        _, _, kind, before, flags, length, checksum = HEADER.unpack_from(frame)
        checksum ^= _mix(kind, before, flags) ^ _mix(kind, client, flags)
        HEADER.pack_into(copy, 0, MAGIC, VERSION, kind, client, flags, length, checksum)
        return copy

    def decode(self, frame: Frame, expected: Kinds) -> tuple[int, Message]:
        """The client's number and the message, its arrays read-only views of the frame; or RemoteFault naming what is wrong."""
        if len(frame) < HEADER.size:
            raise RemoteFault(f"a frame of {len(frame)} bytes is shorter than its header of {HEADER.size}")
        magic, version, number, client, flags, length, checksum = HEADER.unpack_from(frame)
        kind = KINDS.get(number)
        if magic != MAGIC or version != VERSION or client >= self.n_clients or kind is None or kind not in expected:
            raise self._refused(magic, version, number, client, expected)
        layout = self._layouts.get(kind) or self.layout(kind)
        if length + HEADER.size != layout.total or len(frame) != layout.total:
            said = length + HEADER.size
            raise RemoteFault(f"client {client}: {kind.__name__} of {len(frame)} bytes, said {said}, needs {layout.total}")
        words = np.frombuffer(frame, WORD, -1, HEADER.size) if length else _EMPTY
        if checksum != _checksum(words) ^ _mix(number, client, flags) or flags > LAST:
            raise RemoteFault(f"client {client}: {kind.__name__} was altered on its way")
        words.setflags(write=False)
        finite = b"\0" not in np.isfinite(words).tobytes()  # of a short array, half the time of .all()
        values: list[Any] = list(layout.scalars.unpack_from(frame, HEADER.size))
        for i, shape, start, stop in layout.arrays:
            values.insert(i, words[start:stop] if len(shape) == 1 else words[start:stop].reshape(shape))
        if not finite:  # ints and bytes may look like it
            for i in (*layout.floats, *(i for i, *_ in layout.arrays)):
                if not np.isfinite(values[i]).all():
                    when = f" in round {values[0]}" if layout.names[0] == "round" else ""
                    raise RemoteFault(f"client {client}: {kind.__name__}.{layout.names[i]} is not finite{when}")
        for i, longest, start, stop in layout.texts:
            values[i] = _text(frame, f"client {client}: {kind.__name__}.{layout.names[i]}", values[i], longest, start, stop)
        return client, kind(*values)

    def _refused(self, magic: bytes, version: int, number: int, client: int, expected: Kinds) -> RemoteFault:
        if (magic, version) != (MAGIC, VERSION):
            return RemoteFault(f"not a version {VERSION} fedkern frame")
        if client >= self.n_clients:
            return RemoteFault(f"client {client}: the job has {self.n_clients} clients")
        name = KINDS[number].__name__ if number in KINDS else f"kind {number}"
        return RemoteFault(f"client {client}: {name}, expected {' or '.join(kind.__name__ for kind in expected)}")


def is_last(frame: Frame) -> bool:
    """Whether a frame (one that was decoded without fault) ends the answer to a question."""
    return bool(frame[12] & LAST)


_EMPTY = np.empty(0, WORD)
_ROW = 512  # words
_LONG = 8 * _ROW  # words from which on the sums below are quicker than what they replace


def _checksum(words: NDArray[np.float64]) -> int:
    """CRC-32; of a long message, of the sums modulo 2^64 of its rows and of its columns (of 512 words a row).

    A change of one word, or of words in one row or one column, changes a sum; so does any exchange of two words, rows or columns.
    """
    if len(words) < _LONG:
        return zlib.crc32(words.data)
    whole = len(words) // _ROW * _ROW
    table = words[:whole].view("<u8").reshape(-1, _ROW)
    rows = zlib.crc32(np.add.reduce(table, axis=1).data)
    return zlib.crc32(words[whole:].data, zlib.crc32(np.add.reduce(table, axis=0).data)) << 32 | rows


def _mix(kind: int, client: int, flags: int) -> int:
    """The header's part of the checksum: odd multipliers, so that a change of one field changes it."""
    return (kind * 0x9E3779B1 + client * 0x85EBCA6B + flags * 0xC2B2AE35) & 0xFFFFFFFF


def _text(frame: Frame, who: str, length: int, longest: int, start: int, stop: int) -> bytes:
    if not 0 <= length <= longest:
        raise RemoteFault(f"{who} of {length} bytes, at most {longest}")
    if bytes(frame[start + length : stop]).strip(b"\0"):
        raise RemoteFault(f"{who}: something follows its {length} bytes")
    return bytes(frame[start : start + length])


# What a checkpoint holds: name -> array, int, float or bytes.
_TYPES: dict[bytes, Any] = {b"i": int, b"f": float, b"b": bytes, b"a": np.ndarray}
_DTYPES = ("<f8", "<i8", "<u8", "<u4", "|u1", "|b1")
_ITEM = struct.Struct("<H1s")


def pack(saved: Mapping[str, Any]) -> bytes:
    """The bytes of a saved state, the same for the same content whatever the order of its names."""
    parts = [struct.pack("<I", len(saved))]
    for name in sorted(saved):
        value, encoded = saved[name], name.encode()
        if isinstance(value, np.ndarray):
            array = np.asarray(value, order="C")
            array = array.astype(array.dtype.newbyteorder("<"), copy=False)
            if array.dtype.str not in _DTYPES:
                raise ValueError(f"saved {name!r}: dtype {value.dtype}, needs one of {', '.join(_DTYPES)}")
            body = struct.pack(f"<BB{array.ndim}Q", _DTYPES.index(array.dtype.str), array.ndim, *array.shape) + array.tobytes()
            code = b"a"
        elif isinstance(value, bytes):
            code, body = b"b", value
        elif isinstance(value, (bool, int, np.integer)):
            code, body = b"i", str(int(value)).encode()
        elif isinstance(value, (float, np.floating)):
            code, body = b"f", struct.pack("<d", value)
        else:
            raise ValueError(f"saved {name!r}: {type(value).__name__}, needs an array, int, float or bytes")
        parts += [_ITEM.pack(len(encoded), code), encoded, struct.pack("<Q", len(body)), body]
    return b"".join(parts)


def unpack(data: bytes) -> Saved:
    """What `pack` was given (arrays writable). ValueError for bytes that it did not make."""
    try:
        (count,), at, saved = struct.unpack_from("<I", data), 4, {}
        for _ in range(count):
            length, code = _ITEM.unpack_from(data, at)
            at += _ITEM.size
            name = data[at : at + length].decode()
            (size,) = struct.unpack_from("<Q", data, at + length)
            at += length + 8 + size
            if at > len(data):
                raise ValueError("it ends inside an item")
            saved[name] = _unpack_item(code, data[at - size : at])
        if at != len(data):
            raise ValueError("something follows its last item")
    except (struct.error, UnicodeDecodeError, KeyError, IndexError, ValueError) as error:
        raise ValueError(f"not a saved state: {error}") from None
    return saved


def _unpack_item(code: bytes, body: bytes) -> NDArray[Any] | int | float | bytes:
    kind = _TYPES[code]
    if kind is np.ndarray:
        index, ndim = body[0], body[1]
        shape = struct.unpack_from(f"<{ndim}Q", body, 2)
        return np.frombuffer(body, _DTYPES[index], offset=2 + 8 * ndim).reshape(shape).copy()
    if kind is float:
        return float(struct.unpack("<d", body)[0])
    return int(body) if kind is int else body
