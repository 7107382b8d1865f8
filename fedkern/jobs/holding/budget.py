"""Keeps the data holder's account of the privacy that was spent on each of its data sets. The account outlives every job.

Specification: docs/spec/pvi.md, section 7. The holder has two files:

* `policy.toml`, written by the holder: how much may be spent, on which data, by what kind of noise (`policy`, `binding`). Without
  it the job's own cap holds.
* `budget.jsonl`, written ahead: a line is on the disk before a row is read. It holds public numbers alone. Where a policy binds,
  the file lies with the policy, and is kept by the data set; otherwise it lies in `$FEDKERN_CLIENT_HOME/<client>/` or in the
  run's folder. Jobs that a policy allows without an account (open ones, and those that protect clients) have a line too, without
  a charge. The line of an open job names the other clients: two jobs whose clients differ by one tell this client's part by their
  difference. It has sketches of the rows that count, and of the columns that the job makes of them (`columns`). Where a policy
refuses jobs that differ by little, each open job that asked has a line too, whether or not it began.

Its lines are chained (`chain`). Every checkpoint and stored message of a run has a mark of the chain, and where a policy binds
the holder keeps another mark for all jobs (`remembered`): so a reader sees whether lines were altered, cut off, deleted or put
back from a copy. A line that a crash has torn was never granted: it is kept as {"torn": ..} and costs nothing. A file cannot be
charged if it has no chain (of an older version), if the chain does not fit, or if the file differs from its mark. It counts again
when its holder adds the line {"adopt": N}: the N lines before it are all that was spent.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from ...disclosure.rules import NEAR, NEAR_ROWS, OPEN_JOBS
from ...errors import JobError
from ...ground import OWN, OWN_FOLDER, Ground, on
from ...plain import Json
from ...privacy.accountant import UNLIMITED, Mechanism, Parts, epsilon, gather, max_steps, neighbours_of
from ...privacy.certificate import certificate
from ...privacy.sketch import Sketch
from ...results.plain import Record
from . import told
from .binding import LEDGER, Account
from .chain import START, Mark, following, seal, unseal
from .columns import Columns, Rows
from .policy import Policy, Use
from .remembered import Remembered, again

ASKED: Literal["asked"] = "asked"  # an open job, told yet or not whether it may


class Asked(Protocol):
    """Describes a machine's request for a charge: a number of accounted steps, for the update with a given number."""

    @property
    def steps(self) -> int: ...
    @property
    def round(self) -> int: ...


@dataclass(frozen=True)
class Decision:
    """Answers a request for a charge. Either it is on the disk and `granted` steps may be run, or `granted` is 0.

    In the second case no row may be read.

    `spent` (before this charge) and `allowed` count steps of this job.
    """

    granted: int
    spent: int
    allowed: int


