"""CPU seconds, bytes and memory of whole `likelihood` jobs, beside statsmodels on the pooled rows, in turns.

    python benchmarks/pooled_jobs.py [--base FOLDER] [--rows 3x5000x80,3x5000x160] [--out benchmarks/results/pooled_jobs.txt]

Each job runs in a process of its own, from rows in memory to the result; seconds are of its processor time, children included,
with fedkern's imports. Memory is that of the data and what the job takes at its highest beside them. `--base`: a checkout of another commit, with its extension, which is measured in turns with this one. The
load is that when a line begins. statsmodels is no dependency: without it, it has no column (FEDKERN_PEERS names an
interpreter that has it).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

JOB = """
import json, resource, sys, time
import numpy as np
clients, n, p, family, which = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
random = np.random.default_rng(1)
X = random.normal(size=(clients * n, p))
eta = 0.3 + X @ (random.normal(size=p) / np.sqrt(p)) * 0.7
y = eta + random.normal(size=len(eta)) if family == "gaussian" else (random.random(len(eta)) < 1 / (1 + np.exp(-eta))).astype(int)
def seconds():
    return sum(one.ru_utime + one.ru_stime for one in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
if which == "statsmodels":
    import statsmodels.api as sm
    began = seconds()
    Z = sm.add_constant(X)
    fit = (sm.OLS(y, Z) if family == "gaussian" else sm.Logit(y, Z)).fit(**({} if family == "gaussian" else {"disp": 0}))
    print(json.dumps({"seconds": seconds() - began, "bse": float(fit.bse[1]), "version": __import__("statsmodels").__version__}))
else:
    import fedkern, pandas
    frame = pandas.DataFrame(X, columns=[f"x{k}" for k in range(p)]).assign(y=y)
    data = {f"c{k}": frame.iloc[k * n : (k + 1) * n].reset_index(drop=True) for k in range(clients)}
    job = {"job": {"method": "likelihood"}, "data": {"response": "y"}, "model": {"family": family}}
    held = sum(one.memory_usage(index=False).sum() for one in data.values())
    del X, frame
    def resident(which):
        return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(which)) / 1024
    open("/proc/self/clear_refs", "w").write("5")  # the highest resident size counts from here
    before, began = resident("VmRSS"), seconds()
    result = fedkern.run(job, data=data)
    s = result.summary
    sent = [one for one in s["wire"].values()]
    print(json.dumps({"seconds": seconds() - began, "MB": round(held / 2**20 + resident("VmHWM") - before), "ess": s["ess"], "rounds": s["rounds_of_draws"], "converged": s["converged"],
                      "error": s["monte_carlo_error"], "wire": sent[0]}))
"""


def measured(which: str, folder: Path, job: list[str]) -> dict[str, object]:
    """What one process says."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))}
    python = os.environ.get("FEDKERN_PEERS", sys.executable) if which == "statsmodels" else sys.executable
    done = subprocess.run([python, "-P", "-c", JOB, *job, which], env=environment, capture_output=True, text=True, check=False)
    return dict(json.loads(done.stdout.splitlines()[-1])) if done.returncode == 0 else {"failed": done.stderr[-300:]}


def main() -> None:
    """A line of each job and program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path)
    parser.add_argument("--rows", default="3x500x8,3x5000x80,3x5000x160,3x100000x20")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--family", default="bernoulli")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    here, lines = Path(__file__).parents[1], []
    for rows in asked.rows.split(","):
        for _ in range(asked.turns):
            each = {"statsmodels": here, **({"before": asked.base} if asked.base else {}), "now": here}
            for which, folder in each.items():
                load = os.getloadavg()[0]
                told = measured(which, folder, [*rows.split("x"), asked.family])
                lines.append(f"{asked.family} {rows:13} {which:12} load {load:4.1f}  {json.dumps(told)}")
                print(lines[-1], flush=True)
                if asked.out:
                    asked.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
