"""Jobs under mpi/run.sh that are killed, stopped or asked to end, and what is left of them.

`cd tests && python -m support.kills [EACH [METHOD ..]]` prints a table of how many ended as they should.
"""

import contextlib
import json
import os
import pty
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from support import sigma_artifacts
from support.mpirun import environment

RUN = Path(__file__).parents[2] / "mpi" / "run.sh"
HELD = Path(__file__).with_name("held")  # the folder of what holds a server
MARK = "FEDKERN_TEST_KILLS"
KINDS = ("client", "server", "launcher", "batch", "ctrl-c", "stop")
MOMENTS = ("start", "rounds", "write")
STOPPED = 2.0  # seconds
LONGEST = 120.0  # seconds that a process may be late, or a job take for its end, on a busy machine
CODES = {"client": {3}, "server": {3}, "launcher": {3, -signal.SIGKILL}, "batch": {3}, "ctrl-c": {3}, "stop": {0}}


@dataclass(frozen=True)
class Process:
    """One process of a job. `role`: sh (the script), beside (what it runs), mpirun, rank, or other."""

    pid: int
    role: str
    rank: int = -1


def processes(mark):
    """All that live and have this mark in their environment."""
    found = []
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if not path.name.isdigit():
                continue
            variables = dict(item.split(b"=", 1) for item in (path / "environ").read_bytes().split(b"\0") if b"=" in item)
            if variables.get(MARK.encode()) != mark.encode() or (path / "stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                continue
            words = (path / "cmdline").read_bytes().split(b"\0")
            rank = variables.get(b"OMPI_COMM_WORLD_RANK")
            if rank is not None:
                found.append(Process(int(path.name), "rank", int(rank)))
            elif b"fedkern.transports.mpirun" in words:
                found.append(Process(int(path.name), "beside"))
            elif words[0].endswith((b"mpirun", b"prterun")):
                found.append(Process(int(path.name), "mpirun"))
            else:
                found.append(Process(int(path.name), "sh" if words[0].endswith(b"bash") else "other"))
    return found


@dataclass
class Ended:
    """What a run of the script came to."""

    code: int
    err: str
    orphans: list = field(default_factory=list)
    seconds: float = 0.0  # from the kill to the script's end


# A process of its own: `preexec_fn` would fork this one, which JAX forbids. A runner in the background ignores SIGINT.
AT_A_TERMINAL = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGINT, signal.SIG_DFL)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Run:
    """mpi/run.sh -n RANKS JOB --out OUT, in a terminal of its own.

    `hold`: the server waits in that write of a checkpoint, or at the last in that of the summary, for `go_on`.
    """

    def __init__(self, job, out, ranks, *options, env=None, hold=0):
        self.mark, self.out = uuid.uuid4().hex, Path(out)
        self.gate = Path(f"{out}.hold") / self.mark
        master, slave = pty.openpty()
        self.errors = open(f"{out}.err", "w+b")  # noqa: SIM115

        full = environment() | {MARK: self.mark, "PYTHON": sys.executable} | (env or {})
        full["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{full['PATH']}"
        if hold:
            self.gate.mkdir(parents=True)
            full["FEDKERN_TEST_HOLD"] = f"{hold}:{self.gate}"
            full["PYTHONPATH"] = f"{HELD}{os.pathsep}{full['PYTHONPATH']}"
        command = [sys.executable, "-c", AT_A_TERMINAL, RUN, "-n", str(ranks), str(job), "--out", str(out), "--quiet", *options]
        self.terminal = master
        self.sh = subprocess.Popen(command, env=full, stdin=slave, stdout=slave, stderr=self.errors, start_new_session=True)
        os.close(slave)
        threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self):
        with contextlib.suppress(OSError):
            while os.read(self.terminal, 1 << 16):
                pass

    def wait_for(self, condition, seconds=LONGEST):
        """Until this holds, or the script has ended."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.sh.poll() is None:
            if condition():
                return True
            time.sleep(0.002)
        return False

    def listens(self):
        """Whether the script has begun: before, a Ctrl-C ends it as it ends any program, or finds no terminal."""
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self.sh.pid}/status").read_text().splitlines():
                if line.startswith("SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
        return False

    def held(self):
        return (self.gate / "held").exists()

    def go_on(self):
        (self.gate / "go").touch()

    def find(self, role, rank=None):
        return [p.pid for p in processes(self.mark) if p.role == role and rank in (None, p.rank)]

    def end(self, patience=LONGEST):
        """Waits for the script's end, and looks for what has outlived it."""
        before = time.monotonic()
        try:
            code = self.sh.wait(patience)
        except subprocess.TimeoutExpired:
            code = None
        seconds = time.monotonic() - before
        until = time.monotonic() + 10.0  # the script may have been killed itself
        while (left := processes(self.mark)) and time.monotonic() < until:
            time.sleep(0.05)
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        self.sh.wait()
        os.close(self.terminal)
        self.errors.seek(0)
        err = self.errors.read().decode(errors="replace")
        self.errors.close()
        return Ended(code, err, left, seconds)


