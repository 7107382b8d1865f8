"""Names columns that teach nothing, or in which few cells decide, and refuses names of data.ignore that no client's file has.

Clients name theirs in a job that is not private, in the run and in `check`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..algorithms.exchanges import column_notes, column_zeros
from ..data.degenerate import Degenerate
from ..errors import JobError
from ..kernels.families import FAMILIES
from .run import At
from .stage import Stage


@dataclass(frozen=True)
class Said:
    """Holds the lines for a reader, and the reasons why no result of these files can stand; at the server.

    `follows`: columns that follow from others at all clients, with lines.
    """

    others: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    follows: Mapping[str, str] = field(default_factory=dict)

    @property
    def notes(self) -> list[str]:
        """All lines for a reader, where nothing is known of the rows together."""
        return [*self.follows.values(), *self.others]


def exchange_notes(at: At[Any], degenerate: Mapping[int, Degenerate], *, split: bool = False, told: bool = True) -> Said:
    """Returns the notes that all clients' columns share (or, `split`, those of each client), at the server; nothing elsewhere.

    A column whose constants the job file gives is taken as right: of its far cells nothing is told. `told`: columns are centred
    by what all clients have told, as they are in a run and not in `check`.

    Raises
    ------
    JobError
        No file has a column that data.ignore names.
    """
    ignored = at.config.data.ignore if at.config.privacy is None else []
    clients = {}
    for k, own in degenerate.items():
        lacking = column_notes.near_names(ignored, at.parties.header(k)[1]) if ignored else {}
        # A value that is not the mean of all rows is one of several: the sites differ, and that tells the column's effect.
        differ = _not_given(at, own.apart) if told and at.config.data.standardise == "exchange" else ()
        constant = tuple(name for name in own.constant if name not in differ)
        zeros = {name: own.zeros[name] for name in _not_given(at, tuple(own.zeros))}
        if at.config.secure:
            zeros = column_zeros.in_tenths(zeros)
        mended = replace(own, constant=constant, far=_not_given(at, own.far), lacking=lacking, zeros=zeros)
        clients[k] = column_notes.Client(mended)
    graph = getattr(at.config.model, "kind", "") in ("mrf", "sem")
    server, _ = at.exchange(Stage.of(column_notes), lambda: column_notes.start(at.names, split, graph), clients)
    if server is None:
        return Said()
    _check_ignored(at, server.misspelt)
    missing, common = server.zeros(at.sizes)
    far = {name: where for name, where in missing.items() if name not in server.far} | server.far
    spec = at.parties.spec_of(tuple(far))
    right = POSITIVE if not FAMILIES[spec.family].measured else LIKELIHOOD if at.config.job.method == "likelihood" else RESPONSE
    response = spec.response or at.config.data.response  # of areas the agreement is about covariates alone
    coded = {getattr(at.config.data, "time", None): "times"}
    if FAMILIES[spec.family].counted:
        coded[response] = "counts"
    doubts = [
        CODED.format(name, coded[name], where)
        if name in coded
        else FAR.format(name, where, right if name == response else COLUMN)
        for name, where in far.items()
    ]
    others = [*server.notes, *(ZEROS.format(*one) for one in common.items() if one[0] not in far)]
    return Said(others, doubts, server.follows)


def _check_ignored(at: At[Any], misspelt: Mapping[str, Mapping[str, str]]) -> None:
    """Refuses names of data.ignore that no client's file has, unless the server's own has them."""
    own = at.parties.server() if misspelt else None
    for name, near in misspelt.items():
        if own is None or name not in own.names:
            meant = " or ".join(f"{column!r} (at {where})" for column, where in near.items())
            remedy = f"did you mean {meant}? It is not left out now" if near else "correct the name, or take it out"
            raise JobError(f"data.ignore names {name!r}, and no client's file has such a column; {remedy}")


def _not_given(at: At[Any], names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns those of the columns whose constants the job file does not give."""
    known = at.parties.spec_of(names).columns if names else {}
    return tuple(name for name in names if name not in known or known[name].center is None)


FAR = (
    "column {!r} has a cell, or several with one value, far from all others at {}: see rows.json there; a wrong cell, or a code "
    "for a missing value, changes the result by itself: mend it, make it empty (model.missing says what becomes of the row), or "
    "leave its row out; where it is right, {}"
)
ZEROS = (
    "column {!r} has zeros far from all its other cells at {}, and no other client shows that they are none: where they are "
    "measured (a dose that was not given), nothing is to be done; where they stand for a missing value, make these cells empty, "
    "and say what becomes of the rows (model.missing)"
)
CODED = (
    "column {!r} has {} that look like a code for a missing value (99, 999) at {}: see rows.json there; they change the "
    "result by themselves: leave their rows out (on a map make the cells empty, and the areas are predicted); where they are "
    "right, no family here gives such a row less weight: say what the result is without it"
)
COLUMN = "give center and scale of the column in [data.columns], and nothing more is said"
LIKELIHOOD = 'errors are not normal: model.family = "student" gives such a row next to no weight'
POSITIVE = 'take logarithms of the response in all files, with model.family = "student"'
RESPONSE = 'errors are not normal: job.method = "sparse" with model.errors = "student" gives such a row next to no weight'
