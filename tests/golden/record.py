"""Runs the golden jobs and says what they did: `python tests/golden/record.py [--write | OUT.json]`.

Two halves. "stored": what has to be the same on every machine (messages, sizes, counts, ledgers, texts of `fedkern check`, keys).
"numbers": digests of all results, the same on one machine with one BLAS only; `compare.py` has two commits at them.
`--write` makes messages.json and the files of `stored` anew, one a job: six jobs whole, the others by a digest of each part.
What a digest holds, and what it held at another commit, says `compare.py`.

Only names that outlast a move are used: the command line, the files of a run's folder, and `ALGORITHMS`.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import json
import os
import pkgutil
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_type_hints

if __name__ == "__main__":
    os.environ["FEDKERN_ISA"] = "baseline"  # before the first kernel

HERE = Path(__file__).resolve().parent
MESSAGES, STORED = HERE / "messages.json", HERE / "stored"  # what all jobs share, and a file of each
# Stored as they are, so that a change of what is sent or said can be read; the others by digests
WHOLE = ("pvi-sequential", "pvi-private-poisson", "sparse-sums", "vertical-amortised", "vertical-private", "sigma-sfvi")
LONGEST = 80  # characters of a part that stands as it is in every job's file
ALGORITHMS = "fedkern.algorithms"  # the package below which every message is defined, but for the transports' own
OTHER_BLAS = "Prescott"  # OpenBLAS's oldest kernels for x86: other bits than those of any newer processor
# What differs from run to run: times, places, versions. Their keys are compared all the same.
VOLATILE = {"seconds", "versions", "machine", "started", "finished", "id", "cores", "folder", "host", "time", "isa", "blas"}
VOLATILE |= {"drawn", "mark"}  # of a noisy table: when, and a digest under a secret


def sha(content: Any) -> str:
    """16 hexadecimal digits for bytes, a text, or tables."""
    if not isinstance(content, bytes):
        content = (content if isinstance(content, str) else json.dumps(content, sort_keys=True)).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def steady(content: Any) -> Any:
    """Tables without what differs from run to run."""
    if isinstance(content, dict):
        return {name: steady(value) for name, value in content.items() if name not in VOLATILE}
    return [steady(value) for value in content] if isinstance(content, list) else content


def keys(content: Any, depth: int = 3) -> Any:
    """The keys of tables, down to `depth`; lists of equal keys once."""
    if not isinstance(content, dict) or not depth:
        return None
    inner = {name: keys(value, depth - 1) for name, value in content.items()}
    return sorted(inner) if not any(inner.values()) else inner


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []  # of a job without rounds


# --- one command


def command(*arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `fedkern ARGUMENTS` in this process."""
    from fedkern.cli.__main__ import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    return code, out.getvalue(), err.getvalue()


def demanded(code: int, *arguments: str) -> str:
    """Standard output of a command that ends with this code."""
    ended, out, err = command(*arguments)
    if ended != code:
        raise SystemExit(f"fedkern {' '.join(arguments)}: ended with {ended}, not {code}\n{out}{err}")
    return out


@contextlib.contextmanager
def stops_after(checkpoints: int) -> Iterator[None]:
    """SIGTERM once so many checkpoints have got their place."""
    replace, seen = os.replace, 0

    def counted(source: Any, target: Any, **folders: int) -> None:
        nonlocal seen
        replace(source, target, **folders)
        seen += str(target).endswith(".ckpt")
        if seen == checkpoints and str(target).endswith(".ckpt"):
            signal.raise_signal(signal.SIGTERM)

    os.replace = counted  # type: ignore[assignment]
    try:
        yield
    finally:
        os.replace = replace


@contextlib.contextmanager
def known_entropy() -> Iterator[None]:
    """The same bytes every time, where the operating system is asked for some that nobody knows."""
    urandom, seen = os.urandom, 0

    def known(n: int) -> bytes:
        nonlocal seen
        seen += 1
        return hashlib.shake_256(str(seen).encode()).digest(n)

    os.urandom = known
    try:
        yield
    finally:
        os.urandom = urandom


