"""Names columns that teach nothing, or in which few cells decide, and refuses names of data.ignore that no client's file has.

Clients name theirs in a job that is not private, in the run and in `check`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..algorithms.exchanges import column_notes
from ..data.degenerate import Degenerate
from ..errors import JobError
from ..finding import Finding
from ..kernels.families import FAMILIES
from .run import At
from .stage import Stage


def exchange_notes(at: At[Any], degenerate: Mapping[int, Degenerate], *, split: bool = False, told: bool = True) -> list[Finding]:
    """Returns findings that all clients' columns share (or, `split`, those of each client), at the server; nothing elsewhere.

    Parameters and errors are those of `exchange`.
    """
    server = exchange(at, degenerate, split=split, told=told)
    return [] if server is None else findings(at, server)


def exchange(
    at: At[Any], degenerate: Mapping[int, Degenerate], *, split: bool = False, told: bool = True
) -> column_notes.Server | None:
    """Exchanges what clients say of their columns; returns the server's place, and None elsewhere.

    A column whose constants the job file gives is taken as right: of its far cells nothing is told. `told`: columns are centred
    by what all clients have told, as they are in a run and not in `check`. Raises JobError: no file has a column that data.ignore
    names.
    """
    ignored = at.config.data.ignore if at.config.privacy is None else []
    clients = {}
    for k, columns in degenerate.items():
        lacking = column_notes.near_names(ignored, at.parties.header(k)[1]) if ignored else {}
        # A value that is not the mean of all rows is one of several: the sites differ, and that tells the column's effect.
        differ = _not_given(at, columns.apart) if told and at.config.data.standardise == "exchange" else ()
        constant = tuple(name for name in columns.constant if name not in differ)
        zeros = {name: columns.zeros[name] for name in _not_given(at, tuple(columns.zeros))}
        if at.config.secure:
            zeros = column_notes.in_tenths(zeros)
        mended = replace(columns, constant=constant, far=_not_given(at, columns.far), lacking=lacking, zeros=zeros)
        if at.is_small(k):  # which columns have one value says which levels its rows have
            mended = replace(mended, constant=(), coarse=(), collinear={}, judged=(False, False))
        clients[k] = column_notes.Client(mended)
    graph = getattr(at.config.model, "kind", "") in ("mrf", "sem")
    server, _ = at.exchange(Stage.of(column_notes), lambda: column_notes.start(at.names, split, graph), clients)
    if server is not None:
        _check_ignored(at, server.misspelt)
    return server


def findings(at: At[Any], server: column_notes.Server) -> list[Finding]:
    """Returns the findings of an exchange."""
    missing, common = server.zeros(at.sizes)
    far = {name: where for name, where in missing.items() if name not in server.far} | server.far
    spec = at.parties.spec_of(tuple(far))
    measured = FAMILIES[spec.family].measured
    of_response = ("student-family" if at.config.job.method == "likelihood" else "sparse-student") if measured else "logarithms"
    response = spec.response or at.config.data.response  # of areas the agreement is about covariates alone
    coded = {getattr(at.config.data, "time", None): "times"}
    if FAMILIES[spec.family].counted:
        coded[response] = "counts"
    found = server.found
    alike = [client for client, answer in zip(server.clients, server.told) if response in answer.constant]
    if alike and len(alike) < len(server.clients):
        found.append(Finding.of("no-event-or-only-events-at", clients=alike, column=response))
    found += [Finding.of("column-of-zeros", column=name, clients=where) for name, where in common.items() if name not in far]
    for name, where in far.items():
        if name in coded:
            found.append(Finding.of("column-of-codes", column=name, what=coded[name], clients=where))
        else:
            remedy = of_response if name == response else "declare-column"
            found.append(Finding.of("column-with-far-cells", column=name, clients=where, owner=name, remedies=[remedy]))
    return found


def _check_ignored(at: At[Any], misspelt: Mapping[str, Mapping[str, str]]) -> None:
    """Refuses names of data.ignore that no client's file has, unless the server's own has them."""
    server_file = at.parties.server() if misspelt else None
    for name, near in misspelt.items():
        if server_file is None or name not in server_file.names:
            meant = " or ".join(f"{column!r} (at {where})" for column, where in near.items())
            remedy = f"did you mean {meant}? It is not left out now" if near else "correct the name, or take it out"
            raise JobError(f"data.ignore names {name!r}, and no client's file has such a column; {remedy}")


def _not_given(at: At[Any], names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns those of the columns whose constants the job file does not give."""
    known = at.parties.spec_of(names).columns if names else {}
    return tuple(name for name in names if name not in known or known[name].center is None)
