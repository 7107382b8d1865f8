"""Who takes part in a job, and where the rows of each are: read only where the party lives."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b, file_digest
from pathlib import Path

from ..algorithms.core.messages import SERVER
from ..data import table
from ..data.faults import HINT
from ..data.header import unfit
from ..data.table import Table
from ..errors import JobError, OwnFault, owned
from ..kernels.families import BINARY, FAMILIES, REAL
from ..methods.sigma import rows as sigma
from ..methods.vertical import rows as vertical
from ..models.encoding import Column, Spec
from ..privacy.policy import DataSet
from .load import AnyConfig, Config, SigmaConfig, SparseConfig, VerticalConfig
from .naming import faults as faults_of_names


@dataclass(frozen=True)
class Parties:
    """The clients of a job, in the order that gives each its number.

    Attributes
    ----------
    names : of the clients
    spec : what the job file says of the columns
    rows : client number -> its table
    header : client number -> (its source, its column names), without reading a row
    test : the server's test rows, or None
    server : vertical: the server's own table, or None
    holding : client number -> what policies may call its data (the file's stem, or the built-in set's name), and their files
    own : the same of the server's own files
    fingerprint : client number -> of its file, see `fingerprint`; None for built-in data
    """

    names: tuple[str, ...]
    spec: Spec
    rows: Callable[[int], Table]
    header: Callable[[int], tuple[str, tuple[str, ...]]]
    test: Callable[[], Table | None]
    holding: Callable[[int], DataSet]
    fingerprint: Callable[[int], str | None] = lambda client: None
    server: Callable[[], Table | None] = lambda: None
    own: tuple[DataSet, ...] = ()

    @property
    def n_clients(self) -> int:
        return len(self.names)


def parties(config: AnyConfig, folder: Path) -> Parties:
    """The parties of a job whose paths are relative to `folder`.

    Raises
    ------
    JobError
        No file matches, two clients have one name, or the job file names clients that do not exist.
    """
    if isinstance(config, SigmaConfig) or not config.data.builtin:
        found = _files(config, folder)
    else:
        found = _columns(config) if isinstance(config, VerticalConfig) else _builtin(config)
    known = ", ".join(found.names)
    weights = config.algorithm.client_weights if isinstance(config, Config) else ()
    priors = config.model.priors if isinstance(config, VerticalConfig) else ()
    for section, names in (
        ("algorithm.client_weights", weights),
        ("privacy.clients", _own_terms(config)),
        ("model.priors", priors),
    ):
        for name in names:
            if name not in found.names:
                raise JobError(f"{section}.{name}: there is no such client; there are {known}")
    return found


def _own_terms(config: AnyConfig) -> list[str]:
    return list(config.privacy.clients) if isinstance(config, Config) and config.privacy is not None else []


def _declared(config: Config | SparseConfig) -> dict[str, Column]:
    tables = config.data.columns.items()
    said = {name: section.model_dump(exclude_none=True, exclude={"reference"}) for name, section in tables}
    return {name: Column.declared(name, given) for name, given in said.items() if given or config.privacy is None}


def _spec(config: Config | SparseConfig, response: str | None, positive: str | None, columns: dict[str, Column]) -> Spec:
    data, model = config.data, config.model
    sparse = isinstance(config, SparseConfig)  # its intercepts belong to the clients, and have no column
    return Spec(
        response=response,
        family=model.family,
        positive=positive,
        offset=data.offset,
        weight=data.weight,
        row_id=data.row_id,
        ignore=tuple(data.ignore),
        intercept=model.intercept and not sparse,
        standardise=data.standardise,
        private=config.privacy is not None,
        missing=isinstance(config, SparseConfig) and config.model.missing == "impute",
        columns=columns,
    )


def _builtin(config: Config | SparseConfig) -> Parties:
    from ..data.sets import builtin

    data, split = config.data, config.data.split
    assert data.builtin is not None
    dealt = builtin.load(
        data.builtin,
        n_clients=split.clients,
        rho=split.rho,
        kappa=split.kappa,
        test=split.test,
        seed=split.seed,
        preprocess=data.preprocess,
    )
    _fits(config, dealt.response, dealt.positive)
    graph = isinstance(config, SparseConfig) and config.model.kind != "regression"
    response = None if graph else config.data.response or dealt.response or None
    public = {} if isinstance(config, SparseConfig) else dealt.columns
    spec = _spec(config, response, dealt.positive, {**public, **_declared(config)})
    names = _named(config, dealt.clients)
    return Parties(
        names,
        spec,
        dealt.client,
        lambda k: (f"{dealt.name}, {names[k]}", dealt.names()),
        dealt.test,
        lambda k: DataSet((dealt.name,)),
    )


def _columns(config: VerticalConfig) -> Parties:
    """Built-in data whose columns are split."""
    from ..data.sets import heart_failure

    clients = tuple(heart_failure.CLIENTS)
    names = _named(config, clients)

    def rows(k: int) -> Table:
        return heart_failure.read().table(clients[k])

    def header(k: int) -> tuple[str, tuple[str, ...]]:
        return f"heart-failure, {names[k]}", ("id", *heart_failure.CLIENTS[clients[k]])

    spec = vertical.spec_of(config, response=False)
    return Parties(
        names,
        spec,
        rows,
        header,
        lambda: None,
        lambda k: DataSet(("heart-failure",)),
        server=lambda: heart_failure.read().table("server"),
    )


def _fits(config: Config | SparseConfig, response: str, positive: str | None) -> None:
    """Whether the model can explain what the built-in data have."""
    model, name = config.model, config.data.builtin
    if isinstance(config, SparseConfig) and model.kind == "regression" and not (response or config.data.response):
        raise JobError(f'model.kind = "regression": data.builtin = "{name}" has no response; give data.response, or another kind')
    wanted = BINARY if positive is not None else REAL
    if response and FAMILIES[model.family].domain is not wanted and model.kind not in ("mrf", "sem"):
        what = "a binary" if wanted is BINARY else "a real"
        raise JobError(f'model.family = "{model.family}": data.builtin = "{name}" has {what} response')


def _named(config: AnyConfig, found: tuple[str, ...]) -> tuple[str, ...]:
    """The clients' names: those of the job file, or those that were found."""
    names = tuple(config.data.names) or found
    if len(names) != len(found):
        raise JobError(f"data.names: {len(names)} names for {len(found)} clients")
    for name in names:
        if names.count(name) > 1:
            raise JobError(f"data.clients: two files would both be client {name!r}; rename one, or give data.names")
    if faults := list(faults_of_names(names, "data.names" if config.data.names else "data.clients")):
        raise JobError("; also ".join(faults) + ("" if config.data.names else ", or give data.names"))
    return names


