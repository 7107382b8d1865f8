"""Jobs of every method and schedule that run at seven places: one process, MPI, threads, NVFlare and Flower."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedkern.bridges.engines import run_folder
from fedkern.bridges.server import run_hub
from fedkern.bridges.site import Resident
from fedkern.cli.__main__ import main
from fedkern.transports.driver import Timeouts
from support import flower
from support.command import mpirun_jobs
from support.parties import Parties
from support.relayed import Threads

FEW = ("job.rounds=4", "algorithm.burn_in=2")
SECURE_NOISE = "privacy.noise_source=secure"


class Case(NamedTuple):
    """A job, with few rounds: an engine may need seconds for each question."""

    job: str  # the golden job
    sets: tuple[str, ...] = ()  # keys that it overrides
    # what is the same at all places beside the number and bytes of messages: "digest"; "" where the clock has the order of
    # answers; "not noise" where it is the operating system's, so that no two digests are equal
    equal: str = "digest"


CASES = {
    "likelihood-groups": Case("likelihood-groups"),
    "likelihood-cox": Case("likelihood-cox"),
    "likelihood-secure-sums": Case("likelihood-bernoulli", ("job.sums=secure",)),
    "pvi-sequential": Case("pvi-sequential", ("job.rounds=2",)),
    "pvi-random": Case("pvi-random-full", ("job.rounds=2",)),
    "pvi-synchronous": Case("pvi-synchronous-weighted", ("job.rounds=2",)),
    "pvi-asynchronous": Case("pvi-asynchronous-adam", (), ""),
    "pvi-global-vi": Case("pvi-global-vi", ("job.rounds=3",)),
    "pvi-one-shot": Case("pvi-one-shot"),
    "pvi-private": Case("pvi-private-budget", ("algorithm.schedule=synchronous", "job.rounds=2")),
    "pvi-private-secure": Case(
        "pvi-private-budget", ("algorithm.schedule=synchronous", "job.rounds=2", SECURE_NOISE), "not noise"
    ),
    "pvi-private-clients": Case("pvi-private-clients", ("job.rounds=2",)),
    "sparse-regression": Case("sparse-regression", FEW),
    "sparse-sums": Case("sparse-sums", FEW),
    "sparse-imputed": Case("sparse-imputed", FEW),
    "sparse-sem": Case("sparse-sem", FEW),
    "vertical-mean-field": Case("vertical-mean-field", ("job.rounds=2",)),
    "vertical-amortised": Case("vertical-amortised", ("job.rounds=2",)),
    "vertical-soul": Case("vertical-soul", ("job.rounds=2",)),
    "vertical-private": Case("vertical-private", ("job.rounds=2",)),
    "sigma-sfvi": Case("sigma-sfvi", ("job.rounds=3",)),
    "sigma-hmc": Case("sigma-hmc", FEW),
    "sigma-nested": Case("sigma-nested", ("job.rounds=3",)),
    "describe": Case("describe"),
    "describe-secure": Case("describe-secure"),
    "sigma-private": Case("sigma-private", ("job.rounds=3",), "not noise"),
}
PATIENT = Timeouts(lost=60.0, grace=5.0)


def over_threads(parties: Parties) -> tuple[int, list[str], dict[str, int], Path]:
    """Runs a job over threads; returns the exit code, what was said, each site's number of questions, and the results' folder."""
    home, said = parties.server.parent.parent, list[str]()
    sites = {
        name: Resident(home / name, engine="threads", identity="server", say=lambda text: None, timeouts=PATIENT)
        for name in parties.sites
    }
    wire, out = Threads(sites), parties.server.parent / "threads" / parties.name
    code = run_hub(parties.server, wire, out, quiet=True, timeouts=PATIENT, say=said.append)
    for site in sites.values():
        site.join(30.0)
    counts = {name: [site for site, _ in wire.sent].count(name) for name in parties.sites}
    return code, said, counts, out


def over_mpi(folder: Path, all_parties: dict[str, Parties]) -> dict[str, Path]:
    """Runs jobs with a rank for each party; returns the folders of those that ended well."""
    ended, outs = dict[str, Path](), {name: folder / "mpi" / name for name in all_parties}
    for ranks in sorted({1 + len(parties.sites) for parties in all_parties.values()}):
        asked = {name: parties for name, parties in all_parties.items() if 1 + len(parties.sites) == ranks}
        commands: dict[str, list[str | Path]] = {
            name: ["run", parties.one, "--out", outs[name], "--quiet"] for name, parties in asked.items()
        }
        codes, said = mpirun_jobs(ranks, folder / f"ranks-{ranks}.json", commands, timeout=500)
        print(said)
        ended |= {name: outs[name] for name, code in codes.items() if code == 0}
    return ended


class OverFlower:
    """Runs jobs over Flower: a SuperLink, and a resident of each site that outlives all jobs."""

    def __init__(self, folder: Path, sites: Sequence[str], *, simulated: bool) -> None:
        self.folder, self.simulated, self.sites = folder, simulated, sites
        self.work = folder / ("flower-simulated" if simulated else "flower-tls")
        sockets = {name: self.work / "sockets" / f"{name}.sock" for name in sites}
        (self.work / "sockets").mkdir(parents=True, mode=0o700)
        environment = {"FEDKERN_FOLDER": str(folder / "parties" / "server"), "FEDKERN_SOCKETS": str(self.work / "sockets")}
        self.federation = flower.Federation(self.work / "flower", environment)
        for name, path in sockets.items():
            command = [sys.executable, "-P", "-m", "fedkern.cli", "site", "run", folder / "parties" / name, "--socket", path]
            self.federation.start(f"site-{name}", command, self.federation.server)
        flower.wait(lambda: all(path.exists() for path in sockets.values()), "a resident does not listen")
        self.federation.start_link(simulated)
        for name, path in {} if simulated else sockets.items():
            flower.write_key(self.work / name)
            assert "registered" in self.federation.register(name, self.work / name)
            self.federation.start_node(name, self.work / name, f'socket="{path}"')

    def run(self, parties: Parties) -> tuple[str, Path]:
        """Runs a job; returns what was printed and the results' folder."""
        app = self.work / f"app-{parties.name}"
        assert main(["bridge", "flower", str(parties.server), "--out", str(app)]) == 0
        more = ["--federation-config", f"num-supernodes={len(self.sites)}"] if self.simulated else []
        runs = self.folder / "parties" / "server" / "runs"
        out = run_folder(runs, parties.name, resume=False)
        return self.federation.flwr("run", app, "--stream", *more, timeout=1000), out
