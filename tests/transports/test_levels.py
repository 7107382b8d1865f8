"""The ranks of a job compute with one level of instructions, and a rank whose module lacks it is named."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fedkern
from fedkern import _core
from fedkern.errors import JobError
from fedkern.transports.levels import LEVELS, agree_on_level, usable_levels
from support.command import OPEN
from support.mpirun import MPIRUN, environment, launcher_removed

ROOT = Path(__file__).parents[2]
BUILT_WITHOUT = "built without the instructions"


def bits(*names):
    return sum(1 << LEVELS.index(name) for name in names)


ALL = bits("baseline", "avx2", "avx512")


@pytest.mark.parametrize(
    ("by_rank", "level"),
    [
        ([ALL, ALL], "avx512"),
        ([ALL, bits("baseline", "avx2"), ALL], "avx2"),
        ([bits("baseline"), ALL], "baseline"),
        ([bits("avx512"), bits("avx512")], "avx512"),
        ([bits("avx512", "baseline"), bits("avx2", "baseline")], "baseline"),
        ([bits("neon"), bits("neon")], "neon"),
    ],
)
def test_the_highest_level_that_all_have(by_rank, level):
    assert LEVELS[agree_on_level(by_rank)] == level


@pytest.mark.parametrize(
    ("by_rank", "says"),
    [
        ([bits("avx512"), bits("baseline", "avx2")], f"of rank 0 was {BUILT_WITHOUT} avx2, the highest that rank 1 can use"),
        ([bits("baseline", "avx2"), bits("avx512")], f"of rank 1 was {BUILT_WITHOUT} avx2, the highest that rank 0 can use"),
        ([ALL, bits("avx2"), bits("avx512"), bits("baseline")], f"of ranks 1, 2 was {BUILT_WITHOUT} baseline, the highest"),
        ([ALL, bits("neon")], "rank 1 would compute with neon and rank 0 with avx512, and no processor has both"),
        ([bits("neon"), bits("baseline"), bits("neon")], "ranks 0, 2 would compute with neon and rank 1 with baseline"),
    ],
)  # fmt: skip
def test_ranks_without_a_common_level_are_refused_by_name(by_rank, says):
    with pytest.raises(JobError) as caught:
        agree_on_level(by_rank)
    assert says in str(caught.value)
    assert "neon" in says or str(caught.value).endswith(": build it there with FEDKERN_LEVELS=all")


def test_a_rank_tells_the_levels_from_its_own_down():
    names = list(_core.levels())
    below = names[names.index(_core.isa()) :]
    assert usable_levels() == bits(*below)


@pytest.fixture(scope="module")
def of_the_highest(tmp_path_factory):
    """A folder with this package, its module built for this machine's level alone."""
    folder = tmp_path_factory.mktemp("highest")
    ours = Path(fedkern.__file__).parent
    shutil.copytree(ours, folder / "fedkern", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    build(folder, "native")
    return folder


def build(folder, levels):
    """Builds the module of a copy of the package, as the remedy says."""
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", str(folder)]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"FEDKERN_LEVELS": levels}, check=True, timeout=900)


def two_ranks(job, *settings):
    """Exit code and what is said on standard error by a job of two ranks, each with an environment of its own."""
    out = job.with_name(f"run-{sum(1 for _ in job.parent.glob('run-*'))}")
    command = [sys.executable, "-P", "-m", "fedkern.cli", "run", str(job), "--out", str(out), "--quiet", "--mpi"]
    words = [str(MPIRUN), "--oversubscribe"]
    for rank, own in enumerate(settings):
        words += [*([":"] if rank else []), "-n", "1", "env", *(f"{name}={value}" for name, value in own.items()), *command]
    run = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=120, check=False)
    return run.returncode, launcher_removed(run.stderr)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.skipif(len(_core.levels()) < 2, reason="the processor has one level alone")
def test_a_module_of_one_level_among_ranks_of_others(of_the_highest, tmp_path):
    job = tmp_path / "job.toml"
    job.write_text(OPEN)
    highest, *_, lowest = (name for name, here in _core.levels().items() if here)
    all_levels = {"PYTHONPATH": str(Path(fedkern.__file__).parents[1])}
    one_level = {"PYTHONPATH": str(of_the_highest)}
    assert two_ranks(job, all_levels, one_level) == (0, "")  # all have the highest
    lower = all_levels | {"FEDKERN_ISA": lowest}
    for settings, lacking in (((lower, one_level), 1), ((one_level, lower), 0)):
        text = f"fedkern: fedkern of rank {lacking} was built without the instructions {lowest}, the highest that rank "
        text += f"{1 - lacking} can use: build it there with FEDKERN_LEVELS=all\n"
        assert two_ranks(job, *settings) == (2, text)
    code, said = two_ranks(job, one_level | {"FEDKERN_ISA": lowest}, all_levels)
    assert code == 2
    assert f"FEDKERN_ISA={lowest}: fedkern was built without these instructions" in said
    assert highest in said
    # The remedy that both name: then the same ranks have a level in common.
    build(of_the_highest, "all")
    assert two_ranks(job, lower, one_level) == (0, "")
    assert two_ranks(job, one_level | {"FEDKERN_ISA": lowest}, all_levels) == (0, "")
