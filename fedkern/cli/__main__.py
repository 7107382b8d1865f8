"""The command line. Arguments are parsed before anything heavy is imported: `--help` must not wait for kernels."""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from .. import __version__
from ..errors import FedkernError, JobError, no_memory, plainly
from ..jobs import limits as machine
from ..printing import printable, several
from ..transports.signals import Signals

EXIT_CODES = """exit codes: 0 finished; 1 internal error; 2 bad job or data; 3 stopped by a signal or a lost peer, with a
checkpoint (--resume goes on); 4 finished without some lost clients; 5 a privacy budget ended the job before min_updates"""


def parser() -> argparse.ArgumentParser:
    """All commands and options."""
    top = argparse.ArgumentParser(
        prog="fedkern",
        description="Federated Bayesian inference.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"fedkern {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    job = argparse.ArgumentParser(add_help=False)
    job.add_argument("job", metavar="JOB.toml")
    job.add_argument("--mpi", action="store_true", help="one rank of an mpirun: rank 0 is the server, the others hold clients")
    job.add_argument(
        "--set", action="append", default=[], metavar="section.key=value", dest="sets", help="override a key of the job file"
    )

    job.add_argument("--site", metavar="FILE", help="a holder's own site.toml, or a folder with NAME.toml for each client")

    run = commands.add_parser("run", parents=[job], help="run a job")
    run.add_argument("--out", metavar="DIR", help="folder for the results (default: runs/ and the job file's name)")
    run.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    run.add_argument("--resume", action="store_true", help="go on from the last checkpoint in --out")
    run.add_argument("--quiet", action="store_true", help="no progress and no summary")
    run.set_defaults(call=_run)

    check = commands.add_parser("check", parents=[job], help="validate a job, and print its privacy plan and what will be sent")
    check.add_argument("--local", metavar="FILE", help="for the data holder: the faults in the rows of this file; nothing leaves")
    check.set_defaults(call=_check)

    info = commands.add_parser("info", help="versions, instruction set, threads, BLAS, MPI, CUDA, and the kernel table")
    info.add_argument("--json", action="store_true")
    info.set_defaults(call=_info)

    simulate = commands.add_parser("simulate", help="write a synthetic federation: client files, truth.json, job.toml")
    simulate.add_argument("kind", metavar="KIND", help="logistic, poisson, regression, sparse, mrf, sem, vertical or sigma")
    simulate.add_argument("--out", required=True, metavar="DIR")
    for name, default in (("clients", 4), ("rows", 200), ("columns", 5), ("seed", 1)):
        simulate.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"default {default}")
    simulate.set_defaults(call=_simulate)

    sigma = commands.add_parser("sigma", help="priors that do not factorise over clients: build or train one")
    steps = sigma.add_subparsers(dest="step", metavar="STEP", required=True)
    build = steps.add_parser("build", help="build a prior that is exact inside each client; nothing is trained")
    build.add_argument("prior", metavar="PRIOR.toml")
    build.add_argument("--out", metavar="DIR", help="folder of the artifact (default: runs/ and the prior file's name)")
    build.add_argument(
        "--set", action="append", default=[], metavar="section.key=value", dest="sets", help="override a key of the prior file"
    )
    build.add_argument("--quiet", action="store_true", help="no notes and no summary")
    build.set_defaults(call=_sigma_build)
    train = steps.add_parser("train", help="train a prior artifact: one file for the server, one for each client")
    train.add_argument("prior", metavar="PRIOR.toml")
    train.add_argument("--out", metavar="DIR", help="folder of the artifact (default: runs/ and the prior file's name)")
    train.add_argument(
        "--set", action="append", default=[], metavar="section.key=value", dest="sets", help="override a key of the prior file"
    )
    train.add_argument("--resume", action="store_true", help="go on from the last checkpoint in --out")
    train.add_argument("--quiet", action="store_true", help="no progress and no summary")
    train.set_defaults(call=_sigma_train)

    report = commands.add_parser("report", help="one self-contained HTML page from a finished or interrupted run")
    report.add_argument("folder", metavar="DIR")
    report.set_defaults(call=_report)

    reproduce = commands.add_parser("reproduce", help="a table or figure of a paper; without NAME: list them")
    reproduce.add_argument("name", nargs="?", metavar="NAME")
    reproduce.add_argument("--fast", action="store_true", help="fewer seeds and settings")
    reproduce.add_argument("--printed", action="store_true", help="also with a paper's slips as they are printed")
    reproduce.add_argument("--out", metavar="DIR", help="folder for tables and figures (default: runs/ and the name)")
    reproduce.set_defaults(call=_reproduce)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Returns
    -------
    the exit code, as listed under `fedkern --help`
    """
    options = parser().parse_args(arguments)
    call: Callable[[argparse.Namespace], int] = options.call
    options.signals = signals = Signals(at_once=True)
    try:
        with signals:
            code = call(options)
            machine.flush_output()
            return code
    except (Exception, KeyboardInterrupt) as error:
        return _failed(signals.stopped or error)
    finally:
        if arguments is None:  # the process ends with this: its code is known
            signals.ignore()


def _failed(error: BaseException) -> int:
    """Says why a command has failed; its exit code."""
    with suppress(OSError):
        machine.flush_output()
    error = machine.refusal(error)
    text, code = "internal error; please report the lines above", 1
    if isinstance(error, FedkernError):
        text, code = several(str(error)), error.exit_code
    elif isinstance(error, KeyboardInterrupt):
        text, code = str(error) or "interrupted", 3
    elif isinstance(error, BrokenPipeError):  # the reader of our output has gone: no more can be said
        return 1
    if isinstance(error, MemoryError):
        text, code = no_memory(error), JobError.exit_code
    with suppress(OSError):
        if code == 1 and not isinstance(error, FedkernError):
            traceback.print_exception(error)
        print(f"fedkern: {text}", file=sys.stderr)
    return code


def _run(options: argparse.Namespace) -> int:
    from . import job

    return job.run(options)


def _check(options: argparse.Namespace) -> int:
    from . import job

    return job.check(options)


def _info(options: argparse.Namespace) -> int:
    from . import info

    found = info.collect()
    print(json.dumps(found, indent=2) if options.json else info.text(found))
    return 0


def _simulate(options: argparse.Namespace) -> int:
    from ..data.simulate import federations as synthetic
    from ..jobs.files import writing

    settings = synthetic.Settings(options.clients, options.rows, options.columns, options.seed)
    with machine.refusals(options.out), writing(Path(options.out)):
        job = synthetic.simulate(options.kind, options.out, settings)
    prior = Path(job).with_name("prior.toml")
    if prior.exists():
        print(f"{prior}\nbuild it:  fedkern sigma build {prior} --out {prior.with_suffix('')}")
    print(f"{job}\nrun it:  fedkern run {job}")
    return 0


def _sigma_build(options: argparse.Namespace) -> int:
    from ..methods.sigma.prior import build

    with plainly():
        return build.command(options)


def _sigma_train(options: argparse.Namespace) -> int:
    from ..methods.sigma.prior import train

    with plainly():
        return train.command(options)


def _report(options: argparse.Namespace) -> int:
    from . import report

    print(printable(str(report.write(Path(options.folder)))))
    return 0


def _reproduce(options: argparse.Namespace) -> int:
    from .. import reproduce

    if options.name is None:
        for name in reproduce.NAMES:
            print(f"{name:<20}{reproduce.about(name)}")
        return 0
    if options.name not in reproduce.NAMES:
        raise JobError(f"reproduce {options.name}: no such reproduction; there are {', '.join(reproduce.NAMES)}")
    out = Path(options.out or Path("runs") / options.name)
    reproduce.run(options.name, fast=options.fast, out=out, printed=options.printed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
