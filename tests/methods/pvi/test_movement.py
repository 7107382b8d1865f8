"""A verdict that rests on q's movement: a failure names the reasons that are not fulfilled, and no others."""

import numpy as np
import pytest

import fedkern

X = np.linspace(-1, 1, 400)
PRIVATE = {"epsilon": 50.0, "delta": 1e-5, "clip": 2.5, "noise_multiplier": 1.0, "sampling_rate": 0.2}


def rows(shift):
    columns = np.column_stack([X, np.sin(7 * X + shift)])
    return columns, (columns @ [2.0, -1.0] + 0.3 * np.cos(31 * X + shift) > 0).astype(float)


@pytest.mark.parametrize(("rounds", "steps", "damping"), [(2, 3, 0.1), (3, 20, 0.9), (12, 5, 0.5), (30, 1, 0.02)])
def test_a_failure_names_the_reasons_that_are_not_fulfilled(rounds, steps, damping):
    job = {
        "job": {"method": "pvi", "rounds": rounds},
        "model": {"family": "bernoulli"},
        "data": {
            "columns": {"x1": {"center": 0, "scale": 0.6}, "x2": {"center": 0, "scale": 0.7}, "y": {"levels": ["0.0", "1.0"]}}
        },
        "algorithm": {"local_steps": steps, "damping": damping},
        "privacy": PRIVATE,
    }
    result = fedkern.run(job, data={"a": rows(0), "b": rows(1)})
    fulfilled = {}
    for check in result.summary["checks"]:
        is_, wanted = (check["values"].get(name) for name in ("moved", "wanted"))
        fulfilled[check["id"]] = is_ <= wanted if is_ is not None else check["values"]["gone"] >= wanted
        assert (check["is"] is not False) is fulfilled[check["id"]]
    assert {*fulfilled} == {"q-moved", "sd-of-q-moved", "updates-have-gone"}
    assert result.converged == ("settled" if all(fulfilled.values()) else False)
