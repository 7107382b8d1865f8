"""Says in which steps kinds of rows differ. A job's `run` is a page of these; `kinds` has those of each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from ...algorithms.hmc import machine as hmc
from ...algorithms.importance import machine as importance
from ...data.design import Design
from ...data.table import Table
from ...jobs.publish import Fit
from ...jobs.run import Run
from .keys import Config
from .publish import Checked, Ended

Tables = dict[int, Table]
Machine = importance.Client | hmc.Client


class Read(NamedTuple):
    """Holds the rows of the clients that live at one place, ready for the rounds.

    Attributes
    ----------
    model : with all that was exchanged about the response
    rows, likelihoods : of each client: as `Steps.complete` takes them, and as its machine does
    test : the server's test rows; None elsewhere, and where the job has none
    content : entries of summary.json
    """

    model: Any  # of the kind, as all that is Any here: only the steps of one kind look into it
    rows: Mapping[int, Any]
    likelihoods: Mapping[int, Any]
    test: Design | None
    content: Mapping[str, Any]


class Opening(Protocol):
    """Holds what the parties have agreed on, and reads rows by it."""

    @property
    def model(self) -> Any:
        """The job's model, the same at every place."""

    def read_rows(self, run: Run[Config], tables: Tables) -> Read:
        """Reads the clients' rows, and exchanges what the model must know of them; empties `tables`."""


class Steps(NamedTuple):
    """Holds the steps of one kind of rows.

    Attributes
    ----------
    agree : lets the parties come to one model, before their rows are read
    complete : run, model, index of a client, its rows, its likelihood, its machine's last state -> all that it has at the end;
        writes files into the client's own folder
    exchange_checks : run, model, these of each client that lives here -> what sums over clients' rows say of the model, at the
        server's place
    make_fit : model, what the server has after the last round, its test rows -> the result
    """

    agree: Callable[[Run[Config], Tables], Opening]
    complete: Callable[[Run[Config], Any, int, Any, Any, Any], Any]
    exchange_checks: Callable[[Run[Config], Any, Mapping[int, Any]], Checked]
    make_fit: Callable[[Any, Ended, Design | None], Fit]
