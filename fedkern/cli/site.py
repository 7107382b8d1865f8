"""Runs `fedkern site`: for a data holder, its consent to jobs between organisations, its audit log, and its resident process."""

from __future__ import annotations

import argparse
import datetime
import getpass
import json
import os
import pwd
import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ..bridges import audit as audits
from ..bridges.audit import Audit
from ..bridges.consent import MOST_RUNS, NAME, RUNS, UNLIMITED, AcceptedSection, Consent
from ..bridges.digest import digest_of, names_of
from ..bridges.gate import heeding, listening, one_resident
from ..bridges.identity import Identity, as_fingerprint, check_peers, identity_of, read_key
from ..bridges.saying import say, tell_manager
from ..bridges.site import Resident
from ..disclosure.rules import NEAR, NEAR_ROWS
from ..errors import FedkernError, JobError
from ..jobs import sketched
from ..jobs.engine import there
from ..jobs.holding.columns import Rows
from ..jobs.keys import JobConfig
from ..jobs.run import Part
from ..jobs.site import SHARED, Sites
from ..methods import load, load_method
from ..printing import align_columns, printable, without_folders
from ..transports.driver import Signals
from ..transports.inprocess import InProcess
from .seen import check_shown, show

SOCKET = Path("socket") / "site.sock"  # in the folder of a site


def accept(options: argparse.Namespace) -> int:
    """Runs `fedkern site accept` and returns the exit code: shows a job, asks, and adds it to the accepted ones."""
    job = Path(options.job).absolute()
    config, folder = load(job)
    where = Path(options.folder).absolute() if options.folder else job.parent
    consent, digest = Consent(where), digest_of(config).hex()
    file = os.path.relpath(job, consent.folder)
    if os.pardir in Path(file).parts:
        raise JobError(f"{job} is not below {consent.folder}; copy the job file there")
    consent.check_folder(config, folder)
    audit, limits = Audit(consent.folder), _limits(options)
    before = [section for section in consent.read().job if section.digest == digest]
    earlier = before[0] if len(before) == 1 and before[0].file == file else None
    given = options.runs or options.until or options.peer_key
    if earlier and not given and _state(consent, earlier, audit).allowed:
        print(f"{job.name} is accepted already ({digest[:12]}; {earlier.limits})")
        return 0
    identity = _identity(options, config, folder, consent)
    could_run, unseen = show(config, folder, identity)
    if not could_run:
        raise JobError(f"{job.name} is not accepted: it could not run here, see above")
    check_shown(job.name, unseen, yes=options.yes)
    for text in _near(consent, config, folder, digest):
        print()
        print(printable(f"note: {text}"))
    who = options.who or getpass.getuser()
    peers = {} if identity is None else dict(identity.peers)
    accepted = AcceptedSection(
        digest=digest, file=file, name=options.name or job.stem, who=who, date=audits.now(), peers=peers, **limits
    )
    often = "as often as the policy allows" if accepted.limits == UNLIMITED else f"for {accepted.limits}"
    if (own_folders := config.output.own_folders(folder)) is not None:
        print()
        print(printable(f"Each run writes this site's own folder into {own_folders} (output.client_folder), not into {RUNS}/."))
    print(f"\nAccepting lets the server run exactly this job on these rows, {often}. Its digest, which the coordinator has, too:")
    print(digest)
    if others := [section.file for section in before if section.file != file]:
        print(printable(f"It takes the place of {', '.join(others)}, which is the same job with other paths."))
    if not options.yes and not _agreed():
        print("not accepted")
        return JobError.exit_code
    # The audit log has the consent before the consent has any effect.
    until = None if accepted.until is None else accepted.until.isoformat()
    about: dict[str, Any] = {
        "file": accepted.file,
        "name": accepted.name,
        "who": who,
        "runs": accepted.runs,
        "until": until,
        "peers": peers or None,
        "instead": others or None,
        "unseen": unseen or None,
    }
    # A list that cannot be written any more is found before the log says that a job is accepted.
    line = audit.write("accepted", lambda: consent.check_addable(accepted), job=digest, **about)
    try:
        consent.add(accepted.model_copy(update={"line": line}))
    except JobError as error:
        with suppress(OSError):
            audit.write("failed", job=digest, file=accepted.file, name=accepted.name, why=without_folders(str(error)))
        raise
    print(f"accepted by {who}; {consent.path} lists it")
    return 0