@dataclass
class Ledger:
    """Reads `budget.jsonl` once and then follows it: a job's line names its data and mechanism, a charge its steps."""

    path: Path  # the path of the file
    read: int = 0  # bytes read so far
    heads: list[bytes] = field(default_factory=list)  # the hash after each line
    adopted: int = 0  # lines that count because the holder says so
    jobs: dict[str, tuple[str, Mechanism]] = field(default_factory=dict)  # job -> (data set, mechanism) of its latest line
    deltas: dict[str, float] = field(default_factory=dict)  # job -> the delta of its own claim, where its line has it
    spent: dict[tuple[str, str, Mechanism], int] = field(default_factory=dict)  # (data set, job, mechanism) -> steps
    rounds: dict[str, int] = field(default_factory=dict)  # job -> the last round that was charged
    # (data set, job) -> the kind of a job that was allowed without an account, or "asked" for one that has asked
    unaccounted: dict[tuple[str, str], Use | Literal["asked"]] = field(default_factory=dict)
    # (data set, job) -> the other clients of such a job, where it was an open one
    others: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    # (data set, job) -> a sketch of the rows that counted in it, where that is known
    rows: dict[tuple[str, str], Sketch] = field(default_factory=dict)
    # (data set, job) -> sketches of the columns that it made of them, sealed
    columns: dict[tuple[str, str], str] = field(default_factory=dict)
    # (data set, job) -> the same of an open job that asked, at each of its times
    asked: dict[tuple[str, str], list[Sketch]] = field(default_factory=dict)
    begun: dict[str, str] = field(default_factory=dict)  # job -> date and time of its first line, where it was read
    ground: Ground | None = None  # the ground below which the file lies; None where that is its folder
    marks: tuple[Path, ...] = ()  # folders of the marks that the holder keeps of it; empty: none are
    first: bytes = b""  # the hash after the first line that is of a job
    adoptions: list[bytes] = field(default_factory=list)  # those after the lines with which the holder has adopted something
    unmarked: str | None = None  # why its last mark could not be kept
    _known: set[str] | None = None  # adoptions of which marks know, once they were compared

    @property
    def mark(self) -> Mark:
        """The mark of all lines that were read or written so far."""
        return Mark(len(self.heads), (self.heads or [START])[-1])

    def require(self, marks: Iterable[Mark]) -> None:
        """Refuses a file that no longer begins with the lines that it had at each of these marks (JobError)."""
        lines = len(self.heads)
        for mark in marks:
            if not mark.length or self.heads[mark.length - 1 : mark.length] == [mark.head]:
                continue
            if lines < mark.length:
                seen = f"has {lines} lines, and this run has seen {mark.length} in it"
                what = f"{seen}: it was cut off, deleted, or an older copy put back"
            else:
                what = f"is not what this run has seen: one of its first {mark.length} lines was altered"
            raise JobError(f"{self.path}: {what}; nothing is charged. Put back the file as the run left it")

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Opens and locks the file, and reads all lines that others have added."""
        with on(self.ground, self.path.parent) as ground:
            try:
                new = not self.path.exists()
                file = ground.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, OWN, make=OWN_FOLDER)
                if new:
                    ground.sync(self.path.parent)
            except OSError as fault:
                raise JobError(f"{self.path}: can't be opened ({fault.strerror}); without it nothing may be charged") from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if new:
                with suppress(OSError):
                    os.fchmod(file, OWN)  # whatever the umask
            self._follow(file)
            yield file
        finally:
            os.close(file)

    def look(self) -> None:
        """Reads the lines that others have added, without writing."""
        self._look()
        self._compare(self._look)

    def _look(self) -> None:
        try:
            file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as fault:
            if not os.path.exists(self.path):
                return
            raise JobError(f"{self.path}: can't be read ({fault.strerror}); without it nothing may be charged") from None
        try:
            size = os.fstat(file).st_size
            text = os.pread(file, max(size - self.read, 0), self.read)
        finally:
            os.close(file)
        self._grown(size)
        lines, rest = _parted(text)  # what comes after them is being written, or was cut by a crash: nothing was granted for it
        self._lines(lines)
        self.read += len(text) - len(rest)

    def _follow(self, file: int) -> None:
        size = os.fstat(file).st_size
        self._grown(size)
        lines, rest = _parted(os.pread(file, size - self.read, self.read))
        if _entry(rest) is not None:
            os.write(file, b"\n")  # the line was whole, but for its end
            lines, rest, size = [*lines, rest], b"", size + 1
        self._lines(lines)
        self.read = size - len(rest)
        self._compare()
        if rest:  # a crash tore it: it was not on the disk, so nothing was granted
            os.ftruncate(file, self.read)
            self.append(file, {"torn": rest[:200].decode(errors="replace")})

    def _compare(self, more: Callable[[], None] = lambda: None) -> None:
        """Checks once whether the file agrees with the holder's marks. `more` reads on, where others may write meanwhile."""
        if not self.marks or self._known is not None:
            return
        kept_marks = Remembered(self.marks, self.path).find_marks(self.first)
        if not all(kept.fits(self.heads, self.adoptions) for _, kept in kept_marks):
            more()
        for path, kept in kept_marks:
            if not kept.fits(self.heads, self.adoptions):
                lines = len(self.heads)
                if lines < kept.length:
                    seen = f"has {lines} lines, and {path} has seen {kept.length} in it"
                    what = f"{seen}: it was cut off, deleted, or an older copy put back"
                else:
                    first = f"one of its first {kept.length} lines was altered"
                    what = f"is not what {path} has seen: {first}, or it is another file"
                remedy = f"Put back the file as the last job left it, or, {again(lines)}"
                raise JobError(f"{self.path}: {what}; nothing is charged. {remedy}")
        self._known = {head for _, kept in kept_marks for head in kept.adopted}

    def _keep(self, *, sync: bool) -> None:
        """Keeps a mark of the lines that are on the disk now.

        `sync` is seldom needed: a mark that is lost when the machine stops leaves an older mark, which is still right.
        """
        if self.marks and self.first:
            self._known = (self._known or set()).union(head.hex() for head in self.adoptions)
            self.unmarked = Remembered(self.marks, self.path).keep(self.first, self.heads, sorted(self._known), sync=sync)

    def _grown(self, size: int) -> None:
        if size < self.read:
            raise JobError(f"{self.path}: became shorter while a job was using it; nothing more is charged")

    def _lines(self, lines: Iterable[bytes]) -> None:
        """Takes whole lines, which follow on the lines before."""
        lines = [line for line in lines if line.strip()]
        adopted = max((n for n, line in enumerate(lines) if _adopts(line) == len(self.heads) + n), default=-1)
        for n, line in enumerate(lines):
            self._line(line, len(self.heads) + len(lines) - n, trusted=n <= adopted)

    def _line(self, line: bytes, n_lines: int, *, trusted: bool) -> None:
        """Takes one line, of a file that has `n_lines` lines."""
        text, seal = unseal(line)
        head, number = following(self.mark.head, text), len(self.heads) + 1
        try:
            entry = json.loads(text)
            if trusted or seal == head.hex():
                self._take(entry, head)
        except (ValueError, KeyError, TypeError, AttributeError) as fault:
            raise JobError(
                f"{self.path}: can't read the line {line[:60]!r} ({type(fault).__name__}), which may be a charge, so nothing "
                "is charged. Put the line back, or delete it if nothing was computed for it"
            ) from None
        if not trusted and seal != head.hex():
            what = (
                "has no chain: it was written by hand or by an older version of fedkern"
                if seal is None
                else "was altered, or one before it was altered or removed: its chain does not fit"
            )
            raise JobError(
                f"{self.path}: line {number} {what}; nothing is charged. Put back the file as it was, or, if its {n_lines} lines "
                f'are all that was spent, add the line {{"adopt": {n_lines}}} at its end: they count from then on'
            )
        if trusted and _adopts(line) == len(self.heads):
            self.adoptions.append(head)
        self.heads.append(head)
        self.adopted = len(self.heads) if trusted else self.adopted

    def _take(self, entry: Record, head: bytes) -> None:
        if entry.keys() & {"torn", "adopt"}:
            return
        job, self.first = entry["job"], self.first or head
        self.begun.setdefault(job, str(entry.get("time", "")))
        if "mechanism" in entry:
            self.jobs[job] = (entry["data"], Mechanism.from_dict(entry["mechanism"]))
            if "delta" in entry:
                self.deltas[job] = float(entry["delta"])
            return
        if "unaccounted" in entry:
            self.unaccounted[entry["data"], job] = entry["unaccounted"]
            if entry["unaccounted"] == ASKED:
                self.asked.setdefault((entry["data"], job), []).append(Sketch(**entry["rows"]))
                return
            if "others" in entry:
                self.others[entry["data"], job] = frozenset(map(str, entry["others"]))
            if "rows" in entry:
                self.rows[entry["data"], job] = Sketch(**entry["rows"])
            if "columns" in entry:
                self.columns[entry["data"], job] = str(entry["columns"])
            return
        steps = entry["steps"]
        if type(steps) is not int or steps < 0:
            raise ValueError(f"steps = {steps!r}")
        data, mechanism = self.jobs[job]
        key = (data, job, mechanism)
        self.spent[key] = self.spent.get(key, 0) + steps
        self.rounds[job] = max(entry.get("round", -1), self.rounds.get(job, -1))

    def append(self, file: int, entry: Mapping[str, Json]) -> None:
        """Writes a line; it is on the disk when this returns."""
        time = datetime.now(UTC).isoformat(timespec="seconds")
        line, head = seal({**entry, "time": time}, self.mark.head)
        try:
            try:
                _write(file, line)
            except OSError:
                with suppress(OSError):  # what of it was written
                    os.ftruncate(file, self.read)
                raise
            os.fsync(file)
        except OSError as fault:
            raise JobError(f"{self.path}: can't be written ({fault.strerror}); nothing was charged, no row is read") from None
        self.read += len(line)
        self.heads.append(head)
        self._take(entry, head)
        self._keep(sync="steps" not in entry)

    def of_job(self, job: str) -> Parts:
        """Returns the mechanisms and steps that a job was charged, its latest mechanism first."""
        steps = {self.jobs[job][1]: 0}
        for (_, of, mechanism), n in self.spent.items():
            if of == job:
                steps[mechanism] = steps.get(mechanism, 0) + n
        return tuple(steps.items())

    def parts(self, data: Collection[str], *, but: tuple[str, Mechanism] | None = None) -> Parts:
        """Returns (mechanism, steps) of a data set, by all its names, without one job's one mechanism (`but`)."""
        return tuple(
            (mechanism, steps) for (of, job, mechanism), steps in self.spent.items() if of in data and (job, mechanism) != but
        )


