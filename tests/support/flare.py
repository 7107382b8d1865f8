"""Golden jobs between organisations over NVFlare: the parties' folders, the engine's simulator, and the engine over TLS.

FEDKERN_NVFLARE names the Python of the engine's environment, which has NVFlare and what fedkern needs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedkern.cli.__main__ import main
from support.parties import write_parties as parties_of

ENGINE = os.environ.get("FEDKERN_NVFLARE", "")
ROOT = Path(__file__).parents[2]
ALLOWED = {"class_allow_list": ["fedkern.bridges.nvflare.Server", "fedkern.bridges.nvflare.Site"]}


def write_parties(job: str, folder: Path, *sets: str, only: int = 0) -> tuple[list[str], str]:
    """Writes the folders of a golden job's parties, and the engine's; returns the sites and the digest of one process."""
    parties = parties_of(folder, job, *sets, only=only)
    (folder / "parties" / "simulator_server").symlink_to("server")
    bridge(parties.server, folder / "flare")
    return parties.sites, parties.perform()[0]


def bridge(job: Path, out: Path) -> Path:
    """Writes the engine's folder of a job, and returns it."""
    assert main(["bridge", "nvflare", str(job), "--out", str(out)]) == 0
    return out


def digests(folder: Path) -> list[str]:
    """Returns the digests of the results in the server's folder."""
    return [json.loads(path.read_text())["digest"] for path in sorted((folder / "parties/server/runs").glob("*/summary.json"))]


def simulate(folder: Path, sites: list[str], job: str = "flare") -> str:
    """Runs the job of one folder in the engine's simulator; returns what was printed."""
    space = folder / f"space-{job}"
    (space / "local").mkdir(parents=True)
    (space / "local" / "resources.json").write_text(json.dumps(ALLOWED))
    command = ["simulator", str(folder / job), "-w", str(space), "-c", ",".join(sites), "-t", str(len(sites))]
    environment = os.environ | {"FEDKERN_FOLDER": str(folder / "parties"), "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    said = subprocess.run(
        [str(Path(ENGINE).parent / "nvflare"), *command],
        env=environment,
        cwd=folder,
        text=True,
        capture_output=True,
        check=False,
        timeout=250,
    )
    return said.stdout + said.stderr


def over_tls(folder: Path, fault: str = "none", *more: str, jobs: Sequence[str] = ("flare",), timeout: float = 580.0) -> Any:
    """Runs jobs over the engine with TLS, with one thing that goes wrong; returns what came of them."""
    command = [sys.executable, str(ROOT / "benchmarks" / "nvflare_tls.py"), "--engine", ENGINE, "--fault", fault]
    command += [
        "--parties",
        str(folder / "parties"),
        "--out",
        str(folder / "tls"),
        "--job",
        *(str(folder / job) for job in jobs),
        *more,
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    said = subprocess.run(command, env=environment, cwd=folder, text=True, capture_output=True, check=False, timeout=timeout)
    assert said.returncode == 0, said.stdout + said.stderr
    return json.loads(said.stdout)


if __name__ == "__main__":  # python -m support.flare JOB DIR: the folders alone
    print(*write_parties(sys.argv[1], Path(sys.argv[2]).absolute()))
