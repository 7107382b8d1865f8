"""What is written for people is true: the README's jobs, code and commands, and the reference of the job file."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fedkern.cli.__main__ import EXIT_CODES, parser
from fedkern.cli.config import Config, load, parse
from fedkern.cli.reference import text
from fedkern.cli.sigma import prior_config, prior_reference
from fedkern.cli.sigma.prior_config import PriorConfig

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_reference_is_what_the_program_says() -> None:
    """Written by `python -m fedkern.cli.reference > mpi/reference.toml`, and with a method for mpi/reference-METHOD.toml."""
    assert (ROOT / "mpi" / "reference.toml").read_text(encoding="utf-8") == text()
    for method in ("sparse", "vertical", "sigma"):
        assert (ROOT / "mpi" / f"reference-{method}.toml").read_text(encoding="utf-8") == text(method)


def test_the_reference_of_prior_files_is_what_the_program_says() -> None:
    """Written by `python -m fedkern.cli.sigma.prior_reference > mpi/reference-prior.toml`."""
    written = (ROOT / "mpi" / "reference-prior.toml").read_text(encoding="utf-8")
    assert written == prior_reference.text()
    assert tomllib.loads(written).keys() == PriorConfig.model_fields.keys()


@pytest.mark.parametrize(("method", "without"), [("pvi", set()), ("sparse", {"privacy"}), ("sigma", {"privacy"})])
def test_the_reference_names_every_section(method: str, without: set[str]) -> None:
    sections = set(Config.model_fields) - without
    assert {line[1:-1].split(".")[0] for line in text(method).splitlines() if line.startswith("[")} == sections
    assert tomllib.loads(text(method)).keys() == sections


def test_the_jobs_of_the_readme_are_valid() -> None:
    jobs = blocks("toml")
    assert jobs
    for job in jobs:
        tables = tomllib.loads(job)
        if "job" not in tables:
            assert prior_config.parse(tables).prior.kind == "car"
            continue
        config = parse(tables)
        assert config.privacy is not None or config.job.method != "pvi"


@pytest.mark.parametrize("path", sorted((ROOT / "mpi").glob("*.toml")), ids=lambda path: path.name)
def test_the_example_jobs_are_valid(path: Path) -> None:
    if not path.name.startswith("reference"):
        config = load(path)[0]
        assert config.privacy is not None or config.job.method != "pvi"


def test_the_code_of_the_readme_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    code = blocks("python")
    assert len(code) >= 2
    for block in code:
        exec(compile(block, "README.md", "exec"), names)
    assert names["grad_mu"].shape == (5,)
    assert names["draws"]["posterior"]["theta"].shape[:2] == (4, 1000)


def test_the_readme_has_every_command_and_exit_code() -> None:
    commands = next(action.choices for action in parser()._actions if action.dest == "command")
    assert commands is not None
    for command in commands:
        assert f"fedkern {command}" in README, command
    for code, words in re.findall(r"(\d) ([a-z][^;(]*)", EXIT_CODES.replace("\n", " ")):
        assert f"{code} {words.strip().split(',')[0].split(' with')[0]}" in " ".join(README.split()), words
