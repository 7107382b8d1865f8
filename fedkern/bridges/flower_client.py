"""Hands each request to the site's resident over a Unix socket, and its reply back: the ClientApp of `fedkern bridge flower`.

Flower starts a process for every message, so nothing may be kept here. The file is copied into the app as it is, and needs no
fedkern: the environment of the SuperNode has the engine alone. The path of the socket is the site's word: the SuperNode's own
`--node-config`, or, in a simulation, which has none, the environment. Errors of this process leave as fixed sentences, for
Flower sends the text of an exception to the server.
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

FIELD, LETTER, SITE, FAULT = "fedkern", "letter", "site", "fault"
SOCKETS = "FEDKERN_SOCKETS"  # a folder of sockets NAME.sock, for a simulation of all sites on one machine
SECONDS = 60.0  # a resident that computes longer says so before
LENGTH = struct.Struct(">Q")  # as in fedkern/bridges/gate.py

app = ClientApp()


def own_socket(context: Context) -> Path | None:
    """Returns the path of the site's socket, as the site says it; None if it does not."""
    if (path := context.node_config.get("socket")) is not None:
        return Path(str(path))
    folder, number = os.environ.get(SOCKETS), context.node_config.get("partition-id")
    paths = sorted(Path(folder).glob("*.sock")) if folder else []
    return paths[int(number)] if number is not None and int(number) < len(paths) else None


def ask(path: Path, request: bytes) -> bytes:
    """Returns the reply of the resident behind a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(SECONDS)
        line.connect(str(path))
        line.sendall(LENGTH.pack(len(request)) + request)
        (length,) = LENGTH.unpack(_take(line, LENGTH.size))
        return _take(line, length)


def _take(line: socket.socket, length: int) -> bytes:
    parts, missing = [], length
    while missing:
        if not (part := line.recv(min(missing, 1 << 20))):
            raise ConnectionError
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


@app.query("name")
def tell_name(message: Message, context: Context) -> Message:
    """Tells the name of the site: `site` of --node-config, or the socket's."""
    path = own_socket(context)
    default = "" if path is None else path.stem
    name = context.node_config.get("site", default)
    return _reply(message, {SITE: str(name)})


@app.query()
def answer(message: Message, context: Context) -> Message:
    """Answers a request with the bytes of the resident."""
    path = own_socket(context)
    if path is None:
        return _reply(message, {FAULT: "its --node-config names no socket"})
    try:
        return _reply(message, {LETTER: ask(path, message.content[FIELD][LETTER])})
    except OSError:
        return _reply(message, {FAULT: "nobody answers at its socket"})
    except Exception:
        return _reply(message, {FAULT: "a request that is none"})


def _reply(message: Message, record: dict[str, str | bytes]) -> Message:
    return Message(RecordDict({FIELD: ConfigRecord(record)}), reply_to=message)
