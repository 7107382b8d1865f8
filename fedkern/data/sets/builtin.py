"""Deals data that need no file of the user's, `[data] builtin = "adult"` and others, to clients inside the job.

The split depends on the job file alone: some sets are dealt, others have clients of their own (hospitals, conditions). Each rank
builds the parts of its own clients, the server the test rows; none is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from ...arrays import Array, Indices
from ...errors import JobError
from ...models.encoding import Column
from .. import split
from ..table import Table
from . import adult, breast_cancer, heart_disease, published, rppa, sachs

# Sets whose clients are their own: their columns, hospital by hospital, and the response (none in a graph).
NATURAL: dict[str, tuple[Callable[[], Mapping[str, Mapping[str, Array]]], str]] = {
    "heart-disease": (heart_disease.read, heart_disease.RESPONSE),
    "rppa": (rppa.read, ""),
    "rppa-217": (partial(rppa.read, whole=True), ""),
    "sachs": (sachs.read, ""),
}
Build = Callable[[Indices, str], Table]  # of some rows, and whose they are
NAMES = ("breast-cancer", "adult", *NATURAL)


@dataclass(frozen=True)
class Federation:
    """Holds built-in data that were dealt.

    `response` is empty if all columns are one another's. `positive`: its label that counts as 1, None for a number. `columns`:
    public constants, levels and labels, for `Spec.columns`.
    """

    name: str
    clients: tuple[str, ...]
    response: str
    positive: str | None
    columns: Mapping[str, Column]
    parts: tuple[Indices, ...] = field(repr=False)
    test_rows: Indices = field(repr=False)
    build: Build = field(repr=False)

    def client(self, k: int) -> Table:
        """Returns the rows of client k."""
        return self.build(self.parts[k], f"{self.name}, {self.clients[k]}")

    def test(self) -> Table | None:
        """Returns the server's test rows, or None if the split keeps none."""
        return self.build(self.test_rows, f"{self.name}, test rows") if len(self.test_rows) else None

    def names(self) -> tuple[str, ...]:
        """Returns the columns of every part, as a file's header would name them."""
        covariates = tuple(name for name in self.columns if name != self.response)
        return (*covariates, self.response) if self.response else covariates


def load(
    name: str,
    *,
    n_clients: int = 10,
    rho: float = 0.0,
    kappa: float = 0.0,
    test: float = 0.2,
    seed: int = 0,
    preprocess: adult.Preprocess = "public",
) -> Federation:
    """Deals a built-in data set. Raises JobError: an unknown name, missing files, or a split that the rows do not allow.

    Parameters
    ----------
    name : "breast-cancer" (needs scikit-learn's files), "adult" (needs `$FEDKERN_DATA/uci-adult`), or one of `NATURAL`
    n_clients, rho, kappa, seed : see `split.imbalanced`; not used for data that have clients of their own
    test : share of the rows that the server keeps; of data that have clients of their own it keeps none
    preprocess : for adult, "public" for round constants, "paper" for those of the published experiments (computed from all rows)
    """
    if preprocess != "public" and name != "adult":
        raise JobError(f'[data] preprocess = "{preprocess}": only builtin = "adult" has it; remove the key')
    if name in NATURAL:
        return _natural(name)
    build: Build
    columns: Mapping[str, Column]
    if name == "adult":
        rows = adult.read()
        response, positive, columns = adult.RESPONSE, adult.POSITIVE, adult.columns(preprocess)
        labels, build = rows.positive(), rows.table
    elif name == "breast-cancer":
        response, positive, columns = breast_cancer.RESPONSE, breast_cancer.POSITIVE, breast_cancer.columns()
        labels, build = breast_cancer.positive(), breast_cancer.table
    else:
        raise JobError(f"[data] builtin = {name!r}: no such data; there are {', '.join(NAMES)}")
    train, test_rows = split.train_test(len(labels), test, seed)
    # The published split of Adult leaves up to n_clients - 1 rows over; nothing else should.
    dealt = split.imbalanced(labels[train], n_clients, rho=rho, kappa=kappa, seed=seed, deal_rest=name != "adult")
    width = len(str(n_clients))
    clients = tuple(f"client-{k + 1:0{width}}" for k in range(n_clients))
    parts = tuple(train[part] for part in dealt)
    return Federation(name, clients, response, positive, columns, parts, test_rows, build)


def _natural(name: str) -> Federation:
    read, response = NATURAL[name]
    sites = read()
    table, parts = published.joined(sites, name)
    columns = {column: Column(column) for column in table.names}
    nothing = np.empty(0, dtype=np.int64)
    return Federation(name, tuple(sites), response, None, columns, parts, nothing, table.select)
