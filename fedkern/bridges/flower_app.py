"""Writes the app of a job for Flower, in which is no path of anybody's data."""

from __future__ import annotations

import re
from pathlib import Path

from ..errors import JobError

PROJECT = """\
[project]
name = "fedkern-{name}"
version = "1.0.0"
description = "The job {name} of fedkern; every party has its own copy of it"
license = "BSD-3-Clause"
dependencies = ["flwr>=1.42"]

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.flwr.app]
publisher = "fedkern"

[tool.flwr.app.components]
serverapp = "server_app:app"
clientapp = "client_app:app"

[tool.flwr.app.config]
job = "{name}"
digest = "{digest}"
resume = {resume}
replay = {replay}
"""

SERVER = '''\
"""Runs the server's part of the job that [tool.flwr.app.config] names."""

from pathlib import Path

from flwr.serverapp import ServerApp

from fedkern.bridges.flower import serve

app = ServerApp()


@app.main()
def main(grid, context):
    serve(grid, context.run_config, Path(__file__).with_name("job.toml"))
'''


def plain_name(name: str) -> str:
    """Returns a job's name that may be an app's; JobError if it may not."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
        raise JobError(f"the job's name {name!r} is no name of an app: give letters, digits, - and _ only")
    return name


def app_files(name: str, digest: str, job: str, resume: bool = False, replay: bool = False) -> dict[str, str]:
    """Returns the files of a job's app. Raises JobError: the job's name is no name of an app.

    Parameters
    ----------
    name, digest : of the job
    job : its file, without the paths of anybody's data
    resume : whether the job goes on from its last checkpoint
    replay : whether the answers of its last asynchronous run are computed again
    """
    config = {"name": plain_name(name), "digest": digest, "resume": str(resume).lower(), "replay": str(replay).lower()}
    return {
        "pyproject.toml": PROJECT.format(**config),
        "server_app.py": SERVER,
        "client_app.py": Path(__file__).with_name("flower_client.py").read_text("utf-8"),
        "job.toml": job,
    }
