"""Reads the policy files, in which a data holder writes what jobs may do with each of its data sets.

    require = false                 # true: data that no policy names are in no job
    open = false                    # true: jobs without [privacy], whose messages have no noise
    client_level = false            # true: jobs with unit = "client", which trust the server with sums without noise
    values = false                  # true: open jobs whose result says what one client's rows say (output.without, .sites)
    extendable = false              # true: jobs to whose result later clients may come (output.extendable)
    methods = ["mine"]              # of other packages that jobs may have this holder run; fedkern's own are always allowed
    places = ["mine.place:Place"]   # classes of other packages that may carry messages to other parties; also
                                    # "fedkern.places:Spoke", whose messages the caller carries; fedkern's others are allowed
    factories = ["schools.model:make"]  # of own models: functions of packages that open jobs may have this holder run
    sums = "secure"                 # jobs without noise only where the server gets sums of all clients; "signed": and each site
                                    # signs its key of them; "any" by default
    sums_except = "without"         # jobs with secure sums in which each client sends values of its own all the same, for
                                    # output.without; values = true is wanted as well
    unit = "example"                # or a list; client_level = true adds "client"
    noise_source = "secure"         # or a list of secure and keyed
    least_noise_multiplier = 1.0
    accounts = "/var/lib/fedkern"   # where budgets are kept, if not beside this file

    [disclosure]                    # of open jobs; [data.NAME.disclosure] may differ for a data set
    level = "strict"                # "standard" by default: what is asked of the rows (docs/concepts/disclosure.md)
    rows = 50                       # and other numbers than the level's: also rows_per_coefficient, rows_per_value, groups, ..
    lower = false                   # no job may ask for less than the level by numbers of its own
    differencing = "refuse"         # no job with the clients of an earlier one but for one or two, or with nearly the rows that
                                    # one asked for, or a column of one but in a few rows, and none that says which cells are
                                    # empty; "say": the holder is told
    tell = "nothing"                # "rules": whoever runs a job reads the names of the rules that refuse these rows
    jobs = 20                       # with "refuse" at most so many on the same rows with other columns; told from half of them

    [data.survey]                   # the data set's id: data that are a file of this name, or one of the paths
    paths = ["/data/survey.csv"]    # files, folders with all below them, or patterns; relative ones to this file
    epsilon = 1.0                   # over all jobs; with delta it may be left out where open = true
    delta = 1e-5
    fingerprint = "rows-..."        # of the data's rows: they are bound whatever they are called and wherever they lie
    open = false                    # open, client_level, values, extendable, factories, methods, places, sums and sums_except
                                    # may differ for a data set

Where such files are looked for, and which of them bind a job, is in `binding`.
"""

from __future__ import annotations

import glob
import math
import os
import tomllib
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ...data.mark import OF_ROWS
from ...disclosure.rules import LEVELS, OLD_KEYS, Rules, of_old_keys, with_keys
from ...errors import JobError
from ...privacy.accountant import Mechanism, Unit

if TYPE_CHECKING:
    from .policy_keys import Data


Use = Literal["private", "open", "client-level"]


class Refusal(NamedTuple):
    """Says why a job is refused. `ask` names no path and no number of the holder's: who runs the job may read it."""

    ask: str
    detail: str


@dataclass(frozen=True)
class DataSet:
    """Holds a job's knowledge of one holder's data.

    These are: their names, their files (none for built-in data), the policy that the holder's site file names, and the
    fingerprint of their rows. The fingerprint is computed only where a policy has one.
    """

    names: tuple[str, ...]
    paths: tuple[Path, ...] = ()
    policy: Path | None = None
    mark: Callable[[], str | None] = field(default=lambda: None, compare=False, repr=False)


