"""What passes between the parties of a run, and whether `fedkern check` said so before."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from fedkern.algorithms.core.messages import KINDS
from fedkern.algorithms.core.tells import Tells
from fedkern.api import check_job, perform
from fedkern.jobs.run import Output
from fedkern.jobs.wire import ALSO
from fedkern.methods import load, load_method
from fedkern.results.result import Result
from fedkern.transports.codec import HEADER, Frame
from fedkern.transports.driver import Keep, Kept, Received, ServerSide
from fedkern.transports.inprocess import InProcess

Sizes = dict[tuple[str, str], set[int]]  # (way, kind of message) -> bytes
Totals = Mapping[tuple[str, int], Sequence[float]]  # (way, client) -> messages, bytes
WITHOUT_CONTENT = (Received, Keep, Kept)


class Wire:
    """Inside `with`, every frame of a run in this process is counted by its way and kind, and by its way and client."""

    def __init__(self) -> None:
        self.totals: dict[tuple[str, int], list[int]] = {}

    def __enter__(self) -> Sizes:
        sizes: Sizes = {}
        self._ask, self._arrive = ask, arrive = ServerSide._ask, ServerSide.arrive

        def note(way: str, frame: Frame) -> None:
            _, _, number, client, *_ = HEADER.unpack_from(frame)
            sizes.setdefault((way, KINDS[number].__name__), set()).add(len(frame))
            names = [field.name for field in fields(KINDS[number])]
            further = "part" in names and frame[HEADER.size + 8 * names.index("part")] > 0  # of a text of several pieces
            if KINDS[number] not in WITHOUT_CONTENT and not further:
                total = self.totals.setdefault((way, client), [0, 0])
                total[0] += 1
                total[1] += len(frame)

        def _ask(server: ServerSide, client: int, frame: Frame) -> tuple[int, Frame]:
            note("to_client", frame)
            return ask(server, client, frame)

        def _arrive(server: ServerSide, frame: Frame, here: Any) -> None:
            note("to_server", frame)
            arrive(server, frame, here)

        ServerSide._ask, ServerSide.arrive = _ask, _arrive  # type: ignore[method-assign]
        return sizes

    def __exit__(self, *error: object) -> None:
        ServerSide._ask, ServerSide.arrive = self._ask, self._arrive  # type: ignore[method-assign]


def listed(said: str) -> tuple[Sizes, set[tuple[str, str]]]:
    """What `fedkern check` lists: (way, message) -> bytes, and those messages that not every run has."""
    titles = {"each client may send": "to_server", "the server may send": "to_client", "each place with clients": "control"}
    sizes: Sizes = {}
    sometimes, way = set(), ""
    for line in said.splitlines():
        if not line.startswith(" "):
            way = next((w for title, w in titles.items() if line.startswith(title)), "")
        elif way and (match := re.fullmatch(r"  (\w+)(?: .*?)?  (\d[\d,]*|its \w+)( each)?(?:  +(\D+))?", line)):
            kind, size, _, when = match.groups()
            sizes.setdefault((way, kind), set()).update({int(size.replace(",", ""))} if size[0].isdigit() else set())
            if when:
                sometimes.add((way, kind))
    return sizes, sometimes


def ledgers(out: Path, names: str = "[!r]*") -> Sizes:
    """What the clients of a run have written down."""
    sizes: Sizes = {}
    for path in out.glob(f"ledger/{names}.jsonl"):
        for line in map(json.loads, path.read_text().splitlines()):
            sizes.setdefault(("to_server", line["kind"]), set()).add(line["bytes"])
    return sizes


def compare(said: str, sent: Sizes, wanted: tuple[str, ...] = ()) -> None:
    """Both ways: whatever was sent is listed with its size, and whatever is listed was sent, but for what not every run has."""
    sizes, sometimes = listed(said)
    ways = {way for way, _ in sent}
    missing = {what for what in sizes if what[0] in ways} - sent.keys()
    wrong = {what: (sent[what], sizes.get(what)) for what in sent if sent[what] != sizes.get(what)}
    assert not wrong, f"sent, and listed: {wrong}"
    assert missing <= sometimes, f"listed and not sent: {missing - sometimes}"
    assert set(wanted) <= {kind for _, kind in sent}, f"wanted {wanted}"


def checked_and_run(
    job: str | Path | Mapping[str, Any], out: Path, /, *, wanted: tuple[str, ...] = (), **sections: Mapping[str, Any]
) -> Result:
    """The result of a job in this process, whose wire and ledgers are compared with what `fedkern check` says of it.

    `wanted` : messages that not every run has, and that this one must have
    """
    config, folder = load(job, sections=sections)
    said = "\n".join(check_job(InProcess(), config, folder) or [])
    wire = Wire()
    with wire as sent:
        result = perform(InProcess(), config, folder, Output(out, quiet=True))
    assert result is not None
    assert ledgers(out) == {what: size for what, size in sent.items() if what[0] == "to_server"}, "a ledger and the wire differ"
    told = {
        kind.__name__: kind.tells or Tells() for kind in (*load_method(config.job.method).stages.MAY_SEND, *ALSO["to_server"])
    }
    assert {kind for way, kind in sent if way == "to_server"} <= told.keys(), "not in MAY_SEND"
    if config.private and config.unit != "case":  # of which all is computed of what is released
        assert all(told[kind].private for way, kind in sent if way == "to_server"), "what it is in a private job is not said"
    compare(said, sent, wanted)
    at_most(said, wire.totals)
    return result


def totals(said: str) -> dict[str, tuple[int, int]]:
    """What `fedkern check` says of the whole job: way -> messages and bytes of each client."""
    ways = {"sends": "to_server", "receives": "to_client"}
    found = re.findall(r"^  (sends|receives) +([\d,]+) +([\d,]+)", said, flags=re.MULTILINE)
    return {ways[way]: (int(messages.replace(",", "")), int(n_bytes.replace(",", ""))) for way, messages, n_bytes in found}


def at_most(said: str, sent: Totals) -> None:
    """No client sends or receives more than was said; where chance decides whom a round asks, the mean of them doesn't."""
    most = totals(said)
    assert most.keys() == {"to_server", "to_client"}
    if "whole job, on average" in said:
        ways = {way: [count for (w, _), count in sent.items() if w == way] for way in most}
        sent = {(way, -1): [sum(numbers) / len(counts) for numbers in zip(*counts)] for way, counts in ways.items()}
    more = {what: (count, most[what[0]]) for what, count in sent.items() if any(a > b for a, b in zip(count, most[what[0]]))}
    assert not more, f"sent, and said: {more}"


# Messages that clients of a job with secure sums send of themselves alone: names of columns and levels, notes on columns, which
# prior they hold, keys, receipts, and what they heard.
OF_ONE = {"SchemaReply", "ColumnNotes", "Holds", "SumKey", "SumCommitment", "SumSignature", "Received", "Kept", "VerdictHeard"}


def of_one_client(out: Path) -> set[str]:
    """The kinds of messages that clients of a run have sent, which are neither masked nor of `OF_ONE`."""
    kinds = {kind for _, kind in ledgers(out)}
    assert kinds, "no ledger"
    return {kind for kind in kinds - OF_ONE if not kind.startswith("Masked")}
