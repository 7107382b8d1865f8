"""Runs a data holder's commands: they report sent messages, spent budgets, the progress of a run, and whether its claims hold."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from .. import api
from ..errors import JobError
from ..jobs import answers, opened
from ..jobs import audit as audits
from ..jobs import status as statuses
from ..jobs.holding import statement
from ..jobs.limits import refusals
from ..jobs.run import Output
from ..jobs.sent import SentByKind
from ..jobs.site import GIVEN, Sites
from ..methods import load, of_record
from ..printing import align_columns, printable, printable_lines
from ..privacy.plan import Plan, outlooks
from ..results.plain import plain
from ..transports.inprocess import InProcess
from ..transports.place import Place
from . import job


def status(options: argparse.Namespace) -> int:
    """Runs `fedkern status`."""
    state = statuses.status(_opened(options))
    rows = {**state._asdict(), "clients": [client._asdict() for client in state.clients]}
    return _say(options, rows, state.describe())


def ledger(options: argparse.Namespace) -> int:
    """Runs `fedkern ledger`; with --json every line of every ledger."""
    if paths := opened.early_ledgers(Path(options.folder)):
        print("fedkern: this job ended before its run began, and nothing of its rounds has left", file=sys.stderr)
        sent = SentByKind(tuple(opened.kinds(paths)))
    else:
        run = _opened(options)
        sent, paths = SentByKind.of(run, options.folder), opened.ledgers(run)
    rows = [{"who": who, **line._asdict()} for who, path in paths.items() for line in opened.sent(path)] if options.json else []
    for who, path in paths.items():
        if note := opened.torn(path):
            print(printable(f"fedkern: {who}: {note}"), file=sys.stderr)
    return _say(options, rows, sent.lines())


def audit(options: argparse.Namespace) -> int:
    """Runs `fedkern audit` and returns 2 where something differs."""
    checks = audits.audit(_opened(options))
    rows = {"parties": [vars(party) for party in checks.parties], "notes": checks.notes, "differences": checks.differences}
    rows |= {"adopted": checks.adopted}
    _say(options, rows, checks.describe())
    return JobError.exit_code if checks.differences else 0


def replay(options: argparse.Namespace) -> int:
    """Runs `fedkern replay` and returns 2 where the posterior is another."""
    if options.rows is not None:
        return job.place_for(options, partial(_replay_rows, options))
    run = _opened(options)
    again, was = api.replays_of(run).replay(run)
    return _compare(options, again, was, answers.FILE)


def _replay_rows(options: argparse.Namespace, place: Place) -> int:
    """Computes the part of one place in a run's answers again, from the rows that are there."""
    run = api.to_replay(Path(options.folder), server=place.is_server)
    result = api.perform(place, run.config, Path(options.rows), Output(quiet=True, replays=run))
    was = str((run.summary or {})["digest"])
    return 0 if result is None else _compare(options, result.digest, was, "its clients' rows")


def _compare(options: argparse.Namespace, again: str, was: str, what: str) -> int:
    """Says whether what follows is that of a run."""
    same = again == was
    outcome = "the same posterior" if same else f"another posterior: {again}, and summary.json has {was}"
    _say(options, {"digest": again, "same": same}, [f"{what}: {outcome}"])
    return 0 if same else JobError.exit_code


