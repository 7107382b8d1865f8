"""A client with few rows alike reads the data.least_rows that would do for its file, and a number below the wanted one."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.data.rare import Rare
from fedkern.data.table import Table
from fedkern.errors import JobError
from fedkern.jobs.alike import BY_FIT, _words
from fedkern.models.encoding import Spec


def sites(n: int, rare: int) -> dict[str, Any]:
    pd, found = pytest.importorskip("pandas"), {}
    for k, name in enumerate("ab"):
        random = np.random.default_rng(k)
        sex = (np.arange(n) < (rare if name == "b" else n // 2)).astype(float)
        age = random.normal(60, 12, n).round(2)
        found[name] = pd.DataFrame({"age": age, "sex": sex, "died": (random.random(n) < 0.4).astype(int)})
    return found


def ran(clients: dict[str, Any], least: int | None) -> Any:
    data = {"response": "died", **({} if least is None else {"least_rows": least})}
    algorithm = {"points": 256, "effective": 50}
    return fedkern.run({"job": {"method": "likelihood"}, "data": data, "algorithm": algorithm}, data=clients)


def test_the_named_value_does() -> None:
    clients = sites(120, 6)
    with pytest.raises(JobError, match=r"lower data.least_rows to \d+") as refused:
        ran(clients, None)
    said = str(refused.value)
    assert 'go on without this client (data.small = "leave-out")' in said
    (value,) = re.findall(r"lower data.least_rows to (\d+)", said)
    assert ran(clients, int(value)).summary["converged"] is not None
    numbers = re.search(r"that (\d+) rows", said)
    wanted = re.search(r"lack; (\d+) are asked for", said)
    assert numbers
    assert wanted
    assert int(numbers[1]) < int(wanted[1])


def test_a_number_that_is_rounded_up_to_the_wanted_one_is_said_otherwise() -> None:
    table = Table("b.csv", ("sex", "y"), {"sex": np.zeros(3), "y": np.zeros(3)}, 3)
    _, own = _words((Rare(("sex",), 2),), table, Spec("y"), 2, (), BY_FIT)
    assert "has a value that fewer than 2 rows, as the fit lets them weigh, have and all others lack; 2 are asked for" in own