def _near(consent: Consent, config: JobConfig, folder: Path, digest: str) -> Iterator[str]:
    """Yields the accepted open jobs on the same data whose clients, rows or columns are those of this one but for few.

    Jobs that have run are compared by the account of the data, where there is one; these need not have run.
    """
    names = names_of(config)
    sites = Sites(folder, names)
    client = sites.whose()
    key, alike = os.urandom(16), list[str]()
    mine: Rows | None = None
    tells = "what is told once in both tells, subtracted, what is theirs alone"
    for section in consent.read().job if not config.private else ():
        with suppress(FedkernError):  # one that begins no more
            other, beside = consent.load(section)
            others = names_of(other)
            own_sites = Sites(beside, others)
            data = sites.of(client).path, own_sites.of(own_sites.whose()).path
            if section.digest == digest or other.private or (None not in data and data[0] != data[1]):
                continue
            but = sorted({*names} ^ {*others})
            if 0 < len(but) <= NEAR:
                who = " and ".join(map(repr, but))
                yield f"the clients of {section.file}, accepted {section.date}, are those of this job but for {who}: {tells}"
            mine = mine or _rows_that_count(config, folder, client, key)
            theirs = _rows_that_count(other, beside, own_sites.whose(), key)
            apart = mine.sketch.apart(theirs.sketch)
            if apart and apart < NEAR_ROWS:
                alike.append(section.file)
                continue
            for column, before in mine.columns.near(theirs.columns):
                yield f"column {column!r} is column {before!r} of {section.file} but in fewer than {NEAR_ROWS} rows here: {tells}"
    if alike:
        more = f" and of {len(alike) - 1} more" if len(alike) > 1 else ""
        yield f"the rows here that count in {alike[0]}{more} are those of this job but for fewer than {NEAR_ROWS}: {tells}"


def _rows_that_count(config: JobConfig, folder: Path, client: str, key: bytes) -> Rows:
    """Returns sketches of this site's rows as a job reads them: cells that count as empty, and rows that lack one, left out."""
    parties = there(load_method(config.job.method), Part(InProcess(), config, folder))
    table = parties.rows(parties.names.index(client))
    return sketched.rows_of(config, table, parties.spec_of(table.names), key)


def _limits(options: argparse.Namespace) -> dict[str, Any]:
    """Returns how often, and until when, a job may begin, as the options say; JobError where they say nothing that can be."""
    out: dict[str, Any] = {}
    if (runs := str(MOST_RUNS) if options.runs is None else options.runs) != UNLIMITED:
        if not re.fullmatch("[1-9][0-9]{0,5}", runs):
            raise JobError(f"--runs {runs}: wanted a number of at least 1, or {UNLIMITED}")
        out["runs"] = int(runs)
    if options.until is not None:
        try:
            out["until"] = datetime.date.fromisoformat(options.until)
        except ValueError:
            raise JobError(f"--until {options.until}: wanted a day, such as 2027-01-31") from None
        if out["until"].isoformat() < audits.now()[:10]:
            raise JobError(f"--until {options.until}: this day is over")
    return out


def _identity(options: argparse.Namespace, config: JobConfig, folder: Path, consent: Consent) -> Identity | None:
    """Returns the identity by which this site takes part in a job with secure sums; None where it signs nothing.

    The fingerprints of the others are those of the options, else those that were accepted before, else somebody is asked.
    """
    names = names_of(config)
    sites = Sites(folder, names)
    client = sites.whose()
    given = dict(map(_peer_key, options.peer_key or ()))
    key = sites.of(client).signing_key
    if not config.secure or key is None:
        if given:
            why = "site.toml names no signing_key" if config.secure else "this job has no secure sums"
            raise JobError(f"--peer-key: {why}, so nobody's key is looked at")
        return None
    others = [name for name in names if name != client]
    before = {name: known for section in consent.read().job for name, known in section.peers.items() if name in others}
    peers = {**before, **given}
    if not options.yes and sys.stdin.isatty():
        for name in [name for name in others if name not in peers]:
            peers[name] = as_fingerprint(input(f"The fingerprint of {name}, as its people read it to you: "))
    identity = Identity(read_key(key), peers)
    check_peers(names, client, peers, identity.fingerprint)
    return identity


def _peer_key(text: str) -> tuple[str, str]:
    """Returns the name and the fingerprint of an option --peer-key."""
    name, found, known = text.partition("=")
    if not found:
        raise JobError(f"--peer-key {text}: wanted NAME=FINGERPRINT")
    return name.strip(), as_fingerprint(known)


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise JobError("nobody can be asked here; give --yes")
    return input("Accept it? (yes or no) ").strip().lower() in ("y", "yes")