@dataclass(frozen=True)
class Policy:
    """Holds the permissions that a data holder gives for one of its data sets; see the head of this file."""

    data: str
    epsilon: float = math.inf
    delta: float | None = None
    units: tuple[Unit, ...] = ("example",)
    noise_sources: tuple[str, ...] = ("secure",)
    least_noise: float = 0.0
    fingerprint: str | None = None
    paths: tuple[Path, ...] = ()
    open: bool = False
    values: bool = False
    extendable: bool = False
    factories: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    disclosure: Mapping[str, Any] = field(default_factory=dict)
    lower: bool = True
    differencing: Literal["say", "refuse"] = "say"
    tell: Literal["nothing", "rules"] = "nothing"
    jobs: int | None = None
    most_ids: int | None = None
    sums: Literal["any", "secure", "signed"] = "any"
    sums_except: Literal["without"] | None = None
    file: Path = Path()

    @property
    def rules(self) -> Rules:
        """The rules for the rows of open jobs on these data, beside a job's own; without a level of the policy these decide."""
        return with_keys(LEVELS[self.disclosure.get("level", "none")], self.disclosure)

    def refuses_less(self, keys: Mapping[str, Any]) -> Refusal | None:
        """Returns why an open job with these keys of [disclosure] is refused, where none may ask for less than the policy does.

        None if it is not.
        """
        level = LEVELS[self.disclosure.get("level", "standard")]
        mine = with_keys(level, keys)
        if self.lower or mine.with_strictest(level) == mine:
            return None
        return Refusal(
            "numbers of [disclosure] lower what a client must have, which the policy forbids; remove them, or ask the holder to "
            "allow that ([disclosure] lower)",
            f"[disclosure] of the job asks for less than its level does, for [data.{self.data}] (lower = false)",
        )

    def refuses_values(self) -> Refusal | None:
        """Returns why a job is not allowed whose result tells of one client's rows alone; None if it is allowed."""
        if self.values:
            return None
        return Refusal(
            "output.without and output.sites have the result say what it would be without this client, or what its rows alone "
            "say; ask the holder to allow that on these data (values = true), or remove the key",
            f"values is not true for [data.{self.data}]",
        )

    def refuses_extension(self, *, now: bool) -> Refusal | None:
        """Returns why a job is not allowed to whose result clients may come, or (`now`) that comes to an earlier one."""
        if self.differencing == "refuse":
            return Refusal(
                "two results that differ by a client's rows tell these rows' likelihood (output.extendable, job.extends), and "
                "the policy refuses jobs that differ by little; ask the holder to allow that ([disclosure] differencing), or run "
                "all clients in one job",
                f'differencing = "refuse" for [data.{self.data}]',
            )
        if now or self.extendable:
            return None
        return Refusal(
            "output.extendable keeps what this client has answered, so that others may come, or it may go, later; ask the holder "
            "to allow that on these data (extendable = true), or remove the key",
            f"extendable is not true for [data.{self.data}]",
        )

    def refuses_empty_words(self) -> Refusal | None:
        """Returns why a job is not allowed that says itself which cells are empty, of any column, and so which rows count."""
        if self.differencing != "refuse":
            return None
        return Refusal(
            "data.dialect.missing says which cells are empty, and by it which rows count, which the policy leaves to the holder; "
            "ask it for these words in its own site file ([dialect] missing), or remove the key",
            'data.dialect.missing, and differencing = "refuse"',
        )

    def refuses_ids(self, most: int) -> Refusal | None:
        """Returns why a job is not allowed in which each party may try so many ids; None if it is allowed."""
        if self.most_ids is None or most <= self.most_ids:
            return None
        return Refusal(
            f"data.most_ids = {most:,} lets each party try more ids than the policy allows; lower it, or ask the holder to allow "
            "more (most_ids)",
            f"most_ids is {self.most_ids:,} for [data.{self.data}]",
        )

    def refuses_sums(self, *, secure: bool, signed: bool) -> Refusal | None:
        """Returns why a job without noise is not allowed, for what its server reads; None if it is allowed. `secure`: whether the
        server gets sums alone; `signed`: whether this client signs its key of them, and knows the others'."""
        if self.sums == "any" or (secure and (signed or self.sums == "secure")):
            return None
        if not secure:
            return Refusal(
                'the policy wants job.sums = "secure", without which the server reads each client\'s numbers; set that, where '
                "the method has it, or ask the holder to allow others (sums)",
                f'sums = "{self.sums}" for [data.{self.data}], and the job has no secure sums',
            )
        return Refusal(
            "nobody signs the keys of its secure sums at this client, so that the server could change them; run it between "
            "organisations with a signing_key in the site file, or ask the holder to allow it (sums)",
            f'sums = "signed" for [data.{self.data}], and no key of this client is signed here (signing_key in site.toml)',
        )

    def refuses_single_values(self) -> Refusal | None:
        """Returns why a job with secure sums is not allowed in which clients send values one by one; None if it is allowed."""
        if self.sums_except == "without":
            return None
        return Refusal(
            'job.sums_except = "without" has each client send its own log-likelihoods one by one, beside its masked sums; ask '
            'the holder to allow that on these data (sums_except = "without"), or remove it and output.without',
            f'sums_except is not "without" for [data.{self.data}]',
        )

    def refuses_factory(self, factory: str) -> Refusal | None:
        """Returns why a job that has the holder run this function is not allowed; None if it is allowed."""
        return self._refuses_unlisted(
            factory,
            self.factories,
            "factories",
            f'model.factory = "{factory}" has the holder run a function of its own packages, and sends what it says of rows; '
            "ask the holder to allow it on these data (factories)",
        )

    def refuses_method(self, method: str) -> Refusal | None:
        """Returns why a job of another package's method is not allowed; None if it is allowed."""
        return self._refuses_unlisted(
            method,
            self.methods,
            "methods",
            f'job.method = "{method}" has the holder run a method of another package, and sends what that says of rows; ask the '
            "holder to allow it on these data (methods)",
        )

    def refuses_place(self, place: str) -> Refusal | None:
        """Returns why a job whose messages another package carries is not allowed; None if it is allowed."""
        return self._refuses_unlisted(
            place,
            self.places,
            "places",
            f'the place "{place}" has another package carry what leaves the holder; ask the holder to allow it (places)',
        )

    def _refuses_unlisted(self, name: str, listed: tuple[str, ...], key: str, ask: str) -> Refusal | None:
        """Returns a refusal of a name that is not among those that a key lists."""
        return None if name in listed else Refusal(ask, f"{name} is not among the {key} of [data.{self.data}]")

    def refuses_use(self, use: Use, noise_source: str = "secure") -> Refusal | None:
        """Returns why a kind of job is not allowed; None if it is allowed."""
        if use == "open" and not self.open:
            return Refusal(
                "what leaves this job has no noise; ask the holder to allow open jobs on these data (open = true), or give the "
                'job a [privacy] section (methods "pvi", "vertical" and "sigma")',
                f"open is not true for [data.{self.data}]",
            )
        if use == "client-level" and "client" not in self.units:
            return Refusal(
                'privacy.unit = "client" trusts the server with sums that have no noise; ask the holder to allow it '
                '(client_level = true), or take unit = "example"',
                f"client_level is not true for [data.{self.data}]",
            )
        if use != "open" and noise_source not in self.noise_sources:
            return Refusal(
                f'privacy.noise_source = "{noise_source}" is not allowed; ask the holder which is (noise_source)',
                f"privacy.noise_source = {noise_source!r}, allowed: {', '.join(self.noise_sources)}",
            )
        return None

    def refuses(self, mechanism: Mechanism) -> Refusal | None:
        """Returns why a mechanism is not allowed; None if it is allowed."""
        if mechanism.unit not in self.units:
            return Refusal(
                f'privacy.unit = "{mechanism.unit}" is not allowed; ask the holder which is (unit, client_level)',
                f"privacy.unit = {mechanism.unit!r}, allowed: {', '.join(self.units)}",
            )
        source = "secure" if mechanism.secure else "keyed"
        if refusal := self.refuses_use("private", source):
            return refusal
        if mechanism.sigma < self.least_noise:
            return Refusal(
                f"privacy.noise_multiplier = {mechanism.sigma:g} is less noise than is allowed; ask the holder for the least "
                "(least_noise_multiplier)",
                f"privacy.noise_multiplier = {mechanism.sigma:g}, the smallest allowed: {self.least_noise:g}",
            )
        return None

    def lists(self, data: DataSet) -> bool:
        """Tells whether one of the paths is one of the data's files, or a folder that holds it."""
        return any(_holds(listed, path) for path in data.paths for listed in self.paths)

    def marks(self, data: DataSet) -> bool:
        """Tells whether the fingerprint is that of the data's rows."""
        return self.of_rows and data.mark() == self.fingerprint

    @property
    def of_rows(self) -> bool:
        """Whether the policy has a fingerprint of rows, and not of a file."""
        return self.fingerprint is not None and self.fingerprint.startswith(OF_ROWS)

    @property
    def lost(self) -> tuple[Path, ...]:
        """Returns the policy's paths at which no file exists."""
        return tuple(path for path in self.paths if not os.path.exists(path) and not glob.glob(str(path), recursive=True))

    def called(self, data: DataSet) -> bool:
        """Tells whether the id is one of the data's names, as a disk may write it."""
        return _plain(self.data) in map(_plain, data.names)


