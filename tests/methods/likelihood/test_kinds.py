"""Each kind of rows has a model and steps, chosen by the job file alone."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import pytest

from fedkern.kernels.families import OfLikelihood
from fedkern.methods import likelihood
from fedkern.methods.likelihood.keys import Config, ModelSection, RowKind
from fedkern.methods.likelihood.kinds import STEPS, steps_of
from fedkern.methods.likelihood.models import MODELS

OTHERS = {
    "ordinal": "ordered",
    "multinomial": "nominal",
    "cox": "cox",
    "weibull": "lifetimes",
    "exponential": "lifetimes",
    "piecewise": "lifetimes",
}
PAGES = ("run", "publish", "regression")  # which serve every kind, and so ask for none


def job(**model: str) -> Config:
    return Config.model_construct(model=ModelSection.model_construct(**model))


def test_every_kind_has_steps_and_all_but_own_models_have_a_model_of_ours() -> None:
    assert set(STEPS) == set(get_args(RowKind))
    assert set(MODELS) == set(STEPS) - {"own"}


@pytest.mark.parametrize("family", get_args(OfLikelihood))
def test_the_family_says_the_kind(family: str) -> None:
    kind = OTHERS.get(family, "responses")
    assert job(kind="regression", family=family).row_kind == kind
    assert steps_of(job(kind="regression", family=family)) is STEPS[kind]  # type: ignore[index]  # a text of OTHERS


def test_an_own_model_has_its_own_whatever_the_family() -> None:
    assert job(kind="own", family="cox").row_kind == "own"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_for_all_kinds_asks_for_none(page: str) -> None:
    asked = {"hazards", "lifetimes", "leveled", "nominal", "own", "isinstance"}
    tree = ast.parse((Path(likelihood.__path__[0]) / f"{page}.py").read_text("utf-8"))
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert not asked & (attributes | called)
