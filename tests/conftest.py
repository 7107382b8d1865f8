"""What all tests share."""

from __future__ import annotations

import gc
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from threadpoolctl import threadpool_limits

# Before NumPy is there: threads of BLAS wait for each other in a busy loop, where most of the time of two workers would go.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Numba compiles a third faster what it does not optimise. By night it does as everywhere (Makefile).
os.environ.setdefault("NUMBA_OPT", "0")

import fedkern as package
from fedkern.algorithms.nested.machine import Settings as NestedSettings
from fedkern.cli.__main__ import main
from fedkern.methods.sigma.own import DRAWS
from fedkern.transports.mpirun import FOLDER
from support import one_step
from support.command import Ended

# Tests' folders in memory, where there is room: a job syncs what it writes, and tests would wait for the disk half of their time.
IN_MEMORY, ROOM = "/dev/shm", 3 << 30
if os.access(IN_MEMORY, os.W_OK):
    there = os.statvfs(IN_MEMORY)
    if there.f_bavail * there.f_frsize > ROOM and not there.f_flag & os.ST_NOEXEC:  # some tests run what they have compiled
        os.environ.setdefault("TMPDIR", IN_MEMORY)
        tempfile.tempdir = None  # it is asked for anew

FILES, NUMBERS = tempfile.TemporaryDirectory(prefix="fedkern-tests-", ignore_cleanup_errors=True), count()

# A home of the tests' own: no policy of this user's applies, and no mark of an account that lay where a test's folder lies now.
if "HOME" in os.environ:
    os.environ.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))  # matplotlib's fonts are looked for once
os.environ["HOME"] = f"{FILES.name}/home"
Path(os.environ["HOME"]).mkdir()

one_step.keep()

pytest_plugins = (
    "support.suite_order",
    "support.suite_share",
    "support.suite_shards",
    "support.suite_minima",
    "support.suite_cases",
    "support.suite_seconds",
    "support.suite_examples",
)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Open MPI's files of each test in a folder of their own: an mpirun with the process id of a killed one would not start."""
    os.environ[FOLDER] = f"{FILES.name}/{next(NUMBERS)}"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """What is collected stays: looking for garbage in it took a quarter of this time, and more of it in every test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def seed() -> int:
    """The seed of statistical tests: fixed, or FEDKERN_TEST_SEED (a number, or "any"). Every test must pass for every seed."""
    wanted = os.environ.get("FEDKERN_TEST_SEED", "1")
    value = secrets.randbelow(2**32) if wanted == "any" else int(wanted)
    print(f"FEDKERN_TEST_SEED={value}")
    return value


@pytest.fixture
def fedkern(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    """`fedkern ARGUMENTS` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDKERN_CLIENT_HOME", raising=False)

    def run(*arguments: str | Path) -> Ended:
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Ended(code, out, err)

    return run


@pytest.fixture
def job(tmp_path: Path) -> Callable[[str], Path]:
    """A job file with this content."""

    def write(text: str) -> Path:
        path = tmp_path / "job.toml"
        path.write_text(text)
        return path

    return write


def _with_few_draws(patch: pytest.MonkeyPatch) -> None:
    few = {"points": 60, "questions": 2, "most": 2, "told": 100, "effective": 40.0}
    patch.setattr("fedkern.methods.sigma.model.NestedSettings", partial(NestedSettings, **few))
    patch.setattr("fedkern.methods.sigma.own.DRAWS", 100)


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of maps ask for a tenth of their draws: for tests of what is said and written, not of a posterior's digits."""
    _with_few_draws(monkeypatch)


@pytest.fixture(scope="module", autouse=True)
def _few_draws_of_maps(request: pytest.FixtureRequest) -> Iterator[None]:
    """In these folders a test of a posterior's digits says so (`pytest.mark.digits`), and all others have `few_draws`."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.relative_to(Path(__file__).parent).parts[0] in ("jobs", "methods", "api"):
            _with_few_draws(patch)
        yield


@pytest.fixture(autouse=True)
def _all_draws_of_digits(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("digits"):
            patch.setattr("fedkern.methods.sigma.model.NestedSettings", NestedSettings)
            patch.setattr("fedkern.methods.sigma.own.DRAWS", DRAWS)
        yield


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures of pages are empty, as to draw one takes longer than a small job: for tests of what pages say."""
    monkeypatch.setattr("fedkern.results.plots.svg", lambda figure: "<svg></svg>")


@pytest.fixture
def one_thread_of_blas() -> Iterator[None]:
    """Sites that are threads of one process share BLAS and its number of threads; sites of a real job have a process each."""
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture(scope="session")
def _runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder that a job of this content has left; it is run once."""
    ran: dict[str, Path] = {}

    def of(text: str) -> Path:
        if text not in ran:
            folder = tmp_path_factory.mktemp("finished")
            (folder / "job.toml").write_text(text)
            with pytest.MonkeyPatch.context() as patch:
                patch.delenv("FEDKERN_CLIENT_HOME", raising=False)
                assert package.run(folder / "job.toml", out=folder / "out").stop == "rounds"
            ran[text] = folder / "out"
        return ran[text]

    return of


@pytest.fixture
def finished(_runs: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """For tests of what is read of a finished run: a copy of its folder, `out`, which the test may do to what it likes."""
    return lambda text: shutil.copytree(_runs(text), tmp_path / "out", symlinks=True)
