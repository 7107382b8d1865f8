"""Says with which versions of engines the bridges were tried, and which job file the server of an engine's job takes."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ..errors import JobError
from ..jobs.answers import FILE
from ..jobs.keys import OWN_PATHS, JobConfig
from ..methods import load
from .digest import digest_of

TRIED = {"nvflare": ("2.9",), "flower": ("1.42",)}
ALLOWED = "FEDKERN_UNTESTED_ENGINE"


def check_engine(name: str, version: str, allowed: str | None = None) -> None:
    """Refuses an engine of a version with which nobody has tried this, unless it is allowed by its number. Raises JobError: the
    version was not tried, and is not allowed.

    Parameters
    ----------
    name : of the engine
    version : of the engine that runs here
    allowed : the version that this party allows beside those; by default FEDKERN_UNTESTED_ENGINE of its environment
    """
    allowed = os.environ.get(ALLOWED) if allowed is None else allowed
    if version != allowed and ".".join(version.split(".")[:2]) not in TRIED[name]:
        tried = ", ".join(f"{minor}.*" for minor in TRIED[name])
        raise JobError(f"{name} {version} was not tried with this fedkern, only {tried}; {ALLOWED}={version} allows it here")


def own_files(config: JobConfig) -> list[str]:
    """Returns the keys by which a job names files of its server, beside those of the clients."""
    given = config.without_paths
    paths = (name.split(".") for name in OWN_PATHS if name != "data.clients")
    return [f"{section}.{last}" for section, last in paths if given.get(section, {}).get(last) is True]


def servers_copy(folder: Path, brought: Path, digest: str, name: str = "") -> Path:
    """Returns the job file of the server: its own copy in its folder, or that which the engine has brought. Raises JobError: the
    job that the engine has brought has another digest. Or it names a file of the server, and it is not clear which of the
    server's copies is meant: copies of one digest differ in such paths.

    Parameters
    ----------
    folder : of the server
    brought : the file in the engine's job
    digest : of the job that was submitted, in hexadecimal digits
    name : of the file that was submitted, without .toml; empty where the engine's job does not say it
    """
    copies = []
    for path in sorted(folder.glob("*.toml")):
        with suppress(JobError):  # it may be no job file
            if digest_of(load(path)[0]).hex() == digest:
                copies.append(path)
    if copies:
        files = own_files(load(copies[0])[0])
        if not files:  # they differ in the clients' paths alone, which a server does not read
            return copies[0]
        if name and folder / f"{name}.toml" in copies:
            return folder / f"{name}.toml"
        if name or len(copies) > 1:
            listed = ", ".join(path.name for path in copies)
            wanted = f"call the one that is meant {name}.toml" if name else "leave the one that is meant in the folder"
            have = "has" if len(copies) == 1 else "have"
            of_name = f", {name}.toml" if name else ""
            raise JobError(
                f"{folder}: {listed} {have} the digest of the job that was submitted{of_name}, and {', '.join(files)} may name "
                f"another file in each copy; {wanted}"
            )
        return copies[0]
    config, _ = load(brought)
    if digest_of(config).hex() != digest:
        raise JobError("the job file of the engine's job has another digest than the job that was submitted")
    # Whoever submits a job could read any file of the server by such a key.
    if files := own_files(config):
        called = f" as {name}.toml" if name else ""
        raise JobError(f"{', '.join(files)} names a file of the server: put its own copy of the job file into {folder}{called}")
    return brought


def run_folder(runs: Path, name: str, *, resume: bool) -> Path:
    """Returns the folder of a new run, NAME, NAME-2, ..

    With `resume` it is the last that has a checkpoint: a start that failed early has left a folder without one.
    Where none has, it is the last that is there, or the first.
    """
    folders = _folders(runs, name)
    if not resume:
        return folders[-1]
    begun = [path for path in folders if any(path.glob("checkpoint/*.ckpt")) or any(path.glob("*/checkpoint/*.ckpt"))]
    return (begun or folders[:-1] or folders)[-1]


def replayed_folder(runs: Path, name: str) -> Path:
    """Returns the folder of the last run that has kept its answers (JobError: there is none)."""
    kept = [path for path in _folders(runs, name) if (path / FILE).exists()]
    if not kept:
        raise JobError(f"{runs / name}: no run of this job has kept its answers here, so none can be computed again")
    return kept[-1]


def _folders(runs: Path, name: str) -> list[Path]:
    """Returns the folders of all runs, and that of the next."""
    folders = [runs / name]
    while folders[-1].exists():
        folders.append(runs / f"{name}-{len(folders) + 1}")
    return folders
