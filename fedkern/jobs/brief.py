"""Says in ten lines what `fedkern check` has found of a job: what it is, what leaves, what that tells, and what it costs.

What must be read stands first: a job that lowers a number or tells rows, clients that are left out or would be refused. Each line
is made of the job, its stages and its plan; `verbose` has all that is known of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any, NamedTuple

from ..algorithms.core.messages import Message
from ..algorithms.core.tells import DRAW, LIKELIHOOD, NOISED, NOTHING, PerRow, Sums
from ..disclosure import describe
from ..models.encoding import Spec
from ..printing import printable
from ..results import head, shown
from ..results.plain import plain
from . import admitted, trips, wire
from .check import Said
from .keys import JobConfig
from .said import Line
from .stage import Stage

WIDTH = 160  # characters of a line
NAMED = 3  # clients that would be refused
BEGIN = 9  # characters of the word before a line
KINDS = {
    NOISED: "noised sums",
    "sums of noised sums": "noised sums",
    "a noised number": "a noised number for every row",
    LIKELIHOOD: "functions of the likelihood",
    Sums.what: "sums over rows",
    DRAW: "draws",
    PerRow.what: "a number for every row",
}


class Facts(NamedTuple):
    """Holds what is known of a job before it runs."""

    # config, said: the job, and its method's answer to a check
    config: JobConfig
    said: Said
    kept: admitted.Kept  # the clients that take part
    rows: Mapping[str, int]  # name -> rows of a client that lives here
    # stages, spec: all that it exchanges, and the job file's facts of the columns by which parties agree
    stages: Sequence[Stage]
    spec: Spec
    most: int | None  # rounds, at most, where budgets end the job

    @property
    def names(self) -> tuple[str, ...]:
        """The clients' names."""
        return self.kept.parties.names

    @property
    def encoding(self) -> Any:
        """The columns, as far as they are agreed by names alone; None where a method has none."""
        return getattr(self.said.model, "encoding", None)

    @property
    def kinds(self) -> dict[type[Message], Mapping[str, int]]:
        """The messages of clients that tell something of rows, with their sizes."""
        dims_of = {kind: stage.dims for stage in self.stages for kind in stage.protocol.to_server}
        return {
            kind: dims
            for kind, dims in dims_of.items()
            if not describe.what(kind, self.config.requirement, self.spec).startswith(NOTHING)
        }

    @property
    def coefficients(self) -> int:
        """Their number, by which rows are counted; 0 where no message is of them."""
        return max((dims.get("d", 0) for dims in self.kinds.values()), default=0)

    @property
    def least(self) -> int:
        """The rows that a client must have; 0 where nothing is asked."""
        if self.config.level == "none":
            return 0
        return max(self.config.rules.rows, self.config.requirement.told_up_to(self.coefficients) + 1)

    def notes(self, *words: str) -> list[Line]:
        """Returns the method's lines of these words."""
        return [line for line in self.said.lines if isinstance(line, Line) and line.word in words]


def lines(job: Facts, latency: float | None = None) -> list[str]:
    """Returns warnings, and at most ten lines."""
    warned = [line for word, text in _warnings(job) for line in _wrapped(word.upper(), text)]
    texts = {
        "model": _model(job),
        "clients": _clients(job),
        "leaves": _leaves(job),
        "tells": _tells(job),
        "level": _level(job),
        "privacy": _privacy(job),
        "time": _time(job, latency),
        "bytes": _bytes(job),
        "verdict": _verdict(job),
    }
    return [*warned, *(line for word, text in texts.items() for line in _wrapped(word, text, 2 if word == "tells" else 1))]


def _wrapped(word: str, text: str, most: int | None = None) -> list[str]:
    """Returns a text as lines, `most` of them, below a word."""
    begin = f"{word:<{BEGIN - 1}} "
    text = printable(text)
    return wrap(
        text,
        WIDTH,
        initial_indent=begin,
        subsequent_indent=" " * BEGIN,
        max_lines=most,
        placeholder=" ..",
        break_on_hyphens=False,
    )


def _warnings(job: Facts) -> list[tuple[str, str]]:
    """Returns what must be read, each with a word for it."""
    config, kept = job.config, job.kept
    warnings = [("renamed", text) for text in admitted.renamed(config)] + admitted.first(config)
    more = len(kept.apart) - NAMED
    named = admitted.describe_apart(config, kept._replace(apart=dict([*kept.apart.items()][:NAMED])))
    warnings += [("apart", text + (f"; and {more} more" if more > 0 else "")) for text in named]
    warnings += [(line.word, f"{line.text} {line.more}") for line in job.notes("memory") if line.more]
    return [
        *warnings,
        *(("left out", note) for note in kept.notes),
        *((line.word, line.text) for line in job.notes("warning", "doubt")),
    ]