def _consent(options: argparse.Namespace) -> Consent:
    """Returns the consent of the site whose folder is given; JobError where no site is there."""
    folder = Path(options.folder).absolute()
    if not folder.is_dir():
        raise JobError(f"{folder}: no such folder; give the one of the site, with {NAME} and {SHARED}")
    if not any((folder / name).exists() for name in (NAME, SHARED)):
        raise JobError(f"{folder}: neither {NAME} nor {SHARED} is here; give the folder of a site")
    return Consent(folder)


def list_jobs(options: argparse.Namespace) -> int:
    """Runs `fedkern site list` and returns the exit code: the jobs that a site accepts."""
    consent = _consent(options)
    accepted = consent.read()
    audit, head = Audit(consent.folder), ("digest", "file", "name", "accepted by", "when", "for", "now")
    rows = [
        (job.digest[:12], job.file, job.name, job.who, job.date, job.limits, _state(consent, job, audit).text)
        for job in accepted.job
    ]
    if rows:
        print("\n".join(map(printable, align_columns([head, *rows]))))
    else:
        print(f"no job is accepted here ({consent.path})")
    becomes = "waits for `fedkern site accept`" if accepted.open == "ask" else "is refused"
    print(f"a request for any other job {becomes}")
    return 0


class State(NamedTuple):
    """Says what would become of a request for a job now, and whether it would run."""

    text: str
    allowed: bool


def _state(consent: Consent, job: AcceptedSection, audit: Audit) -> State:
    """Returns what would become of a request for a job now."""
    try:
        config, folder = consent.load(job)
        names = names_of(config)
        sites = Sites(folder, names)
        client = sites.whose()
        signs = config.secure and identity_of(sites.of(client), names, client, job.peers) is not None
        if why := job.spent(audit):
            return State(f"refused: {why}", False)
        begun = "" if job.runs is None else f", {audit.starts(job.digest, job.line)} begun"
    except FedkernError as error:
        return State(f"refused: {error}", False)
    signed = ", keys signed" if signs else ""
    return State(f"as accepted{begun}{signed}", True)


def fingerprint(options: argparse.Namespace) -> int:
    """Runs `fedkern site fingerprint` and returns the exit code: the fingerprint of the site's own key, to be read to others."""
    folder = Path(options.folder).absolute()
    own_site = Sites(folder, ()).own()
    if own_site.signing_key is None:
        raise JobError(f"{folder / SHARED}: signing_key is missing: the path of a private key of this site")
    print(Identity(read_key(Path(own_site.signing_key))).fingerprint)
    return 0


def revoke(options: argparse.Namespace) -> int:
    """Runs `fedkern site revoke` and returns the exit code: removes a job from the accepted ones, with all copies of it."""
    consent, named = _consent(options), options.job
    exact = len(named) >= 6 and all(letter in "0123456789abcdef" for letter in named)
    gone = consent.remove(lambda section: section.file == named or (exact and section.digest.startswith(named)))
    if not gone:
        raise JobError(f"{consent.path}: no accepted job has the file or digest {named!r}; `fedkern site list` shows them")
    audit = Audit(consent.folder)
    for section in gone:
        print(f"revoked {section.file} ({section.digest[:12]}); a run that has begun goes on: end the resident to stop it")
        try:
            audit.write("revoked", job=section.digest, file=section.file, name=section.name, who=getpass.getuser())
        except OSError as error:
            raise JobError(
                f"{section.file} is revoked, but {audit.path} cannot be written ({error.strerror or error}) and does not say so"
            ) from None
    return 0


