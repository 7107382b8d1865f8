"""Runs `fedkern review`: drafts the two documents that a hospital asks for before a job, of the facts of this job.

Each line is a fact with the file or command that it is read from, or an empty field for the people who have to decide. Nothing is
judged: a draft says what a job does, and not whether it may.
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import NamedTuple

from .. import __version__
from ..api import check_job
from ..errors import JobError
from ..jobs import holders
from ..jobs.files import write_atomically
from ..jobs.holding.binding import known_policies
from ..jobs.keys import JobConfig
from ..jobs.machine import versions
from ..jobs.site import GIVEN
from ..methods import METHODS, load
from ..printing import printable
from ..transports.inprocess import InProcess

FORMS = ("dpia", "security")
PLACES = "the usual places (`docs/how-to/policy.md`); those beside the data are asked, too"
EMPTY = "`................`"
CHECK = "`fedkern check {}`"


class Facts(NamedTuple):
    """Holds all that a draft is made of.

    Attributes
    ----------
    job : the job file's path, as it was given
    config : the job
    check : the lines of `fedkern check`
    policies : the files of the policies that lie in the usual places of this machine
    site : the holder's site file, where one was named
    """

    job: str
    config: JobConfig
    check: Sequence[str]
    policies: Sequence[Path]
    site: str | None

    @property
    def private(self) -> bool:
        """Whether the job has [privacy]."""
        return self.config.privacy is not None

    def part(self, first: str, *ends: str) -> list[str]:
        """Returns the lines of `fedkern check` from one that begins so, up to one that begins with one of `ends`."""
        lines: list[str] = []
        for line in self.check:
            if lines and (not line.strip() or line.startswith(ends)):
                break
            if lines or line.startswith(first):
                lines.append(line)
        return lines

    def line(self, word: str) -> str:
        """Returns the text of the line of `fedkern check` that begins with this word; empty if there is none."""
        return next((line[len(word) :].strip() for line in self.check if line.startswith(f"{word} ")), "")


def review(options: argparse.Namespace) -> int:
    """Runs `fedkern review` and returns the exit code."""
    if options.site:
        os.environ[GIVEN] = os.path.abspath(options.site)
    config, folder = load(options.job, options.sets)
    check = check_job(InProcess(), config, folder)
    assert check is not None
    facts = Facts(options.job, config, check, [file.path for file in known_policies()], options.site)
    text = "\n".join(dpia(facts) if options.form == "dpia" else security(facts)) + "\n"
    if options.out is None:
        print("\n".join(map(printable, text.splitlines())))
        return 0
    if os.path.exists(options.out):
        raise JobError(f"--out {options.out}: exists, and may have been filled in; give another name")
    write_atomically(Path(options.out), text.encode())
    print(printable(f"draft in {options.out}: fill in the fields"))
    return 0


def dpia(facts: Facts) -> Iterator[str]:
    """Yields the lines of a draft for a data protection impact assessment, in Markdown."""
    config, check = facts.config, CHECK.format(facts.job)
    yield from _head("Data protection impact assessment", facts)
    yield "\n## 1. The processing\n"
    yield from _table(
        ("Statistical method", facts.line("job") or config.job.method, check),
        ("Model", facts.line("model"), check),
        ("Columns that are used", facts.line("columns"), f"{check}; kinds and levels in `[data]` of `{facts.job}`"),
        ("Purpose, and the decision that rests on the result", EMPTY, "the controller"),
        ("Legal basis; approval of an ethics board", EMPTY, "the controller"),
        ("Why fewer columns or rows would not do", EMPTY, "the controller"),
    )
    yield "\n## 2. Who takes part\n"
    yield from _table(
        ("Data holders", facts.line("clients"), check),
        ("Who runs the server, and who reads the result", EMPTY, "the controller"),
        ("Roles (controller, joint controllers, processor), and their contract", EMPTY, "the controller"),
        ("Whose data: patients, time span, number", EMPTY, "the controller"),
    )
    yield "\n## 3. What leaves a data holder\n"
    yield f"Rows stay in the holder's file; messages are computed from them. All kinds of messages, from {check}:\n"
    yield from _block(facts.part("each client may send", "computed", "the server may send"))
    yield "\nWhat can be computed from them, as far as it is known:\n"
    yield from _block(facts.part("computed", "the server may send"))
    yield ""
    yield from _table(
        ("What did leave, message by message, after the run", "`fedkern ledger RUN`", "`ledger/` of the run's folder"),
        (
            "The result",
            "the posterior of the model's parameters, a verdict and notes",
            "`summary.json`, `posterior.nc` of the run's folder",
        ),
        ("Would a reader learn of one patient from the result?", EMPTY, "the controller"),
    )
    yield "\n## 4. What limits it\n"
    yield from _block(facts.part("privacy", "each client"))
    warned = [line for line in facts.check if line.startswith(("LOWERED", "ROWS", "note", "rotation", "curvature", "values"))]
    if warned:
        yield "\nWarnings of the same command:\n"
        yield from _block(warned)
    yield ""
    yield from _table(
        ("Fewest rows of a holder", facts.line("least") or "not asked", check),
        ("Policies of this machine", _listed(facts.policies), PLACES),
        ("Budget over all jobs, spent so far", "`fedkern budget`", "`budget.jsonl` beside the policy"),
        *(
            [("Noise against whom, and what is trusted", "as printed above", check)]
            if facts.private
            else [("Why no noise is added (no `[privacy]`)", EMPTY, "the controller")]
        ),
    )
    yield "\n## 5. Where it is kept, and for how long\n"
    yield from _table(
        (
            "Holder: what has left, its budget, its own results",
            "folder `client-NAME`, only its user may read it",
            "`docs/how-to/console.md`",
        ),
        ("Server: result, ledger, checkpoints", "the run's folder (`--out`)", "`docs/how-to/resume.md`"),
        ("Retention of each, and who deletes them", EMPTY, "the controller"),
    )
    yield "\n## 6. Rights and risks\n"
    yield from _table(
        ("How a patient's objection is met: the row is taken out of the file before the next job", EMPTY, "the controller"),
        ("A result that was released cannot be taken back", EMPTY, "the controller"),
        ("Risks that remain, their size, and what is done about each", EMPTY, "the controller"),
        ("Advice of the data protection officer; date, name", EMPTY, "the controller"),
    )


def security(facts: Facts) -> Iterator[str]:
    """Yields the lines of a draft for a review by the people who keep a holder's machines, in Markdown."""
    check = CHECK.format(facts.job)
    installed = [(name, number) for name, number in versions().items() if number and name not in ("fedkern", "python")]
    yield from _head("Security review", facts)
    yield "\n## 1. What is installed\n"
    yield from _table(
        ("fedkern", f"{__version__}, {_licence('fedkern')}", "`fedkern info`"),
        ("Python", platform.python_version(), "`fedkern info`"),
        *((name, f"{number}, {_licence(name)}", "`fedkern info`") for name, number in installed),
        ("Where it was got, and how its digest was compared", EMPTY, "the administrator"),
        ("Who installs new versions, and how soon", EMPTY, "the administrator"),
    )
    yield "\n## 2. What it opens\n"
    yield from _table(
        ("Files that are read", f"`{facts.job}`, the site file, policies, the data that these name", "`docs/how-to/files.md`"),
        (
            "The site file",
            f"`{facts.site}`" if facts.site else "`sites/NAME.toml` or `site.toml` beside the job",
            "`docs/how-to/files.md`",
        ),
        ("Policies of this machine", _listed(facts.policies), PLACES),
        ("Files that are written", "below `--out`, and budgets beside policies; modes 0600 and 0700", "`docs/how-to/console.md`"),
        ("Ports", "none of its own: the wire is MPI's, or that of the engine", "`docs/how-to/mpi.md`"),
        ("Ports, certificates and addresses of the engine", EMPTY, "the administrator"),
        ("Code that a job file can name", _code(facts.config), f"`{facts.job}`"),
        ("Account under which it runs; what else that account may read", EMPTY, "the administrator"),
    )
    yield "\n## 3. What it sends\n"
    yield f"Kinds, fields and most bytes of all messages, from {check}; nothing else has a message type, and none is a pickle:\n"
    yield from _block(facts.part("each client may send", "computed", "the server may send"))
    yield from _block(facts.part("each client in the whole job", "sizes are"))
    yield "\n## 4. What it does with what comes\n"
    yield from _table(
        (
            "A message of unknown kind, size, version or checksum",
            "the job ends",
            "`docs/develop/architecture.md`",
        ),
        ("Another job file than the holder's own", "the job ends before a row is read", "`docs/how-to/mpi.md`"),
        ("A policy that does not allow the job", "the job is refused before a row is read", "`docs/how-to/policy.md`"),
        ("A fault in a row", "others read that there is one, and not the cell", "`docs/how-to/files.md`"),
        ("Where noise comes from", _noise(facts), check),
    )
    yield "\n## 5. How it is watched and stopped\n"
    yield from _table(
        ("What has left so far", "`fedkern ledger`, `fedkern status`", "the run's folder"),
        ("To stop", "SIGINT or SIGTERM: a checkpoint, exit code 3; `--resume` goes on", "`docs/how-to/resume.md`"),
        (
            "Exit codes",
            "0 finished; 1 internal error; 2 bad job or data; 3 stopped; 4 lost clients; 5 budget spent",
            "`fedkern --help`",
        ),
        ("A fault to report", "`SECURITY.md`", "the repository"),
        ("Which log goes where; how long it is kept; who reads it", EMPTY, "the administrator"),
        ("Limits of memory, cores and time", EMPTY, "the administrator"),
        ("Decision; date, name", EMPTY, "the administrator"),
    )


