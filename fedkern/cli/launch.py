"""Runs `fedkern launch` and `fedkern demo`: a job over MPI on this machine."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from ..errors import JobError, LostPeer
from ..transports.parent import at_death_of_parent
from ..transports.signals import Signals

PACKAGE = Path(__file__).parents[1]
ASKS = [signal.Signals[name] for name in Signals.NAMES]
YOURSELF = "start the ranks yourself: mpirun -n RANKS fedkern run JOB.toml --mpi"
SLURM = PACKAGE / "transports" / "slurm.sbatch"
NODES = "#SBATCH --nodes=64\n"
SCRIPT, DEMO, DEMO_RANKS = PACKAGE / "transports" / "run.sh", PACKAGE / "demo.toml", 6


def launch(options: argparse.Namespace) -> int:
    """Runs the script that starts mpirun, and stays beside it: every signal to this process reaches the job.

    With `--print-slurm` it only prints the script for sbatch, with as many nodes as ranks were asked for.
    """
    ranks, arguments = _with_ranks(options)
    if ranks is not None and ranks < 2:
        raise JobError(f"launch: -n {ranks}: wanted 2 ranks or more, a server and at least one that holds clients")
    if options.print_slurm or "--print-slurm" in arguments:
        text = SLURM.read_text(encoding="utf-8")
        shown = text if ranks is None else text.replace(NODES, f"#SBATCH --nodes={ranks}\n", 1)
        print(shown, end="")
        return 0
    if ranks is None:
        raise JobError("launch: -n RANKS is missing: fedkern launch -n RANKS JOB.toml")
    command = _command(["-n", str(ranks), *arguments])
    return _followed(command, _environment())


def _with_ranks(options: argparse.Namespace) -> tuple[int | None, list[str]]:
    """Returns the number of ranks, which may stand behind the job's name, too, and the other arguments."""
    ranks: int | None = options.ranks
    arguments = list(options.arguments)
    if ranks is None and "-n" in arguments[:-1]:
        place = arguments.index("-n")
        if arguments[place + 1].isdigit():
            ranks = int(arguments[place + 1])
            del arguments[place : place + 2]
    return ranks, arguments


def demo(options: argparse.Namespace) -> int:
    """Runs the README's job and makes its page, beside the answer without privacy; without MPI in one process."""
    out = Path(options.out)
    without = "No mpi4py here (pip install 'fedkern[mpi]')" if find_spec("mpi4py") is None else ""
    if sys.platform != "linux":
        without = "`fedkern launch` needs Linux"
    if without:
        print(f"{without}: the job runs in one process.", flush=True)
        command = [sys.executable, "-P", "-m", "fedkern", "run", str(DEMO), "--out", str(out)]
    else:
        command = _command(["-n", str(DEMO_RANKS), str(DEMO), "--out", str(out)])
    environment = _environment()
    if os.getuid() == 0:
        print("You are root: telling Open MPI that this is allowed (OMPI_ALLOW_RUN_AS_ROOT).", flush=True)
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    code = _followed(command, environment)
    if code == 0:
        from . import report

        print(_without_privacy(out))
        print(report.write(out))
    return code


def _without_privacy(out: Path) -> str:
    """Runs the demo's model on the rows of all hospitals at once, in this process, and says what privacy cost."""
    from ..api import load, run
    from ..jobs.load import tables_of
    from ..results.report import cost_of_privacy

    tables = tables_of(DEMO, "job")
    data = {key: value for key, value in tables["data"].items() if key != "names"}
    data["split"] = {**data["split"], "clients": 1}
    job = {"method": "likelihood", "seed": tables["job"]["seed"]}
    priors = {"prior_sd": 1.0, "intercept_sd": 1.0}  # as a private job has them by default
    pooled = run({"job": job, "data": data, "model": priors}, out=out / "pooled", progress=False)
    return cost_of_privacy(load(out).summary, pooled.summary)


def _followed(command: list[str], environment: dict[str, str]) -> int:
    """Runs a job and passes every signal to this process on, once: in a session of its own no terminal reaches the job.

    If this process became the script instead, a signal that came before the script listens would end it with a code that is not
    ours.
    """
    signals_sent: list[int] = []
    job: subprocess.Popen[bytes] | None = None

    def send(number: int, frame: FrameType | None = None) -> None:
        signals_sent.append(number)
        if job is not None:
            job.send_signal(number)

    numbers = [number for number in ASKS if signal.getsignal(number) != signal.SIG_IGN]
    # Handlers come before the job starts: a signal in between is kept, and sent once it runs.
    before = {number: signal.signal(number, send) for number in numbers}
    try:
        started = subprocess.Popen(command, env=environment, start_new_session=True, preexec_fn=_as_long_as_we_live)
        early, job = list(signals_sent), started
        for number in early:
            started.send_signal(number)
        code = started.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if code < 0 and signals_sent:  # it did not listen yet, and has started nothing
        print(
            f"fedkern: stopped by {signal.Signals(signals_sent[0]).name} before the job had begun; start it again",
            file=sys.stderr,
        )
    elif code < 0:
        print("fedkern: the script beside mpirun was killed, and the job ends with it; --resume goes on", file=sys.stderr)
    return LostPeer.exit_code if code < 0 else code


def _as_long_as_we_live() -> None:
    """Asks the kernel, in the script's process, to end it if this process is killed."""
    at_death_of_parent(signal.SIGTERM)


def _command(arguments: list[str]) -> list[str]:
    """Returns the command of the script."""
    if sys.platform != "linux":
        raise JobError(f"launch: the process beside mpirun needs Linux, and this is {sys.platform}; {YOURSELF}")
    bash = shutil.which("bash")
    if bash is None:
        raise JobError(f"launch: no bash on this machine; {YOURSELF}")
    return [bash, str(SCRIPT), *arguments]


def _environment() -> dict[str, str]:
    """Returns the environment in which the script takes the Python that runs us."""
    return {**os.environ, "PYTHON": sys.executable}
