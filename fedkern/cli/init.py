"""Runs `fedkern init` and `fedkern schema`: it writes a first job file, and its schema for editors."""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path

from ..errors import JobError
from ..jobs.files import writing
from ..methods import METHODS, draft
from ..printing import printable
from ..sections import describe_choice


def init(options: argparse.Namespace) -> int:
    """Writes a job file, with its schema beside it, or a policy with a site file for each of the holder's files.

    About a file that cannot be read the terminal shows only words that every party may read: its first line may be a row.
    """
    default = "policy.toml" if options.holder else "job.toml"
    out = Path(options.out or default)
    files = [Path(name) for name in options.files]
    if options.holder:
        texts = {out: draft.policy(files), **draft.sites(files, out)}
        to_choose: tuple[str, ...] = ("policy: epsilon, delta and open are examples",)
    else:
        files_given = {name: Path(path) for name in ("test", "server") if (path := getattr(options, name)) is not None}
        wanted = draft.Wanted(files, options.method, options.private, options.response, folder=out.parent, **files_given)
        text, to_choose = draft.job(wanted)
        texts = {out: text}
    # Refuse before anything is written, so that no half of the files is left.
    for path in texts:
        if path.exists():
            raise JobError(f"{path} is there already; give another --out")
    for path, text in texts.items():
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        print(printable(str(path)))
    if not options.holder:
        with writing(out):
            with_schema(out)
    if to_choose:
        print(printable("\n  ".join(["to fill in or to choose:", *to_choose]), keep="\n"))
    if not options.holder:
        print(f"look at it, then:  fedkern check {printable(str(out))}")
    return 0


def with_schema(job: Path) -> None:
    """Writes a schema beside a job file of ours, and a first line into it that names the schema."""
    text = job.read_text(encoding="utf-8")
    method = tomllib.loads(text)["job"]["method"]
    name = f"fedkern-{method}.schema.json"
    job.with_name(name).write_text(draft.schema(method), encoding="utf-8")
    job.write_text(f"#:schema ./{name}\n{text}", encoding="utf-8")


def schema(options: argparse.Namespace) -> int:
    """Prints the schema."""
    if options.method not in METHODS:
        raise JobError(describe_choice("schema --method", options.method, METHODS))
    sys.stdout.write(draft.schema(options.method))
    return 0