def perform(file: str, sets: tuple[str, ...], out: Path, interrupted: int) -> str:
    """What the run of a job prints. A machine that is slow makes no more checkpoints than another one."""
    sets = (*sets, "algorithm.checkpoint_every=1e6")
    arguments = ["run", file, "--out", str(out), *(word for one in sets for word in ("--set", one))]
    if interrupted:
        with stops_after(interrupted):
            demanded(3, *arguments, "--set", "algorithm.checkpoint_every=1e-9")
        arguments.append("--resume")
    return demanded(0, *arguments)


# --- what a run left behind


def sent(path: Path) -> dict[str, Any]:
    """What a ledger says: kind -> how often, with which sizes, shapes and charges; and the order of all."""
    kinds: dict[str, dict[str, Any]] = {}
    entries = lines(path)
    for entry in entries:
        none: dict[str, Any] = {"n": 0, "bytes": [], "charge": 0, "shapes": []}
        one = kinds.setdefault(f"{entry['protocol']}/{entry['kind']}", none)
        one["n"] += 1
        one["charge"] += entry["charge"]
        one["bytes"] = sorted({*one["bytes"], entry["bytes"]})
        one["shapes"] += [entry["shapes"]] if entry["shapes"] not in one["shapes"] else []
    return {"kinds": kinds, "order": sha([(e["protocol"], e["round"], e["kind"], e["bytes"], e["fields"]) for e in entries])}


def together(by_client: Mapping[str, Any]) -> dict[str, Any]:
    """Clients of whom the same holds stand together."""
    found: dict[str, tuple[list[str], Any]] = {}
    for name, content in by_client.items():
        found.setdefault(json.dumps(content, sort_keys=True), ([], content))[0].append(name)
    return {", ".join(names): content for names, content in found.values()}


def stored(out: Path, check: str) -> dict[str, Any]:
    """What has to be the same on every machine."""
    summary = json.loads((out / "summary.json").read_text())
    identity = json.loads((out / "job.json").read_text().replace(json.dumps(str(Path.cwd()))[1:-1], "."))
    identity["run"] = sorted(identity["run"])  # an id, and digests under a secret of this run
    return {
        # a prior's id is of its trained numbers, which differ between processors
        "check": re.sub(r"; id [0-9a-f]{12}$", "", check, flags=re.MULTILINE).splitlines(),
        "stop": summary["stop"],
        "rounds": summary["rounds"],
        "clients": together(summary["clients"]),
        "wire": together(summary["wire"]),
        "ledgers": together({path.stem: sent(path) for path in sorted((out / "ledger").iterdir())}),
        "summary keys": keys(summary),
        "metrics keys": sorted({json.dumps(keys(line)) for line in lines(out / "metrics.jsonl")}),
        "files": sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()),
        "job": sha(identity),
    }


def arrays(path: Path) -> dict[str, str]:
    """Name -> digest, of all numbers in posterior.nc."""
    import h5py

    found: dict[str, str] = {}

    def visit(name: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset) and node.dtype.kind in "fiub":
            found[name] = sha(str(node.dtype).encode() + str(node.shape).encode() + node[()].tobytes())

    with h5py.File(path) as file:
        file.visititems(visit)
    return found


def numbers(out: Path, printed: str) -> dict[str, Any]:
    """Digests of everything that is computed."""
    summary = json.loads((out / "summary.json").read_text())
    of_clients = {}
    for path in sorted(out.glob("client-*/*")):
        if path.suffix == ".json" and path.name != "job.json":
            text = path.read_text().replace(json.dumps(str(Path.cwd()))[1:-1], ".")
            of_clients[str(path.relative_to(out))] = sha(steady(json.loads(text)))
        elif path.suffix == ".csv":
            of_clients[str(path.relative_to(out))] = sha(path.read_bytes())
    words = [line for line in printed.splitlines() if str(out) not in line]
    return {
        "digest": summary["digest"],
        "summary": {name: sha(value) for name, value in steady(summary).items() if name != "wire"},
        "draws": arrays(out / "posterior.nc") if (out / "posterior.nc").exists() else {},
        "clients": of_clients,
        "tables": {path.name: sha(path.read_bytes()) for path in sorted(out.glob("*.csv"))},
        "metrics": sha(steady(lines(out / "metrics.jsonl"))),
        "printed": sha("\n".join(words)),
    }


