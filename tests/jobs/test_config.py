"""Every fault of a job file: the text names the key, the value, what was wanted and the remedy."""

from __future__ import annotations

import copy
import json
import os
import unicodedata
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from fedkern.algorithms import soul
from fedkern.algorithms.gibbs import settings as gibbs
from fedkern.algorithms.hmc import moves as hmc
from fedkern.algorithms.pvi import messages as pvi
from fedkern.algorithms.sfvi import machine as sfvi
from fedkern.algorithms.split import messages as split
from fedkern.algorithms.training import training
from fedkern.errors import JobError
from fedkern.jobs.keys import settings_of
from fedkern.jobs.reference import tables
from fedkern.jobs.site import SiteFile
from fedkern.methods import METHODS, load, load_method, parse
from fedkern.methods.pvi.keys import Config
from fedkern.methods.sigma.prior.keys import PriorConfig
from fedkern.sections import marked_keys
from support.refusal import refusal

OPEN: dict[str, Any] = {"data": {"clients": ["clients/*.csv"], "response": "income"}}
PRIVATE: dict[str, Any] = OPEN | {
    "privacy": {"epsilon": 1.0, "delta": 1e-5, "clip": 2.5, "noise_multiplier": 5.0, "sampling_rate": 0.02}
}


def changed(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A job with "section.key" replaced; a value of None takes the key away."""
    job = copy.deepcopy(base)
    for path, value in changes.items():
        *sections, last = path.split(".")
        table = job
        for section in sections:
            table = table.setdefault(section, {})
        table.pop(last, None)
        if value is not None:
            table[last] = value
    return job


FAULTS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    # unknown names
    (OPEN, {"dat.clients": []}, "unknown section [dat]; did you mean [data]?"),
    (OPEN, {"zzz.clients": []}, "unknown section [zzz]; there are job, data, model, algorithm, privacy, output"),
    (OPEN, {"job.sede": 1}, "unknown key job.sede; did you mean job.seed?"),
    (OPEN, {"job.damping": 0.1}, "unknown key job.damping; did you mean algorithm.damping?"),
    (OPEN, {"output.zzzzz": 1}, "unknown key output.zzzzz; there are client_folder, metrics_every, draws, chains"),
    (PRIVATE, {"privacy.epsilonn": 1.0}, "unknown key privacy.epsilonn; did you mean privacy.epsilon?"),
    (PRIVATE, {"privacy.clients.clinic-a.sampling_rat": 0.1}, "did you mean privacy.clients.clinic-a.sampling_rate?"),
    (OPEN, {"data.columns.age.centre": 0.0}, "unknown key data.columns.age.centre; did you mean data.columns.age.center?"),
    # methods and words
    (OPEN, {"job.method": "sigmo"}, '"vertical", "sigma", "sparse" or "describe"; did you'),
    (PRIVATE, {"privacy.sampling": "poison"}, 'privacy.sampling = "poison": wanted "poisson",'),
    (PRIVATE, {"privacy.sampling": "poison"}, 'did you mean "poisson"?'),
    (OPEN, {"algorithm.variant": "bcm"}, 'wanted "pvi", "local-averaging", "virtual-clients", "global-vi" or "bcm-split"'),
    # types and limits
    (OPEN, {"job.seed": -1}, "job.seed = -1: wanted a number of at least 0 (a number of 64 bits)"),
    (OPEN, {"job.seed": 2**64}, "job.seed = 18446744073709551616: wanted a number less than 18446744073709551616"),
    (OPEN, {"job.rounds": 0}, 'job.rounds = 0: wanted a whole number of at least 1, or "budget" in a private job'),
    (OPEN, {"output.client_folder": ""}, 'output.client_folder = "": wanted a text that is not empty (where a client'),
    (OPEN, {"output.bound": True}, "unknown key output.bound; there are client_folder, metrics_every, draws, chains"),
    (OPEN, {"job.rounds": 1.5}, "job.rounds = 1.5: wanted a whole number of at least 1"),
    (OPEN, {"job": 3}, "job = 3: wanted a table"),
    (OPEN, {"data.columns.age": 3}, "data.columns.age = 3: wanted a table"),
    (
        OPEN,
        {"data.columns.age.scale": 0.0},
        "data.columns.age.scale = 0: wanted a number greater than 0 (what standardising divides by)",
    ),
    (OPEN, {"data.columns.age.center": float("nan")}, "data.columns.age.center = nan: wanted a finite number"),
    (
        OPEN,
        {"algorithm.local_steps": True},
        "algorithm.local_steps = true: wanted a whole number (optimiser steps of one update)",
    ),
    (OPEN, {"algorithm.client_weights.clinic-a": 0}, "algorithm.client_weights.clinic-a = 0: wanted a number greater than 0"),
    (OPEN, {"algorithm.damping": 1.1}, "algorithm.damping = 1.1: wanted a number of at most 1"),
    (OPEN, {"model.intercept": "yes"}, 'model.intercept = "yes": wanted true or false'),
    (OPEN, {"model.prior_sd": 0}, "model.prior_sd = 0: wanted a number of at least 1e-05 (of every coefficient's prior)"),
    (OPEN, {"data.names": "clinic"}, 'data.names = "clinic": wanted a list in [ ]'),
    (
        PRIVATE,
        {"privacy.epsilon": 0.0},
        "privacy.epsilon = 0: wanted a number greater than 0 (1 is strong, 10 is weak, inf is no cap)",
    ),
    (PRIVATE, {"privacy.epsilon": -1}, "privacy.epsilon = -1: wanted a number greater than 0"),
    (PRIVATE, {"privacy.delta": 0.11}, "privacy.delta = 0.11: wanted a number of at most 0.1"),
    (PRIVATE, {"privacy.epsilon": 1e9}, "privacy.epsilon = 1e+09: wanted at most 100, for beyond it nothing is protected"),
    (PRIVATE, {"privacy.clients.a.epsilon": 101.0}, "privacy.clients.a.epsilon = 101: wanted at most 100"),
    (PRIVATE, {"privacy.delta": 1.0}, "privacy.delta = 1: wanted a number of at most 0.1 (below 1 / rows, such as 1e-5)"),
    (
        PRIVATE,
        {"privacy.clip": float("inf")},
        "privacy.clip = inf: wanted a finite number (0.75 x the median row norm, if that is public)",
    ),
    (PRIVATE, {"privacy.sampling_rate": 1.5}, "privacy.sampling_rate = 1.5: wanted a number of at most 1 (for example 0.02)"),
    (
        PRIVATE,
        {"privacy.noise_multiplier": 0},
        "privacy.noise_multiplier = 0: wanted a number greater than 0 (noise sd over clip)",
    ),
    # keys that are missing
    (OPEN, {"data.response": None}, "data.response is missing: the column to be explained"),
    (OPEN, {"data.clients": []}, "data: wanted either data.clients (files) or data.builtin; give one of them"),
    (PRIVATE, {"privacy.clip": None}, "privacy.clip is missing: bound on a row's gradient (0.75 x the median row norm"),
    (PRIVATE, {"privacy.epsilon": None}, "privacy.epsilon is missing: cap over all rounds"),
    (
        PRIVATE,
        {"privacy.noise_multiplier": None},
        "privacy.noise_multiplier is missing: noise sd over clip (or calibrate = true)",
    ),
    (
        PRIVATE,
        {"privacy.sampling_rate": None},
        'privacy.sampling_rate is missing: probability that a row enters a step (sampling = "poisson" needs it)',
    ),
    (PRIVATE, {"privacy.sampling": "without-replacement"}, "privacy.batch_size is missing"),
    (OPEN, {"algorithm.variant": "virtual-clients"}, "algorithm.shards is missing"),
    (OPEN, {"algorithm.variant": "virtual-clients", "algorithm.shards": 50}, "data.row_id is missing"),
    # keys that contradict each other
    (OPEN, {"data.builtin": "adult"}, "data: wanted either data.clients (files) or data.builtin"),
    (OPEN, {"data.clients": None, "data.builtin": "adult", "data.test": "t.csv"}, "data.test is for data.clients"),
    (OPEN, {"data.names": ["a", "a"]}, "data.names: wanted different names"),
    (OPEN, {"data.names": ["../a"]}, "data.names: '../a' cannot be the name of a client: it is a path"),
    (OPEN, {"algorithm.shards": 2}, 'algorithm.shards is for local-averaging and virtual-clients; variant is "pvi"'),
    (OPEN, {"algorithm.client_weights.a": 1.0}, 'algorithm.client_weights are for schedule = "random"; schedule is "sequential"'),
    (OPEN, {"job.rounds": "budget"}, 'job.rounds = "budget" is for private jobs'),
    (OPEN, {"algorithm.batch": 0.1}, 'algorithm.batch = 0.1: optimiser = "exact" uses all rows'),
    (OPEN, {"algorithm.random_source": "keyed"}, 'algorithm.random_source = "keyed" is of batches (algorithm.batch), and there'),
    (PRIVATE, {"algorithm.random_source": "keyed"}, "algorithm.random_source is for jobs that are not private; privacy.noise"),
    (OPEN, {"model.covariance": "full", "algorithm.variant": "global-vi"}, 'model.covariance = "full" does not exist with'),
    (OPEN, {"algorithm.variant": "global-vi", "algorithm.optimiser": "exact"}, 'optimiser = "exact" does not exist with variant'),
    (OPEN, {"algorithm.variant": "bcm-split", "job.rounds": 3}, "is one synchronous round without damping"),
    (PRIVATE, {"privacy.clip": 9.9e-4}, "privacy.clip = 0.00099: on rows wanted at least 0.001; give the columns larger units"),
    (PRIVATE, {"privacy.clients.a.clip": 1e-10}, "privacy.clients.a.clip = 1e-10: on rows wanted at least 0.001"),
    (PRIVATE, {"privacy.unit": "client", "algorithm.variant": "global-vi"}, 'unit = "client" is for variant = "pvi"'),
    (PRIVATE, {"privacy.dataset_size": 100}, 'privacy.dataset_size has no meaning with sampling = "poisson"; leave it out'),
    (
        PRIVATE,
        {"privacy.sampling": "poisson-truncated", "privacy.accountant": "rdp", "privacy.max_batch": 9, "privacy.dataset_size": 9},
        'privacy.accountant = "rdp" does not know sampling = "poisson-truncated"; take "pld"',
    ),
    (PRIVATE, {"model.covariance": "full"}, 'model.covariance = "full" has no private form'),
    (PRIVATE, {"algorithm.batch": 0.1}, "algorithm.batch is for jobs that are not private; privacy.sampling_rate says how"),
    (PRIVATE, {"algorithm.optimiser": "exact"}, 'algorithm.optimiser = "exact" cannot be private'),
    (PRIVATE, {"algorithm.estimator": "stl"}, 'algorithm.estimator = "stl" has no clipped form'),
    (PRIVATE, {"algorithm.variant": "bcm-split"}, 'algorithm.variant = "bcm-split" has no private form'),
    (PRIVATE, {"data.standardise": "exchange"}, 'data.standardise = "exchange" would publish statistics of rows'),
    (PRIVATE, {"privacy.calibrate": True}, "privacy.noise_multiplier and privacy.calibrate = true contradict each other"),
    (
        PRIVATE,
        {"privacy.calibrate": True, "privacy.noise_multiplier": None},
        "privacy.calibrate = true needs the number of updates",
    ),
    (PRIVATE, {"privacy.epsilon": float("inf")}, 'job.rounds = "budget" need a finite epsilon'),
    (PRIVATE, {"privacy.batch_size": 20}, 'privacy.batch_size has no meaning with sampling = "poisson"'),
    (PRIVATE, {"privacy.sampling": "shards"}, 'privacy.sampling = "shards" does not fit variant = "pvi"'),
    (PRIVATE, {"privacy.unit": "client"}, 'privacy.sampling_rate has no meaning with unit = "client"'),
    (PRIVATE, {"privacy.unit": "client", "privacy.clients.a.clip": 1.0}, 'with unit = "client" one set of terms holds for all'),
    (
        PRIVATE,
        {
            "privacy.sampling": "without-replacement",
            "privacy.sampling_rate": None,
            "privacy.batch_size": 9,
            "privacy.dataset_size": 8,
        },
        "privacy.batch_size = 9: wanted at most dataset_size = 8",
    ),
]


@pytest.mark.parametrize(("base", "changes", "text"), FAULTS, ids=[text[:60] for *_, text in FAULTS])
def test_each_fault_is_named_with_its_remedy(base: dict[str, Any], changes: dict[str, Any], text: str) -> None:
    with pytest.raises(JobError) as caught:
        parse(changed(base, changes), name="job.toml")
    assert text in str(caught.value)
    assert str(caught.value).startswith("job.toml: ")
    assert "\n" not in str(caught.value)


NOT_HERE = [
    ("sparse", "privacy", '[privacy]: method = "sparse" has no private form, and claims nothing; remove the section'),
    ("sparse", "rounds", 'job.rounds = "budget" is for private jobs; give a number'),
    ("vertical", "rounds", 'job.rounds = "budget" does not exist with method = "vertical"; give a number'),
    ("sigma", "rounds", 'job.rounds = "budget" does not exist with method = "sigma"; give a number'),
]


@pytest.mark.parametrize(("method", "what", "text"), NOT_HERE)
def test_what_a_method_has_not_is_refused_in_one_sentence(method: str, what: str, text: str) -> None:
    """Whatever else is wrong with it: a key of a section that there is not has nothing to be compared with."""
    changes = {"privacy.epsilon": -1, "privacy.zzz": 1} if what == "privacy" else {"job.rounds": "budget"}
    with pytest.raises(JobError) as caught:
        parse(changed(OPEN, {"job.method": method, **changes}))
    assert str(caught.value).startswith(f"job: {text}")
    assert "also" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("job.rounds", -1, "job.rounds = -1: wanted a whole number of at least 1"),
        ("algorithm.thin", 5000, "algorithm.thin = 5000 keeps none of the 2000 rounds after algorithm.burn_in; wanted fewer"),
    ],
)
def test_a_sampler_blames_the_key_that_was_given(key: str, value: int, text: str) -> None:
    with pytest.raises(JobError) as caught:
        parse(changed(OPEN, {"job.method": "sparse", key: value}))
    assert str(caught.value) == f"job: {text}"


NAMED = ["interweave"]


@pytest.mark.parametrize(
    ("moves", "block", "text"),
    [
        (NAMED, ["a"], 'algorithm.block.0 = "a": wanted a whole number'),
        (NAMED, 0, "algorithm.block = 0: wanted a number of at least 1"),
        (NAMED, [4, 0], "algorithm.block.1 = 0: wanted a number of at least 1"),
        ("automatic", None, 'algorithm.moves = "automatic": wanted "auto"'),
        (["intervene"], None, 'algorithm.moves.0 = "intervene": wanted "translate", "interweave" or "exchange"; did you mean'),
    ],
)
def test_a_key_of_several_types_is_named_as_in_the_file_and_once(moves: Any, block: Any, text: str) -> None:
    with pytest.raises(JobError) as caught:
        parse(changed(OPEN, {"job.method": "sparse", "algorithm": {"moves": moves, "block": block}}))
    assert str(caught.value).startswith(f"job: {text}")
    assert "also" not in str(caught.value)
    assert "constrained" not in str(caught.value)


def test_what_is_no_job() -> None:
    number: Any = 3
    with pytest.raises(JobError, match=r"^job: wanted the path of a job file, or its tables, not 3$"):
        load(number)


@dataclass
class Settings:
    seed: int = 1
    deadline: float = 2.0
    rounds: int = 3
    other: int = 4


def test_settings_are_what_is_computed_and_the_keys_of_the_same_name() -> None:
    job = parse(changed(OPEN, {"job.seed": 7, "job.rounds": 9}))
    assert settings_of(Settings, job.job, job.algorithm, rounds=5) == Settings(7, 600.0, 5, 4)


MACHINES = [
    gibbs.Settings,
    gibbs.Prior,
    hmc.Settings,
    pvi.Settings,
    sfvi.Settings,
    soul.Settings,
    split.Settings,
    training.Settings,
]


@pytest.mark.parametrize("kind", MACHINES, ids=lambda kind: kind.__module__.removeprefix("fedkern.algorithms."))
def test_a_machine_has_no_default_for_what_a_job_says(kind: type) -> None:
    """Of what no key says it may: a place of a chain's start, a period, threads, that clients have no unknowns of their own, that
    draws are compared by client, and what follows from secure sums."""
    own = {field.name for field in fields(kind) if (field.default, field.default_factory) != (MISSING, MISSING)}
    assert own <= {"n_threads", "jitter", "centre_every", "local_sd", "weights", "whole", "compares", "masked", "box", "bounded"}
    said = {name for method in METHODS for section in _sections(load_method(method).keys.Config) for name in section.model_fields}
    assert not own & said


def _sections(config: type[BaseModel]) -> list[type[BaseModel]]:
    kinds = [kind for field in config.model_fields.values() for kind in (field.annotation, *get_args(field.annotation))]
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]


@pytest.mark.parametrize("base", [OPEN, PRIVATE])
def test_the_faults_come_from_the_changes(base: dict[str, Any]) -> None:
    assert isinstance(parse(base), Config)


def test_all_faults_are_reported_at_once() -> None:
    with refusal(JobError, "privacy.epsilon", "privacy.delta"):
        parse(changed(PRIVATE, {"privacy.epsilon": -1, "privacy.delta": 2.0, "job.sede": 1}))


def test_defaults_of_an_open_and_of_a_private_job() -> None:
    open_job, private = parse(OPEN), parse(PRIVATE)
    assert open_job.privacy is None
    assert (open_job.job.rounds, open_job.algorithm.optimiser, open_job.algorithm.average) == (200, "exact", "none")
    assert (open_job.model.covariance, open_job.algorithm.until is not None) == ("auto", True)
    assert open_job.data.standardise == "exchange"
    assert (private.job.rounds, private.algorithm.optimiser, private.algorithm.average) == ("budget", "adagrad", "half")
    assert (private.algorithm.damping, private.algorithm.damping_form, private.algorithm.learning_rate) == (0.1, "moment", 0.5)
    assert (private.model.covariance, private.algorithm.until) == ("diagonal", None)
    for lengths in ({"job.rounds": 7}, {"algorithm.variant": "bcm-split"}):
        assert parse(changed(OPEN, lengths)).algorithm.until is None
    assert private.data.standardise == "public"
    assert private.privacy is not None
    assert (private.privacy.noise_source, private.privacy.sampling, private.privacy.accountant) == ("secure", "poisson", "pld")


def test_clients_that_work_at_once_share_a_step_unless_their_sites_are_exact() -> None:
    together = {"algorithm.schedule": "synchronous"}
    for changes, whole, damping in (
        ({}, False, 1.0),
        (together, False, 1 / 8),
        (together, True, 1.0),
        (together | {"algorithm.optimiser": "adam"}, True, 1 / 8),
        ({"algorithm.schedule": "asynchronous"}, True, 1.0),
        ({"algorithm.schedule": "asynchronous"}, False, 1 / 8),
        (together | {"algorithm.damping": 0.5}, True, 0.5),
    ):
        assert parse(changed(OPEN, changes)).algorithm.damping_of(8, whole=whole) == damping


def test_the_paper_preset_and_what_overrides_it() -> None:
    terms = {"privacy": {"epsilon": 1.0, "delta": 1e-4, "sampling_rate": 0.02}, "model": {"preset": "paper"}}
    paper = parse(OPEN | terms)
    assert paper.privacy is not None
    assert (paper.privacy.clip, paper.privacy.noise_multiplier, paper.privacy.accountant) == (1.5, 5.0, "rdp")
    assert (paper.algorithm.schedule, paper.algorithm.average, paper.algorithm.local_steps, paper.job.rounds) == (
        "random",
        "none",
        25,
        1000,
    )
    own = parse(OPEN | changed(terms, {"privacy.clip": 3.0, "privacy.calibrate": True, "job.rounds": 50}))
    assert own.privacy is not None
    assert (own.privacy.clip, own.privacy.noise_multiplier, own.job.rounds) == (3.0, None, 50)


def test_terms_of_one_client() -> None:
    job = parse(changed(PRIVATE, {"privacy.clients.small": {"sampling_rate": 0.05, "delta": 1e-3}, "privacy.clip": 2.0}))
    assert job.privacy is not None
    small, other = job.privacy.of("small"), job.privacy.of("large")
    assert (small.sampling_rate, small.delta, small.clip, small.epsilon) == (0.05, 1e-3, 2.0, 1.0)
    assert (other.sampling_rate, other.delta) == (0.02, 1e-5)


def test_the_digest_is_of_the_meaning() -> None:
    first = parse(PRIVATE).digest
    assert parse(json.loads(json.dumps(PRIVATE))).digest == first
    assert parse(changed(PRIVATE, {"algorithm.damping": 0.1})).digest == first  # the default, written out
    assert parse(changed(PRIVATE, {"algorithm.damping": 0.2})).digest != first
    unlimited = changed(PRIVATE, {"privacy.epsilon": float("inf"), "job.rounds": 5})
    assert '"epsilon":"inf"' in parse(unlimited).canonical


def test_set_overrides() -> None:
    sets = ["job.rounds=7", "privacy.epsilon = 0.5", "privacy.clients.a.clip=1", "data.response=wage", 'data.names=["a", "b"]']
    job = parse(PRIVATE, sets=sets)
    assert job.privacy is not None
    assert (job.job.rounds, job.privacy.epsilon, job.privacy.of("a").clip) == (7, 0.5, 1.0)
    assert (job.data.response, job.data.names) == ("wage", ["a", "b"])
    assert PRIVATE["privacy"]["epsilon"] == 1.0


COMPOSED, APART = (unicodedata.normalize(form, "h\u00e9") for form in ("NFC", "NFD"))


@pytest.mark.parametrize("by", ["a file", "tables", "--set"])
def test_texts_have_one_way_to_write_a_letter_and_paths_stay_as_they_are(tmp_path: Path, by: str) -> None:
    given = {
        "data.response": APART,
        "data.ignore": [APART],
        "data.columns.test.levels": [APART],  # a column may have the name of a key
        f"data.columns.{APART}.reference": APART,
        "data.test": APART,
        "data.clients": [APART],
        "data.names": [APART],
        "output.client_folder": APART,
        "data.dialect.missing": [APART],
    }
    if by == "--set":
        job = parse({}, sets=[f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in given.items()])
    elif by == "tables":
        job, _ = load(changed({}, given))
    else:
        lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in given.items() if APART not in name]
        (tmp_path / "job.toml").write_text("".join(lines) + f'data.columns."{APART}".reference = "{APART}"\n', encoding="utf-8")
        job, _ = load(tmp_path / "job.toml")
    data = job.model_dump()["data"]
    assert (data["response"], data["ignore"], data["dialect"]["missing"]) == (COMPOSED, [COMPOSED], [COMPOSED])
    assert data["columns"]["test"]["levels"] == [COMPOSED]
    assert data["columns"][COMPOSED]["reference"] == COMPOSED
    assert (data["test"], data["clients"], data["names"]) == (APART, [APART], [APART])
    assert job.model_dump()["output"]["client_folder"] == APART


def test_the_keys_of_paths_and_of_clients_names() -> None:
    """A new key that names a file must say so."""
    common = {"data.clients", "data.names", "output.client_folder"}
    own = {
        "likelihood": {"data.test", "job.extends"},
        "pvi": {"data.test", "algorithm.client_weights", "privacy.clients"},
        "sparse": {"data.test"},
        "vertical": {"data.server", "model.priors"},
        "sigma": {"data.polygons", "model.prior"},
        "describe": set(),
    }
    assert {name: set(marked_keys(load_method(name).keys.Config, "path")) for name in METHODS} == {
        n: common | own[n] for n in METHODS
    }
    assert set(marked_keys(PriorConfig, "path")) == {"data.areas", "data.adjacency", "data.polygons"}
    assert set(marked_keys(SiteFile, "path")) == {"client", "path", "policy", "signing_key"}


def test_two_keys_that_are_one() -> None:
    with pytest.raises(JobError, match=r"^job: two of the keys .* are one but for blanks or .* written; leave one of them out"):
        parse({"data": {"columns": {COMPOSED: {}, APART: {}}}})


@pytest.mark.parametrize("text", ["rounds=3", "job.rounds", "=3", "job.=3", "job.seed.x=1"])
def test_a_malformed_override(text: str) -> None:
    with refusal(JobError, "--set"):
        parse(changed(OPEN, {"job.seed": 1}), sets=[text])


def test_files_that_are_no_job(tmp_path: Any) -> None:
    with refusal(JobError, "nothing.toml"):
        load(tmp_path / "nothing.toml")
    (tmp_path / "bad.toml").write_text("[job\n")
    with refusal(JobError, "bad.toml"):
        load(tmp_path / "bad.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with refusal(JobError, "binary.toml", "8"):
        load(tmp_path / "binary.toml")


def test_every_key_says_what_it_is() -> None:
    sections = [(f"{method}: {path}", section) for method in METHODS for path, section in tables(load_method(method).keys.Config)]
    keys = [(path, name, field) for path, section in sections for name, field in section.model_fields.items()]
    assert len(keys) > 60
    for path, name, field in keys:
        assert field.description, f"{path}.{name}"


def test_a_clip_on_clients_keeps_its_range() -> None:
    by_client = parse(changed(PRIVATE, {"privacy.unit": "client", "privacy.sampling_rate": None, "privacy.clip": 1e-10}))
    assert isinstance(by_client, Config)
    assert by_client.privacy is not None
    assert by_client.privacy.clip == 1e-10
    assert parse(changed(PRIVATE, {"privacy.clip": 1e-3}))


def test_a_file_with_a_byte_order_mark_is_read_and_others_are_named(tmp_path: Path) -> None:
    text = '[data]\nclients = ["a.csv"]\nresponse = "y"\n'
    path = tmp_path / "job.toml"
    path.write_text(text, "utf-8-sig")
    assert load(path)[0].data.clients == ["a.csv"]
    path.write_text(text, "utf-16")
    with pytest.raises(JobError, match="is no UTF-8 text"):
        load(path)
    for content in ("x = " + "9" * 5000, "x = " + "[" * 5000):
        path.write_text(content)
        with pytest.raises(JobError, match="is no TOML"):
            load(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(JobError, match="is a pipe or a device"):
        load(path)


def test_names_are_compared_in_one_way_of_writing_and_paths_are_not() -> None:
    two = "o\u0308"
    found = load({"data": {"clients": [f"{two}.csv"], "response": two, "columns": {f"{two}x": {"levels": [two, "b"]}}}})[0]
    assert (found.data.clients, found.data.response) == ([f"{two}.csv"], "\u00f6")
    assert found.data.columns["\u00f6x"].levels == ["\u00f6", "b"]


@pytest.mark.parametrize("text", ["job.rounds=1\njob.seed=2", "job.rounds=1\rjob.seed=2", "job.seed=\n2"])
def test_a_line_break_in_an_override_is_refused(text: str) -> None:
    with refusal(JobError, "--set"):
        parse(OPEN, sets=[text])