def _parted(text: bytes) -> tuple[list[bytes], bytes]:
    """Splits text into whole lines and the torn last one: its beginning, or zeros where the disk had received no more of it."""
    *lines, rest = text.split(b"\n")
    if not rest and lines and b"\0" in lines[-1]:
        rest = lines.pop() + b"\n"
    return lines, rest


def _write(file: int, line: bytes) -> None:
    """Writes a whole line: a write may end early without a fault, and the next one reports the fault if it lasts."""
    while line:
        written = os.write(file, line)
        if not written:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        line = line[written:]


def _entry(line: bytes) -> Json:
    """Returns the content of a line; None if it is no JSON."""
    try:
        entry: Json = json.loads(line)
        return entry
    except ValueError:
        return None


def _adopts(line: bytes) -> int | None:
    """Returns how many lines a line adopts; None if it is another kind of line."""
    entry = _entry(line) if b'"adopt"' in line else None
    number = entry.get("adopt") if isinstance(entry, dict) else None
    return number if type(number) is int else None


@dataclass(frozen=True)
class Total:
    """Holds the sum that all jobs together have spent on one data set, for the holder's eyes alone."""

    # epsilon, delta, jobs: the sum of the jobs with an account, and their number
    epsilon: float
    delta: float
    jobs: int
    cap: float | None  # the holder's own; None without one
    neighbours: str = ""
    # open_jobs, client_level_jobs: jobs that were allowed without an account
    open_jobs: int = 0
    client_level_jobs: int = 0

    def text(self) -> str:
        """Returns the total in words."""
        cap = "" if self.cap is None else f" of {self.cap:.4g}"
        of = f", {self.neighbours}" if self.neighbours else ""
        more = [f"{n} {kind}" for n, kind in ((self.open_jobs, "open"), (self.client_level_jobs, "client-level")) if n]
        beside = f"; beside them {' and '.join(more)} jobs, which this does not count" if more else ""
        return f"all {self.jobs} jobs on these data: epsilon = {self.epsilon:.4g}{cap} at delta = {self.delta:.4g}{of}{beside}"


