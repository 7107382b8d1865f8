"""Turns messages into bytes and back: a fixed header and raw little-endian values, without pickle.

A frame is 32 bytes of header, then the fields of the message in their declared order, each 8 bytes or a multiple of them: an int
or a float; an array's values in C order; the length of a bytes field and its content, filled with zeros to the longest that the
job allows. So the length of a frame is a function of the job's public configuration alone, never of the data. Memory is taken
only after the sizes were checked.

The compiled half (`fedkern._core.wire`) makes and opens frames that are in order. For any other it answers None, and the
functions here find the fault and name it.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from .._core import wire
from ..algorithms.core.messages import KINDS, Message, RemoteFault, Saved, Value, schema

HEADER = struct.Struct("<4sHHIIQQ")  # magic, version, kind, client, flags, bytes that follow, checksum
MAGIC, VERSION, LAST = b"fedk", 1, 1  # LAST: the client has nothing more to say to the question it was asked
CODES = {int: "i", float: "f", np.ndarray: "a", bytes: "b"}

Kinds = tuple[type[Message], ...]
Frame = bytes | bytearray | memoryview  # a long one is a view of memory that goes to another frame when nobody has this one


@dataclass(frozen=True)
class _Layout:
    """Holds the position of each field of a message: (name, type, sizes, first byte, last + 1)."""

    fields: tuple[tuple[str, type, tuple[int, ...], int, int], ...]
    total: int  # bytes of a frame
    compiled: object


class Codec:
    """Encodes and decodes the frames of one job.

    Parameters
    ----------
    dims
        The number that each symbol of the schemas stands for.
    n_clients
        The number of clients; a frame of any other sender is refused.
    """

    def __init__(self, dims: Mapping[str, int], n_clients: int) -> None:
        self.dims, self.n_clients = dict(dims), n_clients
        self._layouts: dict[type[Message], _Layout] = {}

    def layout(self, kind: type[Message]) -> _Layout:
        """Returns the positions of the fields of a kind of message. Raises ValueError: a symbol of the schema has no number in
        `dims`."""
        if kind in self._layouts:
            return self._layouts[kind]
        fields, offset = [], HEADER.size
        for name, field in schema(kind).items():
            missing = [symbol for symbol in field.shape if symbol not in self.dims]
            if missing:
                raise ValueError(f"{kind.__name__}.{name}: no dimension {missing[0]!r} among {sorted(self.dims)}")
            sizes = tuple(self.dims[symbol] for symbol in field.shape)
            width = 8 + -(-sizes[0] // 8) * 8 if field.type is bytes else 8 * math.prod(sizes)
            stop = offset + width
            fields.append((name, field.type, sizes, offset, stop))
            offset = stop
        compiled = wire.layout(kind.kind, [(name, CODES[form], sizes) for name, form, sizes, *_ in fields])
        self._layouts[kind] = _Layout(tuple(fields), offset, compiled)
        return self._layouts[kind]

    def longest(self, kinds: Kinds) -> int:
        """Returns the length of the longest frame of these kinds, in bytes."""
        return max((self.layout(kind).total for kind in kinds), default=HEADER.size)

    def encode(self, client: int, message: Message, last: bool = True) -> Frame:
        """Returns the frame of a message to or from `client`; raises ValueError if the message does not fit its schema."""
        kind = type(message)
        layout = self._layouts.get(kind) or self.layout(kind)
        flag = LAST if last else 0
        frame: Frame | None = wire.encode(layout.compiled, client, flag, message.__dict__)
        return wire.encode(layout.compiled, client, flag, _fitted(message, layout)) if frame is None else frame

    def readdress(self, frame: Frame, client: int) -> Frame:
        """Returns a copy of a frame of this codec for another client."""
        copy: Frame = wire.readdress(frame, client)
        return copy

    def decode(self, frame: Frame, expected: Kinds) -> tuple[int, Message]:
        """Returns the client's number and the message, whose arrays are read-only views of the frame.

        Raises RemoteFault that names the fault.
        """
        kind = KINDS.get(frame[6] | frame[7] << 8) if len(frame) >= HEADER.size else None
        if kind is None or kind not in expected:
            raise self._fault(frame, expected)
        layout = self._layouts.get(kind) or self.layout(kind)
        opened = wire.decode(layout.compiled, frame, self.n_clients)
        if opened is None:
            raise self._fault(frame, expected)
        message = object.__new__(kind)  # no message does more in `__init__`
        object.__setattr__(message, "__dict__", opened[1])
        return opened[0], message

    def _fault(self, frame: Frame, expected: Kinds) -> RemoteFault:
        """Returns why a frame is refused."""
        if len(frame) < HEADER.size:
            return RemoteFault(f"a frame of {len(frame)} bytes is shorter than its header of {HEADER.size}")
        magic, version, number, client, flags, length, checksum = HEADER.unpack_from(frame)
        if magic != MAGIC or version != VERSION:
            return RemoteFault(f"not a version {VERSION} fedkern frame")
        if client >= self.n_clients:
            return RemoteFault(f"the job has {self.n_clients} clients", client)
        kind = KINDS.get(number)
        if kind is None or kind not in expected:
            name = kind.__name__ if kind else f"kind {number}"
            return RemoteFault(f"{name}, expected {' or '.join(k.__name__ for k in expected)}", client)
        layout, what = self.layout(kind), kind.__name__
        if len(frame) != layout.total or length != layout.total - HEADER.size:
            return RemoteFault(f"{what} of {len(frame)} bytes, said {length + HEADER.size}, needs {layout.total}", client)
        if flags > LAST or checksum != wire.checksum(frame):
            return RemoteFault(f"{what} was altered on its way", client)
        when = ""
        for name, form, sizes, start, stop in layout.fields:
            if form in (float, np.ndarray) and not np.isfinite(np.frombuffer(frame[start:stop], "<f8")).all():
                return RemoteFault(f"{what}.{name} is not finite{when}", client)
            (number,) = struct.unpack_from("<q", frame, start) if stop > start else (0,)
            if form is bytes and not 0 <= number <= sizes[0]:
                return RemoteFault(f"{what}.{name} of {number} bytes, at most {sizes[0]}", client)
            if form is bytes and any(frame[start + 8 + number : stop]):
                return RemoteFault(f"{what}.{name}: something follows its {number} bytes", client)
            # A later field's fault can then name the round, which has been read by now.
            when = f" in round {number}" if name == "round" else when
        return RemoteFault(f"{what} was refused", client)


def is_last(frame: Frame) -> bool:
    """Tells whether a frame, which was decoded without fault, ends the answer to a question."""
    return bool(frame[12] & LAST)


def _fitted(message: Message, layout: _Layout) -> Saved:
    """Returns the values of a message in the types of the wire; raises ValueError that names a value that does not fit."""
    values: Saved = {}
    for name, form, sizes, *_ in layout.fields:
        value, what = getattr(message, name), f"{type(message).__name__}.{name}"
        if form is np.ndarray:
            value = np.asarray(value, np.float64, order="C")
            if value.shape != sizes:
                raise ValueError(f"{what}: shape {value.shape}, needs {sizes}")
        elif form is bytes:
            value = bytes(value)
            if len(value) > sizes[0]:
                raise ValueError(f"{what}: {len(value)} bytes, at most {sizes[0]}")
        else:
            value = form(value)
            if form is int and not -(2**63) <= value < 2**63:
                raise ValueError(f"{what}: {value} does not fit into 64 bits")
        values[name] = value
    return values


# The content of a checkpoint: name -> array, int, float or bytes.
_TYPES: dict[bytes, type] = {b"i": int, b"f": float, b"b": bytes, b"a": np.ndarray}
_DTYPES = ("<f8", "<i8", "<u8", "<u4", "|u1", "|b1", "<f4")
_ITEM = struct.Struct("<H1s")


def pack(saved: Mapping[str, Value]) -> bytes:
    """Returns the bytes of a saved state. The same content gives the same bytes, whatever the order of its names."""
    parts = [struct.pack("<I", len(saved))]
    for name in sorted(saved):
        value, encoded = saved[name], name.encode()
        if isinstance(value, np.ndarray):
            # Little-endian and in C order, so that the bytes do not depend on the machine or on the array's layout.
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


def state_layout(state: Any, saved: Mapping[str, Value]) -> bytes:
    """Returns the BLAKE2b-128 digest of a state's layout.

    The layout is the fields that its class declares, with their types (also of fields that are None yet), and the names, types
    and shapes of the saved values.
    """
    parts: list[tuple[object, ...]] = [(field.name, str(field.type)) for field in fields(state)]
    for name in sorted(saved):
        value = saved[name]
        if isinstance(value, np.ndarray):
            parts.append((name, value.dtype.newbyteorder("<").str, value.shape))
        elif isinstance(value, bytes):
            parts.append((name, "bytes", ()))
        elif isinstance(value, (int, np.integer)):
            parts.append((name, "int", ()))
        else:
            parts.append((name, "float", ()))
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16, person=b"fedkern layout").digest()


def unpack(data: bytes) -> Saved:
    """Returns the saved state that `pack` was given, with writable arrays.

    Raises ValueError for bytes that `pack` did not make.
    """
    try:
        (count,), offset, saved = struct.unpack_from("<I", data), 4, {}
        for _ in range(count):
            length, code = _ITEM.unpack_from(data, offset)
            offset += _ITEM.size
            name = data[offset : offset + length].decode()
            (size,) = struct.unpack_from("<Q", data, offset + length)
            offset += length + 8 + size
            if offset > len(data):
                raise ValueError("it ends inside an item")
            saved[name] = _unpack_item(code, data[offset - size : offset])
        if offset != len(data):
            raise ValueError("something follows its last item")
    except (struct.error, UnicodeDecodeError, KeyError, IndexError, ValueError) as error:
        raise ValueError(f"not a saved state: {error}") from None
    return saved


def _unpack_item(code: bytes, body: bytes) -> Value:
    """Returns one saved value from its bytes."""
    kind = _TYPES[code]
    if kind is np.ndarray:
        index, ndim = body[0], body[1]
        shape = struct.unpack_from(f"<{ndim}Q", body, 2)
        return np.frombuffer(body, _DTYPES[index], offset=2 + 8 * ndim).reshape(shape).copy()
    if kind is float:
        return float(struct.unpack("<d", body)[0])
    return int(body) if kind is int else body
