"""Own models that are refused: by where their code lies, by a policy, by what their factories do, and by keys of the job."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedkern
from fedkern.cli.__main__ import main
from fedkern.errors import FedkernError, JobError
from fedkern.methods import parse
from fedkern.methods.likelihood import own_check, own_factory, own_parties, own_run
from fedkern.methods.likelihood.own_factory import Factory
from fedkern.methods.likelihood.own_model import Terms
from fedkern.models.own.supplied import Own
from support.own_package import MODULE, PRIORS, SMALL, found_first, installed, job, package  # noqa: F401  # a fixture
from support.refusal import refusal

SOURCE = """
def make(table, options):
    raise RuntimeError("was run")
"""


# Where the code lies --------------------


def test_what_lies_in_the_current_folder_or_the_jobs_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where somebody has put a distribution beside it."""
    here, beside = installed(tmp_path / "here", "own_here", SOURCE), installed(tmp_path / "job", "own_beside", SOURCE)
    monkeypatch.chdir(here)
    for entry in ("", str(here), str(beside)):
        monkeypatch.syspath_prepend(entry)
    for module in ("own_here", "own_beside"):
        with pytest.raises(JobError, match=f"there is no module '{module}' here; install it .*: pip install PACKAGE"):
            own_factory.load_factory(f"{module}:make", tmp_path / "job")
        assert module not in sys.modules


def test_a_module_of_no_distribution_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_loose.py").write_text(SOURCE)
    found_first(monkeypatch, tmp_path, "own_loose")
    with pytest.raises(JobError, match="'own_loose' belongs to no installed distribution"):
        own_factory.load_factory("own_loose:make", tmp_path / "job")
    assert "own_loose" not in sys.modules


def test_a_project_that_is_installed_as_it_stands_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is the current folder: its holder has said so."""
    project, site = tmp_path / "project", tmp_path / "site"
    (project / "own_edited").mkdir(parents=True)
    (project / "own_edited" / "__init__.py").write_text("")
    (project / "own_edited" / "models.py").write_text("def make(table, options):\n    return 1\n")
    info = site / "own_edited-0.3.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-edited\nVersion: 0.3\n")
    (info / "RECORD").write_text(f"{info.name}/METADATA,,\n")
    (info / "direct_url.json").write_text(json.dumps({"url": project.as_uri(), "dir_info": {"editable": True}}))
    for folder in (site, project):
        found_first(monkeypatch, folder, "own_edited", "own_edited.models")
    monkeypatch.chdir(project)
    found = own_factory.load_factory("own_edited.models:make", tmp_path)
    assert (found.distribution, found.version, found.editable) == ("own-edited", "0.3", True)


def test_a_module_that_was_loaded_from_elsewhere_is_not_taken_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site, other = installed(tmp_path / "site", "own_twice", SOURCE), tmp_path / "other"
    other.mkdir()
    (other / "own_twice.py").write_text("make = print\n")
    found_first(monkeypatch, other, "own_twice")
    __import__("own_twice")
    monkeypatch.syspath_prepend(str(site))
    with pytest.raises(JobError, match="another module 'own_twice' is loaded in this process"):
        own_factory.load_factory("own_twice:make", tmp_path / "job")
    monkeypatch.delitem(sys.modules, "own_twice")


def test_what_a_package_imports_later_is_none_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in its factory nor in a question to its model."""
    source = """
def make(table, options):
    class Model:
        names = ("mu",)
        def values(self, points):
            import own_later
            return points[:, 0]
    if options:
        import own_later
    return Model()
"""
    found_first(monkeypatch, installed(tmp_path / "site", "own_lazy", source), "own_lazy")
    here = tmp_path / "here"
    here.mkdir()
    (here / "own_later.py").write_text("")
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend("")
    found = own_factory.load_factory("own_lazy:make", tmp_path)
    with refusal(JobError, "ModuleNotFoundError"):
        found.made("client 'a'", None, (), {"now": True})
    own = Own.of(found.made("client 'a'", None, (), {}), "client 'a'", ("mu",), None, local=False, apart=found.apart)
    with pytest.raises(JobError, match=r"values failed \(ModuleNotFoundError\)"):
        own.values(np.zeros((2, 1)))
    __import__("own_later")  # as it was
    monkeypatch.delitem(sys.modules, "own_later")


@pytest.mark.parametrize(
    ("factory", "why"),
    [
        ("own_nowhere:make", "there is no module 'own_nowhere' here; install it where this party runs: pip install PACKAGE"),
        (f"{MODULE}.inner:make", f"there is no module '{MODULE}.inner' here"),
        (f"{MODULE}:nothing", "the module has no function 'nothing'; correct model.factory"),
        (f"{MODULE}:number", "the module has no function 'number'"),
    ],
)
def test_a_factory_that_is_not_there_is_named_with_the_client(factory: str, why: str, tmp_path: Path) -> None:
    path = job(tmp_path, "plain")
    path.write_text(path.read_text().replace(f"{MODULE}:plain", factory))
    with pytest.raises(JobError, match=re.escape(f"client 'a': model.factory = \"{factory}\": {why}")):
        fedkern.run(path)
    assert main(["check", str(path)]) == 2