def budget(options: argparse.Namespace) -> int:
    """Runs `fedkern budget`."""
    paths = [Path(path) for path in options.data]
    accounts = statement.statements(paths, _policies_of_sites(paths, options.site))
    head = ["", "begun", "kind", "steps", "epsilon alone", "at delta"]
    lines: list[str] = []
    for account in accounts:
        body = [[j.job, j.begun, j.kind, f"{j.steps:,}", _short(j.epsilon), _short(j.delta)] for j in account.jobs]
        jobs = [f"  {line}" for line in align_columns([head, *body])] if body else []
        lines += [*account.describe(), *jobs, ""]
    rows = [
        {**vars(account), "budget": str(account.budget), "policies": [*map(str, account.policies)], "total": vars(account.total)}
        | {"jobs": [job._asdict() for job in account.jobs]}
        for account in accounts
    ]
    return _say(options, rows, lines[:-1])


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _policies_of_sites(paths: Iterable[Path], given: str | None) -> list[Path]:
    """Returns the policies that site files name: the one that is given, else those of this folder and those beside the paths."""
    if given is not None:
        if not os.path.exists(given):
            raise JobError(f"--site {given}: no such file or folder; correct it")
        os.environ[GIVEN] = os.path.abspath(given)
    folders = [Path.cwd(), *(path if path.is_dir() else path.parent for path in paths)]
    sites = [site for folder in dict.fromkeys(folders) for site in Sites(folder, ()).everyone()]
    return list(dict.fromkeys(site.policy for site in sites if site.policy is not None))


def plan(options: argparse.Namespace) -> int:
    """Runs `fedkern plan`."""
    caps, noises = _numbers("--epsilon", options.epsilon), _numbers("--noise", options.noise)
    config, folder = load(options.job, options.sets)
    if config.privacy is None:
        raise JobError(f"{options.job}: the job has no [privacy], so nothing is spent")
    by_its_cap = config.job.rounds == "budget" or getattr(config.privacy, "calibrate", False)
    if not by_its_cap:  # what its own cap would refuse is here to be seen
        config, folder = load(options.job, [*options.sets, "privacy.epsilon=inf"])
    with refusals():
        plans = api.find_plans(InProcess(), config, folder)
    groups: dict[Plan, list[str]] = {}
    for name, plan_of_client in plans.items():
        groups.setdefault(plan_of_client, []).append(name)
    for plan_of_client, names in groups.items():
        print(printable_lines("\n".join(_planned(plan_of_client, names, caps, noises))))
    return 0


def _planned(plan: Plan, names: list[str], caps: list[float], noises: list[float]) -> Iterable[str]:
    """Yields the lines about one plan: its mechanism, and a table of noise scales."""
    m = plan.mechanism
    rate = f", rate {m.rate:.4g}" if m.rate < 1 else ""
    yield f"{', '.join(names)}: {m.sampling}{rate}, clip {m.clip:g}, delta {plan.delta:g}; {m.neighbours}"
    ends = "only the budget ends the job" if plan.updates is None else f"{plan.updates} updates are planned"
    yield f"an update is {plan.update} accounted step{'s' * (plan.update > 1)}; {ends}"
    rows = [["noise", "its sd", "noise / one row", "epsilon", *(f"updates in {cap:g}" for cap in caps)]]
    try:
        for o in outlooks(plan, noises or [m.sigma], caps):
            norm = "" if m.sampling == "aligned" else f"{o.norm:.3g}"
            spent = "" if o.spent is None else f"{o.spent:.4g}"
            rows.append([f"{o.noise:g}", f"{o.sd:g}", norm, spent, *(f"{o.updates[cap]:,}" for cap in caps)])
    except ValueError as fault:
        raise JobError(str(fault)) from None
    yield from align_columns(rows)


def _numbers(option: str, text: str | None) -> list[float]:
    """Reads numbers above 0 with commas between them."""
    try:
        numbers = [float(word) for word in (text or "").split(",") if word.strip()]
    except ValueError:
        numbers = [0.0]
    if not all(0 < number < float("inf") for number in numbers):
        raise JobError(f"{option} {text}: wanted numbers above 0 with commas between them, such as 0.5,1,2")
    return numbers


def _opened(options: argparse.Namespace) -> opened.Opened:
    """Opens the run's folder."""
    return opened.opened(Path(options.folder), of_record)


def _say(options: argparse.Namespace, rows: object, lines: Iterable[str]) -> int:
    """Prints the rows as JSON, or the lines for people."""
    text = json.dumps(plain(rows), indent=2) if options.json else printable_lines("\n".join(lines))
    print(text)
    return 0
