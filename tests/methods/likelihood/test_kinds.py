"""Each kind of rows has a model and steps, chosen by the job file alone."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import pytest

from fedkern.kernels.families import ACCELERATED, OfLikelihood
from fedkern.methods import likelihood
from fedkern.methods.likelihood.keys import Config, DataSection, JobSection, ModelSection, RowKind
from fedkern.methods.likelihood.kinds import STEPS, steps_of
from fedkern.methods.likelihood.models import MODELS, model_of
from fedkern.models.encoding import Column, Encoding

OTHERS = {
    "ordinal": "ordered",
    "multinomial": "nominal",
    "cox": "cox",
    "weibull": "lifetimes",
    "exponential": "lifetimes",
    **dict.fromkeys(("piecewise", *ACCELERATED), "lifetimes"),
}
PAGES = ("run", "publish", "regression")  # which serve every kind, and so ask for none


def job(**model: object) -> Config:
    data = DataSection.model_construct(levels=["none", "mild", "severe"])
    return Config.model_construct(job=JobSection.model_construct(), data=data, model=ModelSection.model_construct(**model))


def test_every_kind_has_steps_and_all_but_own_models_have_a_model_of_ours() -> None:
    assert set(STEPS) == set(get_args(RowKind))
    assert set(MODELS) == set(STEPS) - {"own"}


@pytest.mark.parametrize("family", get_args(OfLikelihood))
def test_the_family_says_the_kind(family: str) -> None:
    kind = OTHERS.get(family, "responses")
    assert job(kind="regression", family=family).row_kind == kind
    steps = steps_of(job(kind="regression", family=family))
    assert steps.exchange_checks is STEPS[kind]().exchange_checks  # type: ignore[index]  # a text of OTHERS


def test_an_own_model_has_its_own_whatever_the_family() -> None:
    assert job(kind="own", family="cox").row_kind == "own"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_for_all_kinds_asks_for_none(page: str) -> None:
    asked = {"hazards", "lifetimes", "leveled", "nominal", "own", "isinstance"}
    tree = ast.parse((Path(likelihood.__path__[0]) / f"{page}.py").read_text("utf-8"))
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert not asked & (attributes | called)


BLOCKS = ("mild:intercept", "mild:age", "severe:intercept", "severe:age")


@pytest.mark.parametrize(
    ("family", "intercept", "names", "unknowns", "first"),
    [
        ("bernoulli", True, ("intercept", "age"), ("intercept", "age"), True),
        ("cox", False, ("age",), ("age",), False),
        ("ordinal", False, ("intercept", "age"), ("threshold[none|mild]", "age"), True),
        ("multinomial", True, BLOCKS, BLOCKS, False),
    ],
)
def test_clients_are_compared_in_the_coefficients_of_the_kind(
    family: str, intercept: bool, names: tuple[str, ...], unknowns: tuple[str, ...], first: bool
) -> None:
    """`unknowns`: where these stand in xi; `first`: whether the first is an intercept, of which each client may have its own."""
    encoding = Encoding((Column("age", center=0.0, scale=1.0),), "pain", intercept=intercept)
    model = model_of(job(kind="regression", family=family, intercept=intercept), ("a", "b"), encoding)
    compared, places, is_intercept = model.compared
    assert (compared, is_intercept) == (names, first)
    assert tuple(model.layout.names[k] for k in places) == unknowns