def test_a_package_that_cannot_be_imported_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found_first(monkeypatch, installed(tmp_path, "own_broken", "import not_there_at_all\n"), "own_broken")
    with refusal(JobError, "not_there_at_all", "ModuleNotFoundError"):
        own_factory.load_factory("own_broken:make", tmp_path / "job")


# Versions and policies --------------------


def test_another_version_at_one_holder_is_refused_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(terms: Terms, folder: Path, client: str) -> Factory:
        own = own_parties.of_client(terms, folder, client)
        return replace(own, version="1.3") if client == "b" else own

    for module in (own_run, own_check):
        monkeypatch.setattr(module, "of_client", other)
    path = job(tmp_path, "plain", clients=3)
    text = "client 'b' has own-models-of-tests 1.3, and client 'a', client 'c' own-models-of-tests 1.2: install the same version"
    with pytest.raises(JobError, match=re.escape(text)):
        fedkern.run(path)
    with pytest.raises(JobError, match=re.escape("pip install own-models-of-tests==1.2")):
        fedkern.run(path)
    assert main(["check", str(path)]) == 2


def test_the_servers_version_counts_where_it_has_the_prior(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(terms: Terms, folder: Path) -> object:
        own = own_parties.of_server(terms, folder)
        return None if own is None else own._replace(factory=replace(own.factory, version="0.9"))

    monkeypatch.setattr(own_run, "of_server", other)
    with refusal(JobError, "0.9", "a", "b"):
        fedkern.run(job(tmp_path, "in_numpyro", SMALL))


def test_an_editable_install_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def edited(terms: Terms, folder: Path, client: str) -> Factory:
        return replace(own_parties.of_client(terms, folder, client), editable=client == "b")

    monkeypatch.setattr(own_run, "of_client", edited)
    notes = fedkern.run(job(tmp_path, "plain")).summary["notes"]
    assert any(
        note.startswith("client 'b': the package of the model is installed from a folder that may change") for note in notes
    )


@pytest.mark.parametrize("where", ["", "[data.a]\n"])
def test_a_policy_lists_which_factories_are_allowed(where: str, tmp_path: Path) -> None:
    path = job(tmp_path, "plain")
    policy = tmp_path / "rows" / "fedkern-policy.toml"

    def said(line: str) -> str:
        rest = "" if where else "[data.a]\n"
        policy.write_text(f"open = true\n{where}{line}\n{rest}[data.b]\nfactories = ['{MODULE}:plain']\n")
        try:
            return str(fedkern.run(path).converged)
        except FedkernError as fault:
            return str(fault)

    for line in ("", 'factories = ["another:make"]'):
        assert f"client 'a': refused by the holder's policy: model.factory = \"{MODULE}:plain\" has the holder run" in said(line)
    assert main(["check", str(path), "--local", str(tmp_path / "rows" / "a.csv")]) == 2
    assert said(f'factories = ["another:make", "{MODULE}:plain"]') == "True"


# What factories and models do --------------------


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        ("factored", "called without rows the program still has 'soft' (a factor, or an observed site), which counts once"),
        ("prior_of_rows", "its log_prior depends on rows, or is not that of the model without any, which the server takes"),
    ],
)
def test_a_density_that_would_count_for_each_holder_is_no_prior(factory: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(JobError, match=re.escape(said)):
        fedkern.run(job(tmp_path, factory, "", 2))


@pytest.mark.parametrize(
    ("factory", "told", "own"),
    [
        ("failing", "the factory failed (KeyError); mend the package", "no column for patient 28"),
        ("shaped", "values must return float64 numbers of the shape", "of the shape (3,)"),
    ],
)
def test_what_a_factory_does_wrong_is_told_without_cells(factory: str, told: str, own: str, tmp_path: Path) -> None:
    with pytest.raises(JobError) as fault:
        fedkern.run(job(tmp_path, factory), out=tmp_path / "out")
    text = str(fault.value)
    assert text.startswith(f"client 'a': the model of factory \"{MODULE}:{factory}\"")
    assert told in text
    assert "28" not in text
    assert own in (tmp_path / "out" / "client-a" / "holder.txt").read_text()
    assert not (tmp_path / "out" / "client-b" / "holder.txt").exists()


@pytest.mark.parametrize(
    ("factory", "why"),
    [
        ("half", r"client 'a' is not finite at \d+ % of the draws \(at most 1 %\): values of model.factory = .*:half. are minus"),
        ("lost", r"client 'a', 'b' is not finite where the search for the mode begins: values of model.factory"),
        ("endless", r"no mode of the posterior was found .* 'mu' \(now .* give it a narrower prior \(\[model.priors\]\)"),
    ],
)
def test_values_that_cannot_be_a_posterior_are_told_of_in_words_of_the_model(factory: str, why: str, tmp_path: Path) -> None:
    wide = PRIORS.replace("sd = 5.0", "sd = 1e40") if factory == "endless" else PRIORS
    with pytest.raises(FedkernError, match=why):
        fedkern.run(job(tmp_path, factory, wide))


def test_parameters_are_those_of_the_priors(tmp_path: Path) -> None:
    with refusal(JobError, "nu", "model.priors"):
        fedkern.run(job(tmp_path, "plain", PRIORS + 'nu = {kind = "gamma", shape = 2.0, rate = 0.1}\n'))


def test_a_prior_is_there_once(tmp_path: Path) -> None:
    with refusal(JobError, "model.priors"):
        fedkern.run(job(tmp_path / "fails", "plain", SMALL))
    with refusal(JobError, "model.priors"):
        fedkern.run(job(tmp_path / "none", "two_hills", SMALL))
    with refusal(JobError, "model.priors"):
        fedkern.run(job(tmp_path / "two", "in_numpyro"))


def test_a_stan_program_with_another_constraint_is_refused(tmp_path: Path) -> None:
    priors = PRIORS.replace('kind = "half-student"', 'kind = "student"')
    with refusal(JobError, "tau", "model.priors"):
        fedkern.run(job(tmp_path, "in_stan", priors))


def test_few_rows_are_refused_as_in_every_open_job(tmp_path: Path) -> None:
    path = job(tmp_path, "plain")
    path.write_text(f'{path.read_text()}\n[disclosure]\nlevel = "strict"\n'.replace("least_rows = 1\n", ""))
    with refusal(JobError, "a", "disclosure.rows"):
        fedkern.run(path)


# Keys --------------------

TABLES = {
    "job": {"method": "likelihood"},
    "data": {"clients": ["rows/*.csv"]},
    "model": {"kind": "own", "factory": "p:f", "priors": {"a": {"kind": "normal", "sd": 1.0}}},
}


@pytest.mark.parametrize(
    ("section", "keys", "why"),
    [
        ("model", {"factory": None}, "model.factory is missing"),
        ("model", {"factory": "p.f"}, 'model.factory = "p.f": wanted "package.module:function"'),
        ("model", {"factory": "../p:f"}, 'wanted "package.module:function"'),
        ("model", {"family": "poisson"}, 'model.family is not for model.kind = "own"'),
        ("model", {"missing": "drop"}, 'model.missing is not for model.kind = "own"'),
        ("model", {"prior_sd": 1.0}, "model.prior_sd is not for"),
        ("data", {"response": "y"}, "data.response is not for"),
        ("data", {"test": "new.csv"}, 'data.test is not for model.kind = "own", whose factory reads the columns itself'),
        ("data", {"builtin": "adult"}, "data.builtin is not for"),
        ("output", {"loo": True}, 'output.loo with model.kind = "own": the factory says what all rows of a client say together'),
        ("output", {"marginal": True}, "output.marginal with"),
        ("output", {"survival_at": [1.0]}, "the factory names no times"),
        ("model", {"local": True}, 'set algorithm.sampler = "hmc" (chains), or "sfvi"'),
        ("algorithm", {"sampler": "sfvi"}, "is for unknowns of each client (model.local = true)"),
        ("model", {"priors": {"a": {"kind": "normal"}}}, 'model.priors.a.sd is missing: kind = "normal" needs sd'),
        ("model", {"priors": {"a": {"kind": "gamma", "shape": 1.0, "rate": 1.0, "sd": 1.0}}}, "model.priors.a.sd: kind"),
        ("model", {"priors": {"a": {"kind": "lkj", "eta": 1.0}}}, "model.priors.a.size is missing"),
        ("model", {"priors": {"a": {"kind": "lkj", "eta": 1.0, "size": 1}}}, "a correlation matrix has at least 2 rows"),
        ("model", {"priors": {"a": {"kind": "cauchy"}}}, "model.priors.a.kind"),
        ("model", {"priors": {"a": {"kind": "normal", "sd": 1.0, "size": 500}}}, "of at most 400"),
        (
            "model",
            {"priors": {"a": {"kind": "normal", "sd": 1.0, "size": 2}, "a[1]": {"kind": "normal", "sd": 1.0}}},
            "'a[1]' would be two parameters",
        ),
        ("model", {"options": {"x": {"y": [1.0, float("inf")]}}}, "model.options.x.y = inf: wanted a finite number"),
        ("output", {"sites": True}, ""),
        ("algorithm", {"points": 1000}, "wanted a power of two"),
    ],
)
def test_keys_that_contradict_an_own_model(section: str, keys: Mapping[str, object], why: str) -> None:
    tables = {**TABLES, section: {**TABLES.get(section, {}), **keys}}
    tables = {name: {key: value for key, value in table.items() if value is not None} for name, table in tables.items()}
    if not why:
        parse(tables)
        return
    with pytest.raises(JobError, match=re.escape(why)):
        parse(tables)


@pytest.mark.parametrize(
    ("section", "keys"),
    [("model", {"factory": "p:f"}), ("model", {"options": {"a": 1}}), ("model", {"local": True}), ("algorithm", {"starts": 3})],
)
def test_keys_of_own_models_alone(section: str, keys: Mapping[str, object]) -> None:
    tables = {"job": {"method": "likelihood"}, "data": {"clients": ["a.csv"], "response": "y"}, section: dict(keys)}
    with refusal(JobError, "model.kind", "own"):
        parse(tables)
