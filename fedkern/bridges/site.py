"""Runs a holder's side of jobs whose server is reached over another engine's wire.

A `Resident` lives at the holder as long as the engine's client does. It is given each request of the server, as bytes, and
returns the bytes of the reply. A request names a job by a digest alone. Files that are read, policies, the folder of a run and
its keys are the holder's: nothing of a request chooses any of them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..algorithms.core.messages import RemoteFault
from ..api import perform, to_replay
from ..errors import BudgetSpent, FedkernError, JobError
from ..jobs.files import RunFolder
from ..jobs.holders import SPENT
from ..jobs.keys import JobConfig
from ..jobs.ledger import write_early
from ..jobs.limits import refusals
from ..jobs.opened import sent
from ..jobs.run import Output
from ..jobs.site import Sites
from ..printing import without_folders
from ..transports import tags
from ..transports.driver import Ended, Hooks, Timeouts, exit_code
from ..transports.ending import Say
from ..transports.place import Place
from ..transports.relay import Letter, Spoke, put_aside, refuse
from ..transports.relay_letters import ANEW, WAITING
from .audit import Audit
from .consent import RUNS, Accepted, AcceptedSection, Consent
from .digest import names_of
from .engines import run_folder
from .identity import identity_of
from .saying import say

LONGEST = 1 << 28  # bytes of a request
LONGEST_FIRST = 1 << 20  # bytes of a request that begins a run: it has no frame
OFTEN, MINUTE = 20, 60.0  # requests that begin nothing, within so many seconds, of which each has a line in the log
LONGEST_WHY = 2000  # letters of a reason in the log
NOT_HERE = "this job is not accepted here"
ELSEWHERE = "the server, or another site, has ended the job"
GONE = "the server is gone"
FINISHED = (0, 4, 6)  # the exit codes of a job that has ended well: also without a site, or with an approximate result
KINDS = frozenset(tags.NAMES)


@dataclass
class Running:
    """Holds the job that runs here, or ran last."""

    run: bytes  # 16 bytes that the server has drawn for this run
    spoke: Spoke
    about: dict[str, Any]  # what the lines of the audit log say of it
    thread: threading.Thread = field(default_factory=threading.Thread)  # does the work

    @property
    def goes_on(self) -> bool:
        """Whether it has not ended."""
        return self.thread.is_alive()


class Resident:
    """Takes part, for one holder, in the jobs that the holder has accepted; in one at a time.

    Parameters
    ----------
    folder : of the site: consent.toml, the job files with site.toml beside them, audit.jsonl, and runs/
    engine : the name and version of the engine whose wire this is, for the audit log
    identity : who asks, as the engine knows it, where a request comes without a name
    say : is given each line for the holder
    timeouts : how long silence may last; by default as the job says (job.deadline)
    busy : seconds after which a reply leaves although the site still computes
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        engine: str,
        identity: str,
        say: Say = say,
        timeouts: Timeouts | None = None,
        busy: float = 10.0,
    ) -> None:
        self.folder, self.engine, self.identity, self.say = Path(folder).absolute(), engine, identity, say
        self.timeouts, self.busy = timeouts, busy
        self.consent, self.audit = Consent(self.folder), Audit(self.folder)
        self._lock = threading.Lock()
        self._running: Running | None = None
        self._told: set[tuple[bytes, str]] = set()  # what was said of a run, so that it is not said again
        self._lately: deque[float] = deque(maxlen=OFTEN)  # when such lines were written

    def answer(self, request: bytes, who: str | None = None) -> bytes:
        """Returns the reply to a request; empty where it is none of fedkern's. It never raises.

        `who` asks; by default the one of whom the engine's wire is.
        """
        try:
            return self._answer(request, self._about(who))
        except RemoteFault as fault:
            why = str(fault)
        except Exception as error:  # the engine's client goes on, whatever this is
            why = f"{type(error).__name__}: {error}"
        self.refuse(why, who)
        return b""

    def refuse(self, why: str, who: str | None = None) -> None:
        """Says and writes that something does not pass that this one has asked, or should be told."""
        with self._lock:
            self._refuse(b"", self._about(who), why)

    @property
    def longest(self) -> int:
        """The bytes that a request may have now: until a job has begun here there is none with a frame."""
        return LONGEST_FIRST if self._running is None else LONGEST

    def _about(self, who: str | None) -> dict[str, Any]:
        return {"engine": self.engine, "identity": who or self.identity}

    def stop(self, why: str) -> None:
        """Asks the job that runs here to stop: all parties keep a checkpoint, as after a signal."""
        if (job := self._running) is not None and job.goes_on:
            job.spoke.ranks.signals.pending = why

    def end(self, why: str, run: bytes | None = None, grace: float = 10.0) -> None:
        """Ends the job that runs here, as the engine has ended its own: with a checkpoint, if the server still answers.

        Parameters
        ----------
        why : for the holder
        run : the one that is meant; None: whichever runs
        grace : seconds that the parties get for it
        """
        if (job := self._running) is None or run not in (None, job.run):
            return
        self.stop(why)
        if not self.join(grace):
            self.lost(why)
            self.join(5.0)

    def lost(self, why: str) -> None:
        """Ends the job that runs here: the engine has lost the server for good."""
        if (job := self._running) is not None and job.goes_on:
            self.say(f"the server is lost: {why}")
            job.spoke.lose()

    def join(self, seconds: float | None = None) -> bool:
        """Waits for the job that runs here; returns whether none runs any more."""
        if (job := self._running) is None:
            return True
        job.thread.join(seconds)
        return not job.goes_on

    def _answer(self, request: bytes, about: dict[str, Any]) -> bytes:
        if len(request) > LONGEST:
            raise RemoteFault(f"a request of {len(request)} bytes, at most {LONGEST} expected")
        letter = Letter.unpack(request)
        unknown = sorted({tag % tags.RUN for tag, _ in letter.items} - KINDS)
        if unknown or letter.state != WAITING:
            raise RemoteFault(f"a request of unknown kind ({', '.join(map(str, unknown)) or f'state {letter.state}'})")
        with self._lock:
            job = self._running
            if job is None or job.run != letter.job:
                other = self._begin(letter, request, about)
                if isinstance(other, bytes):
                    return other
                job = self._running = other
        return job.spoke.answer(request)

    def _begin(self, letter: Letter, request: bytes, about: dict[str, Any]) -> Running | bytes:
        """Begins the job that a request names; returns the reply where it does not begin."""
        about = about | {"asked": letter.digest.hex(), "run": letter.job.hex()}
        # A request of a run that this process does not know: it began before the process, or is a copy of an old letter.
        if letter.number != 1:
            return self._forgotten(letter, about)
        if len(request) > LONGEST_FIRST:
            self._refuse(letter.job, about, f"a first request of {len(request)} bytes, at most {LONGEST_FIRST} expected")
            return refuse(request, NOT_HERE)
        try:
            found = self.consent.find(letter.digest)
            if found is None and self.consent.read().open == "ask":
                return self._ask(letter, request, about)
            if found is None:
                raise JobError(f"no job of {self.consent.path} has this digest")
            about |= {"job": found.section.digest, "file": found.section.file, "name": found.section.name}
            config, folder = self.consent.load(found.section)
            replays = None if found.replays is None else to_replay(found.replays, server=False)
            names = names_of(config)
            sites = Sites(folder, names)
            client = sites.whose()
            signer = identity_of(sites.of(client), names, client, found.section.peers) if config.secure else None
            if letter.site not in (0, 1 + names.index(client)):
                number = f"client number {1 + names.index(client)} of {len(names)}"
                raise JobError(f"site.toml says {client!r}, {number}, and the server asks for number {letter.site}")
        except FedkernError as error:
            self._refuse(letter.job, about, str(error))
            return refuse(request, NOT_HERE)
        if (before := self._running) is not None and before.goes_on:
            if before.about["job"] == found.section.digest:
                return put_aside(request)  # the server has begun it anew; the earlier run ends by the server's silence
            self._refuse(letter.job, about, "another job runs here")
            return refuse(request, "another job runs here")
        # The log is what outlives this process: whatever has begun by it never begins a second time.
        if letter.job.hex() in self.audit.runs():
            return self._forgotten(letter, about)
        out = self._folder(found)
        about |= {"client": client, "folder": str(out.relative_to(self.folder))}
        # Nothing is read of a row, and nothing is charged, before this line is on the disk.
        try:
            self.audit.write("started", lambda: check_limits(found.section, self.audit), **about)
        except JobError as error:
            self._refuse(letter.job, about, str(error))
            return refuse(request, NOT_HERE)
        except OSError as error:
            self.say(f"a job is refused: {self.audit.path} cannot be written ({error.strerror or error})")
            return refuse(request, "this site cannot write its audit log")
        name = found.section.name or found.section.digest[:12]
        self.say(f"{about['identity']} has started {found.section.file} ({name}); it runs in {out}")
        timeouts = self.timeouts or Timeouts(lost=config.job.deadline)
        job = Running(letter.job, Spoke(names.index(client), len(names), timeouts, self.busy, signer), about)
        output = Output(out, resume=found.resume, quiet=True, replays=replays)
        work = lambda: self._run(job, config, folder, output)  # noqa: E731
        job.thread = threading.Thread(target=work, name="fedkern-site", daemon=True)
        job.thread.start()
        return job

    def _run(self, job: Running, config: JobConfig, folder: Path, output: Output) -> None:
        """Does the site's part of a job, in a thread of its own."""

        why = ""
        own_code: int | None = None  # the code with which the site's own part has ended, whatever the server says of the job

        def main(place: Place) -> int:
            nonlocal why, own_code
            try:
                with refusals():
                    perform(place, config, folder, output)
            except Ended:  # not here: what others say of their fault is for the server
                raise
            except BaseException as error:  # as others may read it: the log is no place for cells
                why, own_code = without_folders((place.hooks or Hooks()).public(error)), exit_code(error)
                raise
            own_code = 0
            return 0

        warned: list[str] = []

        def warn(text: str) -> None:
            warned.append(text)
            self.say(f"{job.about['file']}: {text}")
            with suppress(OSError):  # the holder's folder has it, too
                self.audit.write("warned", **job.about, why=text[:LONGEST_WHY])

        output, code = replace(output, warn=warn), 1
        try:
            code = job.spoke.run(main, self.say)
            if code == BudgetSpent.exit_code and SPENT in warned:
                why = why or SPENT
            if code not in FINISHED and not why:
                why = ELSEWHERE if job.spoke.is_told else GONE
        finally:
            counted = {kind: {"messages": n, "bytes": size} for kind, (n, size) in job.spoke.ranks.told.items()}
            left = counted | _sent(config, folder, output, job.about["client"])
            self._write_early(job, output)
            try:
                self.audit.write("ended", **job.about, exit=code, own=own_code, why=why[:LONGEST_WHY], sent=left)
            except OSError as error:
                self.say(
                    f"{self.audit.path} cannot be written ({error.strerror or error}): the end of a job (code {code}) is missing"
                )
            made = output.folder is not None and output.folder.exists()
            files = f"its files are in {output.folder}" if made else "it has written no file"
            self.say(f"{job.about['file']} has ended with code {code}; {files}")

    def _write_early(self, job: Running, output: Output) -> None:
        """Writes what has left of a job that ended before its run began, where its folder is there; the log has the sums."""
        assert output.folder is not None
        ranks = job.spoke.ranks
        path = RunFolder(output.folder, ()).ledger_of_rank(ranks.rank)
        try:
            write_early(path, ranks.unlogged)
        except (JobError, OSError) as error:
            self.say(f"{path} cannot be written ({without_folders(str(error))}): {self.audit.path} alone says what has left")

    def _folder(self, found: Accepted) -> Path:
        """Returns the folder of a new run, or that of the run that goes on."""
        return run_folder(self.folder / RUNS, Path(found.section.file).stem, resume=found.resume)

    def _forgotten(self, letter: Letter, about: dict[str, Any]) -> bytes:
        """Returns the reply to a request of a run that has begun here before this process did."""
        self._refuse(letter.job, about, "the run has begun here before, and only --resume at the server goes on with it")
        return Letter(ANEW, letter.job, letter.number, [], letter.digest, letter.site).pack()

    def _ask(self, letter: Letter, request: bytes, about: dict[str, Any]) -> bytes:
        """Puts a request aside, until somebody here has decided."""
        # Said once for a job: a server can draw as many runs as it likes.
        if self._is_news(letter.digest, "aside") and self._may_be_written():
            digest = letter.digest.hex()
            with suppress(OSError):  # it waits all the same, and begins only where the log can be written
                self.audit.write("aside", **about)
            self.say(
                f"{about['identity']} asks for a job with the digest {digest[:12]}: fedkern site accept JOB.toml lets it begin"
            )
        return put_aside(request)

    def _refuse(self, run: bytes, about: dict[str, Any], why: str) -> None:
        """Says and writes that a request was refused: once for a run, and not more often than somebody could read."""
        if not (self._is_news(run, why) and self._may_be_written()):
            return
        if len(self._lately) == OFTEN and self._lately[-1] - self._lately[0] < MINUTE:
            why = f"{why}; more of this minute is not written"
        self.say(f"refused ({about['identity']}): {why}")
        with suppress(OSError):  # it is refused all the same
            self.audit.write("refused", **about, why=why[:LONGEST_WHY])

    def _may_be_written(self) -> bool:
        """Tells whether there were few enough lines in the last minute: a flood of requests must not fill the disk."""
        now = time.monotonic()
        if len(self._lately) == OFTEN and now - self._lately[0] < MINUTE:
            return False
        self._lately.append(now)
        return True

    def _is_news(self, run: bytes, what: str) -> bool:
        """Tells whether something was not said of a run before."""
        if len(self._told) > 10_000:
            self._told.clear()
        news = (run, what) not in self._told
        self._told.add((run, what))
        return news


def check_limits(section: AcceptedSection, audit: Audit) -> None:
    """Raises JobError where a job has begun as often, or as late, as was accepted."""
    if why := section.spent(audit):
        raise JobError(f"{section.file}: {why}; fedkern site accept lets it begin again")


def _sent(config: JobConfig, folder: Path, output: Output, client: str) -> dict[str, Any]:
    """Returns the messages that have left in a run, and their bytes, by kind."""
    assert output.folder is not None
    names = names_of(config)
    path = RunFolder(output.folder, names, own=config.output.own_folders(folder)).ledger(names.index(client))
    kinds = dict[str, list[int]]()
    with suppress(FedkernError, OSError):  # a ledger that cannot be read is not this log's
        for line in sent(path):
            of_kind = kinds.setdefault(line.kind, [0, 0])
            of_kind[0] += 1
            of_kind[1] += line.bytes
    return {kind: {"messages": n, "bytes": size} for kind, (n, size) in kinds.items()}