def _head(title: str, facts: Facts) -> Iterator[str]:
    yield f"# {title}: `{facts.job}`\n"
    yield f"Digest of the job: `{facts.config.digest}`\n"
    yield "A draft by `fedkern review`, which decides nothing. Each line is a fact with its source, or a field to fill in."


def _table(*rows: tuple[str, str, str]) -> Iterator[str]:
    yield "| | | read from |"
    yield "| --- | --- | --- |"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|').replace(chr(10), ' ') for cell in row)} |"


def _block(lines: Sequence[str]) -> Iterator[str]:
    yield "```text"
    yield from lines or ["(the command prints no such line for this job)"]
    yield "```"


def _listed(paths: Sequence[Path]) -> str:
    return ", ".join(f"`{path}`" for path in paths) or "none"


def _licence(package: str) -> str:
    try:
        said = metadata(package)
    except PackageNotFoundError:
        return "licence not known here"
    known = [text.rpartition(" :: ")[2] for text in said.get_all("Classifier") or () if text.startswith("License :: ")]
    return "; ".join(said.get_all("License-Expression") or known) or "licence not stated"


def _noise(facts: Facts) -> str:
    """Says where the noise of a private job comes from."""
    if not facts.private:
        return "the job adds none"
    return (
        "the system's entropy"
        if holders.source_of(facts.config) == "secure"
        else "the job's seed: no noise that protects anybody"
    )


def _code(config: JobConfig) -> str:
    """Returns the code of other packages that this job has run, in words."""
    factory, method = getattr(config.model, "factory", None), config.job.method
    named = [f"factory `{factory}`"] if factory else []
    named += [] if method in METHODS else [f"method `{method}`"]
    return f"{' and '.join(named)}, where the holder's policy lists it" if named else "none"
