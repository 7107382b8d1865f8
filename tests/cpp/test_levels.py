"""The choice of a level of instructions, on processors that this machine is not."""

import os
import platform
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
V3, V4 = "x86-64-v3", "x86-64-v3 x86-64-v4"
pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="levels of x86-64")


@pytest.fixture(scope="module")
def choice(tmp_path_factory):
    """Compiles the choice once for each list of levels that a module may have."""
    folder, made = tmp_path_factory.mktemp("levels"), {}

    def choose(levels, cpu, wanted="", limit=()):
        program = made.get(levels)
        if program is None:
            program = made[levels] = folder / str(len(made))
            chosen = "".join(f"FEDKERN_LEVEL({level})" for level in levels.split())
            command = [
                "g++",
                "-std=c++20",
                "-w",
                f"-I{ROOT / 'csrc'}",
                f"-I{ROOT / 'csrc/include'}",
                f"-DFEDKERN_LEVELS={chosen}",
            ]
            subprocess.run([*command, Path(__file__).parent / "levels.cpp", "-o", program], check=True)
        env = {**os.environ, "CPU": cpu, "FEDKERN_ISA": wanted}
        return subprocess.run([program, *limit], env=env, capture_output=True, text=True, check=True).stdout

    return choose


ALL, COMMAS = "avx512 avx2 baseline", "avx512, avx2, baseline"
REMEDY = "; unset FEDKERN_ISA, or give it one of these: "
OLDER = (
    "fedkern was built for the instructions {} alone, and this processor does not have them: build it on this machine, or with "
)
OLDER += "FEDKERN_LEVELS=all"


@pytest.mark.parametrize(
    ("levels", "cpu", "wanted", "says"),
    [
        (ALL, V4, "", "avx512"),
        (ALL, V3, "", "avx2"),
        (ALL, "", "", "baseline"),
        (ALL, V4, "avx2", "avx2"),
        (ALL, V3, "avx512", f"FEDKERN_ISA=avx512: this processor has no such instructions{REMEDY}avx2, baseline"),
        (ALL, V4, "abc", f"FEDKERN_ISA=abc: there is no such instruction-set level ({COMMAS}){REMEDY}{COMMAS}"),
        ("avx2", V4, "", "avx2"),
        ("avx2", V3, "", "avx2"),
        ("avx2", "", "", OLDER.format("avx2")),
        ("avx2", "", "baseline", OLDER.format("avx2")),
        (
            "avx2", V4, "avx512",
            f"FEDKERN_ISA=avx512: fedkern was built without these instructions{REMEDY}avx2; or build it with FEDKERN_LEVELS=all",
        ),
        ("avx512 avx2", "", "", OLDER.format("avx512, avx2")),
    ],
)  # fmt: skip
def test_the_highest_level_that_module_and_processor_have(choice, levels, cpu, wanted, says):
    assert choice(levels, cpu, wanted) == says


def test_ranks_lower_the_level_and_do_not_raise_it(choice):
    assert choice(ALL, V4, limit=["avx2"]) == "avx512 avx2"
    assert choice(ALL, V4, "baseline", limit=["avx2"]) == "baseline baseline"
    assert "limit_isa=baseline: fedkern was built without these" in choice("avx2", V4, limit=["baseline"])


def test_threads_choose_a_level_and_share_the_pool_without_a_race(tmp_path):
    chosen = "".join(f"FEDKERN_LEVEL({level})" for level in ALL.split())
    folders = [f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'csrc/include'}"]
    command = ["g++", "-std=c++20", "-w", "-O1", "-g", "-fsanitize=thread", "-pthread", "-DFEDKERN_POOL", *folders]
    command += [f"-DFEDKERN_LEVELS={chosen}", Path(__file__).parent / "at_once.cpp", ROOT / "csrc/units/pool.cpp"]
    made = subprocess.run([*command, "-o", tmp_path / "program"], capture_output=True, text=True)
    if "tsan" in made.stderr:
        pytest.skip("the compiler has no library of ThreadSanitizer")
    assert made.returncode == 0, made.stderr
    run = subprocess.run([tmp_path / "program"], env={**os.environ, "CPU": V4}, capture_output=True, text=True, timeout=120)
    if "unexpected memory mapping" in run.stderr:
        pytest.skip("ThreadSanitizer does not run on this kernel")
    assert (run.returncode, run.stdout) == (0, "baseline 0"), run.stderr