def log(options: argparse.Namespace) -> int:
    """Runs `fedkern site log` and returns the exit code: the audit log, and whether it is as it was written."""
    folder = Path(options.folder).absolute()
    if not any(path.stat().st_size for path in Audit(folder).files()):
        # So it is before the first acceptance, or the first resident; a disk that was full then leaves an empty file. A hash that
        # somebody has kept says that there was one.
        kept = ["", *(section.line for section in _consent(options).read().job if section.line)]
        if known := Audit(folder).lost_end() or options.mark or kept[-1]:
            gone = "is empty" if Audit(folder).files() else "is gone"
            raise JobError(f"{folder / audits.NAME} {gone}, which had a line with the hash {known}; ask who could write to it")
        if not options.json:
            print(
                "nothing is logged yet: no job was accepted here, and no resident has run "
                f"({folder / audits.NAME} is not there, or empty)"
            )
        return 0
    lines = list(Audit(folder).lines())
    for line in lines:
        if options.json:
            fault = {"fault": line.fault} if line.fault else {}
            print(json.dumps({"where": line.where, **line.content, **fault}))
            continue
        if line.fault:
            print(printable(f"{line.where}: {line.fault}"))
        if line.content:
            print(printable(_line(line.content)))
    if faults := sum(bool(line.fault) for line in lines):
        raise JobError(f"{faults} of {len(lines)} lines of the log are not as they were written; ask who could write to it")
    if lost := Audit(folder).lost_end():
        raise JobError(f"lines at the end of the log are gone, the last with the hash {lost}; ask who could write to it")
    if options.mark and options.mark not in [line.chain for line in lines]:
        raise JobError(
            f"no line of the log ends with the hash {options.mark}: lines were cut off at its end, or all written anew"
        )
    if not options.json:
        print(f"{len(lines)} lines, all as they were written; the last hash is {lines[-1].chain}")
    return 0


def _line(entry: dict[str, Any]) -> str:
    """Returns a line of the log for people."""
    event, digest = entry.get("event"), str(entry.get("job") or entry.get("asked") or "")
    what = entry.get("name") or entry.get("file") or digest[:12]
    by = entry.get("identity") or entry.get("who") or ""
    text = f"{entry.get('time')}  {event:<9} {what}"
    if by:
        text += f"  by {by}"
    text += f" over {entry['engine']}" if entry.get("engine") else ""
    text += f", for {entry['runs']} runs" if event == "accepted" and "runs" in entry else ""
    text += f", until {entry['until']}" if event == "accepted" and "until" in entry else ""
    text += f", as {entry.get('client')}, in {entry.get('folder')}" if event == "started" else ""
    here = f" (here {entry['own']})" if "own" in entry and entry["own"] != entry.get("exit") else ""
    text += f", code {entry.get('exit')}{here}; left: {_left(entry.get('sent'))}" if event == "ended" else ""
    return f"{text}: {entry['why']}" if entry.get("why") else text


def _left(sent: object) -> str:
    """Returns the messages that have left, by kind; the line may be another than the one that was written."""
    try:
        kinds: Any = sent
        return (
            ", ".join(
                f"{kind} {sent_of_kind['messages']} ({sent_of_kind['bytes']:,} bytes)" for kind, sent_of_kind in kinds.items()
            )
            or "nothing"
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return str(sent)


def _peer(name: str | None) -> int | None:
    """Returns the number of a user; JobError if there is no such user."""
    try:
        return None if name is None else pwd.getpwnam(name).pw_uid
    except KeyError:
        raise JobError(f"--peer: there is no user {name!r} here") from None


def run_resident(options: argparse.Namespace) -> int:
    """Runs `fedkern site run` until a signal ends it, and returns the exit code."""
    folder = Path(options.folder).absolute()
    if not folder.is_dir():
        raise JobError(f"{folder}: no such folder; give the one with {NAME} and the job files")
    given = os.environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]  # of a systemd unit
    if options.socket:
        path = Path(options.socket)
    elif given:
        path = Path(given) / SOCKET.name
    else:
        path = folder / SOCKET
    Consent(folder).read()  # a list that cannot be read is told now, and not at the first request
    signals: Signals = options.signals
    resident = Resident(folder, engine=options.engine, identity=options.identity or f"user {os.geteuid()}")
    path = path.absolute()
    gate = listening(path, heeding(resident, options.identity), _peer(options.peer), resident.refuse, lambda: resident.longest)
    with signals.held(), one_resident(folder, path), gate:
        resident.audit.write("opened", engine=options.engine, who=getpass.getuser())
        say(f"the resident of {folder} listens at {path}")
        tell_manager("READY=1")
        while not signals.pending:
            time.sleep(0.2)
        tell_manager("STOPPING=1")
        say(f"{signals.pending}: the resident ends")
        resident.stop(signals.pending)
        # The server learns of it by the next reply, and both keep a checkpoint.
        if not resident.join(options.grace):
            resident.lost("the resident ends")
            resident.join(5.0)
        resident.audit.write("closed", engine=options.engine, why=signals.pending)
        signals.pending = None  # this is how it ends, and no fault
    return 0