def grown(out):
    """Bytes that clients have entered in their ledgers."""
    return sum(path.stat().st_size for path in out.glob("ledger/*.jsonl"))


def being_written(out):
    return any(out.glob("checkpoint/.*.part")) or any(out.glob("client-*/checkpoint/.*.part"))


def kill(run, kind, moment, chance, n_ranks):
    """Does it; False if the job had ended before, which it can only by a fault: its server is held."""
    before = grown(run.out)
    run.wait_for(run.listens)
    if moment == "start":
        time.sleep(chance.uniform(0.0, chance.choice([1.0, 4.0])))  # the first second, and what a busy machine makes of it
    elif moment == "rounds":
        more = chance.randrange(500, 4000)
        run.wait_for(lambda: run.held() or grown(run.out) > before + more)
    else:
        run.wait_for(lambda: run.held() or (grown(run.out) > before and being_written(run.out)))
    target = {"client": ("rank", chance.randrange(1, n_ranks)), "server": ("rank", 0)}.get(kind)
    if kind == "launcher":
        target = chance.choice(["sh", "beside", "mpirun"]), None
    if kind == "batch":
        target = chance.choice([None, ("mpirun", None), ("sh", None)])
    if kind == "stop":
        target = chance.choice([("rank", 0), ("rank", 1), ("mpirun", None), ("beside", None)])
    if target and not run.wait_for(lambda: run.find(*target)):
        return False
    pids = run.find(*target) if target else []
    if run.sh.poll() is not None:
        return False
    with contextlib.suppress(ProcessLookupError):
        if kind in ("client", "server", "launcher"):
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
        elif kind == "stop":
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            time.sleep(STOPPED)
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        elif kind == "ctrl-c":
            os.write(run.terminal, b"\x03")
        else:  # to one process, or to all at once
            name = chance.choice([signal.SIGTERM, signal.SIGUSR1]) if target == ("sh", None) else signal.SIGTERM
            for pid in pids or [process.pid for process in processes(run.mark)]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, name)
    return True


PRIVATE = """
[job]
rounds = 200
[data]
builtin = "breast-cancer"
split = {clients = 3}
[algorithm]
local_steps = 2
checkpoint_every = 0.01
[privacy]
epsilon = 40.0
delta = 1e-3
clip = 2.5
noise_multiplier = 3.0
sampling_rate = 0.1
"""
OPEN = """
[job]
rounds = 200
[data]
builtin = "breast-cancer"
split = {clients = 3}
[algorithm]
schedule = "synchronous"
optimiser = "adagrad"
checkpoint_every = 0.01
"""
SIGMA = """
[job]
method = "sigma"
rounds = 200
[data]
clients = ["rows/*.csv"]
area = "district"
response = "cases"
exposure = "expected"
[model]
prior = "prior"
[algorithm]
checkpoint_every = 0.01
"""
WRITTEN = {"pvi": OPEN, "pvi-secure": PRIVATE, "sigma": SIGMA}
SIMULATED = ("sparse", "vertical")
METHODS = (*WRITTEN, *SIMULATED)


def make_job(method, folder):
    """The job file of a method, with all that it needs; it keeps a checkpoint every 0.01 s."""
    from fedkern.data.simulate import federations as synthetic

    path = folder / "job.toml"
    folder.mkdir(parents=True, exist_ok=True)
    if method in WRITTEN:
        path.write_text(WRITTEN[method])
        if method == "sigma":
            sigma_artifacts.written(folder / "prior")
            sigma_artifacts.counts(folder / "rows")
        return path
    synthetic.simulate(method, folder, synthetic.Settings(3, 60, 3, 1))
    text = re.sub(r"(?m)^rounds = .*$", "rounds = 200", path.read_text())
    assert "[algorithm]\n" in text
    path.write_text(text.replace("[algorithm]\n", "[algorithm]\ncheckpoint_every = 0.01\n"))
    return path


