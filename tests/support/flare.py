"""Golden jobs between organisations over NVFlare: the parties' folders, the engine's simulator, and the engine over TLS.

FEDKERN_NVFLARE names the Python of the engine's environment, which has NVFlare and what fedkern needs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from fedkern.api import perform
from fedkern.bridges.consent import AcceptedSection, Consent
from fedkern.bridges.digest import digest_of
from fedkern.cli.__main__ import main
from fedkern.cli.bridge import to_toml
from fedkern.jobs.load import overridden, tables_of
from fedkern.jobs.run import Output
from fedkern.methods import load
from fedkern.transports.inprocess import InProcess
from support.golden_jobs import golden_jobs

ENGINE = os.environ.get("FEDKERN_NVFLARE", "")
ROOT = Path(__file__).parents[2]
GOLDEN = golden_jobs()
ALLOWED = {"class_allow_list": ["fedkern.bridges.nvflare.Server", "fedkern.bridges.nvflare.Site"]}


def write_parties(job: str, folder: Path, *sets: str, only: int = 0) -> tuple[list[str], str]:
    """Writes the folders of a golden job's parties, and the engine's; returns the sites and the digest of one process."""
    GOLDEN.write(folder / "golden")
    base, *more = GOLDEN.JOBS[job]
    path = folder / "golden" / f"{base}.toml"
    tables = overridden(tables_of(path, "job"), [*more, *sets])
    config, where = load(str(path), [*more, *sets])
    files = sorted(where.glob(config.data.clients[0]))[: only or None]
    names = [file.stem for file in files]
    tables["data"] |= {"clients": [f"{name}.csv" for name in names]}
    for name in ("test", "server"):
        if name in tables["data"]:
            tables["data"][name] = str(where / tables["data"][name])
    for file in [*files, Path("server")]:
        own = folder / "parties" / file.stem
        own.mkdir(parents=True)
        (own / "job.toml").write_text(to_toml(tables))
        if file.stem in names:
            (own / "site.toml").write_text(f'client = "{file.stem}"\npath = "{file}"\n')
            digest = digest_of(load(own / "job.toml")[0]).hex()
            Consent(own).add(AcceptedSection(digest=digest, file="job.toml", name=job, who="test", date="2026-01-01T00:00:00Z"))
    (folder / "parties" / "simulator_server").symlink_to("server")
    tables["data"]["clients"] = [str(file) for file in files]
    (folder / "one.toml").write_text(to_toml(tables))
    result = perform(InProcess(), *load(folder / "one.toml"), Output(folder / "one", quiet=True))
    assert result is not None
    assert main(["bridge", "nvflare", str(folder / "parties" / "server" / "job.toml"), "--out", str(folder / "flare")]) == 0
    return names, result.summary["digest"]


def digests(folder: Path) -> list[str]:
    """Returns the digests of the results in the server's folder."""
    return [json.loads(path.read_text())["digest"] for path in sorted((folder / "parties/server/runs").glob("*/summary.json"))]


def simulate(folder: Path, sites: list[str]) -> str:
    """Runs the job in the engine's simulator; returns what was printed."""
    space = folder / "space"
    (space / "local").mkdir(parents=True)
    (space / "local" / "resources.json").write_text(json.dumps(ALLOWED))
    command = ["simulator", str(folder / "flare"), "-w", str(space), "-c", ",".join(sites), "-t", str(len(sites))]
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


def over_tls(folder: Path, fault: str, *more: str) -> dict[str, Any]:
    """Runs the job over the engine with TLS, with one thing that goes wrong; returns what came of it."""
    command = [sys.executable, str(ROOT / "benchmarks" / "nvflare_tls.py"), "--engine", ENGINE, "--fault", fault]
    command += ["--parties", str(folder / "parties"), "--job", str(folder / "flare"), "--out", str(folder / "tls"), *more]
    said = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(ROOT)}, cwd=folder, text=True, capture_output=True, check=False, timeout=580
    )
    assert said.returncode == 0, said.stdout + said.stderr
    answer: dict[str, Any] = json.loads(said.stdout)
    return answer


if __name__ == "__main__":  # python -m support.flare JOB DIR: the folders alone
    print(*write_parties(sys.argv[1], Path(sys.argv[2]).absolute()))
