"""Finds who takes part in a job, and where the rows of each are: read only where the party lives."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any, NamedTuple

from ..algorithms.core.messages import SERVER
from ..data import mark, table
from ..data.dialect import Dialect, stem
from ..data.faults import HINT
from ..data.header import UNFIT, unfit
from ..data.plain_text import is_there
from ..data.sets.builtin import Federation
from ..data.table import Table
from ..errors import FedkernError, JobError, OwnFault, owned
from ..kernels.families import FAMILIES
from ..models.encoding import Column, Spec, read_as
from .holding.policy import DataSet
from .keys import ColumnSection, DataSection, JobConfig
from .naming import faults as faults_of_names
from .site import Site, Sites


@dataclass(frozen=True)
class Parties:
    """Holds the clients of a job, in the order that gives each its number."""

    names: tuple[str, ...]  # the names of the clients
    spec: Spec  # the job file's facts of the columns
    rows: Callable[[int], Table]  # client number -> its table
    header: Callable[[int], tuple[str, tuple[str, ...]]]  # client number -> (its source, its column names), without reading a row
    test: Callable[[], Table | None]  # the server's test rows, or None
    # client number -> the names that policies may give its data (the file's stem, or the built-in set's), and their files
    holding: Callable[[int], DataSet]
    # client number -> that of its file, see `fingerprint`; None for built-in data
    fingerprint: Callable[[int], str | None] = lambda client: None
    server: Callable[[], Table | None] = lambda: None  # vertical: the server's own table, or None
    own: tuple[DataSet, ...] = ()  # the same of the server's own files
    # names of a file's columns -> the facts of them, where these differ by client
    specs: Callable[[tuple[str, ...]], Spec] | None = None
    texts: frozenset[str] = frozenset()  # columns that are read as text
    site: Callable[[int], Site] = lambda client: Site()  # client number -> the content of its site file
    # the job, a table, the facts of its columns, the client's name -> OwnFault where the method asks for more than columns
    check: Callable[[Any, Table, Spec, str], None] = lambda config, table, spec, client: None

    @property
    def n_clients(self) -> int:
        """The number of clients."""
        return len(self.names)

    def spec_of(self, columns: tuple[str, ...]) -> Spec:
        """Returns the known facts of the columns of a file that has these columns."""
        return self.spec if self.specs is None else self.specs(columns)


def there(parties: Parties, **named: Iterable[str]) -> Parties:
    """Returns the parties, once every client that a section of the job file names is one of them; JobError otherwise.

    `named`: key of the section, with two underscores for a dot, -> names.
    """
    for section, names in named.items():
        for name in names:
            if name not in parties.names:
                known = ", ".join(parties.names)
                raise JobError(f"{section.replace('__', '.')}.{name}: there is no such client; there are {known}")
    return parties


def declared(columns: Mapping[str, ColumnSection]) -> dict[str, Column]:
    """Returns the job file's declarations of columns."""
    tables = columns.items()
    encoded = {name: section.encoded for name, section in tables}
    for name, section in tables:
        if section.reference is not None:
            encoded[name].setdefault("kind", "categorical")
    return {name: Column.declared(name, keys) for name, keys in encoded.items()}


class Known(NamedTuple):
    """Holds the facts of the columns that a model, and built-in data beside the job file, give; see `Spec`."""

    family: str
    response: str | None
    positive: str | None
    columns: dict[str, Column]
    intercept: bool = True
    missing: bool = False
    levels: tuple[str, ...] = ()


def rows_spec(config: JobConfig, data: DataSection, known: Known) -> Spec:
    """Returns the known facts of the columns where every client has rows of its own."""
    formula, random = getattr(config, "formula", None), getattr(config.model, "random", None)
    if formula is not None:
        known = known._replace(columns=read_as(formula, known.columns))
    return Spec(
        formula=formula,
        offset=data.offset,
        weight=data.weight,
        row_id=data.row_id,
        trials=getattr(data, "trials", None),
        groups=getattr(random, "columns", ()),
        with_effects=tuple(grouping.column for grouping in getattr(random, "every", ())),
        ignore=tuple(data.ignore),
        standardise=data.standardise,
        private=config.privacy is not None,
        **known._asdict(),
    )


def dealt(data: DataSection) -> Federation:
    """Returns built-in rows, dealt to the clients that the job file asks for."""
    from ..data.sets import builtin

    split = data.split
    assert data.builtin is not None
    return builtin.load(
        data.builtin,
        n_clients=split.clients,
        rho=split.rho,
        kappa=split.kappa,
        test=split.test,
        seed=split.seed,
        preprocess=data.preprocess,
    )


def of_dealt(config: JobConfig, dealt: Federation, spec: Spec) -> Parties:
    """Returns the parties of a job on built-in rows."""
    names = name_clients(config, dealt.clients)
    return Parties(
        names,
        spec,
        dealt.client,
        lambda k: (f"{dealt.name}, {names[k]}", dealt.names()),
        dealt.test,
        lambda k: DataSet((dealt.name,)),
    )


def fits(family: str, data: Federation) -> None:
    """Refuses a model whose family cannot explain the response of the built-in data (JobError)."""
    record, binary = FAMILIES[family], data.positive is not None
    if data.response and not (record.binary if binary else record.measured):
        what = "a binary" if binary else "a real"
        raise JobError(f'model.family = "{family}": data.builtin = "{data.name}" has {what} response')