def prior(out: Path) -> dict[str, Any]:
    """The numbers of a prior, file by file."""
    import numpy as np

    found: dict[str, Any] = {}
    for path in [out / "server.npz", *sorted((out / "clients").iterdir())]:
        with np.load(path) as file:
            found[path.name] = {name: sha(file[name].tobytes()) for name in sorted(file.files) if file[name].dtype.kind in "fiu"}
    return found


def messages() -> dict[str, Any]:
    """Number -> class and fields, of all messages."""
    package = importlib.import_module(ALGORITHMS)
    for module in pkgutil.walk_packages(package.__path__, ALGORITHMS + "."):
        importlib.import_module(module.name)
    inside = [module for name, module in list(sys.modules.items()) if name.startswith("fedkern")]
    base = next(c for module in inside for c in vars(module).values() if isinstance(c, type) and c.__name__ == "Message")
    found = {}
    for kind in below(base):
        fields = {}
        for name in kind.__dataclass_fields__:
            hint = get_type_hints(kind, include_extras=True)[name]
            shape = getattr(hint, "__metadata__", None)
            fields[name] = hint.__name__ if shape is None else f"{getattr(hint.__origin__, '__name__', 'array')} ({shape[0]})"
        found[str(kind.kind)] = {"class": kind.__name__, "fields": fields}
    return dict(sorted(found.items(), key=lambda item: int(item[0])))


def below(base: type) -> Iterator[Any]:
    for kind in base.__subclasses__():
        if hasattr(kind, "kind"):  # else it is a base of messages
            yield kind
        yield from below(kind)


# --- all


