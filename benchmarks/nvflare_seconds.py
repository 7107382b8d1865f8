"""Times a logistic job with effects of groups between three sites over NVFlare with TLS, from its submission to its table.

    python benchmarks/nvflare_seconds.py --engine /opt/nvflare/bin/python [--times 3]

Three sites have 300 rows in 20 wards each, and a resident beside the engine's client; `benchmarks/nvflare_tls.py` starts all of
it, once, and the job runs several times. `engine` is the time in which the engine starts its own part of the job at the
server and the sites, and ends it; `fedkern` that from the first request to the last. Requests are counted at the server.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

SITES, WARDS, EACH = ("ada", "bo", "cy"), 20, 15
JOB = """
[job]
method = "likelihood"
seed = {seed}
[data]
clients = ["ada.csv", "bo.csv", "cy.csv"]
response = "y"
[model]
family = "bernoulli"
[model.random]
group = "ward"
"""


def write(folder: Path, times: int) -> list[Path]:
    """Writes the parties' folders and the engine's of so many jobs, which differ in their seed; returns the engine's."""

    def fedkern(*words: str | Path) -> None:
        subprocess.run([sys.executable, "-P", "-m", "fedkern.cli", *map(str, words)], check=True, stdout=subprocess.DEVNULL)

    random = np.random.default_rng(1)
    for name in ("server", *SITES):
        home = folder / "parties" / name
        home.mkdir(parents=True)
        for seed in range(1, times + 1):
            (home / f"job{seed}.toml").write_text(JOB.format(seed=seed))
        if name == "server":
            continue
        ward = np.repeat(np.arange(WARDS), EACH)
        X = np.column_stack([50 + 10 * random.standard_normal(len(ward)), random.standard_normal(len(ward))])
        eta = 0.05 * (X[:, 0] - 50) + 0.3 * X[:, 1] + 0.7 * random.standard_normal(WARDS)[ward]
        y = (random.random(len(ward)) < 1 / (1 + np.exp(-eta))) * 1
        pd.DataFrame(X, columns=["age", "dose"]).assign(ward=ward, y=y).to_csv(home / "rows.csv", index=False)
        (home / "site.toml").write_text(f'client = "{name}"\npath = "rows.csv"\npolicy = "policy.toml"\n')
        (home / "policy.toml").write_text('open = true\nplaces = ["fedkern.places:Spoke"]\n[data.rows]\npaths = ["rows.csv"]\n')
        for seed in range(1, times + 1):
            fedkern("site", "accept", home / f"job{seed}.toml", "--yes")
    flares = [folder / f"flare{seed}" for seed in range(1, times + 1)]
    for seed, flare in enumerate(flares, 1):
        fedkern("bridge", "nvflare", folder / "parties" / "server" / f"job{seed}.toml", "--out", flare)
    return flares


def main() -> None:
    """Runs the jobs, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", type=Path, required=True, help="the Python of the engine's environment")
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        flares = write(folder, options.times)
        command = [sys.executable, str(Path(__file__).with_name("nvflare_tls.py")), "--engine", str(options.engine), "--in-turn"]
        command += ["--parties", str(folder / "parties"), "--out", str(folder / "tls"), "--job", *map(str, flares)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    print(f"three sites, {WARDS * EACH} rows each; load {os.getloadavg()[0]:.1f}")
    print(f"{'job':6}{'seconds':>9}{'engine':>9}{'fedkern':>9}  requests to each site")
    for one in json.loads(done.stdout):
        (own,), (counts,) = one["seconds of fedkern"], one["requests"]
        print(f"{one['job']:6}{one['seconds']:>9.1f}{one['seconds'] - own:>9.1f}{own:>9.1f}  {counts}")


if __name__ == "__main__":
    main()
