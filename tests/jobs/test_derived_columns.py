"""What a formula makes of columns is 0 in many rows by itself: no code is looked for there, but in the columns of the files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.algorithms.exchanges.compare import Facts, compare
from fedkern.models.encoding import Column
from support.found import said

pytest.importorskip("formulaic")
FORMULAS = (  # two of them those of docs/how-to/formula.md and docs/methods/likelihood.md
    "died ~ age * sex",
    "died ~ age * sex + cs(bmi, df = 4) + (1 + age | ward)",
    "died ~ bs(age, df = 5) + sex:bmi",
    "died ~ scale(age) * sex + I(bmi**2)",
)


def sites(seed: int, sizes: tuple[int, ...] = (500, 400, 400)) -> dict[str, Any]:
    pd = pytest.importorskip("pandas")
    found = {}
    for k, n in enumerate(sizes):
        random = np.random.default_rng([seed, k])
        age, bmi, sex = random.normal(60, 12, n).round(2), random.normal(26, 4, n).round(2), random.choice(["m", "w"], n)
        died = random.random(n) < 1 / (1 + np.exp(0.5 - 0.05 * (age - 60) - 0.5 * (sex == "m")))
        ward = random.choice([f"w{i}" for i in range(8)], n)
        found["abcd"[k]] = pd.DataFrame({"age": age, "sex": sex, "bmi": bmi, "ward": ward, "died": died.astype(int)})
    return found


def ran(formula: str, clients: dict[str, Any], method: str = "likelihood") -> Any:
    model = {"formula": formula, "family": "bernoulli"}
    return fedkern.run({"job": {"method": method}, "model": model}, data=clients)


@pytest.mark.parametrize("formula", FORMULAS)
def test_products_and_bases_are_taken_for_no_code(formula: str) -> None:
    said = ran(formula, sites(1)).summary
    assert said["converged"] is True, said["verdict"]


def test_a_code_in_a_column_that_a_formula_reads_is_found_under_the_files_name() -> None:
    clients = sites(1)
    clients["b"].loc[::5, "age"] = 0.0
    for formula in ("died ~ age * sex", "died ~ scale(age) + sex"):
        (values,) = said(ran(formula, clients), "column-with-far-cells")
        assert (values["column"], values["clients"]) == ("age", ["b"])


def test_the_server_compares_no_products() -> None:
    """A client almost all of whose rows are women, beside one that has none."""
    sizes, names = np.array([200.0, 300.0]), (Column("age"), Column("age:sex[T.w]"))
    means, sds = np.array([[60.0, 57.0], [60.0, 0.0]]), np.array([[12.0, 14.0], [12.0, 0.0]])
    centre = (sizes @ means) / sizes.sum()
    sums, squares = sizes[:, None] * (means - centre), sizes[:, None] * (sds**2 + (means - centre) ** 2)

    def said(*derived: str) -> str:
        return "\n".join(map(str, compare(Facts(("a", "b"), names, sizes, centre, sums, squares, frozenset(derived)))))

    assert "column 'age:sex[T.w]' has one value at b" in said()
    assert "column" not in said("age:sex[T.w]")
