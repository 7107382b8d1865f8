"""Whether the log of an asynchronous run gives the posterior of the run: `python benchmarks/replays.py`.

Ten runs over MPI, ten over a relay whose messages come late and twice, and five over MPI that were killed on the way and went on,
each of another made federation; and three maps and three split tables, killed as well. Writes `results/replays.txt`.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from fedkern.api import perform  # noqa: E402
from fedkern.cli.__main__ import main as command  # noqa: E402
from fedkern.jobs import answers  # noqa: E402
from fedkern.jobs.run import Output  # noqa: E402
from fedkern.methods import load  # noqa: E402
from fedkern.plain import to_toml  # noqa: E402
from fedkern.transports.driver import Timeouts  # noqa: E402
from jobs.test_asynchronous_fits import Tables, of_columns, of_map  # noqa: E402
from support.mpirun import environment  # noqa: E402
from support.relayed import careless, over_threads  # noqa: E402

NAMES = ("a", "b", "c")
FAMILIES = ("gaussian", "bernoulli", "poisson")


def written(folder: Path, seed: int, **job: Any) -> Path:
    """A job of three clients of unequal sizes, whose family goes by the seed."""
    rng, family = np.random.default_rng(seed), FAMILIES[seed % 3]
    for name, n in zip(NAMES, rng.integers(60, 400, 3)):
        x = rng.normal(size=(n, 2))
        eta = 0.3 + x @ [0.8, -0.5]
        draws = {"gaussian": eta + rng.normal(size=n), "bernoulli": 1 * (rng.random(n) < 1 / (1 + np.exp(-eta)))}
        frame = pd.DataFrame({"x": x[:, 0], "z": x[:, 1], "y": draws.get(family, rng.poisson(np.exp(0.5 * eta)))})
        frame.to_csv(folder / f"{name}.csv", index=False)
    tables: dict[str, Any] = {
        "job": {"method": "pvi", **job},
        "data": {"clients": [f"{name}.csv" for name in NAMES], "response": "y"},
        "model": {"family": family},
        "algorithm": {"schedule": "asynchronous"},
    }
    if job:
        tables["algorithm"] |= {"optimiser": "adam", "local_steps": 3, "checkpoint_every": 0.1}
    path = folder / "job.toml"
    path.write_text(to_toml(tables))
    return path


def over_mpi(folder: Path, seed: int) -> Path:
    path, out = written(folder, seed), folder / "out"
    launched(path, out).communicate()
    return out


def launched(path: Path, out: Path, *more: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "fedkern", "launch", "-n", "4", str(path), "--out", str(out), *more]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(words, start_new_session=True, env=environment(), **silent)


def killed(folder: Path, seed: int, tables: Tables | None = None) -> Path:
    """It is killed once its log has so many bytes, and resumed."""
    path, out = folder / "job.toml", folder / "out"
    if tables is None:
        written(folder, seed, rounds=300)
    else:
        path.write_text(to_toml({**tables, "algorithm": {**tables["algorithm"], "checkpoint_every": 0.1}}))
    with launched(path, out) as going:
        log = out / answers.FILE
        while not log.exists() or log.stat().st_size < 20_000 * (seed % 5 + 1):
            assert going.poll() is None, "it has ended before it was killed"
            time.sleep(0.02)
        os.killpg(going.pid, signal.SIGKILL)
    launched(path, out, "--resume").communicate()
    assert any("began" in line for line in answers.read(out / answers.FILE))
    return out


def over_relay(folder: Path, seed: int) -> Path:
    config, where = load(str(written(folder, seed)))

    def main(place: Any, name: str | None) -> int:
        perform(place, config, where, Output(folder / (name or "out"), quiet=True))
        return 0

    codes, said, _ = over_threads(main, NAMES, careless(seed), Timeouts(lost=300.0, grace=5.0), again=0.05, busy=0.5)
    assert set(codes.values()) == {0}, said
    return folder / "out"


def replayed(run: Callable[[Path, int], Path], seeds: range) -> int:
    """How many of these runs give their own digest again."""
    same = 0
    for seed in seeds:
        with TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            same += command(["replay", str(run(Path(folder), seed))]) == 0
    return same


def main() -> None:
    with (ROOT / "benchmarks" / "results" / "replays.txt").open("w", encoding="utf-8") as file:
        for name, run, seeds in (
            ("over MPI, four ranks", over_mpi, range(10)),
            ("over a relay that loses and repeats", over_relay, range(10, 20)),
            ("over MPI, killed and resumed", killed, range(20, 25)),
            ("maps, killed and resumed", lambda folder, seed: killed(folder, seed, of_map(folder, rounds=300)), range(25, 28)),
            (
                "split tables, killed and resumed",
                lambda folder, seed: killed(folder, seed, of_columns(folder, 300)),
                range(28, 31),
            ),
        ):
            line = f"{name}: the digest of the run from its log, {replayed(run, seeds)} of {len(seeds)}"
            print(line, flush=True)
            print(line, file=file, flush=True)


if __name__ == "__main__":
    main()
