"""Runs `fedkern bridge`: writes the folder of a job for a federated engine, in which is nothing of anybody's data."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..bridges.digest import digest_of, names_of
from ..bridges.engines import check_engine, own_files
from ..bridges.flower_app import app_files
from ..errors import JobError
from ..jobs.files import writing
from ..jobs.keys import OWN_PATHS
from ..jobs.load import tables_of
from ..methods import load
from ..plain import to_toml
from ..printing import printable

SITE_NAME = re.compile(r"[A-Za-z0-9_-]+")  # of NVFlare
CLASSES = "fedkern.bridges.nvflare"


def flower(options: argparse.Namespace) -> int:
    """Writes Flower's app: what the engine brings to the server and to all sites."""
    with suppress(PackageNotFoundError):  # it is in an environment of its own, where each party's bridge looks at the version
        found = version("flwr")
        allowed = found if options.untested else None
        check_engine("flower", found, allowed)
    job, out = Path(options.job), Path(options.out)
    config, _ = load(job)
    digest = digest_of(config).hex()
    brought = to_toml(without_paths(tables_of(job, "job"), list(names_of(config))))
    texts = app_files(job.stem, digest, brought, options.resume, options.replay)
    lines = [str(out), f"digest of the job, which each site accepts: {digest}"]
    if files := own_files(config):
        lines.append(f"put {job.name} into the server's folder, too: {', '.join(files)} names a file of its own")
    _write(out, texts)
    print(printable("\n".join([*lines, f"submit it:  flwr run {out}"]), keep="\n"))
    return 0


def nvflare(options: argparse.Namespace) -> int:
    """Writes NVFlare's job folder: what the engine brings to the server and to all sites."""
    with suppress(PackageNotFoundError):  # it is in an environment of its own, where each party's bridge looks at the version
        found = version("nvflare")
        allowed = found if options.untested else None
        check_engine("nvflare", found, allowed)
    job, out = Path(options.job), Path(options.out)
    config, _ = load(job)
    names, digest = list(names_of(config)), digest_of(config).hex()
    if wrong := [name for name in names if not SITE_NAME.fullmatch(name)]:
        raise JobError(f"data.names: NVFlare's sites have letters, digits, - and _ in their names; {wrong[0]!r} has others")
    arguments = {"names": names, "digest": digest, "resume": options.resume, "job": job.stem, "replay": options.replay}
    filters: dict[str, list[object]] = {"task_data_filters": [], "task_result_filters": []}
    server = {"workflows": [{"id": "fedkern", "path": f"{CLASSES}.Server", "args": arguments}], "components": []}
    site = {"executors": [{"tasks": ["none"], "executor": {"path": f"{CLASSES}.Site"}}], "components": []}
    meta = {
        "name": job.stem,
        "resource_spec": {},
        "min_clients": len(names),
        "mandatory_clients": names,
        "deploy_map": {"app": ["server", *names]},
    }
    texts = {
        "meta.json": json.dumps(meta, indent=2),
        "app/config/config_fed_server.json": json.dumps({"format_version": 2, **server, **filters}, indent=2),
        "app/config/config_fed_client.json": json.dumps({"format_version": 2, **site, **filters}, indent=2),
        "app/config/job.toml": to_toml(without_paths(tables_of(job, "job"), names)),
    }
    lines = [str(out), f"digest of the job, which each site accepts: {digest}"]
    _write(out, texts)
    if files := own_files(config):
        lines.append(f"put {job.name} into the server's folder, too: {', '.join(files)} names a file of its own")
    print(printable("\n".join([*lines, f"submit it:  nvflare job submit -j {out}"]), keep="\n"))
    return 0


def _write(out: Path, texts: Mapping[str, str]) -> None:
    """Writes files into a new folder."""
    if out.exists():
        raise JobError(f"{out} is there already; give another --out")
    for name, text in texts.items():
        with writing(out / name):
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_text(text.rstrip("\n") + "\n", encoding="utf-8")


def without_paths(tables: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Returns the tables of a job file with a dash for each path, so that its digest stays, and with the clients' names."""
    kept = {section: dict(table) for section, table in tables.items()}
    for section, _, key in (path.partition(".") for path in OWN_PATHS):
        if isinstance(kept.get(section, {}).get(key), str):
            kept[section][key] = "-"
    kept["data"] |= {"clients": names, "names": names}
    return kept
