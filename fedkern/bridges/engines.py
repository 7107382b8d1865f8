"""Says with which versions of engines the bridges were tried, and which job file the server of an engine's job takes."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ..errors import JobError
from ..jobs.keys import OWN_PATHS, JobConfig
from ..methods import load
from .digest import digest_of

TRIED = {"nvflare": ("2.9",), "flower": ("1.42",)}
ALLOWED = "FEDKERN_UNTESTED_ENGINE"


def check_engine(name: str, version: str, allowed: str | None = None) -> None:
    """Refuses an engine of a version with which nobody has tried this, unless it is allowed by its number.

    Parameters
    ----------
    name : of the engine
    version : of the engine that runs here
    allowed : the version that this party allows beside those; by default FEDKERN_UNTESTED_ENGINE of its environment

    Raises
    ------
    JobError
        The version was not tried, and is not allowed.
    """
    allowed = os.environ.get(ALLOWED) if allowed is None else allowed
    if version != allowed and ".".join(version.split(".")[:2]) not in TRIED[name]:
        tried = ", ".join(f"{one}.*" for one in TRIED[name])
        raise JobError(f"{name} {version} was not tried with this fedkern, only {tried}; {ALLOWED}={version} allows it here")


def own_files(config: JobConfig) -> list[str]:
    """Returns the keys by which a job names files of its server, beside those of the clients."""
    given = config.without_paths
    paths = (name.split(".") for name in OWN_PATHS if name != "data.clients")
    return [f"{section}.{last}" for section, last in paths if given.get(section, {}).get(last) is True]


def servers_copy(folder: Path, brought: Path, digest: str) -> Path:
    """Returns the job file of the server: its own copy in its folder, or that which the engine has brought.

    Parameters
    ----------
    folder : of the server
    brought : the file in the engine's job
    digest : of the job that was submitted, in hexadecimal digits

    Raises
    ------
    JobError
        No copy has this digest, or the one that the engine has brought names a file of the server.
    """
    for path in sorted(folder.glob("*.toml")):
        with suppress(JobError):  # it may be no job file
            if digest_of(load(path)[0]).hex() == digest:
                return path
    config, _ = load(brought)
    if digest_of(config).hex() != digest:
        raise JobError("the job file of the engine's job has another digest than the job that was submitted")
    # Whoever submits a job could read any file of the server by such a key.
    if files := own_files(config):
        raise JobError(f"{', '.join(files)} names a file of the server: put its own copy of the job file into {folder}")
    return brought


def run_folder(runs: Path, name: str, *, resume: bool) -> Path:
    """Returns the folder of a new run, NAME, NAME-2, ..; with `resume` the last that is there, or the first."""
    path, number = runs / name, 2
    while path.exists():
        after = runs / f"{name}-{number}"
        if resume and not after.exists():
            break
        path, number = after, number + 1
    return path