def record(folder: Path, names: tuple[str, ...] = (), said: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Everything, run in an empty folder. `names`: of some jobs only."""
    sys.path.insert(0, str(HERE))
    import fedkern
    import jobs

    jobs.write(folder)
    done: dict[str, Any] = {"fedkern": str(Path(fedkern.__file__).parent), "stored": {}, "numbers": {}, "trainings": {}}
    for name, (_, _, sets) in jobs.TRAININGS.items():
        os.chdir(folder / "sigma")
        out = Path("trained") / name
        more = [word for one in sets for word in ("--set", one)]
        demanded(0, "sigma", "train", f"prior-{name}.toml", "--out", str(out), "--quiet", *more)
        done["trainings"][name] = {"fit.json": sha(steady(json.loads((out / "fit.json").read_text()))), **prior(out)}
        said(name)
    demanded(0, "sigma", "build", "prior-built.toml", "--out", "built", "--quiet")
    done["trainings"]["built"] = prior(Path("built"))
    for name, (base, *sets) in jobs.JOBS.items():
        if names and name not in names:
            continue
        method, _, file = base.partition("/")
        os.chdir(folder / method)
        out = Path(f"out-{name}")
        check = demanded(0, "check", "--verbose", f"{file}.toml", *(word for one in sets for word in ("--set", one)))
        with known_entropy() if name in jobs.SECURE else contextlib.nullcontext():
            printed = perform(f"{file}.toml", tuple(sets), out, jobs.INTERRUPTED.get(name, 0))
        done["stored"][name] = stored(out, check)
        done["numbers"][name] = numbers(out, printed)
        if name in jobs.PORTABLE:
            done["stored"][name]["digest"] = done["numbers"][name]["digest"]
        said(name)
    done["messages"] = messages()
    done["streams"] = sha((Path(fedkern.get_include()) / "fedkern" / "streams.def").read_bytes())
    os.chdir(folder)
    return done


def plain_numpy() -> str:
    """NumPy's levels of instructions above the one that every machine has: its exp and log have other last bits at each."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    return " ".join(level for level in __cpu_dispatch__ if __cpu_features__[level])


def recorded(environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The same from a fresh process, whose levels and homes are its own."""
    with tempfile.TemporaryDirectory(prefix="fedkern-golden-") as folder:
        homeless = {name: value for name, value in os.environ.items() if not name.startswith("FEDKERN_")}
        path = Path(folder) / "record.json"
        done = subprocess.run(
            [sys.executable, "-P", str(HERE / "record.py"), str(path)],
            env={**homeless, "HOME": folder, "NPY_DISABLE_CPU_FEATURES": plain_numpy(), **(environment or {})},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"record.py ended with {done.returncode}\n{done.stdout}{done.stderr}")
        return dict(json.loads(path.read_text()))


def digested(job: Mapping[str, Any]) -> dict[str, Any]:
    """A job's parts, the long ones by their digests."""
    texts = {name: json.dumps(part, sort_keys=True) for name, part in job.items()}
    return {name: job[name] if len(text) <= LONGEST else sha(text) for name, text in texts.items()}


def kept(done: Mapping[str, Any]) -> dict[str, Any]:
    """The half that is stored."""
    of_jobs = {name: job if name in WHOLE else digested(job) for name, job in done["stored"].items()}
    return {name: done[name] for name in ("messages", "streams")} | {"jobs": of_jobs}


def read() -> dict[str, Any]:
    """What is stored."""
    of_jobs = {path.stem: json.loads(path.read_text()) for path in sorted(STORED.glob("*.json"))}
    return {**json.loads(MESSAGES.read_text()), "jobs": of_jobs}


def write(content: Mapping[str, Any]) -> None:
    """Stores it; files of jobs that are no more go."""
    STORED.mkdir(exist_ok=True)
    for path in STORED.glob("*.json"):
        if path.stem not in content["jobs"]:
            path.unlink()
    for name, job in content["jobs"].items():
        (STORED / f"{name}.json").write_text(laid(job) + "\n")
    MESSAGES.write_text(laid({name: content[name] for name in ("messages", "streams")}) + "\n")


def differences(was: Any, now: Any, path: str = "") -> Iterator[str]:
    """A line for each key at which two records differ."""
    if isinstance(was, dict) and isinstance(now, dict):
        for name in [*was, *(name for name in now if name not in was)]:
            at = f"{path}: {name}" if path else name
            if name not in now:
                yield f"{at}: is gone (was {short(was[name])})"
            elif name not in was:
                yield f"{at}: is new ({short(now[name])})"
            else:
                yield from differences(was[name], now[name], at)
    elif isinstance(was, list) and isinstance(now, list) and was != now:
        import difflib

        changed = difflib.ndiff([short(v) for v in was], [short(v) for v in now])
        yield f"{path}:\n" + "\n".join(f"    {line}" for line in changed if line[0] in "+-")
    elif was != now:
        yield f"{path}: was {short(was)}, is {short(now)}"


def laid(content: Any, margin: str = "") -> str:
    """JSON whose short parts stand on one line."""
    text = json.dumps(content, ensure_ascii=False)
    if len(margin) + len(text) <= 120 or not isinstance(content, (dict, list)):
        return text
    inner = margin + " "
    if isinstance(content, dict):
        parts = [f"{json.dumps(name, ensure_ascii=False)}: {laid(value, inner)}" for name, value in content.items()]
    else:
        parts = [laid(value, inner) for value in content]
    opening, closing = "{}" if isinstance(content, dict) else "[]"
    return opening + "\n" + ",\n".join(inner + part for part in parts) + "\n" + margin + closing


def short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) < 160 else text[:157] + "..."


def main(arguments: list[str]) -> int:
    if arguments == ["--write"]:
        before = read() if MESSAGES.exists() else {}
        now = kept(recorded())
        other = list(differences(now, kept(recorded({"OPENBLAS_CORETYPE": OTHER_BLAS}))))
        if other:
            print(f"not written: with OpenBLAS's kernels for {OTHER_BLAS} the stored half would differ", *other, sep="\n")
            return 1
        write(now)
        print("\n".join(differences(before, now)) if before else "first record", f"written: {MESSAGES}, {STORED}", sep="\n")
        return 0
    if len(arguments) != 1:
        print(__doc__)
        return 2
    with tempfile.TemporaryDirectory(prefix="fedkern-golden-") as folder:
        for name in [name for name in os.environ if name.startswith("FEDKERN_") and name != "FEDKERN_ISA"]:
            os.environ.pop(name)
        os.environ["HOME"] = folder
        target = Path(arguments[0]).absolute()
        target.write_text(json.dumps(record(Path(folder) / "jobs"), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