class Near(NamedTuple):
    """Holds an earlier open job on the same data, from which a later one differs by little."""

    when: str  # its date and time
    clients: frozenset[str] = frozenset()  # one or two, by which the other clients differ; none: not by so few
    rows: bool = False  # whether the rows that counted differ, and by few
    begun: bool = True  # whether it is known to have begun; else it has asked
    columns: tuple[tuple[str, str], ...] = ()  # pairs of a column of the later job and one of this, which differ in few rows


class Many(NamedTuple):
    """Counts the open jobs on the same rows that make other columns of them, this one too; `most` may be."""

    jobs: int
    most: int

    @property
    def told(self) -> bool:
        """Whether there are so many that the holder is told."""
        return 2 * self.jobs >= self.most

    @property
    def refused(self) -> bool:
        """Whether a policy forbids this one that forbids jobs which differ by little."""
        return self.jobs > self.most


class Books:
    """Holds the budget file of a data set, and all others that may tell of the data: those are only read."""

    def __init__(self, account: Account) -> None:
        self._unsealed: dict[str, Columns | None] = {}
        self.account, self.ledger = account, Ledger(account.folder / LEDGER, ground=account.ground, marks=account.marks)
        names = {self.ledger.path: frozenset({account.data}), **account.known}
        self.all = [(self.ledger, names.pop(self.ledger.path) | {account.data})]
        self.all += [(Ledger(path, marks=account.marks), known) for path, known in names.items()]

    def look(self, *, own: bool = False) -> None:
        """Reads the lines that others have added to the other files; with `own` also those of its own file, without a lock."""
        first = 0 if own else 1
        for ledger, _ in self.all[first:]:
            ledger.look()

    def parts(self, *, but: tuple[str, Mechanism] | None = None) -> Parts:
        """Returns the same as `Ledger.parts`, over all files."""
        return tuple(part for ledger, names in self.all for part in ledger.parts(names, but=but))

    def of_run(self, job: str, but: Mechanism) -> Parts:
        """Returns the charges of a job by other mechanisms, or while its data had another name: it is one job all the same."""
        return tuple(
            (mechanism, steps)
            for ledger, names in self.all
            for (data, of, mechanism), steps in ledger.spent.items()
            if of == job and not (mechanism == but and data in names)
        )

    def spent(self, job: str, mechanism: Mechanism) -> int:
        """Returns the steps that are charged to one job's one mechanism."""
        steps = ((ledger.spent.get((name, job, mechanism), 0)) for ledger, names in self.all for name in names)
        return sum(steps)

    def jobs(self) -> set[str]:
        """Returns the jobs that were charged at least one step."""
        return {job for ledger, names in self.all for (data, job, _), steps in ledger.spent.items() if steps and data in names}

    def unaccounted(self) -> dict[str, Use | Literal["asked"]]:
        """Returns the jobs that were allowed without an account, each with its kind."""
        return {job: use for ledger, names in self.all for (data, job), use in ledger.unaccounted.items() if data in names}

    def total(self, delta: float) -> Total:
        """Returns the sum of all jobs, by the cap of which least is left; at `delta` where no cap is set."""
        parts = self.parts()
        caps = [(policy.epsilon, policy.delta) for policy in self.account.policies if policy.delta is not None]
        spent = [(epsilon(parts, d), d, cap) for cap, d in caps]
        most, at_delta, cap = max(spent, key=lambda use: use[0] / use[2], default=(epsilon(parts, delta), delta, None))
        kinds = list(self.unaccounted().values())
        neighbours = neighbours_of([mechanism for mechanism, steps in parts if steps]) if any(s for _, s in parts) else ""
        return Total(most, at_delta, len(self.jobs()), cap, neighbours, kinds.count("open"), kinds.count("client-level"))

    def known(self) -> set[str]:
        """Returns all jobs on these data that any of the files knows."""
        begun = {job for ledger, names in self.all for job, (data, _) in ledger.jobs.items() if data in names}
        return begun | self.unaccounted().keys()

    def require(self, job: str, paid: int) -> None:
        """Refuses files that do not know of the steps that a job's messages have taken (JobError)."""
        known = sum(steps for ledger, _ in self.all for (_, of, _), steps in ledger.spent.items() if of == job)
        if known < paid:
            raise JobError(
                f"{self.ledger.path}: knows of {known} steps of this run, whose messages took {paid}: it was deleted, or an "
                "older copy put back; nothing is charged. Put back the file as the run left it"
            )

    def near(self, job: str, others: Collection[str], rows: Rows | None = None) -> list[Near]:
        """Returns earlier open jobs on these data that differ by little from this one.

        They had the other clients `others` but for one or two, or these rows but for a few, or a column that is one of this job
        but in a few rows. `job` itself is not among them, nor is another client's part of the same run.
        """
        runs: dict[str, list[tuple[str, frozenset[str], int, list[tuple[str, str]]]]] = {}
        for ledger, names in self.all:
            for (data, of), had in ledger.others.items():
                if data in names and run_of(of) != run_of(job):
                    apart = self._apart(ledger, data, of, rows)
                    earlier = self._columns(ledger, data, of, rows)
                    pairs = [] if rows is None or earlier is None else rows.columns.near(earlier)
                    part = (ledger.begun.get(of) or of, had ^ frozenset(others), apart, pairs)
                    runs.setdefault(run_of(of), []).append(part)
        nearby: list[Near] = []
        for parts in runs.values():  # several clients of a run may share these data, and one of them is this one
            when, clients = parts[0][0], min((but for _, but, _, _ in parts), key=len)
            few = 0 < min(apart for _, _, apart, _ in parts) < NEAR_ROWS
            columns = () if few else tuple(pair for *_, pairs in parts for pair in pairs)  # of other rows, all are others
            if 0 < len(clients) <= NEAR or few or columns:
                if len(clients) > NEAR:
                    clients = frozenset()
                nearby.append(Near(when, clients, few, columns=columns))
        described = () if rows is None else told.near(told.read(self.account), rows.columns.values)
        return nearby + [Near("a description", columns=((name, f"{name}, in parts"),)) for name in described]

    def values(self, key: bytes) -> list[told.Values]:
        """Returns what each earlier open job on these data tells of columns of few values."""
        self.look(own=True)
        sealed = [text for ledger, names in self.all for (data, _), text in ledger.columns.items() if data in names]
        found = list[told.Values]()
        for text in sealed:
            with suppress(ValueError, TypeError):  # under another secret
                found.append(Columns.unsealed(text, key).values)
        return found

    def many(self, rows: Rows, most: int | None = None) -> Many:
        """Returns how many open jobs on these rows, or on nearly these, made other columns of them, with this one.

        `most` is the number that this job allows, if it says one.
        """
        totals = {rows.columns.total}
        for ledger, names in self.all:
            for data, of in ledger.columns:
                if data in names and self._apart(ledger, data, of, rows) < NEAR_ROWS:
                    earlier = self._columns(ledger, data, of, rows)
                    totals |= set() if earlier is None else {earlier.total}
        limits = [policy.jobs for policy in self.account.policies if policy.jobs is not None] or [OPEN_JOBS]
        if most is not None:
            limits.append(most)
        return Many(len(totals), min(limits))

    def joined(self, rows: Rows) -> dict[str, frozenset[str]]:
        """Returns column -> the levels that joined in the first open job on these rows, or nearly these, in which any did."""
        first: dict[str, frozenset[str]] = {}
        for ledger, names in self.all:
            for data, of in ledger.columns:
                if data in names and self._apart(ledger, data, of, rows) < NEAR_ROWS:
                    earlier = self._columns(ledger, data, of, rows)
                    for name, levels in {} if earlier is None else earlier.joined.items():
                        first.setdefault(name, frozenset(levels))
        return first

    def _apart(self, ledger: Ledger, data: str, job: str, rows: Rows | None) -> int:
        """Returns by how many rows at least an earlier job differs from these; NEAR_ROWS where that cannot be told."""
        before = ledger.rows.get((data, job))
        apart = before.apart(rows.sketch) if before is not None and rows is not None else None
        return NEAR_ROWS if apart is None else apart

    def _columns(self, ledger: Ledger, data: str, job: str, rows: Rows | None) -> Columns | None:
        """Returns the columns of an earlier job; None where they are not known, or were sealed with another secret."""
        text, before = ledger.columns.get((data, job)), ledger.rows.get((data, job))
        if text is None or rows is None or before is None or before.key != rows.sketch.key:
            return None
        if text not in self._unsealed:
            try:
                self._unsealed[text] = Columns.unsealed(text, rows.key)
            except (ValueError, TypeError) as fault:
                raise JobError(f"{ledger.path}: the columns of the job {job} cannot be read ({type(fault).__name__})") from None
        return self._unsealed[text]

    def near_rows(self, job: str, rows: Rows) -> list[Near]:
        """Returns earlier open jobs on these data whose rows, or a column, were these but for a few.

        If none is known, jobs are returned that asked and may not have begun. `job` names a job by its content, and not by its
        run: the same job, asked again, is no earlier one.
        """
        earlier: dict[str, tuple[str, list[int]]] = {}
        for ledger, names in self.all:
            for (data, of), sketches in ledger.asked.items():
                if data in names and run_of(of) != run_of(job):
                    apart = (sketch.apart(rows.sketch) for sketch in sketches)
                    earlier.setdefault(run_of(of), (ledger.begun[of], []))[1].extend(NEAR_ROWS if n is None else n for n in apart)
        few = [Near(when, rows=True, begun=False) for when, apart in earlier.values() if 0 < min(apart) < NEAR_ROWS]
        return [near._replace(clients=frozenset()) for near in self.near("", (), rows) if near.rows or near.columns] or few

    def ask(self, job: str, rows: Rows) -> list[Near]:
        """Returns the same as `near_rows`, and records that this job asked.

        Where no earlier job is near, a line for this job is written before it is told whether its rows are enough.
        """
        with self.ledger.locked() as file:
            self.look()
            near, sketch = self.near_rows(job, rows), rows.sketch
            if not near and sketch not in self.ledger.asked.get((self.account.data, job), ()):
                self.ledger.append(file, {"job": job, "data": self.account.data, "unaccounted": ASKED, "rows": sketch._asdict()})
        return near

    def note(
        self,
        job: str,
        use: Use,
        others: Collection[str] = (),
        rows: Rows | None = None,
        allow: Callable[[list[Near]], None] = lambda near: None,
    ) -> None:
        """Writes a line for a job that a policy allows without an account; one for each job. `others`, `rows`: the other clients
        of an open job, and the rows that count in it; `allow`: is given the jobs that are `near`, and raises an error to forbid
        this one: then no line is written."""
        with self.ledger.locked() as file:
            self.look()
            entries: dict[str, Json] = {"others": [*sorted(others)]} if use == "open" else {}
            entries |= {} if rows is None else {"rows": rows.sketch._asdict(), "columns": rows.columns.sealed(rows.key)}
            if use == "open":
                allow(self.near(job, others, rows))
            if job not in self.unaccounted():
                self.ledger.append(file, {"job": job, "data": self.account.data, "unaccounted": use, **entries})


