"""Defines the command line. Arguments are parsed before anything heavy is imported: `--help` must not wait for kernels."""

from __future__ import annotations

from . import early  # noqa: F401

# isort: split
import argparse
import json
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import NoReturn

from .. import __version__
from .._imports import imported
from ..errors import FedkernError, JobError, describe_no_memory, show_own_faults
from ..jobs import limits as machine
from ..printing import printable, printable_lines
from ..transports import parent
from ..transports.signals import Signals

EXIT_CODES = """exit codes: 0 finished; 1 internal error; 2 bad job or data; 3 stopped by a signal or a lost peer, with a
checkpoint (--resume goes on); 4 finished without some lost clients; 5 a privacy budget ended the job before min_updates;
6 finished, and the result is approximate"""
RAW = "texts that begin with = + - @ as they are; else an apostrophe before them keeps a spreadsheet from computing them"


class Parser(argparse.ArgumentParser):
    """Parses arguments, and names the nearest command or option where one is unknown."""

    def error(self, message: str) -> NoReturn:
        """Ends with an error that names the nearest command or option."""
        if wrong := re.search(r"argument (?:COMMAND|STEP): invalid choice: '(.*?)' \(choose from (.*)\)", message):
            near = get_close_matches(wrong[1], choices := re.findall(r"[\w-]+", wrong[2]), 1)
            known = f"did you mean {near[0]}?" if near else f"there are {', '.join(choices)}"
            message = f"{wrong[1]}: no such command; {known}"
        super().error(message)

    def parse(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        """Parses the arguments; ends with an error that names the nearest option of the same command where one is unknown."""
        options, unknown = self.parse_known_args(arguments)
        if unknown:
            command: argparse.ArgumentParser = self
            while named := [action for action in command._actions if isinstance(action.choices, dict)]:
                command = dict(named[0].choices or {})[getattr(options, named[0].dest)]
            words = [word for action in command._actions for word in action.option_strings]
            near = get_close_matches(unknown[0].partition("=")[0], words, 1)
            known = f"did you mean {near[0]}?" if near else f"see {command.prog} --help"
            command.error(f"unrecognized arguments: {' '.join(unknown)}; {known}")
        return options


COMPLETIONS = Path(__file__).with_name("completion")


class Completion(argparse.Action):
    """Prints a shell's completion, which the package's build has written (`tools/stubs.py`), so that shtab is not needed here."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: object, values: object, option: str | None = None) -> NoReturn:
        shells = sorted(path.suffix.removeprefix(".") for path in COMPLETIONS.glob("fedkern.*"))
        if values not in shells:
            parser.error(f"--print-completion {values}: there are {', '.join(shells)}")
        print((COMPLETIONS / f"fedkern.{values}").read_text(encoding="utf-8"), end="")
        parser.exit(0)


def _seconds(text: str) -> float:
    """Returns a time of the command line; it is finite, and not negative."""
    with suppress(ValueError):
        if 0 <= (seconds := float(text)) < float("inf"):
            return seconds
    raise argparse.ArgumentTypeError(f"wanted seconds, 0 or more, not {text!r}")


def _add_device(parser: argparse.ArgumentParser, key: str) -> None:
    """Adds --device, which stands for a key of the file and has precedence over it."""
    parser.add_argument("--device", choices=("cpu", "cuda"), help=f"where kernels run, instead of {key}")
    parser.set_defaults(device_key=key)


@cache
def parser() -> Parser:
    """Makes the parser of all commands and options.

    It is made once a process: it keeps nothing of the arguments that it has read, and defaults are not changed.
    """
    top = Parser(
        prog="fedkern",
        description="Federated Bayesian inference.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"fedkern {__version__}")
    what = "a shell's completion of commands and options: bash, fish, tcsh or zsh"
    top.add_argument("--print-completion", action=Completion, metavar="SHELL", default=argparse.SUPPRESS, help=what)
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    job = Parser(add_help=False)
    job.add_argument("job", metavar="JOB.toml")
    job.add_argument("--mpi", action="store_true", help="one rank of an mpirun: rank 0 is the server, the others hold clients")
    job.add_argument(
        "--place", metavar="NAME", help="where this process stands in a job of several: a place of an installed package"
    )
    job.add_argument(
        "--set", action="append", default=[], metavar="section.key=value", dest="sets", help="override a key of the job file"
    )

    job.add_argument("--site", metavar="FILE", help="a holder's own site.toml, or a folder with NAME.toml for each client")

    run = commands.add_parser("run", parents=[job], help="run a job")
    describe = commands.add_parser(
        "describe", parents=[job], help='run a job with method = "describe": a Table 1, before all others'
    )
    for command, call in ((run, "run_job"), (describe, "describe")):
        command.add_argument(
            "--out", metavar="DIR", help="folder for the results (default: runs/NAME of the job file, then NAME-2)"
        )
        _add_device(command, "job.device")
        command.add_argument("--resume", action="store_true", help="go on from the last checkpoint in --out")
        command.add_argument(
            "--log-level", choices=("debug", "info", "warning"), help="say more: of stages, checkpoints and rounds"
        )
        command.add_argument("--log-file", metavar="FILE", help="and write it there (over MPI each rank to a file of its own)")
        command.add_argument("--quiet", action="store_true", help="no progress and no summary")
        command.set_defaults(call=_in("job", call))

    fit = commands.add_parser("fit", help='a formula and files, each of a client: fedkern fit "died ~ age + sex" a.csv b.csv')
    fit.add_argument("formula", metavar="FORMULA")
    fit.add_argument("files", nargs="+", metavar="FILE")
    fit.add_argument("--family", metavar="NAME", help="of the response (default: the plain one of its cells)")
    fit.add_argument("--out", metavar="DIR", help="folder for the results (default: nothing is written)")
    fit.add_argument("--job", metavar="FILE", help="write a job file of it, for clients who hold their own rows")
    fit.set_defaults(call=_in("job", "fit"))

    for name, what, call in (
        ("add", "have a client come to a run that has ended: alone if the run's points do, else with all", "add"),
        ("drop", "the result of a run without one of its clients; nobody is asked", "drop"),
    ):
        command = commands.add_parser(name, help=what)
        command.add_argument("folder", metavar="DIR", help="of the run, whose job has output.extendable = true")
        if name == "add":
            command.add_argument(
                "--client", action="append", required=True, metavar="FILE", help="the newcomer's; again for several"
            )
            what = "that paths of the run's job are relative to (default: this one)"
            command.add_argument("--rows", default=".", metavar="FOLDER", help=what)
        else:
            command.add_argument("--client", required=True, metavar="NAME", help="who goes (the run has output.without = true)")
        command.add_argument("--out", metavar="DIR", help="folder for the results (default: DIR-with-.., DIR-without-NAME)")
        command.set_defaults(call=_in("job", call))

    check = commands.add_parser("check", parents=[job], help="validate a job, and print its privacy plan and what will be sent")
    _add_device(check, "job.device")
    check.add_argument("--local", metavar="FILE", help="for the data holder: the faults in the rows of this file; nothing leaves")
    check.add_argument(
        "--latency", metavar="SECONDS", type=_seconds, help="how long the job waits for a relay whose round trip takes so long"
    )
    form = check.add_mutually_exclusive_group()
    form.add_argument("--messages", action="store_true", help="beside the ten lines, a table of all messages and their fields")
    form.add_argument("--verbose", action="store_true", help="all that is known of the job, instead of ten lines")
    check.add_argument("--apart", action="store_true", help="ask of clients' rows what is asked where parties are apart")
    check.set_defaults(call=_in("job", "check"))

    launch = commands.add_parser(
        "launch",
        help="run a job over MPI on this machine: rank 0 is the server, the others hold clients",
        usage="fedkern launch -n RANKS JOB.toml [options of `fedkern run`], or --print-slurm",
    )
    launch.add_argument("-n", dest="ranks", type=int, metavar="RANKS")
    launch.add_argument("--print-slurm", action="store_true", help="print the script for sbatch instead, and run nothing")
    launch.add_argument("arguments", nargs=argparse.REMAINDER, metavar="JOB.toml")
    launch.set_defaults(call=_in("launch", "launch"))

    bridge = commands.add_parser("bridge", help="write a job's folder for a federated engine between organisations")
    engines = bridge.add_subparsers(dest="engine", metavar="ENGINE", required=True)
    nvflare = engines.add_parser("nvflare", help="NVFlare's job folder, for `nvflare job submit`")
    nvflare.set_defaults(call=_in("bridge", "nvflare"))
    flower = engines.add_parser("flower", help="Flower's app, for `flwr run`")
    for engine in (nvflare, flower):
        engine.add_argument("job", metavar="JOB.toml")
        engine.add_argument("--out", required=True, metavar="DIR", help="folder to write; it must not be there")
        how = engine.add_mutually_exclusive_group()
        how.add_argument("--resume", action="store_true", help="the job goes on from its last checkpoint, at all parties")
        how.add_argument("--replay", action="store_true", help="the last asynchronous run is computed again from the sites' rows")
        engine.add_argument("--untested", action="store_true", help="though the engine here has a version that was not tried")
    flower.set_defaults(call=_in("bridge", "flower"))

    demo = commands.add_parser("demo", help="a server and five clients on this machine, with a privacy certificate and a page")
    demo.add_argument("--out", metavar="DIR", default="runs/demo", help="folder for the results (default: runs/demo)")
    demo.set_defaults(call=_in("launch", "demo"))

    info = commands.add_parser("info", help="versions, instruction set, threads, BLAS, MPI, CUDA, and the kernel table")
    info.add_argument("--json", action="store_true")
    info.set_defaults(call=_info)

    init = commands.add_parser("init", help="write a commented job from the headers and the types of cells of files")
    init.add_argument("files", nargs="+", metavar="FILE", help="of the clients")
    init.add_argument("--method", metavar="NAME", help="likelihood, pvi, vertical, .. (default: what the headers look like)")
    init.add_argument("--private", action="store_true", help="with [privacy], whose constants are to be filled in")
    init.add_argument("--holder", action="store_true", help="a policy of these files' holder instead of a job")
    for name, what in (("response", "the column to be explained"), ("test", "test rows"), ("server", "vertical: its own rows")):
        metavar = "NAME" if name == "response" else "FILE"
        init.add_argument(f"--{name}", metavar=metavar, help=what)
    init.add_argument("--out", metavar="FILE", help="default: job.toml, of a holder policy.toml")
    init.set_defaults(call=_in("init", "init"))

    schema = commands.add_parser("schema", help="JSON Schema of job files, for editors")
    schema.add_argument("--method", metavar="NAME", default="pvi", help="pvi (default), likelihood, vertical, ..")
    schema.set_defaults(call=_in("init", "schema"))

    simulate = commands.add_parser("simulate", help="write a synthetic federation: client files, truth.json, job.toml")
    kinds = "logistic, poisson, regression, ordinal, survival, sparse, mrf, sem, vertical or sigma"
    simulate.add_argument("kind", metavar="KIND", help=kinds)
    simulate.add_argument("--out", required=True, metavar="DIR")
    for name, default in (("clients", 4), ("rows", 200), ("columns", 5), ("seed", 1)):
        simulate.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"default {default}")
    simulate.add_argument("--family", default="cox", metavar="NAME", help="survival: that of the job, cox (default) or weibull")
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
    _add_device(train, "training.device")
    train.add_argument("--resume", action="store_true", help="go on from the last checkpoint in --out")
    train.add_argument("--quiet", action="store_true", help="no progress and no summary")
    train.set_defaults(call=_sigma_train)

    report = commands.add_parser("report", help="one self-contained HTML page from a finished or interrupted run")
    report.add_argument("folder", metavar="DIR")
    forms, what = ("csv", "text"), "print the table of parameters and contrasts instead of a page"
    report.add_argument("--table", choices=forms, help=what)
    report.add_argument("--raw", action="store_true", help=f"with --table csv: {RAW}")
    report.add_argument("--tidy", action="store_true", help="with --table: columns as R's broom names them")
    report.add_argument("--graph", choices=("graphml", "csv"), help="print the chosen edges of a graph (sparse: mrf, sem)")
    report.add_argument("--exp", action="store_true", help="with --table: odds or rate ratios")
    report.add_argument(
        "--level", action="append", default=[], metavar="COLUMN=LEVEL", dest="levels", help="with --table: compare levels with it"
    )
    report.add_argument(
        "--reference", metavar="FILE", help="compare with this posterior (netCDF of ArviZ), parameter by parameter"
    )
    report.add_argument("--names", metavar="FILE", help='with --reference: TOML, "OUR NAME" = "THEIR NAME"')
    report.add_argument("--open", action="store_true", help="show the page in a browser, or in the notebook that asks")
    report.set_defaults(call=_report)

    predict = commands.add_parser("predict", help="what a finished run says of new rows, where its method can")
    predict.add_argument(
        "folder",
        metavar="DIR",
        help="of the run; likelihood: or a client's own in it, which knows its groups; sigma: a client's own, for its areas",
    )
    predict.add_argument(
        "rows",
        metavar="ROWS",
        nargs="?",
        help="a file as the clients have theirs (vertical: with the columns of all); the response may be missing",
    )
    predict.add_argument(
        "--party",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="vertical: a client's rows or its part, or (server=FILE) those of the server, joined by id",
    )
    predict.add_argument("--client", metavar="NAME", help="vertical, at a client's own place: make a file of its part of ROWS")
    predict.add_argument("--out", metavar="FILE", help="csv for the predictions (default: printed)")
    predict.add_argument("--raw", action="store_true", help=RAW)
    predict.set_defaults(call=_in("tables", "predictions"))

    status = commands.add_parser("status", help="how far a run is: rounds, checkpoint, who is waited for, what is spent")
    ledger = commands.add_parser("ledger", help="every message that has left each client of a run, by kind")
    audit = commands.add_parser("audit", help="certificates computed again from ledgers and budgets; code 2 where one differs")
    replay = commands.add_parser(
        "replay", help="the posterior of an asynchronous run computed again from its server's log; code 2 where it differs"
    )
    replay.add_argument(
        "--rows", nargs="?", const=".", metavar="FOLDER",
        help="compute the answers again from the clients' rows, and compare each; FOLDER: of the job file (default: this one)",
    )  # fmt: skip
    replay.add_argument("--mpi", action="store_true", help="with --rows, one rank of an mpirun, as the run may have been")
    replay.set_defaults(job="", place=None, sets=[])
    for command, name in ((status, "status"), (ledger, "ledger"), (audit, "audit"), (replay, "replay")):
        command.add_argument("folder", metavar="DIR", help="of the run, or a client's own in it")
        command.add_argument("--json", action="store_true")
        command.set_defaults(call=_in("console", name))

    budget = commands.add_parser("budget", help="for a data holder: what all jobs have spent on its data, and what is left")
    budget.add_argument("data", nargs="*", metavar="PATH", help="data files or budgets (default: all data that policies name)")
    budget.add_argument("--site", metavar="FILE", help="a holder's own site.toml, whose policy is asked too")
    budget.add_argument("--json", action="store_true")
    budget.set_defaults(call=_in("console", "budget"))

    plan = commands.add_parser("plan", parents=[job], help="a private job's epsilon, steps and noise, before anything is spent")
    plan.add_argument("--epsilon", metavar="E,..", default="0.5,1,2,4", help="caps (default 0.5,1,2,4)")
    plan.add_argument("--noise", metavar="M,..", help="noise multipliers (default: the job's)")
    plan.set_defaults(call=_in("console", "plan"))

    site = commands.add_parser(
        "site", help="for a data holder: jobs between organisations that it accepts, and who asked for them"
    )
    steps = site.add_subparsers(dest="step", metavar="STEP", required=True)
    accept = steps.add_parser("accept", help="show a job and what it would do with the rows here, and accept it")
    accept.add_argument("job", metavar="JOB.toml", help="the site's own copy, with site.toml beside it")
    accept.add_argument(
        "--folder", metavar="DIR", help="of the site, where the job lies in a folder below it (default: the folder of the job)"
    )
    accept.add_argument("--name", metavar="TEXT", help="what people call the job (default: the file's name)")
    accept.add_argument("--who", metavar="TEXT", help="who accepts it (default: this user)")
    accept.add_argument("--runs", metavar="N", help='accept it for so many runs, or "unlimited" (default: 10)')
    accept.add_argument("--until", metavar="DAY", help="and until this day, such as 2027-01-31 (default: for ever)")
    what = "of secure sums: the fingerprint that this other client's people read to you; once for each"
    accept.add_argument("--peer-key", action="append", metavar="NAME=FINGERPRINT", help=what)
    accept.add_argument("--yes", action="store_true", help="do not ask")
    accept.set_defaults(call=_in("site", "accept"))
    listed = steps.add_parser("list", help="the accepted jobs")
    revoke = steps.add_parser("revoke", help="accept a job no longer")
    revoke.add_argument("job", metavar="FILE", help="of the job, or the beginning of its digest")
    revoke.set_defaults(call=_in("site", "revoke"))
    log = steps.add_parser("log", help="the audit log; code 2 where a line was changed or removed")
    log.add_argument("--json", action="store_true")
    log.add_argument("--mark", metavar="HASH", help="the last hash of an earlier time: code 2 where no line ends with it")
    printed = steps.add_parser(
        "fingerprint", help="of the key by which this site signs its part of secure sums, to be read to others"
    )
    for step, function in ((listed, "list_jobs"), (revoke, "revoke"), (log, "log"), (printed, "fingerprint")):
        step.add_argument("folder", metavar="FOLDER", nargs="?", default=".", help="of the site (default: this one)")
        step.set_defaults(call=_in("site", function))
    resident = steps.add_parser("run", help="the resident process: answers an engine through a Unix socket")
    resident.add_argument("folder", metavar="FOLDER", help="of the site: consent.toml, job files, site.toml")
    resident.add_argument(
        "--socket", metavar="PATH", help="default: socket/site.sock in FOLDER, of a systemd unit in its own folder"
    )
    resident.add_argument("--engine", metavar="TEXT", default="socket", help="the engine's name, for the audit log")
    resident.add_argument("--identity", metavar="TEXT", help="who asks, for the audit log (default: the user of the socket)")
    resident.add_argument("--peer", metavar="USER", help="one other user who may ask, to whom root gives the socket (chown)")
    what = "that a job gets, at SIGTERM, to keep its checkpoint (default 30)"
    resident.add_argument("--grace", type=float, default=30.0, metavar="SECONDS", help=what)
    resident.set_defaults(call=_in("site", "run_resident"))

    reproduce = commands.add_parser("reproduce", help="a table or figure of a paper, in a checkout; without NAME: list them")
    reproduce.add_argument("name", nargs="?", metavar="NAME")
    reproduce.add_argument("--list", action="store_true", help="list them, as without NAME")
    reproduce.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the jobs, of several the first: default 1")
    reproduce.add_argument("--fast", action="store_true", help="fewer seeds and settings")
    reproduce.add_argument("--printed", action="store_true", help="also with a paper's slips as they are printed")
    reproduce.add_argument("--out", metavar="DIR", help="folder for tables and figures (default: runs/ and name, and seed)")
    reproduce.set_defaults(call=_reproduce)
    return top


def _in(module: str, function: str) -> Callable[[argparse.Namespace], int]:
    """Returns a command of another module of this folder, which is loaded when it is called."""

    def call(options: argparse.Namespace) -> int:
        command: Callable[[argparse.Namespace], int] = getattr(imported(f"{__package__}.{module}"), function)
        return command(options)

    return call


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Returns the exit code, as listed under `fedkern --help`."""
    # Only a process that the launcher started has somebody to tell how it ended.
    if arguments is not None or not parent.hello():
        return _main(arguments)
    parent.follow()
    code = 1
    try:
        code = _main(arguments)
    except SystemExit as ended:  # of the parser
        code = ended.code if isinstance(ended.code, int) else 0
        raise
    finally:
        parent.leave(code)
    return code


def _main(arguments: Sequence[str] | None) -> int:
    """Parses the arguments and runs the command."""
    options = parser().parse(arguments)
    if getattr(options, "device", None) is not None:
        options.sets = [*options.sets, f"{options.device_key}={options.device}"]
    call: Callable[[argparse.Namespace], int] = options.call
    options.signals = signals = Signals(at_once=True)
    try:
        with signals:
            for option in ("out", "site", "log_file"):
                if getattr(options, option, None) == "":
                    raise JobError(f"--{option.replace('_', '-')} is empty; name a place, or leave the option out")
            if call is not _info:  # which says so itself, beside all else
                machine.instructions()
            code = call(options)
            machine.flush_output()
            return code
    except (Exception, KeyboardInterrupt) as error:
        return _failed(signals.stopped or error)
    finally:
        if arguments is None:  # the process ends with this: its code is known
            signals.ignore()


def _failed(error: BaseException) -> int:
    """Says why a command has failed, and returns its exit code."""
    with suppress(OSError):
        machine.flush_output()
    error = machine.refusal(error)
    text, code = "internal error; please report the lines above", 1
    if isinstance(error, FedkernError):
        text, code = printable_lines(str(error)), error.exit_code
    elif isinstance(error, KeyboardInterrupt):
        text, code = str(error) or "interrupted", 3
    elif isinstance(error, BrokenPipeError):  # the reader of our output has gone: no more can be said
        return 1
    if isinstance(error, MemoryError):
        text, code = describe_no_memory(error), JobError.exit_code
    with suppress(OSError):
        if code == 1 and not isinstance(error, FedkernError):
            traceback.print_exception(error)
        print(f"fedkern: {text}", file=sys.stderr)
    return code


def _info(options: argparse.Namespace) -> int:
    """Runs `fedkern info`."""
    from . import info

    facts = info.collect()
    text = json.dumps(facts, indent=2) if options.json else info.text(facts)
    print(text)
    return 0


def _simulate(options: argparse.Namespace) -> int:
    """Runs `fedkern simulate`: writes simulated files and a job for them."""
    from ..data.simulate import federations as synthetic
    from ..jobs.files import writing
    from . import init

    settings = synthetic.Settings(options.clients, options.rows, options.columns, options.seed, options.family)
    with machine.refusals(options.out), writing(Path(options.out)):
        job = synthetic.simulate(options.kind, options.out, settings)
        init.with_schema(job)
    prior = Path(job).with_name("prior.toml")
    if prior.exists():
        print(f"{prior}\nbuild it:  fedkern sigma build {prior} --out {prior.with_suffix('')}")
    print(f"{job}\nrun it:  fedkern run {job}")
    return 0


def _sigma_build(options: argparse.Namespace) -> int:
    """Runs `fedkern sigma build`."""
    from ..methods.sigma.prior import build

    with show_own_faults():
        return build.command(options)


def _sigma_train(options: argparse.Namespace) -> int:
    """Runs `fedkern sigma train`."""
    from ..methods.sigma.prior import train

    with show_own_faults():
        return train.command(options)


def _report(options: argparse.Namespace) -> int:
    """Runs `fedkern report`: makes the page, or prints a table, a graph or a comparison."""
    from . import report, tables

    if options.reference:
        return tables.against(options)
    if options.graph:
        return tables.graph(options)
    if options.table:
        return tables.parameters(options)
    if options.exp or options.levels or options.raw or options.tidy:
        raise JobError("--exp, --level, --raw and --tidy are for the table: add --table text, or csv; the page has both")
    page = report.write(Path(options.folder))
    print(printable(str(page)))
    if options.open:
        report.show(page)
    return 0


def _reproduce(options: argparse.Namespace) -> int:
    """Runs `fedkern reproduce`: lists the reproductions, or makes one."""
    from . import papers

    if options.name is None or options.list:
        for name, about in papers.PAPERS.items():
            print(f"{name:<20}{about}")
        return 0
    if options.seed < 1:
        raise JobError(f"--seed {options.seed}: wanted a whole number of at least 1")
    of_seed = "" if options.seed == 1 else f"-seed-{options.seed}"
    out = Path(options.out or Path("runs") / f"{options.name}{of_seed}")
    papers.run_paper(options.name, fast=options.fast, out=out, seed=options.seed, printed=options.printed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
