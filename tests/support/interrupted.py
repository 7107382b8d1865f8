"""Small jobs of every method whose data are files, and ways to end them half-way.

python interrupted.py WHAT N ARGUMENTS: `fedkern ARGUMENTS`, killed by the N-th WHAT ("message": before it leaves a client;
"checkpoint": written, and not yet in its place; "record": a job.json about to get its place).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fedkern.api import perform
from fedkern.cli.__main__ import main
from fedkern.data.simulate.federations import Settings, simulate
from fedkern.errors import LostPeer
from fedkern.jobs import keeping
from fedkern.jobs.run import Output
from fedkern.methods import load
from fedkern.transports.driver import Kept, Received
from fedkern.transports.inprocess import InProcess
from support import few
from support import sigma_artifacts as artifacts

PVI = """
[job]
rounds = 12
[data]
clients = ["clients/*.csv"]
response = "income"
positive = "yes"
[data.columns]
age = {center = 40, scale = 14}
sex = {levels = ["f", "m"]}
income = {levels = ["no", "yes"]}
[algorithm]
local_steps = 3
"""
TERMS = """
[privacy]
epsilon = 50.0
delta = 1e-4
clip = 2.5
noise_multiplier = 3.0
sampling_rate = 0.2
accountant = "rdp"
"""
VERTICAL_TERMS = """
[privacy]
epsilon = 50.0
delta = 1e-5
noise_multiplier = 8.0
accountant = "rdp"
""" + "\n".join(f"[data.columns.x{k}_{j}]\ncenter = 0.0\nscale = 2.0" for k in (1, 2, 3) for j in (1, 2))
SIGMA = """
[job]
method = "sigma"
rounds = 30
seed = 3
[data]
clients = ["clients/*.csv"]
area = "district"
response = "cases"
exposure = "expected"
[model]
prior = "prior"
"""
SIZE = Settings(clients=3, rows=40, columns=2, seed=2)


def people(n: int, shift: int = 0) -> list[str]:
    return [f"{20 + (7 * i + shift) % 50},{'fm'[i % 2]},{['no', 'yes'][(i + shift) % 3 == 0]}" for i in range(n)]


def job(folder: Path, kind: str) -> Path:
    """The job file; its clients' rows are in `clients/`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "job.toml"
    match kind:
        case "pvi" | "private":
            (folder / "clients").mkdir()
            for name, shift in (("a", 0), ("b", 3)):
                (folder / "clients" / f"{name}.csv").write_text("\n".join(["age,sex,income", *people(200, shift)]) + "\n")
            path.write_text(PVI + (TERMS if kind == "private" else ""))
        case "sparse":
            simulate("sparse", folder, SIZE)
            text = few.lowered(path.read_text()).replace("rounds = 2500", "rounds = 60")
            path.write_text(text.replace("chains = 4", "chains = 2\nburn_in = 20"))
        case "vertical" | "vertical-private":
            simulate("vertical", folder, SIZE)
            text = few.lowered(path.read_text()).replace("\n[data]", "rounds = 30\n\n[data]", 1)
            if kind == "vertical-private":
                for words in (few.TABLE, "holdout = 0.2\n", 'auxiliary = "amortised"\n'):
                    text = text.replace(words, "")
                text += VERTICAL_TERMS
            path.write_text(text)
        case "sigma" | "hmc":
            artifacts.written(folder / "prior")
            artifacts.counts(folder / "clients")
            chains = '[algorithm]\ninference = "hmc"\nleapfrog_steps = 2\nburn_in = 10\n[output]\nchains = 2\n'
            path.write_text(SIGMA + (chains if kind == "hmc" else ""))
    return path


KINDS = ("pvi", "private", "sparse", "vertical", "vertical-private", "sigma")


class Crash(BaseException):
    """What a SIGKILL is to the code: nothing after it runs."""


EARLY = ("agreement", "alignment", "scaling", "prior-agreement", "response")  # what comes before the method's own messages


def run(path: Path, out: Path | None, *sets: str, resume: bool = False, crash: int = 0, stop: int = 0):
    """The result of a job in this process; or it crashes before, or is asked to stop after, so many messages of its clients."""
    config, folder = load(path, sets)
    place, seen = InProcess(), 0
    sending, remember = keeping.Keeper.sending, keeping.Keeper.remember

    def counted(keeper, client, message, *rest):
        nonlocal seen
        sending(keeper, client, message, *rest)
        seen += keeper.protocol not in EARLY and not isinstance(message, (Kept, Received))
        if stop and seen == stop:
            place.signals.pending = "SIGTERM"
        if crash and seen == crash and not keeper.remembers:
            raise Crash

    def remembered(keeper, *answer):
        remember(keeper, *answer)
        if crash and seen == crash:
            raise Crash

    keeping.Keeper.sending, keeping.Keeper.remember = counted, remembered
    try:
        return perform(place, config, folder, Output(out, resume=resume, quiet=True))
    finally:
        keeping.Keeper.sending, keeping.Keeper.remember = sending, remember


def regression(folder: Path, clients: Mapping[str, Any], family: str) -> Path:
    """The job file of clients' data frames, whose response is y: nine rounds at default keys."""
    (folder / "clients").mkdir(parents=True)
    for name, frame in clients.items():
        frame.to_csv(folder / "clients" / f"{name}.csv", index=False)
    path = folder / "job.toml"
    path.write_text(f'[job]\nrounds = 9\n[data]\nclients = ["clients/*.csv"]\nresponse = "y"\n[model]\nfamily = "{family}"\n')
    return path


def stopped_and_resumed(path: Path, out: Path, after: int) -> tuple[Any, Any]:
    """The result of a job that was asked to stop after so many messages and went on, and that of one that was left alone."""
    with pytest.raises(LostPeer, match="stopped by SIGTERM"):
        run(path, out, stop=after)
    return run(path, out, resume=True), run(path, None)


def killed(what: str, n: int, arguments: list[str]) -> int:
    """`fedkern ARGUMENTS` in this process, which kills itself."""
    seen = 0

    def die() -> None:
        nonlocal seen
        seen += 1
        if seen == n:
            os.kill(os.getpid(), signal.SIGKILL)

    sending, replace = keeping.Keeper.sending, os.replace

    def counted(keeper, *rest):
        sending(keeper, *rest)
        if what == "message":
            die()

    def replaced(source, target, **folders):
        if str(target).endswith({"checkpoint": ".ckpt", "record": "job.json"}.get(what, "?")):
            die()
        replace(source, target, **folders)

    keeping.Keeper.sending, os.replace = counted, replaced
    return main(arguments)


if __name__ == "__main__":
    sys.exit(killed(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
