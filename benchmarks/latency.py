"""What a slow wire costs each method: requests, bytes and seconds of a relay beside the accuracy that they buy.

    python -P benchmarks/latency.py [--only pvi] > benchmarks/results/latency.txt

Small simulated federations run over a relay in one process. `path` is how many requests wait for one another, counted on a wire
with a clock of its own; `site` is how many the busiest site gets, `kB` what its requests and replies have. Seconds at 0 ms are
those of the same run, all parties on this machine; at 20 ms the wire sleeps so long for a request and its reply (measured); at
1,000 ms they are computed: those at 0 ms, and a second for each request of `path`. `error` is the largest distance of a posterior
mean from that of the reference, in the reference's standard deviations; for `vertical` also of means that each client alone gets.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from fedkern import _core
from fedkern.api import perform
from fedkern.jobs.run import Output
from fedkern.methods import load
from fedkern.transports.driver import Timeouts
from fedkern.transports.inprocess import InProcess
from support.relayed import Clocked, Threads, over_threads

SLEEP = 0.02
PATIENT = Timeouts(lost=600.0, grace=10.0)
KINDS = ("logistic", "sparse", "vertical", "sigma")
LOGISTIC = {"job": {"method": "likelihood"}, "model": {"family": "bernoulli", "prior_sd": 1.0}}  # pvi's prior
ALL_ROWS = {"data": {"holdout": 0.0}}  # which rows are held out follows from the seed, and the reference has another one
# what is run, the kind of its data, and the tables that it has besides
JOBS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "likelihood": ("logistic", LOGISTIC),
    "pvi, one shot (bcm-split)": ("logistic", {"algorithm": {"variant": "bcm-split"}, "job": {"rounds": 1}}),
    "pvi, synchronous, 5 rounds": ("logistic", {"algorithm": {"schedule": "synchronous"}, "job": {"rounds": 5}}),
    "pvi, synchronous, 20 rounds": ("logistic", {"algorithm": {"schedule": "synchronous"}, "job": {"rounds": 20}}),
    "pvi, sequential, 2 rounds": ("logistic", {"job": {"rounds": 2}}),
    "pvi, sequential, 5 rounds": ("logistic", {"job": {"rounds": 5}}),
    "pvi, sequential, 20 rounds": ("logistic", {"job": {"rounds": 20}}),
    "sparse, 100 sweeps": ("sparse", {"job": {"rounds": 100}}),
    "sparse, 400 sweeps": ("sparse", {"job": {"rounds": 400}}),
    "sparse, 2,500 sweeps": ("sparse", {"job": {"rounds": 2500}}),
    "vertical, 300 rounds": ("vertical", ALL_ROWS | {"job": {"rounds": 300}}),
    "vertical, 1,000 rounds": ("vertical", ALL_ROWS | {"job": {"rounds": 1000}}),
    "vertical, until it has settled": ("vertical", ALL_ROWS | {"job": {"rounds": "until"}}),
    "vertical, 3,000 rounds": ("vertical", ALL_ROWS | {"job": {"rounds": 3000}}),
    "sigma": ("sigma", {}),
}
REFERENCES: dict[str, Mapping[str, Any]] = {
    "logistic": {**LOGISTIC, "algorithm": {"points": 8192}},
    "sparse": {"job": {"rounds": 20000, "seed": 2}},
    "vertical": {**ALL_ROWS, "job": {"rounds": 20000, "seed": 2}},
    "sigma": {"job": {"seed": 2}, "output": {"draws": 4000}},
}


class Sleeping(Threads):
    """A wire that takes SLEEP seconds for a request and its reply."""

    def reply(self, site: str, spoke: Any, request: bytes) -> None:
        time.sleep(SLEEP)
        super().reply(site, spoke, request)


def simulate(folder: Path) -> None:
    """Writes a federation of each kind."""
    command = [sys.executable, "-P", "-m", "fedkern.cli"]
    for kind in KINDS:
        subprocess.run(
            [*command, "simulate", kind, "--out", str(folder / kind), "--rows", "150"], check=True, capture_output=True
        )
    sigma = folder / "sigma"
    subprocess.run(
        [*command, "sigma", "build", str(sigma / "prior.toml"), "--out", str(sigma / "prior")], check=True, capture_output=True
    )


def job_of(folder: Path, kind: str, tables: Mapping[str, Any]) -> Any:
    """Returns a job: the simulated one with other tables, or with the data alone of it where these name a method."""
    path = folder / kind / "job.toml"
    if "method" in tables.get("job", {}):
        path = folder / kind / "other.toml"
        text = (folder / kind / "job.toml").read_text()
        path.write_text(
            "[data]\n" + text.partition("[data]\n")[2].partition("[model]\n")[0].replace('standardise = "exchange"\n', "")
        )
    return load(path, sections=tables)


def relayed(config: Any, where: Path, out: Path, names: tuple[str, ...], wire: type) -> tuple[Any, float, Any]:
    """Runs a job over a relay; returns its result, the seconds it took, and the wire."""
    results = []

    def main(place: Any, site: str | None) -> int:
        result = perform(place, config, where, Output(out / (site or "server"), quiet=True))
        results.extend([result] if place.is_server else [])
        return 0

    began = time.monotonic()
    codes, said, used = over_threads(main, names, None, PATIENT, busy=600.0, wire=wire)
    if set(codes.values()) != {0}:
        raise RuntimeError(f"{codes}: {said}")
    return results[0], time.monotonic() - began, used


def parameters(result: Any, folder: Path) -> dict[tuple[str, str], Any]:
    """Returns mean and sd of the published unknowns, and of those that clients have in their own folders of a run."""
    every = {("", name): one for name, one in result.parameters.items()}
    for path in folder.glob("**/client-*/posterior.json") if result.summary["method"] == "vertical" else ():
        own = json.loads(path.read_text()).get("parameters", {})
        every |= {(path.parent.name, name): one for name, one in own.items()}
    return every


def distance(found: Mapping[Any, Any], reference: Mapping[Any, Any]) -> float:
    """Returns the largest distance of a mean from the reference's, in standard deviations of the reference."""
    return max(
        abs(found[name]["mean"] - reference[name]["mean"]) / reference[name]["sd"] for name in found.keys() & reference.keys()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="jobs whose name begins so")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    simulate(folder)
    print(f"level {_core.isa()}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; parties of a job share them")
    print("job                             path   site      kB   0 ms s  20 ms s  1,000 ms s   error")
    references: dict[str, Any] = {}
    with threadpool_limits(1, user_api="blas"):
        for number, (name, (kind, tables)) in enumerate(JOBS.items()):
            if not name.startswith(options.only):
                continue
            if kind not in references:
                out = folder / f"{kind}-reference"
                reference = perform(InProcess(), *job_of(folder, kind, REFERENCES[kind]), Output(out, quiet=True))
                references[kind] = parameters(reference, out)
            config, where = job_of(folder, kind, tables)
            names = tuple(sorted(path.stem for path in (folder / kind / "clients").glob("*.csv")))
            result, seconds, wire = relayed(config, where, folder / f"{number}-0", names, Clocked)
            slow = relayed(config, where, folder / f"{number}-20", names, Sleeping)[1]
            asked = max(sum(one == site and n > 0 for one, n in wire.sent) for site in names)
            size = max(sum(abs(n) for one, n in wire.sent if one == site) for site in names) / 1000
            computed = seconds + wire.now
            print(
                f"{name:<30} {wire.now:6.0f} {asked:6d} {size:7.0f} {seconds:8.1f} {slow:8.1f} {computed:11.1f} "
                f"{distance(parameters(result, folder / f'{number}-0'), references[kind]):7.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