@dataclass(frozen=True)
class PolicyFile:
    """Holds one policy file: what is said above for all data. `accounts` is the folder of its budgets, None for its own."""

    path: Path
    require: bool
    accounts: Path | None
    policies: tuple[Policy, ...]
    methods: tuple[str, ...] = ()
    places: tuple[str, ...] = ()

    def knows_method(self, method: str) -> bool:
        """Tells whether a method of another package is allowed on any data: its package may then be imported here."""
        return method in self.methods or any(method in policy.methods for policy in self.policies)

    def knows_package(self, module: str) -> bool:
        """Tells whether a place of a module's package is allowed to carry messages of any data: it may then be imported here."""
        listed = (*self.places, *(place for policy in self.policies for place in policy.places))
        return any(place.partition(":")[0].partition(".")[0] == module.partition(".")[0] for place in listed)


def read_policies(path: Path) -> PolicyFile:
    """Reads a policy file. Raises JobError: it can't be read, or has a key or a value that it should not have: then it allows
    nothing."""
    try:
        if path.exists() and not path.is_file():
            raise OSError("it is no file")
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as fault:  # beside TOMLDecodeError: numbers and tables without an end
        raise JobError(f"{path}: can't be read as a policy ({fault})") from None
    from .policy_keys import policy_file  # loads pydantic, which takes its time

    section = policy_file(content, str(path))
    folder = Path(os.path.realpath(path)).parent

    def beside(texts: Iterable[str]) -> tuple[Path, ...]:
        return tuple(folder / os.path.expanduser(text) for text in texts)

    def policy(name: str, table: Data) -> Policy:
        limits: dict[str, Any] = section.disclosure.model_dump(exclude_none=True) | table.disclosure.model_dump(exclude_none=True)
        more: dict[str, Any] = {name: limits.pop(name) for name in ("lower", "differencing", "tell", "jobs") if name in limits}
        old = of_old_keys({**limits, **more}, holder=True)
        disclosure = {**old, **{name: value for name, value in limits.items() if name not in OLD_KEYS}}

        def setting(key: str) -> Any:
            """Returns what the table says, or else what the file says of all data."""
            value = getattr(table, key)
            return getattr(section, key) if value is None else value

        settings = {key: setting(key) for key in ("open", "values", "extendable", "most_ids", "sums", "sums_except")}
        settings |= {key: tuple(setting(key)) for key in ("factories", "methods", "places")}
        units = tuple(section.unit)
        if setting("client_level") and "client" not in units:
            units = (*units, "client")
        epsilon = math.inf if table.epsilon is None else table.epsilon
        return Policy(
            data=name,
            epsilon=epsilon,
            delta=table.delta,
            units=units,
            noise_sources=tuple(section.noise_source),
            least_noise=section.least_noise_multiplier or 0.0,
            fingerprint=table.fingerprint,
            paths=beside(table.paths),
            file=path,
            disclosure=disclosure,
            **settings,
            **more,
        )

    accounts = None if section.accounts is None else beside([section.accounts])[0]
    policies = tuple(policy(name, table) for name, table in section.data.items())
    return PolicyFile(path, section.require, accounts, policies, tuple(section.methods), tuple(section.places))


def _holds(listed: Path, path: Path) -> bool:
    """Tells whether a path of a policy is a file of the data (by another name, too), or a folder above it."""
    matching: Iterable[str | Path] = (listed,)
    if not listed.exists() and any(mark in str(listed) for mark in "*?["):
        matching = glob.iglob(str(listed), recursive=True)
    real, matching = Path(os.path.realpath(path)), list(matching)
    if any(_same(found, file) for found in matching for file in (path, real, *real.parents)):
        return True
    return _links(real) > 1 and any(_same(below, real) for found in matching for below in _below(found))


def _links(path: Path) -> int:
    """Returns how many names a file has."""
    try:
        return path.stat().st_nlink if path.is_file() else 0
    except OSError:
        return 0


def _below(folder: str | Path) -> Iterator[str]:
    return (os.path.join(place, name) for place, _, names in os.walk(folder) for name in names)


def _plain(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _same(path: str | Path, other: Path) -> bool:
    try:
        return os.path.samefile(path, other)
    except OSError:  # one is not there
        return os.path.realpath(path) == str(other)
