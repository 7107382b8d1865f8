"""Runs `fedkern review`: drafts the two documents that a hospital asks for before a job, of the facts of this job.

Each line is a fact with the file or command that it is read from, or an empty field for the people who have to decide. Nothing is
judged: a draft says what a job does, and not whether it may.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, metadata
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from .. import __version__
from ..api import check_job
from ..bridges.digest import digest_of, names_of
from ..bridges.identity import Identity, read_key
from ..errors import JobError
from ..jobs import holders
from ..jobs.engine import there
from ..jobs.files import write_atomically
from ..jobs.holding.binding import account, bind, known_policies
from ..jobs.holding.statement import statements
from ..jobs.keys import JobConfig
from ..jobs.machine import versions
from ..jobs.parties import Parties
from ..jobs.run import Part
from ..jobs.site import GIVEN, Sites
from ..jobs.wire import CONTROL
from ..methods import METHODS, load, load_method
from ..printing import printable
from ..transports.inprocess import InProcess
from .seen import Here, as_seen_here

FORMS = ("dpia", "security")
PLACES = "the usual places, the site file's, and beside the data that are here (`docs/how-to/policy.md`)"
CLIENT, SERVER = "each client may send", "the server may send"  # the first words of parts of `fedkern check`
EMPTY = "`................`"
CHECK = "`fedkern check {} --apart`"
TEXTS = re.compile(r"\w+\.text: ")  # on a message's text; after the server's messages
WARNINGS = ("LOWERED", "ROWS", "note", "sums", "rotation", "curvature", "values")


class Facts(NamedTuple):
    """Holds all that a draft is made of.

    Attributes
    ----------
    job : the job file's path, as it was given
    config : the job
    check : the lines of `fedkern check`
    policies : the files of the policies that are asked on this machine
    columns : the columns of the clients' files that are here, a line for each set of columns
    site : the holder's site file, where one was named
    accounts : what the accounts of the data that are here say of earlier jobs on them, a line for each
    alone : the client whose file alone is here, where others' are not: the lines are of a job in which all have its columns
    """

    job: str
    config: JobConfig
    check: Sequence[str]
    policies: Sequence[Path]
    columns: Sequence[str]
    site: str | None
    accounts: Sequence[str] = ()
    alone: str | None = None

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

    def warnings(self, but: Sequence[str]) -> list[str]:
        """Returns the lines that warn, with those that go on with them, but for some that are printed already."""
        lines: list[str] = []
        goes_on = False
        for line in self.check:
            goes_on = line.startswith(WARNINGS) or (goes_on and line.startswith(" "))
            lines += [line] if goes_on and line not in but else []
        return lines

    @property
    def control(self) -> list[str]:
        """The lines of `fedkern check` on what leaves a holder beside the rounds: how a job begins and ends."""
        lines = self.part(CONTROL)
        return [*lines[:1], *takewhile(lambda line: line.startswith(" "), lines[1:])]

    def line(self, word: str) -> str:
        """Returns the text of the line of `fedkern check` that begins with this word; empty if there is none."""
        return next((line[len(word) :].strip() for line in self.check if line.startswith(f"{word} ")), "")


def review(options: argparse.Namespace) -> int:
    """Runs `fedkern review` and returns the exit code."""
    if options.site:
        os.environ[GIVEN] = os.path.abspath(options.site)
    config, folder = load(options.job, options.sets)
    parties = there(load_method(config.job.method), Part(InProcess(), config, folder))
    here = [k for k in range(parties.n_clients) if all(path.exists() for path in parties.holding(k).paths)]
    # One organisation of several has its own file alone.
    shown, alone, held = config, None, None
    if len(here) < parties.n_clients:
        try:
            shown, alone, _, held = as_seen_here(config, folder)
        except JobError as error:
            if here:
                raise
            invented = "if you coordinate it, put invented rows with the same columns at each path of data.clients"
            raise JobError(f"{error}; {invented}") from None
    check = check_job(Here(_identity(config, folder)), shown, folder, held, apart=True)  # which organisations are
    assert check is not None
    facts = Facts(
        options.job,
        config,
        check,
        _policies(parties, here),
        _columns(parties, here),
        options.site,
        _accounts(parties, here),
        alone,
    )
    text = "\n".join(dpia(facts) if options.form == "dpia" else security(facts)) + "\n"
    if options.out is None:
        print("\n".join(map(printable, text.splitlines())))
        return 0
    if os.path.exists(options.out):
        raise JobError(f"--out {options.out}: exists, and may have been filled in; give another name")
    write_atomically(Path(options.out), text.encode())
    print(printable(f"draft in {options.out}: fill in the fields"))
    return 0


def _identity(config: JobConfig, folder: Path) -> Identity | None:
    """Returns the identity by which this site signs its keys of secure sums; None where it has none, or no site is here."""
    try:
        site = Sites(folder, names_of(config))
        key = site.of(site.whose()).signing_key if config.secure else None
    except JobError:
        return None
    return None if key is None else Identity(read_key(key))


def _policies(parties: Parties, here: Sequence[int]) -> list[Path]:
    """Returns the files of policies that are asked for the data of these clients, and those in the usual places."""
    files = [file for k in here for _, file in bind(parties.names[k], parties.holding(k)).files]
    return list(dict.fromkeys(file.path for file in [*files, *known_policies()]))


def _accounts(parties: Parties, here: Sequence[int]) -> list[str]:
    """Returns what the accounts of these clients' data say: what private jobs have spent, and how many open ones there were."""
    said = []
    for k in here:
        if (own := account(bind(parties.names[k], parties.holding(k)))) is not None and (own.folder / "budget.jsonl").is_file():
            said += [one.total.text() for one in statements([own.folder / "budget.jsonl"]) if one.data == own.data]
    return list(dict.fromkeys(said))


