"""The number that a choice has in a record is the number that C++ and CUDA, which share their headers, know it by."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from fedkern.kernels import _layers, families, glm, mixed, mlp, sem
from fedkern.kernels.shrinkage import local
from fedkern.kernels.spatial import gp, graph

HEADERS = Path(__file__).parents[2] / "csrc" / "include" / "fedkern"
CHOICES: dict[str, Iterable[str]] = {  # header, enum -> names in the order of their numbers
    # A family of 0 and 1 is binomial with one trial.
    "mixed/views.hpp MixedFamily": [name.removeprefix("binomial-") for name in mixed.CODES if not name.startswith("bernoulli")],
    "glm/views.hpp ElboEstimator": glm.ELBO_ESTIMATORS,
    "mlp/views.hpp Activation": mlp.ACTIVATIONS,
    "mlp/vae_views.hpp Variant": _layers.VARIANTS,
    "sem/views.hpp SemUpdate": sem.UPDATES,
    "shrinkage/views.hpp DrawForm": local.FORMS,
    "spatial/views.hpp CarForm": graph.FORMS,
    "spatial/views.hpp GpKind": gp.GP_KINDS,
}


def enumerated(header: str, enum: str) -> list[str]:
    """The names of an enum, as records have them."""
    (body,) = re.findall(rf"enum class {enum}\b[^{{]*{{(.*?)}}", (HEADERS / header).read_text(), re.S)
    body = re.sub(r"\w+ // how many there are", "", body)
    names = re.findall(r"\w+", re.sub(r"//.*", "", body))
    return [{"automatic": "auto"}.get(name, name.replace("_", "-")) for name in names]


@pytest.mark.parametrize("place", CHOICES)
def test_a_choice_has_one_number_in_all_languages(place: str) -> None:
    assert enumerated(*place.split()) == [*CHOICES[place]]


def test_a_family_has_one_number_in_all_languages() -> None:
    text = (HEADERS / "glm" / "scalar.hpp").read_text()
    cases = {int(code): name for code, name in re.findall(r"case (\d): return work\((\w+?)(?:{})?\);", text)}
    known = {code: re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower().replace("_", "-") for code, name in cases.items()}
    assert known == {code: name for name, code in families.CODES.items()}
    assert [code for name, code in mixed.CODES.items() if not name.startswith("bernoulli")] == [
        *range(len({*mixed.CODES.values()}))
    ]
    assert all(mixed.CODES[name] == mixed.CODES[f"binomial{name[9:]}"] for name in mixed.CODES if name.startswith("bernoulli"))
    assert all([*codes.values()] == [*range(len(codes))] for codes in (mlp.ACTIVATIONS, gp.GP_KINDS, graph.FORMS, local.FORMS))
