"""Defines the steps in which kinds of rows differ. A job's `run` is a page of them; `kinds` lists those of each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from ...algorithms.hmc import machine as hmc
from ...algorithms.importance import machine as importance
from ...data.design import Design
from ...data.table import Table
from ...finding import Finding
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
    structured : of clients with a structure of their own, the likelihood with it, as its machine takes it
    follows : columns that follow from others at all clients, with findings
    earlier : the run that the job extends
    """

    model: Any  # of the kind, as all that is Any here: only the steps of one kind look into it
    rows: Mapping[int, Any]
    likelihoods: Mapping[int, Any]
    test: Design | None
    content: Mapping[str, Any]
    follows: Mapping[str, Finding] = MappingProxyType({})
    structured: Mapping[int, Any] = MappingProxyType({})
    earlier: Any = None


class Opening(Protocol):
    """Holds the model that the parties have agreed on, and reads rows by it."""

    @property
    def model(self) -> Any:
        """The job's model, the same at every place."""

    def read_rows(self, run: Run[Config], tables: Tables) -> Read:
        """Reads the clients' rows, and exchanges the facts that the model needs of all of them; empties `tables`."""


class Steps(NamedTuple):
    """Holds the steps of one kind of rows.

    Attributes
    ----------
    agree : lets the parties come to one model, before their rows are read
    complete : run, model, index of a client, its rows, its likelihood, its machine's last state -> its completed draws, as
        `exchange_checks` takes them; writes files into the client's own folder
    exchange_checks : run, model, completed draws of each client that lives here -> findings of sums over all clients' rows, at
    the
        server's place
    make_fit : model, the server's states and findings, its test rows -> the result
    fit : the run and its rows -> the result at the server's place, None elsewhere: a fit in the place of all that is between
        `agree` and `make_fit`; None for the mode, draws and chains that all others have
    at_mode : the model, the result of draws -> the model at the server's place, where `exchange_checks` asks about the mode
    """

    agree: Callable[[Run[Config], Tables], Opening]
    complete: Callable[[Run[Config], Any, int, Any, Any, Any], Any]
    exchange_checks: Callable[[Run[Config], Any, Mapping[int, Any]], Checked]
    make_fit: Callable[[Any, Ended, Design | None], Fit]
    fit: Callable[[Run[Config], Read], Fit | None] | None = None
    at_mode: Callable[[Any, importance.Found], Any] | None = None
