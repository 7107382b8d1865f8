"""`fedkern init` and `fedkern schema`: a first job file, and what editors know of it."""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path

from ..errors import JobError, plainly
from ..jobs.explain import chosen
from ..jobs.files import writing
from ..methods import METHODS, draft
from ..printing import printable


def init(options: argparse.Namespace) -> int:
    """Writes a job file, with its schema beside it, or a policy."""
    out = Path(options.out or ("policy.toml" if options.holder else "job.toml"))
    if out.exists():
        raise JobError(f"{out} is there already; give another --out")
    files = [Path(name) for name in options.files]
    with plainly():
        if options.holder:
            text = draft.policy(files)
        else:
            own = {name: Path(path) for name in ("test", "server") if (path := getattr(options, name)) is not None}
            wanted = draft.Wanted(files, options.method, options.private, options.response, folder=out.parent, **own)
            text = draft.job(wanted)
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
        if not options.holder:
            with_schema(out)
    print(printable(str(out)))
    if not options.holder:
        print(f"look at it, then:  fedkern check {printable(str(out))}")
    return 0


def with_schema(job: Path) -> None:
    """A job file that we wrote, with the schema of its method beside it and a first line that names it."""
    text = job.read_text(encoding="utf-8")
    method = tomllib.loads(text)["job"]["method"]
    name = f"fedkern-{method}.schema.json"
    job.with_name(name).write_text(draft.schema(method), encoding="utf-8")
    job.write_text(f"#:schema ./{name}\n{text}", encoding="utf-8")


def schema(options: argparse.Namespace) -> int:
    """Prints the schema."""
    if options.method not in METHODS:
        raise JobError(chosen("schema --method", options.method, METHODS))
    sys.stdout.write(draft.schema(options.method))
    return 0