def run_of(job: str) -> str:
    """Returns the name of the run to which a client's job name belongs."""
    return job.rpartition("-")[0] or job


def allowed_by(policy: Policy, mechanism: Mechanism, others: Parts, enough: int | None) -> int:
    """Returns how many steps of a mechanism a policy leaves to a job, beside the charges of all others.

    `enough` is that of `max_steps`.
    """
    if policy.delta is None:
        return UNLIMITED
    if epsilon(others, policy.delta) > policy.epsilon:
        return 0
    return max_steps(mechanism, policy.epsilon, policy.delta, others, enough=enough)


class Holder:
    """Decides about every charge of one data holder in one job.

    Parameters
    ----------
    client : the holder's name
    account : where the budget of its data lies, and the policies that bind
    job : a name of this run that no other run has; a resumed run keeps it
    mechanism, epsilon, delta : the job's noise, and its own cap (which may be infinite)
    last_update : "shorten" grants the steps that are left where they are fewer than asked; "refuse" grants nothing then
    marks : marks of the budget in files that this run left before: the budget must still begin as it was then
    paid : steps that messages of this run have taken, which the budget must know of
    planned : steps that the job will need; None where the budget ends it

    Attributes
    ----------
    new : no other job is known to have used these data
    goes_on : the account has lines of this run already

    Raises
    ------
    JobError
        One of the files can't be used.
    """

    def __init__(
        self,
        client: str,
        account: Account,
        *,
        job: str,
        mechanism: Mechanism,
        epsilon: float,
        delta: float,
        last_update: Literal["refuse", "shorten"] = "refuse",
        marks: Iterable[Mark] = (),
        paid: int = 0,
        planned: int | None = None,
    ) -> None:
        self._enough = planned
        self.client, self.job, self.data, self.mechanism = client, job, account.data, mechanism
        self.epsilon, self.delta, self.last_update = epsilon, delta, last_update
        self.policies: Sequence[Policy] = account.policies
        self.books = Books(account)
        self.ledger = self.books.ledger
        self._others: Parts | None = None
        marks = tuple(marks)
        if not self.ledger.path.exists():  # before it is made anew
            self.ledger.require(marks)
            self.books.look()
            self.books.require(job, paid)
        with self.ledger.locked() as file:
            self.ledger.require(marks)
            self.books.look()
            self.books.require(job, paid)
            known = self.books.known()
            self.new, self.goes_on = known <= {job}, job in known
            if self.ledger.jobs.get(job) != (self.data, mechanism):
                self.ledger.append(file, {"job": job, "data": self.data, "mechanism": mechanism.as_dict(), "delta": delta})
            self._update()

    def _before(self) -> Parts:
        return self.books.of_run(self.job, self.mechanism)

    @property
    def spent(self) -> int:
        """The number of steps of this job's mechanism that are charged."""
        return self.books.spent(self.job, self.mechanism)

    def charge(self, request: Asked) -> Decision:
        """Puts a charge on the disk, or refuses it. A refusal depends on public numbers alone, and changes nothing.

        A crash after this costs the charge: whoever asks again is charged again. (A stored message that is sent again
        needs no charge.)
        """
        if type(request.steps) is not int or request.steps < 1:
            raise ValueError(f"privacy: a charge must be for a positive whole number of steps, got {request.steps!r}")
        with self.ledger.locked() as file:
            # Other jobs may have been charged since: their steps count before this charge is granted.
            self._update()
            if self._enough is not None and self.spent + request.steps > self.allowed:  # after a crash more than was planned
                self._enough = self._others = None
                self._update()
            spent, left = self.spent, max(self.allowed - self.spent, 0)
            granted = request.steps
            if granted > left:
                granted = left if self.last_update == "shorten" else 0
            # The line is on the disk when `append` returns: no row is read before.
            if granted:
                self.ledger.append(file, {"job": self.job, "round": request.round, "steps": granted})
        return Decision(granted, spent, self.allowed)

    def _update(self) -> None:
        """Computes the largest number of steps anew if another job has been charged meanwhile."""
        self.books.look()
        others = self.books.parts(but=(self.job, self.mechanism))
        if others != self._others:
            self._others = others
            try:
                gather(((self.mechanism, 1), *others))  # of one unit, whether or not a policy binds: else there is no sum
                self.allowed = min([self._allowed_by_job(), *(self._allowed_by(policy, others) for policy in self.policies)])
            except ValueError as fault:
                raise JobError(f"client {self.client!r}: {self.ledger.path}: {fault}") from None

    @property
    def is_capped_by_policy(self) -> bool:
        """Whether a policy leaves fewer steps to this job than its own epsilon."""
        return self.allowed < self._allowed_by_job()

    def _allowed_by_job(self) -> int:
        return max_steps(self.mechanism, self.epsilon, self.delta, self._before(), enough=self._enough)

    def _allowed_by(self, policy: Policy, others: Parts) -> int:
        return allowed_by(policy, self.mechanism, others, self._enough)

    def total(self) -> Total:
        """Returns the sum that all jobs together have spent on this data set."""
        return self.books.total(self.delta)

    def certificate(self, *, rows_per_person: int = 1) -> dict[str, str | float]:
        """Returns the certificate of this job here. The charges of other jobs are for the holder alone: see `total`."""
        return certificate(
            self.mechanism,
            steps=self.spent,
            before=self._before(),
            epsilon_cap=self.epsilon,
            delta=self.delta,
            policy=bool(self.policies),
            rows_per_person=rows_per_person,
        )
