"""Ends a job of ranks: all leave with one exit code, and one message is printed.

A rank that fails sends FAULT (code, text) to rank 0 and waits; rank 0 prints the text and tells all ranks to EXIT with the code;
they say BYE and finalise MPI in order, so that `mpirun` returns the code. If a rank is dead or does not react in time, rank 0
aborts the job with that code; if rank 0 does not react, the lowest living rank does.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress

from ..errors import HolderError, JobError, LostPeer
from ..printing import without_folders
from . import parent, tags
from .driver import Ended, Hooks, exit_code
from .link import CONTROL, Link
from .place import Place
from .ranks import CODE, Ranks, read_code, read_fault

Say = Callable[[str], None]


def outcome(main: Callable[[Place], int], ranks: Ranks, say: Say) -> tuple[int, str | None]:
    """Returns the exit code of `main`, and the message of a failed job."""
    try:
        try:
            return main(ranks), None
        finally:
            ranks.signals.hold()
    except Ended as fault:
        return fault.exit_code, fault.text
    except BaseException as cause:
        # The signal counts, not the exception that other code has made of it.
        error = ranks.signals.stopped or cause
        text = without_folders((ranks.hooks or Hooks()).public(error))
        text = text if ranks.is_server else _named(ranks, text)
        # A holder's error may quote rows: its whole text is printed on its own rank, and others get the public one.
        if isinstance(error, HolderError):
            say(str(error))
            text = "" if ranks.is_server else text
        return exit_code(error), text


def end(ranks: Ranks, code: int, text: str | None, say: Say) -> int:
    """Brings all ranks to one end and returns the exit code.

    `text` is None after a good end, and empty if it has been printed elsewhere.
    """
    try:
        end_of_rank = _end_server if ranks.is_server else _end_client
        code, orderly = end_of_rank(ranks, code, text, say)
        ranks.link.drain()
    except Exception as error:  # the wire itself is broken
        say(text or _named(ranks, str(error)))
        code, orderly = code or 1, False
    if not (orderly and ranks.link.flush(ranks.timeouts.grace)):
        leave(ranks.link, code)
    return code


def leave(link: Link, code: int) -> None:
    """Ends all ranks at once."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    if link.rank == 0:
        parent.tell(parent.ENDED + str(code).encode())
    parent.leave(code)
    link.abort(code)


def _end_server(ranks: Ranks, code: int, text: str | None, say: Say) -> tuple[int, bool]:
    """Ends the job at rank 0; returns the exit code and whether every rank has left in order."""
    link, failing, announced = ranks.link, text is not None, False
    if text:
        say(text)
    waiting, since = set(ranks.others()) - ranks.idle, time.monotonic()  # who only listens waits for us
    while waiting or not announced:
        if not announced and (failing or not waiting):
            for rank in ranks.others():
                link.send(rank, tags.EXIT, CODE.pack(code))
            announced, since, waiting = True, time.monotonic(), waiting | (ranks.idle & {*ranks.others()})
            continue
        patience = ranks.timeouts.grace if failing else ranks.timeouts.lost
        if time.monotonic() - since > patience:
            break
        if bye := link.receive(0, tags.BYE):
            waiting.discard(bye[0])
        elif not (fault := link.receive(0, tags.FAULT)):
            link.patience.pause()
        elif not failing:
            failing, (code, text) = True, read_fault(fault[2])
            say(text)
        waiting -= link.gone
    for rank in waiting | link.gone:
        how = "has died" if rank in link.gone else "did not end"
        ranks.dead.setdefault(rank, how)
    if ranks.dead and not code:
        say(f"finished without {', '.join(f'{ranks.who(rank)}, which {how}' for rank, how in sorted(ranks.dead.items()))}")
    code_of_dead = 4 if ranks.dead else 0
    return code or code_of_dead, not ranks.dead


def _named(ranks: Ranks, text: str) -> str:
    """Returns a text that begins with the name of this rank, once: over a relay an error may name its client already."""
    name = f"{ranks.label(ranks.rank)}: "
    return text if text.startswith(name) else name + text


def _tell_fault(ranks: Ranks, code: int, text: str, say: Say) -> None:
    """Tells the server of a fault. Where the ledger takes no line of it, as on a full disk, the server reads that alone."""
    try:
        ranks.tell("fault", tags.FAULT, _fault(code, text))
    except JobError as error:
        if text:
            say(text)
        ranks.send_control("fault", tags.FAULT, _fault(error.exit_code, _named(ranks, without_folders(str(error)))))


def _fault(code: int, text: str) -> bytes:
    """Returns the content of a FAULT message; see `read_fault`."""
    return CODE.pack(code) + text.encode()[: CONTROL - CODE.size]


def _end_client(ranks: Ranks, code: int, text: str | None, say: Say) -> tuple[int, bool]:
    """Ends the job at a client rank; returns the exit code and whether rank 0 has said how all leave."""
    link = ranks.link
    if ranks.exit is None:
        if text is None:
            ranks.send_control("bye", tags.BYE)
        else:
            _tell_fault(ranks, code, text, say)
        link.patience.reset()
        while ranks.exit is None and 0 not in link.gone | ranks.dead.keys() and link.patience.waited < ranks.timeouts.lost:
            item = link.receive(0, tags.EXIT)
            if item:
                ranks.exit = read_code(item[2])
            else:
                link.patience.pause()
    if ranks.exit is None:
        # All ranks may have found rank 0 dead at once: one of them speaks, and ends the others.
        time.sleep(0.2 * (ranks.rank - 1))
        say(text or f"{ranks.label(ranks.rank)}: {ranks.who(0)} is gone")
        return code or LostPeer.exit_code, False
    if text is not None:
        ranks.send_control("bye", tags.BYE)
    return ranks.exit, True
