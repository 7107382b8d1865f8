"""The folders of a golden job's parties: a server and holders, each with its own copy of the job and a consent."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from fedkern.api import perform
from fedkern.bridges.consent import AcceptedSection, Consent
from fedkern.bridges.digest import digest_of
from fedkern.cli.__main__ import main
from fedkern.jobs.load import overridden, tables_of
from fedkern.jobs.run import Output
from fedkern.methods import load
from fedkern.plain import to_toml
from fedkern.transports.inprocess import InProcess
from support.golden_jobs import golden_jobs

GOLDEN = golden_jobs()
DATE = "2026-01-01T00:00:00Z"
OF_SERVER = (("data", "test"), ("data", "server"), ("model", "prior"))


class Parties(NamedTuple):
    """A job of several parties."""

    name: str  # of the job
    sites: list[str]  # the names of its clients
    server: Path  # the server's copy
    one: Path  # a copy that names all files, for one process

    def perform(self) -> tuple[str, object]:
        """Runs the job in this process; returns the result's digest and its messages by kind."""
        result = perform(InProcess(), *load(self.one), Output(self.one.with_suffix(""), quiet=True))
        assert result is not None
        return result.summary["digest"], result.summary["wire"]


def write_golden(folder: Path, *, sigma: bool = False) -> Path:
    """Writes the golden jobs and their data, once; `sigma`: with the priors of maps."""
    path = folder / "golden"
    if not path.exists():
        GOLDEN.write(path)
    home = path / "sigma"
    if sigma and not (home / "built").exists():
        sets = [word for one in GOLDEN.TRAININGS["car"][2] for word in ("--set", one)]
        train = ["train", str(home / "prior-car.toml"), "--out", str(home / "trained" / "car"), "--quiet", *sets]
        assert main(["sigma", *train]) == 0
        assert main(["sigma", "build", str(home / "prior-built.toml"), "--out", str(home / "built"), "--quiet"]) == 0
    return path


def write_parties(folder: Path, job: str, *sets: str, name: str = "job", only: int = 0, apart: bool = False) -> Parties:
    """Writes the folders of a golden job's parties in `folder`/parties.

    Parameters
    ----------
    folder : where to
    job : a golden job
    sets : more keys that it overrides
    name : of the job files
    only : how many clients; 0 for all
    apart : each site has the job in a folder of its own, so that it can have several jobs with other data
    """
    base, *more = GOLDEN.JOBS[job]
    path = write_golden(folder, sigma=base.startswith("sigma")) / f"{base}.toml"
    tables = overridden(tables_of(path, "job"), [*more, *sets])
    config, home = load(str(path), [*more, *sets])
    files = sorted(home.glob(config.data.clients[0]))[: only or None]
    sites = [file.stem for file in files]
    for section, key in OF_SERVER:
        if key in tables.get(section, {}):
            tables[section][key] = str(home / tables[section][key])
    for file in [*files, Path("server")]:
        own = folder / "parties" / file.stem
        at = own / name if apart and file.stem in sites else own
        at.mkdir(parents=True, exist_ok=True)
        tables["data"]["clients"] = [f"{site}.csv" for site in sites]
        (at / f"{name}.toml").write_text(to_toml(tables))
        if file.stem in sites:
            (at / "site.toml").write_text(f'client = "{file.stem}"\npath = "{file}"\n')
            digest = digest_of(load(at / f"{name}.toml")[0]).hex()
            said = str((at / f"{name}.toml").relative_to(own))
            Consent(own).add(AcceptedSection(digest=digest, file=said, name=job, who="test", date=DATE))
    tables["data"]["clients"] = [str(file) for file in files]
    one = folder / "one" / f"{name}.toml"
    one.parent.mkdir(exist_ok=True)
    one.write_text(to_toml(tables))
    return Parties(name, sites, folder / "parties" / "server" / f"{name}.toml", one)