def name_clients(config: JobConfig, names_of_files: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the clients' names: those of the job file, or those of their files."""
    names = tuple(config.data.names) or names_of_files
    if len(names) != len(names_of_files):
        raise JobError(f"data.names: {len(names)} names for {len(names_of_files)} clients")
    if twice := next((name for name, n in Counter(names).items() if n > 1), None):
        raise JobError(f"data.clients: two files would both be client {twice!r}; rename one, or give data.names")
    if faults := list(faults_of_names(names, "data.names" if config.data.names else "data.clients")):
        raise JobError("; also ".join(faults) + ("" if config.data.names else ", or give data.names"))
    return names


def from_files(config: JobConfig, folder: Path, spec: Spec, texts: frozenset[str]) -> Parties:
    """Returns the parties of a job whose clients have files; `texts` are the columns that are read as text. Raises JobError: no
    file matches, or two clients have one name."""
    data, dialect = config.data, config.data.dialect.dialect
    files: list[tuple[str, Path]] = []
    for pattern in data.clients:
        # A plain path is not looked for: it may lie on another machine, and only the client's own rank opens it.
        wild = any(mark in pattern for mark in "*?[")
        files += table.find([pattern], folder).items() if wild else [(stem(Path(pattern)), folder / pattern)]
    names, paths = name_clients(config, tuple(name for name, _ in files)), [path for _, path in files]

    sites = Sites(folder, names)

    def site(k: int) -> Site:
        with owned(k):
            found = sites.of(names[k])
            if (structure := found.structure) is not None:
                what = config.without_structure
                if what is not None:
                    raise unusable_structure(names[k], f"is not for a job with {what}; remove it, or take no part")
                if len(structure.columns) != 1:
                    raise unusable_structure(names[k], "wants a column of groups, or one of weights; give one of them")
            return found

    def source(k: int) -> tuple[Path, Dialect]:
        section = site(k)
        return section.path or paths[k], section.dialect or dialect

    def rows(k: int) -> Table:
        path, written = source(k)
        with owned(k), own_of_client(names[k], spec):
            read = table.load(path, text=texts, response=spec.response or "y", dialect=written)
        with owned(k):
            return hide(read, site(k), spec, names[k])

    def header(k: int) -> tuple[str, tuple[str, ...]]:
        path, written = source(k)
        with owned(k), own_of_client(names[k], spec):
            names_of_file = table.header(path, response=spec.response or "y", dialect=written)
            return str(path), tuple(name for name in names_of_file if name not in site(k).hidden)

    @cache
    def marked(k: int) -> str | None:
        path, written = source(k)
        return mark_of_rows(path, written)

    def holding(k: int) -> DataSet:
        return replace(data_set(source(k)[0]), policy=site(k).policy, mark=partial(marked, k))

    def own(name: str) -> Table | None:
        """Reads a file of the server's: `test` or `server`."""
        path = getattr(data, name, None)
        with owned(SERVER):
            if path and not is_there(folder / path):
                raise JobError(f"data.{name}: {folder / path}: no such file where the server runs; correct the path")
            return table.load(folder / path, text=texts, response=spec.response or "y", dialect=dialect) if path else None

    test, server = partial(own, "test"), partial(own, "server")
    held = tuple(data_set(folder / path) for name in ("test", "server") if (path := getattr(data, name, None)))
    of_file = lambda k: fingerprint(source(k)[0])  # noqa: E731
    return Parties(names, spec, rows, header, test, holding, of_file, server, held, texts=texts, site=site)


def hide(rows: Table, site: Site, spec: Spec, client: str) -> Table:
    """Returns a client's rows without the names of columns that it alone knows: no other party hears of these. Raises OwnFault:
    there is no such column beside the job's."""
    if not site.hidden:
        return rows
    if lacking := [name for name in site.hidden if name not in rows.names or name in spec.roles]:
        raise unusable_structure(
            client, f"names {lacking[0]!r}, which is no column of {rows.source} beside the job's; correct it"
        )
    return replace(rows, names=tuple(name for name in rows.names if name not in site.hidden), matrix=None, matrix_names=())


def unusable_structure(client: str, why: str) -> OwnFault:
    """Returns the fault of a site file whose [structure] cannot be: others do not read that it has one."""
    text = f"client {client!r}: its site file cannot be used"
    return OwnFault(text, f"{text}: [structure] {why}")


def data_set(path: Path) -> DataSet:
    """Returns the names that a policy may give a file: its stem, and that of the file it is a link to."""
    if "\0" in str(path):
        raise JobError(f"data: {str(path)!r} is no path")
    return DataSet(tuple(dict.fromkeys((stem(path), stem(Path(os.path.realpath(path)))))), table.files_of(path))


def fingerprint(path: Path) -> str | None:
    """Returns BLAKE2b-128 of a file's bytes, as policies have had it; None where it does not exist."""
    if not os.path.isfile(path):
        return None
    try:
        with path.open("rb") as file:
            return file_digest(file, lambda: blake2b(digest_size=16)).hexdigest()
    except OSError:  # reading the rows will say so
        return None


def mark_of_rows(path: Path, dialect: Dialect) -> str | None:
    """Returns the fingerprint of a file's rows, for `fingerprint` in a policy; None where they cannot be read.

    Reading the rows reports that fault.
    """
    try:
        return mark.of_rows(table.load(path, response=mark.RESPONSE, dialect=dialect))
    except (FedkernError, OSError):
        return None


@contextmanager
def own_of_client(name: str, spec: Spec) -> Iterator[None]:
    """Puts the client's name before a fault of its file; of a private job's file nobody else reads more than that."""
    try:
        yield
    except OwnFault as error:
        text, look = (unfit(spec), UNFIT) if spec.private else (str(error), HINT)
        raise OwnFault(f"client {name!r}: {text}", f"client {name!r}: {error.brief}", error.rows, look) from None
    except JobError as error:
        raise JobError(f"client {name!r}: {error}") from None