@dataclass
class Story:
    """A job that is killed again and again, and goes on each time."""

    method: str
    job: Path
    out: Path
    chance: random.Random
    n_ranks: int = 3
    env: dict = field(default_factory=dict)
    done: Counter = field(default_factory=Counter)  # kinds of kills that came while the job ran
    faults: list = field(default_factory=list)  # what should not be

    def options(self):
        return ["--resume"] if (self.out / "job.json").exists() else []

    def kill(self, *kills):
        """One run that is killed, after other (kind, moment) that it survives; whether the job is still to be finished."""
        for _ in range(3):
            hold = self.chance.randint(1, 3)
            run = Run(self.job, self.out, self.n_ranks, *self.options(), env=self.env, hold=hold)
            came = [kill(run, kind, moment, self.chance, self.n_ranks) for kind, moment in kills]
            run.go_on()
            ended = run.end()
            if all(came) or "mpirun ended with code" not in ended.err:  # by itself, before the job had begun
                break
        self.done.update(kind for (kind, _), yes in zip(kills, came) if yes)
        (kind, moment), came = kills[-1], came[-1]
        finished = (self.out / "summary.json").exists()
        codes = CODES[kind] if came else {0}
        if came and kind == "client" and self.method.startswith("pvi") and finished:
            codes = {4} if self.lost() else {0}  # it came after the last round
        elif finished and kind in ("client", "batch", "ctrl-c"):  # it came after the last round
            codes = {0, 3}
        self._judge(f"{kind} in {moment}", ended, codes)
        return not finished

    def finish(self):
        """A run that is left alone."""
        self._judge("the last run", Run(self.job, self.out, self.n_ranks, *self.options(), env=self.env).end(), {0})

    def _judge(self, what, ended, codes):
        last = ended.err.strip().splitlines()[-3:]
        if ended.code not in codes:
            self.faults.append(f"{what}: code {ended.code}, not {sorted(codes)}: {last}")
        if ended.orphans:
            self.faults.append(f"{what}: left {ended.orphans}")
        if ended.code in (2, 3) and "fedkern: " not in ended.err:
            self.faults.append(f"{what}: not a word")
        for words in ("MPI_ABORT", "Traceback", "internal error"):
            if words in ended.err:
                self.faults.append(f"{what}: {words} in {ended.err}")

    def conclude(self, digest):
        """Ends the story: the job's result is that of an undisturbed one, or its accounts are right."""
        if not (self.out / "summary.json").exists():
            self.finish()
        if not (self.out / "summary.json").exists():
            return
        if self.method == "pvi-secure":
            self.accounted()
        elif self.summary()["digest"] != digest and not self.lost():
            self.faults.append("another digest")

    def lost(self):
        return [name for name, client in self.summary()["clients"].items() if client["status"] == "lost"]

    def summary(self):
        return json.loads((self.out / "summary.json").read_text())

    def accounted(self):
        """Faults of a private job: a charge for everything that left, and what the certificates say."""
        for name, certificate in self.summary()["privacy"].items():
            home = Path(self.env["FEDKERN_CLIENT_HOME"]) / name
            charged = sum(json.loads(line).get("steps", 0) for line in (home / "budget.jsonl").read_text().splitlines())
            sent = [json.loads(line) for line in (self.out / "ledger" / f"{name}.jsonl").read_text().splitlines()]
            paid = sum(line["charge"] for line in sent)
            if not charged >= paid or not charged >= certificate["steps"] > 0:
                self.faults.append(f"{name}: {charged} steps charged, {paid} sent, {certificate['steps']} certified")


def reference(job):
    """The digest of a job that nobody disturbs."""
    import fedkern

    return fedkern.run(job).digest


def clear(out):
    shutil.rmtree(out, ignore_errors=True)


def figure(each, methods=METHODS):
    """Prints how many kills of each kind ended as they should, `each` of a kind and method."""
    import tempfile

    print(f"{'method':12}" + "".join(f"{kind:>11}" for kind in KINDS))
    faults = []
    for method in methods:
        with tempfile.TemporaryDirectory() as folder:
            job = make_job(method, Path(folder) / "job")
            digest = None if method == "pvi-secure" else reference(job)
            cells = []
            for kind in KINDS:
                good = came = 0
                for number in range(each):
                    where = Path(folder) / f"{kind}-{number}"
                    env = {"FEDKERN_CLIENT_HOME": str(where / "homes"), "HOME": folder}
                    where.mkdir()
                    story = Story(method, job, where / "out", random.Random(f"{method} {kind} {number}"), env=env)
                    story.kill((kind, MOMENTS[number % len(MOMENTS)]))
                    story.conclude(digest)
                    faults += [f"{method} {number}: {fault}" for fault in story.faults]
                    came += story.done[kind]
                    good += story.done[kind] and not story.faults
                cells.append(f"{good}/{came}")
            print(f"{method:12}" + "".join(f"{cell:>11}" for cell in cells), flush=True)
    print("\n".join(faults) or "no fault")
    return faults


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.exit(bool(figure(int(arguments[0]) if arguments else 10, arguments[1:] or METHODS)))