def _files(config: AnyConfig, folder: Path) -> Parties:
    data = config.data
    files: list[tuple[str, Path]] = []
    for pattern in data.clients:
        # A plain path is not looked for: it may lie on another machine, and only the client's own rank opens it.
        wild = any(mark in pattern for mark in "*?[")
        files += table.find([pattern], folder).items() if wild else [(_stem(Path(pattern)), folder / pattern)]
    names, paths = _named(config, tuple(name for name, _ in files)), [path for _, path in files]
    if isinstance(config, VerticalConfig):
        spec, texts = vertical.spec_of(config, response=False), vertical.texts_of(config)
    elif isinstance(config, SigmaConfig):
        spec, texts = sigma.spec_of(config), sigma.texts_of(config)
    else:
        spec = _spec(config, config.data.response, config.data.positive, _declared(config))
        texts = spec.texts

    def rows(k: int) -> Table:
        with owned(k), _client(names[k], spec):
            return table.load(paths[k], text=texts, response=spec.response or "y")

    def header(k: int) -> tuple[str, tuple[str, ...]]:
        with owned(k), _client(names[k], spec):
            return str(paths[k]), table.header(paths[k], response=spec.response or "y")

    def own(name: str) -> Table | None:
        """A file of the server's: `test` or `server`."""
        path = getattr(data, name, None)
        with owned(SERVER):
            return table.load(folder / path, text=texts, response=spec.response or "y") if path else None

    test, server = partial(own, "test"), partial(own, "server")
    held = tuple(data_set(folder / path) for name in ("test", "server") if (path := getattr(data, name, None)))
    return Parties(names, spec, rows, header, test, lambda k: data_set(paths[k]), lambda k: fingerprint(paths[k]), server, held)


def data_set(path: Path) -> DataSet:
    """What a policy may call a file: its stem, and that of the file it is a link to."""
    if "\0" in str(path):
        raise JobError(f"data: {str(path)!r} is no path")
    return DataSet(tuple(dict.fromkeys((_stem(path), _stem(Path(os.path.realpath(path)))))), table.files_of(path))


def fingerprint(path: Path) -> str | None:
    """BLAKE2b-128 of a file's bytes, for `fingerprint` in a policy; None where there is no file."""
    if not os.path.isfile(path):
        return None
    try:
        with path.open("rb") as file:
            return file_digest(file, lambda: blake2b(digest_size=16)).hexdigest()
    except OSError:  # reading the rows will say so
        return None


def _stem(path: Path) -> str:
    return path.stem.removesuffix(".X")


@contextmanager
def _client(name: str, spec: Spec) -> Iterator[None]:
    """Puts the client's name before what is wrong with its file; of a private job's file nobody else reads more than that."""
    try:
        yield
    except OwnFault as error:
        text = unfit(spec) if spec.private else f"{error}; {HINT}"
        raise OwnFault(f"client {name!r}: {text}", f"client {name!r}: {error.own}") from None
    except JobError as error:
        raise JobError(f"client {name!r}: {error}") from None