def _columns(parties: Parties, here: Sequence[int]) -> list[str]:
    """Returns the columns of these clients' files, with the clients that have them; no row is read."""
    clients = dict[tuple[str, ...], list[str]]()
    for k in here:
        if parties.holding(k).paths:
            clients.setdefault(parties.header(k)[1], []).append(parties.names[k])
    return [f"{', '.join(who)}: {', '.join(f'`{name}`' for name in names)}" for names, who in clients.items()]


def dpia(facts: Facts) -> Iterator[str]:
    """Yields the lines of a draft for a data protection impact assessment, in Markdown."""
    config, check = facts.config, CHECK.format(facts.job)
    yield from _head("Data protection impact assessment", facts)
    yield "\n## 1. The processing\n"
    yield from _table(
        ("Statistical method", facts.line("job") or config.job.method, check),
        ("Model", facts.line("model"), check),
        ("Coefficients, and the response", facts.line("columns"), check),
        *(("Columns of the files of", line, "the first line of each file") for line in facts.columns),
        ("Columns of these that are not used", _ignored(facts.config), f"`data.ignore` of `{facts.job}`"),
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
    yield f"Rows stay in the holder's file; messages are computed from them. All kinds that a holder may send, from {check}:\n"
    yield from _block([*facts.part(CLIENT, "computed", SERVER), *filter(TEXTS.match, facts.part(SERVER)), *facts.control])
    yield "\nWhat can be computed from them, as far as it is known:\n"
    yield from _block(facts.part("computed", SERVER))
    yield ""
    yield from _table(
        ("What did leave, message by message, after the run", "`fedkern ledger RUN`", "`ledger/` of the run's folder"),
        (
            "The result",
            _of_result(facts),
            "`docs/start/index.md`; `summary.json`, `report.html`, and `posterior.nc` where the extra `results` is installed",
        ),
        ("What else is asked of the result", _asked(facts.config), f"`[output]` of `{facts.job}`"),
        ("Would a reader learn of one patient from the result?", EMPTY, "the controller"),
    )
    yield "\n## 4. What limits it\n"
    limits = facts.part("privacy", "each client")
    yield from _block(limits)
    if warned := facts.warnings(limits):
        yield "\nWarnings of the same command:\n"
        yield from _block(warned)
    yield ""
    yield from _table(
        ("Fewest rows of a holder", _fewest(facts), check),
        ("Policies that are asked here", _listed(facts.policies), PLACES),
        (
            "Earlier jobs on these rows, to which this one adds",
            "; ".join(facts.accounts) or "no account is here, or none has a job yet: nobody counts them here",
            "`fedkern budget`: `budget.jsonl` beside the policy, or in `client-NAME` where none binds",
        ),
        *(
            [("Noise against whom, and what is trusted", "as printed above", check)]
            if facts.private
            else [("Why no noise is added (no `[privacy]`)", EMPTY, "the controller")]
        ),
    )
    yield "\n## 5. Where it is kept, and for how long\n"
    yield from _table(
        (
            "Holder: what has left",
            "`ledger/` of the run's folder (between organisations `runs/` of the site's), closed to other users",
            "`docs/start/index.md`, `docs/how-to/site.md`",
        ),
        (
            "Holder: its budget, its own results",
            f"folder `client-NAME` of {_whose_folder(facts.config)}, closed to other users; budgets beside policies",
            "`docs/start/index.md`, `docs/how-to/policy.md`",
        ),
        ("Server: result, checkpoints, number and bytes of messages", "the run's folder (`--out`)", "`docs/start/index.md`"),
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
        *((name, f"{number}, {_licence(name)}", "`fedkern info`; the package's own metadata") for name, number in installed),
        ("What these need themselves", "`pip list`", "the environment"),
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
        ("Policies that are asked here", _listed(facts.policies), PLACES),
        (
            "Files that are written by a job",
            _written(facts.config),
            f"`docs/start/index.md`; `[output]` of `{facts.job}`",
        ),
        (
            "and beside it",
            "budgets beside policies, their marks in `~/.local/state/fedkern`",
            "`docs/how-to/policy.md`",
        ),
        ("and between organisations", "`consent.toml`, `audit.jsonl` and `runs/` in the site's folder", "`docs/how-to/site.md`"),
        ("Ports", "none of its own in one process; over MPI those of the MPI library", "`docs/how-to/mpi.md`"),
        ("and between organisations", "those of the engine; a Unix socket of mode 0600", "`docs/how-to/site.md`"),
        ("Ports, certificates and addresses of the engine", EMPTY, "the administrator"),
        ("Code that a job file can name", _code(facts), f"`{facts.job}`; policies"),
        ("Account under which it runs; what else that account may read", EMPTY, "the administrator"),
    )
    yield "\n## 3. What it sends\n"
    yield f"Kinds, fields and most bytes of all messages, from {check}; nothing else has a message type, and none is a pickle:\n"
    yield from _block(facts.part(CLIENT, "computed", SERVER))
    yield from _block(facts.part(SERVER, "each client in the whole job"))
    yield from _block(facts.part("each client in the whole job", "sizes are"))
    yield "\n## 4. What it does with what comes\n"
    yield from _table(
        (
            "A message of unknown kind, size, version or checksum",
            "the job ends",
            "`docs/develop/architecture.md`",
        ),
        (
            "Another job file than the holder's own",
            "the job ends: job files are compared before anything else",
            "`docs/how-to/mpi.md`",
        ),
        ("A policy that does not allow the job", "the job is refused before a row is read", "`docs/how-to/policy.md`"),
        (
            "A fault in a row",
            _fault(facts.config),
            "`docs/methods/sigma.md`" if facts.config.unit == "case" else "`docs/how-to/files.md`",
        ),
        ("Where noise comes from", _noise(facts), check),
        *([("Who can read a client's numbers", _sums(facts), check)] if facts.config.secure else []),
    )
    yield "\n## 5. How it is watched and stopped\n"
    yield from _table(
        ("What has left so far", "`fedkern ledger`, `fedkern status`", "the run's folder"),
        ("To stop", "SIGINT or SIGTERM: a checkpoint, exit code 3; `--resume` goes on", "`docs/how-to/mpi.md`"),
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
    try:
        yield f"Digest of the job without paths of files, which `fedkern site accept` shows: `{digest_of(facts.config).hex()}`\n"
    except JobError:  # clients are given by a pattern: no other organisation would find the same ones
        yield f"Digest of the job: `{facts.config.digest}`\n"
    if facts.alone is not None:
        yield f"Only the file of {facts.alone} is here: what `fedkern check` says is said as if all clients had its columns.\n"
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
    # Some packages have a short name in the field that others fill with the whole text.
    short = [text for text in said.get_all("License") or () if len(text) <= 40 and "\n" not in text]
    return "; ".join(said.get_all("License-Expression") or known or short) or "licence not stated"


def _ignored(config: JobConfig) -> str:
    return ", ".join(f"`{name}`" for name in getattr(config.data, "ignore", ())) or "none is named"


def _of_result(facts: Facts) -> str:
    """Says what the files of the result hold, beside the posterior."""
    always = "the posterior of the model's parameters, a verdict, notes on columns and clients, counts of messages"
    if facts.private:
        return f"{always}, certificates, and the numbers on columns that the job file gives"
    exact = f"{always}; statistics of all rows together, exactly and without noise (the method's page says which)"
    if facts.config.job.method == "likelihood":
        exact = (
            f"{always}; of all rows together, exactly and without noise: how many there are, the means and standard deviations "
            "of covariates, the levels of those that are text, the response's mean and spread or how many rows have an event, "
            "and that by tenth of what the model foresees (of few rows in a tenth it tells each)"
        )
    if facts.config.secure:
        return f"{exact}; no statistic of single clients"
    return f"{exact}; by client, statistics of how clients differ, and numbers of rows where they were told"


def _fewest(facts: Facts) -> str:
    """Says with how many rows a holder takes part: as many as the coefficients need, where that is more than it asks for."""
    told = re.search(r"[\d,]+ rows, the fewest that this job takes(?: \([^()]*\))?", facts.line("computed"))
    return told[0] if told else facts.line("least").partition(", more where")[0] or "not asked"


def _whose_folder(config: JobConfig) -> str:
    """Says in which folder a client's own one lies."""
    own = config.output.client_folder
    return (
        "the run's" if own is None else f"`{own}` (`output.client_folder`; between organisations below the site's folder alone)"
    )


def _written(config: JobConfig) -> str:
    """Says where a job writes files."""
    mode = "for its user alone (0700)"
    if config.output.client_folder is None:
        return f"below `--out`: `client-NAME` and `ledger` {mode}, all else as the user's mask says"
    return f"`client-NAME` {mode}, in {_whose_folder(config)}; below `--out` `ledger` too, all else as the user's mask says"


def _asked(config: JobConfig) -> str:
    """Returns the keys by which a job has results of single clients told, in words."""
    told = {"without": "the result without one client, for each", "sites": "the result of each client's rows alone"}
    asked = [f"`output.{key}`: {words}" for key, words in told.items() if getattr(config.output, key, None)]
    if config.singly:
        asked.append("`job.sums_except`: for it each client sends log-likelihoods of its own, one by one and without a mask")
    return "; ".join(asked) or "no result of single clients"


def _fault(config: JobConfig) -> str:
    """Says what a fault of a row does."""
    if config.privacy is None:
        return "the job ends; others read no cell"
    if config.unit == "case":
        return "a count or a line that cannot be read counts as nothing, and nobody else reads of it; a covariate ends the job"
    return "the row counts as nothing, and nobody else reads of it"


def _noise(facts: Facts) -> str:
    """Says where the noise of a private job comes from."""
    if not facts.private:
        return "the job adds none"
    return (
        "the system's entropy"
        if holders.source_of(facts.config) == "secure"
        else "the job's seed: no noise that protects anybody"
    )


def _sums(facts: Facts) -> str:
    """Returns the lines of `fedkern check` on secure sums as one text."""
    first = next(k for k, line in enumerate(facts.check) if line.startswith("sums "))
    goes_on = takewhile(lambda line: line.startswith(" "), facts.check[first + 1 :])
    return " ".join([facts.check[first].removeprefix("sums").strip(), *map(str.strip, goes_on)])


def _code(facts: Facts) -> str:
    """Returns the code of other packages that this job has run, in words."""
    factory, method = getattr(facts.config.model, "factory", None), facts.config.job.method
    named = [f"factory `{factory}`"] if factory else []
    named += [] if method in METHODS else [f"method `{method}`"]
    if not named:
        return "none"
    lists = "where the holder's policy lists it"
    if not facts.policies:
        lists = (
            "no policy is asked here: in a run of one's own all that is installed may run, and `fedkern site accept` refuses it"
        )
    return f"{' and '.join(named)}, {lists}"
