"""Carries a job over Flower: the server's part is a ServerApp, and a ClientApp hands requests to each site's resident.

Each request is one message of bytes, and so is its reply. Flower knows which SuperNode is which and encrypts. A SuperNode is a
site of the job by the name with which the coordinator registered its key; if it was registered without one, by the name that
it tells. No message chooses a path: the server's folder is `FEDKERN_FOLDER` of its environment.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..errors import JobError
from ..printing import printable
from ..transports.ending import Say
from ..transports.relay import Lost
from .engines import check_engine, replayed_folder, run_folder, servers_copy
from .flower_app import plain_name
from .saying import say
from .server import run_hub

FIELD, LETTER, SITE, FAULT = "fedkern", "letter", "site", "fault"  # as flower_client.py has them
FOLDER = "FEDKERN_FOLDER"  # of the server's environment: its folder, with its copy of the job and the runs
ENDED_WELL = (0, 4)
VALID = 600.0  # seconds after which the SuperLink forgets a message
GRACE = 60.0  # seconds that sites get to hear how a job has ended: their SuperNodes look every few seconds
QUESTION, NAME = "query", "query.name"  # what messages are for: client_app.py answers both


def compose(node: int, kind: str, record: dict[str, bytes]) -> Any:
    """Returns a message of the engine."""
    from flwr.app import ConfigRecord, Message, RecordDict

    return Message(RecordDict({FIELD: ConfigRecord(record)}), dst_node_id=node, message_type=kind, ttl=VALID)


class FlowerWire:
    """Carries requests to SuperNodes as messages of a Grid.

    Parameters
    ----------
    grid : of the ServerApp
    say : is given each line for the coordinator
    pause : seconds between two looks for replies
    away : seconds after which a SuperNode that has left the SuperLink is lost
    compose : makes the engine's message of a node, a type and a record
    """

    every = 60.0  # seconds before a site that waits is asked for a sign of life: each request starts a process there

    def __init__(
        self, grid: Any, say: Say = say, pause: float = 0.5, away: float = 60.0, compose: Callable[..., Any] = compose
    ) -> None:
        self.grid, self.say, self.pause, self.away, self.compose = grid, say, pause, away, compose
        self._names: dict[int, str] = {}  # of nodes; empty until one has told its own
        self._nodes: dict[str, int] = {}
        self._early: dict[str, bytes] = {}  # requests to sites whose node is not known yet
        self._asked: dict[str, int] = {}  # messages without a reply, and their nodes
        self._latest: dict[int, str] = {}  # question to each node
        self._absent: dict[int, float] = {}  # since when
        self._said: set[tuple[str, str]] = set()
        self._came: deque[tuple[str, bytes] | Lost] = deque()
        self._looked = self._counted = -10.0

    def send(self, site: str, data: bytes) -> None:
        """Starts a request to a site, and does not wait."""
        if site in self._nodes:
            self._push(self._nodes[site], QUESTION, {LETTER: data})
        else:
            self._early[site] = data

    def receive(self, seconds: float) -> tuple[str, bytes] | Lost | None:
        """Returns the next reply of any site, or the loss of one; None if nothing has come within these seconds."""
        until = time.monotonic() + seconds
        while not self._came:
            if (now := time.monotonic()) >= self._looked + self.pause:
                self._looked = now
                self._look(now)
            elif now >= until:
                return None
            else:
                time.sleep(max(0.0, min(until, self._looked + self.pause) - now))
        return self._came.popleft()

    def _push(self, node: int, kind: str, record: dict[str, bytes]) -> None:
        for number in filter(None, self.grid.push_messages([self.compose(node, kind, record)])):
            self._asked[number] = node
            if kind == QUESTION:
                self._latest[node] = number

    def _look(self, now: float) -> None:
        """Takes the replies that have come, and now and then asks which SuperNodes there are."""
        if now > self._counted + 2.0:
            self._counted = now
            self._count(now, self.grid.get_nodes())
        if not self._asked:
            return
        came = self.grid.pull_messages(list(self._asked))
        replies = [(self._asked.pop(reply.metadata.reply_to_message_id, None), reply) for reply in came]
        owing = {node for node, number in self._latest.items() if number in self._asked}
        for node, reply in replies:
            if node is not None:
                self._read(node, reply)
        # A SuperNode that took a message while its run was ending sends each later reply with the message after it (Flower 1.42).
        for node in owing & {node for node, _ in replies}:
            self._push(node, NAME, {})

    def _read(self, node: int, reply: Any) -> None:
        name = self._names.get(node) or f"SuperNode {node}"
        if reply.has_error():  # the hub asks again; what was wrong is said once
            self._complain(name, f"Flower says: {reply.error.reason}")
            return
        record = reply.content.get(FIELD, {})
        if isinstance(name_told := record.get(SITE), str):
            if not self._names.get(node):
                self._name(node, name_told)
        elif isinstance(data := record.get(LETTER), bytes):
            self._came += [(name, data)] if data else []  # a resident has no words for a request that is an old one or none
        else:
            self._complain(name, str(record.get(FAULT, "a reply that is none")))

    def _complain(self, name: str, text: str) -> None:
        if (name, text) not in self._said:
            self._said.add((name, text))
            self.say(printable(f"site {name!r}: {text[:500]}"))

    def _count(self, now: float, nodes: Iterable[Any]) -> None:
        """Names the SuperNodes that have come, and loses those that have been away too long."""
        here = {node.node_id: node.name for node in nodes}
        for node in sorted(here.keys() - self._names.keys()):
            self._names[node] = ""
            if here[node]:
                self._name(node, here[node])
            else:
                self._push(node, NAME, {})
        self._absent = {node: self._absent.get(node, now) for node in self._names.keys() - here.keys()}
        for node in [node for node, since in self._absent.items() if now > since + self.away]:
            if name := self._names.pop(node):  # a stranger may come again, a site is lost for good
                self._came.append(Lost(name, "its SuperNode has left the SuperLink"))

    def _name(self, node: int, name: str) -> None:
        """Fixes the name of a SuperNode. Raises JobError: another SuperNode has that name."""
        if not name:
            self._complain(f"SuperNode {node}", "its --node-config names no site")
            return
        if self._nodes.setdefault(name, node) != node:
            raise JobError(f"two SuperNodes say that they are site {name!r}: {self._nodes[name]} and {node}; unregister one")
        self._names[node] = name
        if name in self._early:
            self.send(name, self._early.pop(name))


def serve(grid: Any, run_config: dict[str, Any], brought: Path) -> None:
    """Runs the server's part of a job in the ServerApp's process. Raises JobError: no copy of the job has that digest, it is not
    clear which is meant, or the engine is of a version that was not tried. Raises RuntimeError: the job has ended with a code
    other than 0 and 4, so that the engine's run has failed.

    Parameters
    ----------
    grid : of the ServerApp
    run_config : with `job`, its name; `digest`, of the job for which the app was written; `resume`; `replay`
    brought : the job file in the app
    """
    check_engine("flower", version("flwr"))
    name, folder, resume = str(run_config["job"]), Path(os.environ.get(FOLDER, ".")), bool(run_config["resume"])
    job = servers_copy(folder, brought, str(run_config["digest"]), name)
    out = run_folder(folder / "runs", plain_name(name), resume=resume)
    replays = replayed_folder(folder / "runs", plain_name(name)) if run_config["replay"] else None
    code = run_hub(job, FlowerWire(grid), out, resume=resume, replays=replays, quiet=True, again=60.0, grace=GRACE)
    if code not in ENDED_WELL:
        raise RuntimeError(f"fedkern ended with code {code}")