def _model(job: Facts) -> str:
    """Returns family, link, formula and response."""
    encoding = {} if job.encoding is None else job.encoding.to_dict()
    known = {"method": job.config.job.method, "encoding": encoding, "clients": job.names}
    event = shown.event(known)
    wrapped = wrap(
        head.model_of(known, plain(job.config.model_dump())), WIDTH - BEGIN - len(event), max_lines=1, placeholder=" .."
    )
    return wrapped[0] + event


def _clients(job: Facts) -> str:
    """Returns the clients, with their rows where all are here and the job is open."""
    known = {} if job.config.privacy is not None else job.rows
    names = [f"{name} ({known[name]:,} rows)" if name in known else name for name in job.names]
    text = f"{len(names)} by {job.config.job.method}: "
    room = WIDTH - BEGIN - len(text) - len(" and 10,000 more")
    named = next((k for k in range(len(names), 1, -1) if len(", ".join(names[:k])) <= room), 1)
    return text + ", ".join(names[:named]) + (f" and {len(names) - named:,} more" if named < len(names) else "")


def _leaves(job: Facts) -> str:
    """Returns what a client's messages are, in all."""
    kinds = job.kinds
    what = [describe.what(kind, job.config.requirement, job.spec) for kind in kinds]
    contents = dict.fromkeys(
        next((KINDS[begin] for begin in KINDS if text.startswith(begin)), "names and counts") for text in what
    )
    masked = "; of what is masked the server gets the sum over all clients" if job.config.secure else ""
    return f"{', '.join(contents)}: {len(kinds)} kinds of messages{masked}"


def _tells(job: Facts) -> str:
    """Returns what can be computed of it, as far as that is known."""
    least = job.config.rules.rows if job.kept.summaries else None
    return describe.computed(job.config.requirement, job.kinds, job.spec, least)


def _level(job: Facts) -> str:
    """Returns the rules for rows, and whether they hold."""
    config, rules, n = job.config, job.config.rules, len(job.names)
    if config.privacy is not None:
        return "none: nothing is counted in a private job, whose noise is all that protects rows"
    if not config.counts_rows:
        return f"none: {config.job.method} has no rules for rows"
    if config.level == "none":
        apart = "all clients would take part" if not job.kept.apart else f"{len(job.kept.apart)} of {n} would be refused"
        return f'none: all rows are in this process, and nothing is asked; with parties apart, at "standard", {apart}'
    needs = [f"{job.least:,} rows of each client" + (f" for {job.coefficients} coefficients" if job.least > rules.rows else "")]
    needs += [f"{rules.rows_per_value} rows a value"] if config.requirement.looks_at_values and rules.rows_per_value else []
    groups = config.requirement.least_of_group
    needs += [f"{groups} groups"] if groups else []
    summed = [job.names[k] for k in sorted(job.kept.summaries)]
    small = f"; too small for them, and by a summary: {', '.join(summed)}" if summed else ""
    return f"{config.level}: {', '.join(needs)}; the rules hold for {n - len(summed)} of {n + len(job.kept.notes)} clients{small}"


def _privacy(job: Facts) -> str:
    """Returns the plan that spends most, or that none is claimed."""
    if job.config.privacy is None:
        return "none is claimed: what clients send has no noise in it"
    plan = max(job.said.plans.values(), key=lambda candidate: candidate.spent)
    m, whose = plan.mechanism, "all clients" if job.config.unit == "client" else "each client at most"
    spent = f"{plan.spent:.4g}" if m.secure else f"infinite (secure: {plan.spent:.4g})"
    noise = "secure" if m.secure else "keyed"
    return f"epsilon {spent}, delta {plan.delta:g} of {whose}; {noise} noise; neighbours: {m.neighbours}"


def _time(job: Facts, latency: float | None) -> str:
    """Returns how many rounds, or questions one after another, the job takes."""
    counted = trips.count_trips(job.config, len(job.names), job.stages, job.kept.parties.spec, job.most, job.encoding)
    return trips.in_short(counted, latency)


def _bytes(job: Facts) -> str:
    """Returns what each client sends and receives, and all together."""
    most = "on average" if any(stage.by_chance for stage in job.stages) else "at most"
    ((_, up, sent), (_, down, received)), total = wire.count(len(job.names), job.stages, job.kept.parties.spec, job.most)
    of_client = (
        f"a client sends {most} {sent:,} in {up:,} messages, receives {received:,} in {down:,}; all {len(job.names)} clients"
    )
    return f"{of_client} {total:,}" + (" (more if columns hold texts)" if job.said.unknown else "")


def _verdict(job: Facts) -> str:
    """Returns that the job can run, and the first note."""
    notes = [line.text for line in job.notes("note", "advice", "clip")]
    notes_line = f"; {len(notes)} note{'s' * (len(notes) > 1)}: {notes[0]}" if notes else ""
    return f"can run; --messages lists every message, --verbose (verbose=True) says all{notes_line}"
