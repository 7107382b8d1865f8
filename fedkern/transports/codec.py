"""Message <-> bytes: a fixed header and raw little-endian values. No pickle; nothing is allocated before it is checked.

A frame is 32 bytes of header, then the fields of the message in their declared order, each 8 bytes or a multiple of them: an int
or a float; an array's values in C order; the length of a bytes field and its content, filled with zeros to the longest that the job
allows. So the length of a frame is a function of the job's public configuration alone, never of the data.
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

HEADER = struct.Struct("<4sHHIIQQ")  # magic, version, kind, client, flags, bytes that follow, checksum of all the rest
MAGIC, VERSION, LAST = b"fedk", 1, 1  # LAST: the client has nothing more to say to the question it was asked
UNSIGNED = HEADER.size - 8  # the header without its checksum

Kinds = tuple[type[Message], ...]
Frame = bytes | bytearray | memoryview


@dataclass(frozen=True)
class _Place:
    """Where a field lies in a frame."""

    name: str
    type: type
    shape: tuple[int, ...]
    start: int
    stop: int


class Codec:
    """The frames of one job: `dims` gives each symbol of the schemas its number, `n_clients` bounds the senders."""

    def __init__(self, dims: Mapping[str, int], n_clients: int) -> None:
        self.dims, self.n_clients = dict(dims), n_clients
        self._layouts: dict[type[Message], tuple[list[_Place], int]] = {}

    def layout(self, kind: type[Message]) -> tuple[list[_Place], int]:
        """The places of a kind's fields, and the length of its frame."""
        if kind not in self._layouts:
            places, at = [], HEADER.size
            for name, field in schema(kind).items():
                missing = [symbol for symbol in field.shape if symbol not in self.dims]
                if missing:
                    raise ValueError(f"{kind.__name__}.{name}: no dimension {missing[0]!r} among {sorted(self.dims)}")
                shape = tuple(self.dims[symbol] for symbol in field.shape)
                length = 8 + -(-shape[0] // 8) * 8 if field.type is bytes else 8 * math.prod(shape)
                places.append(_Place(name, field.type, shape, at, at + length))
                at += length
            self._layouts[kind] = places, at
        return self._layouts[kind]

    def longest(self, kinds: Kinds) -> int:
        """The longest frame of these kinds, in bytes."""
        return max((self.layout(kind)[1] for kind in kinds), default=HEADER.size)

    def encode(self, client: int, message: Message, last: bool = True) -> bytes:
        """The frame of a message to or from `client`; a ValueError if the message does not fit its own schema."""
        places, total = self.layout(type(message))
        parts: list[Any] = []
        for place in places:
            value = getattr(message, place.name)
            if place.type is np.ndarray:
                if value.shape != place.shape:
                    raise ValueError(f"{type(message).__name__}.{place.name}: shape {value.shape}, needs {place.shape}")
                parts.append(np.ascontiguousarray(value, "<f8"))
            elif place.type is bytes:
                if len(value) > place.shape[0]:
                    raise ValueError(f"{type(message).__name__}.{place.name}: {len(value)} bytes, at most {place.shape[0]}")
                parts.append(struct.pack("<q", len(value)) + value.ljust(place.stop - place.start - 8, b"\0"))
            else:
                parts.append(struct.pack("<q" if place.type is int else "<d", value))
        head = HEADER.pack(MAGIC, VERSION, message.kind, client, LAST * last, total - HEADER.size, 0)[:UNSIGNED]
        return b"".join([head, _checksum(head, parts), *parts])

    def decode(self, frame: Frame, expected: Kinds) -> tuple[int, Message]:
        """The client's number and the message, its arrays read-only views of the frame; or RemoteFault naming what is wrong."""
        size = len(frame)
        if size < HEADER.size:
            raise RemoteFault(f"a frame of {size} bytes is shorter than its header of {HEADER.size}")
        magic, version, kind, client, flags, length, checksum = HEADER.unpack_from(frame)
        if (magic, version) != (MAGIC, VERSION):
            raise RemoteFault(f"not a version {VERSION} fedkern frame")
        if client >= self.n_clients:
            raise RemoteFault(f"client {client}: the job has {self.n_clients} clients")
        message = KINDS.get(kind)
        name = message.__name__ if message else f"kind {kind}"
        if message is None or message not in expected:
            raise RemoteFault(f"client {client}: {name}, expected {' or '.join(m.__name__ for m in expected)}")
        places, total = self.layout(message)
        if not size == total == length + HEADER.size:
            raise RemoteFault(f"client {client}: {name} of {size} bytes that claims {length + HEADER.size}, needs {total}")
        view = memoryview(frame)
        if flags & ~LAST or _checksum(view[:UNSIGNED], [view[HEADER.size :]]) != view[UNSIGNED : HEADER.size]:
            raise RemoteFault(f"client {client}: {name} was altered on its way (checksum {checksum:#x} does not fit)")
        values: dict[str, Any] = {}
        for place in places:
            values[place.name] = value = _read(view, place)
            if place.type is bytes:
                continue
            if not (math.isfinite(value) if place.type is not np.ndarray else np.isfinite(value).all()):
                when = f" in round {values['round']}" if "round" in values else ""
                raise RemoteFault(f"client {client}: {name}.{place.name} is not finite{when}")
        return client, message(**values)


def is_last(frame: Frame) -> bool:
    """Whether a frame (one that was decoded without fault) ends the answer to a question."""
    return bool(HEADER.unpack_from(frame)[4] & LAST)


def _checksum(head: Any, parts: list[Any]) -> bytes:
    crc = zlib.crc32(head)
    for part in parts:
        crc = zlib.crc32(part, crc)
    return struct.pack("<Q", crc)


def _read(view: memoryview, place: _Place) -> Any:
    if place.type is np.ndarray:
        array = np.frombuffer(view, "<f8", math.prod(place.shape), place.start).reshape(place.shape)
        array.flags.writeable = False
        return array
    if place.type is not bytes:
        return struct.unpack_from("<q" if place.type is int else "<d", view, place.start)[0]
    (length,) = struct.unpack_from("<q", view, place.start)
    if not 0 <= length <= place.shape[0]:
        raise RemoteFault(f"{place.name} of {length} bytes, at most {place.shape[0]}")
    content = bytes(view[place.start + 8 : place.stop])
    if any(content[length:]):
        raise RemoteFault(f"{place.name}: something after its {length} bytes")
    return content[:length]


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
